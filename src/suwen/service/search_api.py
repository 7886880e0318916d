"""``POST /search``: a query in, hits out. Ranking is the library's; this checks, calls and tells."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, NamedTuple

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from suwen.encoders.who_encodes import state
from suwen.errors import SuwenError
from suwen.retrieve.ranking import DEEPEST, Mode
from suwen.retrieve.retriever import Index
from suwen.retrieve.rewriting import Rewriter, Rewritten
from suwen.service.answers import SEARCHED, SearchAnswer, answered, written
from suwen.service.direct_route import DirectRoute
from suwen.service.filter_checks import Filter
from suwen.service.holder import Holder
from suwen.service.keys import needs
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import Asked, Many, check_index, check_length, check_tier
from suwen.service.request_log import note, request_id
from suwen.service.rerank_api import find_reranker
from suwen.service.served_index import holder_of
from suwen.service.shared import Shared

log = logging.getLogger("suwen.service")
#: A page down to here is short work; a longer one may keep others waiting.
_SHORT = 100
_EXAMPLES: list[Any] = [
    {"query": "肾结石怎么判断酸性还是碱性", "k": 5},
    {
        "query": "first-line drug for type 2 diabetes",
        "mode": "dense",
        "where": {"lang": ["en", "zh"], "year": {"gte": 2020}},
        "highlights": True,
        "explain": True,
    },
]


class Hyde(Asked):
    """Hypothetical documents to search with: the model of the server's `[hyde]` writes them."""

    n: int | None = Field(default=None, ge=1, le=16, description="How many; as the server says when left out.")
    budget_ms: int | None = Field(
        default=None, ge=1, le=60_000, description="Milliseconds after which the plain query is searched with."
    )


class Search(Asked):
    """A query and how to search for it."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    query: str = Field(description="What the user typed, in Chinese or English.")
    k: int = Field(default=10, ge=1, description="How many hits.")
    mode: Mode = Field(default="hybrid", description="Meaning (dense), words (lexical), or both.")
    tier: str | None = Field(default=None, description="The query encoder; see `pair.tiers` of /info.")
    instruction: str | None = Field(
        default=None, description="What is asked for, where the pair's query prompt has a place for an instruction."
    )
    where: Filter | None = Field(
        default=None,
        description='Metadata filter, as text (`year>=2020 AND NOT lang=zh|en`) or as an object: {"field": value}, '
        '{"field": [a, b]}, {"field": {"gte": 2020, "ne": 2022}}, {"field": null}, {"$or": [filter, filter]}.',
    )
    offset: int = Field(default=0, ge=0, description="Hits to leave out, for the next page.")
    sort: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="A field to put the best hits in the order of; `-field` for the largest first.",
    )
    facets: Many[str] = Field(
        default_factory=list, max_length=16, description="Fields whose values are counted among the best hits."
    )
    per_document: bool = Field(default=False, description="At most one hit of each document.")
    highlights: bool = Field(default=False, description="Mark the sentences that match.")
    explain: bool = Field(default=False, description="Say of each hit where either leg put it.")
    all: bool = Field(default=False, description="Show passages that say the same one by one, not folded into one hit.")
    synonyms: bool = Field(default=True, description="Search for other names too, and set the spelling right.")
    hyde: Hyde | None = Field(
        default=None, description="Search with hypothetical documents beside the query; off when left out."
    )
    rerank: bool = Field(
        default=False, description="Have the first 20 hits read again, query and passage together, by the reranker."
    )
    rerank_budget_ms: int = Field(
        default=400, ge=1, le=60_000, description="Milliseconds it may take; what was not read by then stays behind."
    )
    index: str | None = Field(default=None, description="The index's name, to be sure it is this one.")


def routes() -> APIRouter:
    """The search endpoint."""
    router = APIRouter(route_class=DirectRoute, tags=["search"], dependencies=[Depends(needs("read"))])
    answers = answered(SearchAnswer, "The hits, best first.", SEARCHED) | documented(
        "empty_query",
        "unknown_tier",
        "unknown_field",
        "bad_filter",
        "bad_search",
        "no_instruction",
        "no_hyde",
        "no_reranker",
        "text_too_long",
        "too_many",
    )

    @cache
    def rewriter(shared: Shared) -> Rewriter:
        """Who writes hypothetical documents, from the first request that wants some."""
        try:
            found = Rewriter.load(shared.settings.config)
        except SuwenError as problem:
            log.warning("hyde was asked for: %s", problem)
            raise Problem(
                "no_hyde", "this server has no model that writes hypothetical documents: leave hyde out", param="hyde"
            ) from None
        shared.on_close.append(found.close)
        return found

    @router.post("/search", response_class=Response, responses=answers, summary="Search the index")
    async def search(asked: Search, request: Request) -> Response:
        """Find the passages that answer a query; `relevant` is false when nothing in the index seems to."""
        holder = holder_of(request)
        check_index(holder, asked.index)
        _check(holder, asked)
        beside = None
        if asked.hyde is not None and asked.mode != "lexical":
            # Here and not with the readers: a search that waits for a model keeps none of them from others.
            beside = await rewriter(holder.shared).write(asked.query, asked.hyde.n, asked.hyde.budget_ms)
        told = {"index": holder.name, "request_id": request_id(request)}
        body, noted, timings = await holder.read(
            lambda index: _search(index, asked, beside, told), "search", short=_is_short(holder, asked)
        )
        holder.metrics.searched(noted["mode"], noted["tier"], timings)
        note(request, **noted)
        if holder.settings.log_queries:
            note(request, query=asked.query)
        return Response(body, media_type="application/json")

    return router


def _check(holder: Holder, asked: Search) -> None:
    settings = holder.settings
    check_tier(holder.index.pair, asked.tier)
    if asked.k > settings.most_hits:
        raise Problem(
            "too_many",
            f"k is {asked.k}, and this server gives at most {settings.most_hits} hits at once: page with offset",
            param="k",
        )
    if asked.offset + asked.k > DEEPEST:
        raise Problem(
            "bad_search",
            f"offset and k are {asked.offset + asked.k} together, at most {DEEPEST}: read deeper with POST /cursors",
            param="offset",
        )
    if asked.rerank and find_reranker(holder.index) is None:
        raise Problem("no_reranker", "this server has no reranker that can be used: leave rerank out", param="rerank")
    check_length(asked.query, settings.query_characters, "query")
    check_length(asked.instruction or "", settings.query_characters, "instruction")


def _is_short(holder: Holder, asked: Search) -> bool:
    """Whether a search is a dozen short calls: of a small index, for a short page, and with no transformer.

    Each of them gives up the interpreter and has to wait for it again: two threads at such searches spend more than one
    does (benchmarks/serve_clients.py). In a large index, and in a transformer, they compute outside of it.
    """
    pair = holder.index.pair
    by_table = asked.mode == "lexical" or pair.manifest.tiers[asked.tier or pair.default_tier].kind == "static"
    return by_table and holder.small and asked.offset + asked.k <= _SHORT


class _Found(NamedTuple):
    """An answer, written where it was found: its hits are at hand there, and the loop has others to see to.

    Attributes:
        body: As JSON.
        noted: For the log.
        timings: For the metrics.
    """

    body: bytes
    noted: dict[str, Any]
    timings: dict[str, float]


def _search(index: Index, asked: Search, beside: Rewritten | None, told: dict[str, str]) -> _Found:
    results = index.search(
        asked.query,
        asked.k,
        mode=asked.mode,
        tier=asked.tier,
        instruction=asked.instruction,
        where=asked.where,
        offset=asked.offset,
        sort=asked.sort,
        facets=asked.facets,
        per_document=asked.per_document,
        highlights=asked.highlights,
        explain=asked.explain,
        fold=not asked.all,
        synonyms=asked.synonyms,
        beside=beside,
        precise=asked.rerank,
        budget_ms=asked.rerank_budget_ms,
    )
    # vars() and not asdict(): orjson writes what is inside as it is, and copying ten hits costs more than finding them.
    hits = [{**vars(hit), "state": state(index.pair, hit.encoder)} for hit in results.hits]
    noted = {"hits": len(hits), "mode": results.mode, "tier": results.tier, "relevant": results.relevant}
    return _Found(written({**vars(results), "hits": hits, **told}), noted, results.timings)
