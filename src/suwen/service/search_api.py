"""``POST /search``: a query in, hits out. Ranking is the library's; this checks, calls and tells."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from suwen.encoders.who_encodes import state
from suwen.retrieve.ranking import Mode
from suwen.retrieve.retriever import Index
from suwen.service.answers import SEARCHED, SearchAnswer, answered, json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.filter_checks import Filter
from suwen.service.holder import Holder
from suwen.service.keys import needs
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import Asked, Many, check_index, check_length, check_tier
from suwen.service.request_log import note, request_id

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
    index: str | None = Field(default=None, description="The index's name, to be sure it is this one.")


def routes(holder: Holder) -> APIRouter:
    """The search endpoint."""
    router = APIRouter(route_class=DirectRoute, tags=["search"], dependencies=[Depends(needs("read"))])
    answers = answered(SearchAnswer, "The hits, best first.", SEARCHED) | documented(
        "empty_query",
        "unknown_tier",
        "unknown_field",
        "bad_filter",
        "bad_search",
        "no_instruction",
        "text_too_long",
        "too_many",
    )

    @router.post("/search", response_class=Response, responses=answers, summary="Search the index")
    async def search(asked: Search, request: Request) -> Response:
        """Find the passages that answer a query; `relevant` is false when nothing in the index seems to."""
        check_index(holder.settings, asked.index)
        _check(holder, asked)
        answer = await holder.read(lambda index: _search(index, asked), "search")
        holder.metrics.searched(answer["mode"], answer["tier"], answer["timings"])
        note(request, hits=len(answer["hits"]), mode=answer["mode"], tier=answer["tier"], relevant=answer["relevant"])
        if holder.settings.log_queries:
            note(request, query=asked.query)
        return json_answer({**answer, "index": holder.settings.name, "request_id": request_id(request)})

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
    check_length(asked.query, settings.query_characters, "query")
    check_length(asked.instruction or "", settings.query_characters, "instruction")


def _search(index: Index, asked: Search) -> dict[str, Any]:
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
    )
    # vars() and not asdict(): orjson writes what is inside as it is, and copying ten hits costs more than finding them.
    hits = [{**vars(hit), "state": state(index.pair, hit.encoder)} for hit in results.hits]
    return {**vars(results), "hits": hits}
