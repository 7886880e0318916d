"""``/v1/rerank`` in the shape Cohere and Jina share, ``/v2/rerank`` in Cohere's newer one.

Scored by a reranker where there is one, no tier is named and it wins; else by the pair. The reply says by whom.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.encoders.reranker import Reranker
from suwen.encoders.static import unit
from suwen.errors import SuwenError
from suwen.retrieve.retriever import Index
from suwen.service.answers import json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.embeddings_api import Usage
from suwen.service.keys import needs
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import ALIAS, Many, check_length, cleaned_aside, tier_of
from suwen.service.request_log import note
from suwen.service.served_index import served_of
from suwen.text.clean import clean

log = logging.getLogger("suwen.service")
#: Digits of a score. Documents are ordered by what is left after rounding: equal texts must keep their order, and a
#: matrix product may give equal rows scores that differ in the last bit.
_DIGITS = 6
#: What any of the rerank endpoints may be answered with.
PROBLEMS = ("unknown_model", "empty_query", "too_many", "text_too_long")


class RerankDocument(BaseModel):
    """A document with its text in a field; other fields are passed through."""

    model_config = ConfigDict(extra="allow")

    text: str


class RerankRequest(BaseModel):
    """A query and documents to order by it. Fields of other services that mean nothing here are ignored."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "suwen",
                    "query": "肾结石要多喝水吗",
                    "documents": ["布洛芬饭后服用可减轻胃部不适。", {"text": "肾结石患者每天应饮水两升以上。"}],
                    "top_n": 1,
                    "return_documents": True,
                }
            ]
        }
    )

    model: str = Field(default=ALIAS, description="A tier; `suwen` or the pair's name for the server's best.")
    query: str
    instruction: str | None = Field(
        default=None, description="For the query, where the pair's prompt has a place for one."
    )
    documents: Many[str | RerankDocument] = Field(description="Texts, or objects with a `text`.")
    top_n: Annotated[int, Field(ge=1)] | None = Field(default=None, description="The most results; all by default.")
    return_documents: bool = Field(default=False, description="Give each document back with its score.")


class RerankResult(BaseModel):
    """One document's place."""

    index: int = Field(description="Its place in the request.")
    relevance_score: float
    document: dict[str, Any] | None = None


class RerankMeta(BaseModel):
    """How the scores were made."""

    scored_by: str
    similarity: str
    pair: str
    tier: str
    space: str


class RerankReply(BaseModel):
    """The documents, best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: Usage
    meta: RerankMeta


class RerankV2Request(BaseModel):
    """The same by Cohere's second version: texts alone, and no way to have them back."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "suwen",
                    "query": "肾结石要多喝水吗",
                    "documents": ["布洛芬饭后服用可减轻胃部不适。", "肾结石患者每天应饮水两升以上。"],
                    "top_n": 1,
                }
            ]
        }
    )

    model: str = Field(default=ALIAS, description="A tier; `suwen` or the pair's name for the server's best.")
    query: str
    documents: Many[str]
    top_n: Annotated[int, Field(ge=1)] | None = Field(default=None, description="The most results; all by default.")


class RerankV2Result(BaseModel):
    """One document's place."""

    index: int = Field(description="Its place in the request.")
    relevance_score: float


class RerankV2Reply(BaseModel):
    """The documents, best first."""

    id: str
    results: list[RerankV2Result]
    meta: dict[str, Any] = Field(description="Cohere's `api_version` and `billed_units`, and how scores were made.")


class Scored(NamedTuple):
    """Documents in their order: scores by place, what it took, and the reranker that made them, if one did."""

    scores: list[float]
    tokens: int
    tier: str
    pair: Pair
    reranker: Reranker | None = None


def routes() -> APIRouter:
    """The rerank endpoints."""
    router = APIRouter(tags=["rerank"], dependencies=[Depends(needs("read"))], route_class=DirectRoute)
    _add_v1(router)
    _add_v2(router)
    return router


def _add_v1(router: APIRouter) -> None:
    @router.post(
        "/v1/rerank",
        summary="Order documents by a query",
        response_model=RerankReply,
        response_model_exclude_none=True,
        responses=documented(*PROBLEMS, "no_instruction"),
    )
    async def rerank(asked: RerankRequest, request: Request) -> Response:
        """Order documents by a query: by a reranker where there is one, else by the cosine of the pair's vectors."""
        texts = [document if isinstance(document, str) else document.text for document in asked.documents]
        scored = await score(request, asked.query, texts, "documents", asked.model, asked.instruction)
        about = {
            "id": str(uuid.uuid4()),
            "model": scored.reranker.name if scored.reranker else scored.tier,
            "usage": {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens},
            "meta": meta(scored),
        }
        # Documents that are given back may hold thousands of values.
        return await asyncio.to_thread(_answer, asked, about, ordered(scored.scores, asked.top_n))


def _add_v2(router: APIRouter) -> None:
    @router.post(
        "/v2/rerank",
        summary="Order documents by a query (Cohere's v2)",
        response_model=RerankV2Reply,
        responses=documented(*PROBLEMS),
    )
    async def rerank_v2(asked: RerankV2Request, request: Request) -> Response:
        """As /v1/rerank, in the shape of Cohere's second version."""
        scored = await score(request, asked.query, asked.documents, "documents", asked.model)
        best = [{"index": index, "relevance_score": value} for index, value in ordered(scored.scores, asked.top_n)]
        about = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
        told = about | meta(scored)
        return json_answer({"id": str(uuid.uuid4()), "results": best, "meta": told})


async def score(
    request: Request, query: str, texts: Sequence[str], param: str, model: str = ALIAS, instruction: str | None = None
) -> Scored:
    """How well each text answers a query, whatever shape it was asked in.

    A reranker scores where there is one, unless a tier is named, an instruction is given, or it loses to the pair.

    Args:
        request: Whose index names the pair, and which gets a note.
        query: What they are held against.
        texts: The texts.
        param: The field they came in.
        model: Who encodes both.
        instruction: For the query.
    """
    served = served_of(request)
    pair, settings = served.holder.index.pair, served.holder.settings
    tier = tier_of(pair, model)
    if not any(character.isalnum() for character in query):
        raise Problem("empty_query", "the query holds no letter or digit: type a word or a question", param="query")
    check_length(query, settings.query_characters, "query")
    check_length(instruction or "", settings.query_characters, "instruction")
    cleaned = await cleaned_aside(texts, param, settings.rerank_documents, settings.text_characters)
    reranker = None if instruction or model not in (ALIAS, pair.name) else find_reranker(served.holder.index)
    if reranker is not None and not reranker.loses(query):
        scores, tokens = await served.encoding.read_together(reranker, clean(query), cleaned)
        note(request, texts=len(texts), tokens=tokens, tier=reranker.name)
        return Scored([round(1 / (1 + math.exp(-one)), _DIGITS) for one in scores], tokens, tier, pair, reranker)
    documents, tokens = await served.encoding.encode(cleaned, tier, "document")
    vector, query_tokens = await served.encoding.encode([clean(query)], tier, "query", instruction)
    tokens += query_tokens
    note(request, texts=len(texts), tokens=tokens, tier=tier)
    return Scored(similarities(vector[0], documents, pair.space.similarity), tokens, tier, pair)


def _answer(asked: RerankRequest, about: dict[str, Any], best: list[tuple[int, float]]) -> Response:
    return json_answer({**about, "results": [result(asked, index, score) for index, score in best]})


def similarities(query: Vectors, documents: Vectors, similarity: str) -> list[float]:
    """The score of each document, as its space measures nearness."""
    if similarity == "cosine":
        query, documents = unit(query[None])[0], unit(documents)
    scores: list[float] = np.round((documents @ query).astype(np.float64), _DIGITS).tolist()
    return scores


def ordered(scores: list[float], most: int | None) -> list[tuple[int, float]]:
    """Places and scores, best first; equal ones in the order they came."""
    return sorted(enumerate(scores), key=lambda item: -item[1])[:most]


def result(asked: RerankRequest, index: int, score: float) -> dict[str, Any]:
    """One line of the reply."""
    line: dict[str, Any] = {"index": index, "relevance_score": score}
    if asked.return_documents:
        document = asked.documents[index]
        line["document"] = {"text": document} if isinstance(document, str) else document.model_dump()
    return line


def meta(scored: Scored) -> dict[str, str]:
    """How the scores were made: by a reranker that read both texts together, or by two vectors."""
    pair, tier, reranker = scored.pair, scored.tier, scored.reranker
    similarity = pair.space.similarity
    by = f"pair: {similarity} between query form and document form of tier {tier}; no cross-encoder"
    if reranker is not None:
        by = f"cross-encoder: {reranker.name}, {reranker.manifest.layers} layers; comparable within one query"
    return {"scored_by": by, "similarity": similarity, "pair": pair.name, "tier": tier, "space": pair.space.id}


def find_reranker(index: Index) -> Reranker | None:
    """The reranker of a served index; one that cannot be used is told in the log, and is none."""
    try:
        return index.reranker
    except SuwenError as problem:
        log.warning("the reranker cannot be used: %s", problem)
        return None
