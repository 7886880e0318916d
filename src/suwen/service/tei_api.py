"""``/rerank`` and ``/embed`` as clients of Hugging Face's text-embeddings-inference speak them. Errors are our own.

Texts are cut where a tier's length ends, as that server does with ``--auto-truncate``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.responses import Response

from suwen.encoders.prompts import Form
from suwen.encoders.static import unit
from suwen.service.answers import json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.embeddings_api import cut, width_of, written
from suwen.service.keys import needs
from suwen.service.problems import documented
from suwen.service.request_checks import Many, cleaned_aside
from suwen.service.request_log import note
from suwen.service.rerank_api import PROBLEMS, ordered, score
from suwen.service.served_index import served_of

#: What a prompt's name says of the side its texts stand on.
_FORMS: dict[str | None, Form] = {None: "document", "document": "document", "passage": "document", "query": "query"}


class TeiEmbedRequest(BaseModel):
    """Texts to encode. Fields that mean nothing here, such as ``truncation_direction``, are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"inputs": ["肾结石患者每天应饮水两升以上。"], "normalize": True}]}
    )

    inputs: str | list[str] = Field(description="One text or several.")
    normalize: bool = Field(default=True, description="Give every vector the length 1, which most spaces do anyway.")
    prompt_name: Literal["query", "document", "passage"] | None = Field(
        default=None, description="The side of the pair the texts stand on; documents by default."
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Cut the vectors to so many dimensions; only in a Matryoshka space."
    )
    truncate: bool | None = Field(default=None, description="Texts are always cut at the tier's length.")

    @field_validator("inputs", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            # pydantic would tell every one of them.
            raise ValueError("one of the texts is none: send a text, or a list of texts, and no token numbers")
        return value


class TeiRerankRequest(BaseModel):
    """A query and texts to order by it. Fields that mean nothing here are ignored."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "肾结石要多喝水吗", "texts": ["布洛芬饭后服用。", "肾结石患者应多饮水。"]}]
        }
    )

    query: str
    texts: Many[str]
    raw_scores: bool = Field(
        default=False, description="The similarity itself; else it is brought between 0 and 1, in the same order."
    )
    return_text: bool = Field(default=False, description="Give each text back with its score.")
    truncate: bool | None = Field(default=None, description="Texts are always cut at the tier's length.")


class TeiRank(BaseModel):
    """One text's place."""

    index: int = Field(description="Its place in the request.")
    score: float
    text: str | None = None


def routes() -> APIRouter:
    """The endpoints of text-embeddings-inference's protocol."""
    router = APIRouter(
        tags=["text-embeddings-inference"], dependencies=[Depends(needs("read"))], route_class=DirectRoute
    )
    _add_embed(router)
    _add_rerank(router)
    return router


def _add_embed(router: APIRouter) -> None:
    @router.post(
        "/embed",
        summary="Vectors of texts (TEI)",
        response_model=list[list[float]],
        responses=documented("too_many", "text_too_long"),
    )
    async def embed(asked: TeiEmbedRequest, request: Request) -> Response:
        """Encode texts by the pair's default tier, in the shape of text-embeddings-inference."""
        served = served_of(request)
        pair, settings = served.holder.index.pair, served.holder.settings
        width, tier = width_of(pair, asked.dimensions), pair.default_tier
        texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
        texts = await cleaned_aside(texts, "inputs", settings.embedding_inputs, settings.text_characters)
        form = _FORMS[asked.prompt_name]
        vectors, tokens = await served.encoding.encode(texts, tier, form)
        note(request, texts=len(texts), tokens=tokens, tier=tier, input_type=form)
        vectors = cut(vectors, width)
        return json_answer(written(unit(vectors) if asked.normalize else vectors, "float"))


def _add_rerank(router: APIRouter) -> None:
    @router.post(
        "/rerank",
        summary="Order texts by a query (TEI)",
        response_model=list[TeiRank],
        response_model_exclude_none=True,
        responses=documented(*PROBLEMS),
    )
    async def rerank(asked: TeiRerankRequest, request: Request) -> Response:
        """Order texts by how near the pair puts each to the query, in the shape of text-embeddings-inference."""
        scored = await score(request, asked.query, asked.texts, "texts")
        best = ordered(scored.scores, None)
        similarity = scored.pair.space.similarity
        return json_answer(
            [
                {"index": index, "score": value if asked.raw_scores else between(value, similarity)}
                | ({"text": asked.texts[index]} if asked.return_text else {})
                for index, value in best
            ]
        )


def between(score: float, similarity: str) -> float:
    """A score between 0 and 1: half of one plus the cosine, or the sigmoid of an inner product.

    >>> between(0.5, "cosine"), between(0.0, "dot")
    (0.75, 0.5)
    """
    if similarity == "cosine":
        return round((1 + score) / 2, 6)
    return float(np.round(1 / (1 + np.exp(-np.clip(score, -60, 60))), 6))
