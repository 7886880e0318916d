"""Answers: how they are written, and their shapes, for the API's description alone: nothing is validated again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from suwen import __version__
from suwen.encoders.who_encodes import State
from suwen.retrieve.results import Explanation, Facet, Highlight

_STATE = "`encoded` by the document encoder, or `fresh`: encoded by a tier, searchable, and waiting for it."


def json_answer(content: Any) -> Response:
    """A response of JSON, arrays and all, written by orjson and validated by nobody: it is our own."""
    return Response(written(content), media_type="application/json")


def written(content: Any) -> bytes:
    """An answer as JSON."""
    try:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Metadata may hold integers over 64 bits, which orjson does not write.
        return json.dumps(content, ensure_ascii=False, default=asdict).encode(errors="replace")


def answered(model: type[BaseModel], said: str, example: Any) -> dict[int | str, dict[str, Any]]:
    """The entry of a route's ``responses=`` for success."""
    return {200: {"model": model, "description": said, "content": {"application/json": {"example": example}}}}


class StatusAnswer(BaseModel):
    """Alive, or ready."""

    status: Literal["ok", "ready"]


class PassageShape(BaseModel):
    """A stretch of a document; offsets are into its text."""

    id: str
    start: int
    end: int
    encoder: str = Field(description="Who encoded the passage: `document` or a tier's name.")
    state: State = Field(description=_STATE)
    text: str


class HitShape(PassageShape):
    """One passage found."""

    document_id: str
    score: float
    confidence: float = Field(description="How likely the passage is to help, from 0 to 1.")
    same: list[str] = Field(description="Passages that say the same, which this hit stands for.")
    title: str
    metadata: dict[str, Any]
    highlights: list[Highlight]
    title_terms: list[tuple[int, int]] = Field(description="Stretches of the title that match, with `highlights`.")
    explanation: Explanation | None


class SearchAnswer(BaseModel):
    """The hits of a query, best first."""

    query: str
    hits: list[HitShape]
    mode: Literal["hybrid", "dense", "lexical"]
    tier: str | None
    relevant: bool = Field(description="False when nothing in the index seems to answer: the hits are the nearest.")
    evidence: dict[str, float]
    timings: dict[str, float] = Field(
        description="Milliseconds: `encode`, `search`, `total`; with `hyde`, `write`; with `rerank`, `rerank`."
    )
    notes: list[str]
    facets: dict[str, Facet] = Field(description="By field asked for, its values among the documents of the best hits.")
    also_searched: list[str] = Field(description="Other names and corrected words that were searched for too.")
    index: str
    request_id: str


class StoredShape(BaseModel):
    """A document as it is now."""

    id: str
    version: str
    state: State = Field(description=_STATE)
    passages: int


class PostAnswer(BaseModel):
    """What became of the documents."""

    added: int
    changed: int
    unchanged: int
    passages: int = Field(description="Passages stored by this request.")
    documents: list[StoredShape]


class DocumentAnswer(BaseModel):
    """A document with its passages; white space between two passages comes back as spaces."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]
    version: str
    state: State = Field(description=_STATE)
    passages: list[PassageShape]


class IdsAnswer(BaseModel):
    """A page of ids."""

    ids: list[str]
    next: str | None = Field(description="The `after` of the next page; null on the last.")


class DeletedAnswer(BaseModel):
    """How many documents were there, and are gone."""

    deleted: int


class RecallAnswer(BaseModel):
    """The share of the exact top k that the index finds."""

    recall: float
    k: int
    queries: int


class InfoAnswer(BaseModel):
    """What is served."""

    name: str
    version: str
    index: dict[str, Any]
    space: dict[str, Any]
    pair: dict[str, Any]
    modes: list[str]
    freshness: dict[str, Any]
    limits: dict[str, float]
    read_only: bool
    reviews: bool
    hyde: bool = Field(description="Whether a search may ask for hypothetical documents.")
    originals: bool = Field(description="Whether the files that books were read from can be opened.")
    notices: list[str] = Field(description="What is to be put right, though searches go on; each with its fix.")
    role: str | None = Field(description="The role of the key that asks; null where the server needs none.")


class ExamplesAnswer(BaseModel):
    """Things to ask, drawn from the documents."""

    examples: list[str]


SEARCHED = {
    "query": "肾结石怎么判断酸性还是碱性",
    "hits": [
        {
            "id": "note-7#0",
            "document_id": "note-7",
            "score": 0.731,
            "confidence": 0.86,
            "same": [],
            "title": "肾结石",
            "text": "尿液pH值可以提示结石成分。",
            "start": 0,
            "end": 13,
            "metadata": {"department": "泌尿外科"},
            "highlights": [],
            "title_terms": [],
            "explanation": None,
            "encoder": "document",
            "state": "encoded",
        }
    ],
    "mode": "hybrid",
    "tier": "l6",
    "relevant": True,
    "evidence": {"dense": 3.1, "lexical": 2.2},
    "timings": {"encode": 7.1, "search": 0.9, "total": 8.2},
    "notes": [],
    "facets": {"department": {"values": [{"value": "泌尿外科", "count": 12}], "more": 0, "missing": 1}},
    "also_searched": ["kidney stone"],
    "index": "notes",
    "request_id": "5d1c0f3e9a7b2468",
}
POSTED = {
    "added": 1,
    "changed": 0,
    "unchanged": 0,
    "passages": 1,
    "documents": [{"id": "note-7", "version": "72fb12bc70261db249c09f903db2e3aa", "state": "fresh", "passages": 1}],
}
DOCUMENT = {
    "id": "note-7",
    "title": "布洛芬",
    "text": "布洛芬不宜与阿司匹林同服。",
    "metadata": {"department": "药剂科", "year": 2024},
    "version": "72fb12bc70261db249c09f903db2e3aa",
    "state": "fresh",
    "passages": [
        {
            "id": "note-7#0",
            "start": 0,
            "end": 13,
            "encoder": "l6",
            "state": "fresh",
            "text": "布洛芬不宜与阿司匹林同服。",
        }
    ],
}
INFO = {
    "name": "suwen",
    "version": __version__,
    "index": {
        "name": "notes",
        "documents": 1200,
        "passages": 4100,
        "questions": 0,
        "deleted": 0,
        "bytes_truth": 9_000_000,
        "bytes_derived": 7_000_000,
        "fields": ["department", "year"],
        "encoders": {"document": 4000, "l6": 100},
        "format": 1,
    },
    "space": {"id": "sp-2df9e02e1ba0f35a350d", "dimension": 512},
    "pair": {
        "name": "suwen-care-mini",
        "tiers": ["l6", "static"],
        "take_instruction": [],
        "default_tier": "l6",
        "document": "adapter",
    },
    "modes": ["hybrid", "dense", "lexical"],
    "freshness": {"fresh_passages": 100, "waiting_documents": 12, "oldest_seconds": 4.2, "worker": "none", "leased": 0},
    "limits": {"concurrency": 32, "seconds": 30.0, "body_bytes": 16777216},
    "read_only": False,
    "reviews": False,
    "hyde": False,
    "originals": False,
    "notices": [],
    "role": "read",
}
