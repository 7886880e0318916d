"""``/cursors``: every hit of a query, page by page, past the depth of ``/search``. Ranking is the library's."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from suwen.choices import Mode
from suwen.encoders.who_encodes import state
from suwen.retrieve.deep_ranking import hits_of, rank_deep
from suwen.retrieve.retriever import Index
from suwen.service.answers import SEARCHED, HitShape, answered, json_answer
from suwen.service.direct_route import DirectRoute
from suwen.service.filter_checks import Filter
from suwen.service.keys import needs
from suwen.service.places import ASKER
from suwen.service.problems import Problem, documented
from suwen.service.request_checks import Asked, check_index, check_length, check_tier
from suwen.service.request_log import note
from suwen.service.search_cursors import Cursor
from suwen.service.served_index import holder_of, served_of

Id = Annotated[str, Path(description="The cursor's id.", max_length=64)]
_BEGUN: dict[str, Any] = {
    "cursor": "9f86d081884c7d659a2feaa0c55ad015",
    "total": 48210,
    "after": 0,
    "next": 1000,
    "hits": SEARCHED["hits"],
}
_PROBLEMS = ("empty_query", "unknown_tier", "unknown_field", "bad_filter", "bad_search", "no_instruction")


class CursorAsked(Asked):
    """A query whose hits are all wanted."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "高血压", "mode": "lexical", "k": 1000}]})

    query: str = Field(description="What the user typed, in Chinese or English.")
    k: int = Field(default=1000, ge=1, description="How many hits of the first page.")
    mode: Mode = Field(default="hybrid", description="Meaning (dense), words (lexical), or both.")
    tier: str | None = Field(default=None, description="The query encoder; see `pair.tiers` of /info.")
    instruction: str | None = Field(
        default=None, description="What is asked for, where the pair's query prompt has a place for an instruction."
    )
    where: Filter | None = Field(default=None, description="Metadata filter, as in /search.")
    index: str | None = Field(default=None, description="The index's name, to be sure it is this one.")


class CursorPage(BaseModel):
    """A page of hits."""

    cursor: str = Field(description="Its id, for the next page.")
    total: int = Field(description="How many hits there are in all.")
    after: int = Field(description="How many of them stand before this page.")
    next: int | None = Field(description="The `after` of the next page; null on the last.")
    hits: list[HitShape]


class CursorEnded(BaseModel):
    """A cursor that is no more."""

    ended: str


def routes() -> APIRouter:
    """The endpoints of cursors."""
    router = APIRouter(
        route_class=DirectRoute, tags=["search"], dependencies=[Depends(needs("read"))], default_response_class=Response
    )
    _add_begin(router)
    _add_reading(router)
    return router


def _add_begin(router: APIRouter) -> None:
    @router.post(
        "/cursors",
        responses=answered(CursorPage, "The first page.", _BEGUN)
        | documented(*_PROBLEMS, "text_too_long", "too_many", "cursor_changed"),
        summary="Begin to read every hit of a query",
    )
    async def begin(asked: CursorAsked, request: Request) -> Response:
        """Rank everything that a query finds, as the index is now, and give the first page of it."""
        served = served_of(request)
        holder, settings = served.holder, served.holder.settings
        check_index(holder, asked.index)
        check_tier(holder.index.pair, asked.tier)
        check_length(asked.query, settings.query_characters, "query")
        check_length(asked.instruction or "", settings.query_characters, "instruction")
        _check_size(asked.k, settings.most_hits)
        ranking = await holder.read(
            lambda index: rank_deep(
                index,
                asked.query,
                settings.cursor_hits,
                mode=asked.mode,
                tier=asked.tier,
                instruction=asked.instruction,
                where=asked.where,
            ),
            "cursor",
            "recall",
        )
        cursor = served.cursors.begin(ranking, ASKER.get())
        page = await holder.read(lambda index: _page(index, cursor, 0, asked.k), "cursor")
        note(request, hits=len(page["hits"]), total=page["total"])
        return json_answer(page)


def _add_reading(router: APIRouter) -> None:
    @router.get(
        "/cursors/{id}",
        responses=answered(CursorPage, "The page.", _BEGUN | {"after": 1000, "next": 2000})
        | documented("unknown_cursor", "cursor_changed", "too_many"),
        summary="Read on",
    )
    async def read(
        id: Id,
        request: Request,
        after: Annotated[int, Query(ge=0, description="How many hits to leave out: `next` of the last page.")] = 0,
        k: Annotated[int, Query(ge=1, description="How many hits.")] = 1000,
    ) -> Response:
        """A page of the ranking as it was when the cursor began: asked for again, it is the same."""
        holder = holder_of(request)
        _check_size(k, holder.settings.most_hits)
        cursor = served_of(request).cursors.find(id, ASKER.get())
        page = await holder.read(lambda index: _page(index, cursor, after, k), "cursor")
        note(request, hits=len(page["hits"]))
        return json_answer(page)

    @router.delete(
        "/cursors/{id}",
        responses=answered(CursorEnded, "It has ended.", {"ended": _BEGUN["cursor"]}) | documented("unknown_cursor"),
        summary="End a cursor",
    )
    async def end(id: Id, request: Request) -> Response:
        """Let go of a cursor before its time."""
        served_of(request).cursors.end(id, ASKER.get())
        return json_answer({"ended": id})


def _check_size(k: int, most: int) -> None:
    if k > most:
        raise Problem("too_many", f"k is {k}, and this server gives at most {most} hits at once: read on", param="k")


def _page(index: Index, cursor: Cursor, after: int, k: int) -> dict[str, Any]:
    rows, scores = (part[after : after + k].tolist() for part in (cursor.ranking.rows, cursor.ranking.scores))
    hits = [{**vars(hit), "state": state(index.pair, hit.encoder)} for hit in hits_of(index, rows, scores)]
    total, end = len(cursor.ranking.rows), after + len(rows)
    return {
        "cursor": cursor.id,
        "total": total,
        "after": after,
        "next": end if rows and end < total else None,
        "hits": hits,
    }
