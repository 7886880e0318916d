"""One search from beginning to end: what was asked becomes a page of hits. How legs are read is ranking's."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from suwen.encoders.query import Encoder
from suwen.hyde.fusion import fuse
from suwen.index.engine import Ranking, Snapshot
from suwen.index.filters import Where
from suwen.retrieve.elsewhere import NOTE
from suwen.retrieve.facets import look_over
from suwen.retrieve.folding import is_question, says_less
from suwen.retrieve.fuse import WEIGHTS, Fusion, fuse_hybrid
from suwen.retrieve.highlight import Marker
from suwen.retrieve.naming import about_others
from suwen.retrieve.ranking import (
    STEPS,
    Mode,
    Placed,
    Reasons,
    SearchError,
    as_hit,
    check_query,
    cut_page,
    ranked,
    search_legs,
    search_words,
)
from suwen.retrieve.relevance import ANSWERS, judge, query_length
from suwen.retrieve.results import Facet, Hit, Moved, Results
from suwen.retrieve.wording import Wording

if TYPE_CHECKING:
    from suwen.retrieve.retriever import Index
    from suwen.retrieve.rewriting import Rewritten


class Asked(NamedTuple):
    """What is asked of an index; each field is told by :meth:`suwen.retrieve.retriever.Index.search`."""

    query: str
    k: int
    mode: Mode
    tier: str | None
    instruction: str | None
    where: Where | None
    offset: int
    sort: str | None
    facets: Sequence[str]
    per_document: bool
    highlights: bool
    explain: bool
    weights: Mapping[str, float] | None
    fusion: Fusion
    synonyms: bool
    fold: bool
    beside: Rewritten | None
    precise: bool
    budget_ms: int


class Found(NamedTuple):
    """What a moment of the index gave: hits with how sure one may be of them, and what else there is to tell."""

    page: list[Placed]
    sure: dict[int, float]
    relevant: bool
    evidence: dict[str, float]
    counted: dict[str, Facet]
    unit: float
    weights: Mapping[str, float]
    #: Why rows do not stand where their scores put them; told only where that is asked for.
    moved: Mapping[int, tuple[Moved, ...]]


def answer(index: Index, asked: Asked) -> Results:
    """Search an index."""
    began = time.perf_counter()
    given = WEIGHTS if asked.weights is None else asked.weights
    text, notes = check_query(asked.query, asked.k, asked.offset, asked.mode, given, asked.fusion)
    if asked.precise and asked.sort is not None:
        raise SearchError("precise mode puts hits in its own order: leave out sort, or precise")
    encoder = None if asked.mode == "lexical" else index.pair.encoder(asked.tier)
    with index.engine.snapshot() as snapshot:
        worded = index.wordings.of(text, snapshot) if asked.synonyms else Wording(text, text, {})
        words = _words(index, snapshot, asked, worded)
        worded_at = time.perf_counter()
        vector = None if encoder is None else _query_vector(index, encoder, worded.meant, asked)
        encoding = time.perf_counter() - worded_at
        found = _found(index, snapshot, asked, text, worded, vector, words)
    searched = time.perf_counter()
    page, read, told = _page(index, asked, worded.meant, found.page)
    reread = time.perf_counter()
    hits = _hits(index, asked, text, found, page, encoder.name if encoder else None, read)
    spent = {"encode": encoding, "search": searched - began - encoding, "total": time.perf_counter() - began}
    if asked.precise:
        spent["rerank"] = reread - searched
    timings = {name: round(1000 * seconds, 3) for name, seconds in spent.items()}
    if asked.beside is not None:
        written = asked.beside.milliseconds
        timings |= {"write": written, "total": round(timings["total"] + written, 3)}
        told = (asked.beside.note, *told)
    used = encoder.name if encoder else None
    every = (*notes, *([NOTE] if worded.elsewhere else []), *told)
    return Results(
        asked.query, hits, asked.mode, used, found.relevant, found.evidence, timings, every, found.counted, worded.told
    )


def _words(index: Index, snapshot: Snapshot, asked: Asked, worded: Wording) -> Ranking | None:
    """What words find, looked up before the query is encoded.

    A network drives all else out of the processor's caches, and wording has just cut and counted the same words: a
    hybrid query by `l6` takes 0.9% less CPU than with the network in between.
    """
    if asked.mode == "dense":
        return None
    weights = index.freshness.weights(snapshot) if asked.weights is None else asked.weights
    return search_words(snapshot, worded, asked.mode, STEPS[0], asked.where, weights, asked.fusion)


def _query_vector(index: Index, encoder: Encoder, text: str, asked: Asked) -> Any:
    vector, beside = encoder.encode_queries([text], asked.instruction)[0], asked.beside
    if beside is None or not beside.texts:
        return vector
    given, owners = encoder.encode_documents(list(beside.texts)), [0] * len(beside.texts)
    return fuse(vector[None], given, owners, weight=beside.weight, normalise=index.pair.space.normalise)[0]


def _found(
    index: Index, snapshot: Snapshot, asked: Asked, text: str, worded: Wording, vector: Any, words: Ranking | None
) -> Found:
    """The hits of a page; in precise mode from the first one on, and as many as are read again."""
    null = index.calibration.null(snapshot, asked.tier or index.pair.default_tier)
    length = query_length(vector, index.pair.space)
    unit = null.unit * length
    usual = index.freshness.weights(snapshot)
    weights = usual if asked.weights is None else asked.weights
    said, by = (worded, vector, asked.mode), (weights, asked.fusion)
    vectors = index.freshness.vectors(snapshot)
    moved: dict[int, tuple[Moved, ...]] = {}
    # By depth. To make two of functools.cache for each query took longer than what they spared it.
    legs: dict[int, dict[str, Ranking]] = {}
    fusions: dict[int, Ranking] = {}

    def read(depth: int) -> dict[str, Ranking]:
        if depth not in legs:
            known = words if depth == STEPS[0] else None
            legs[depth] = search_legs(snapshot, index.freshness, *said, depth, asked.where, *by, known)
        return legs[depth]

    def fused(depth: int) -> Ranking:
        if depth not in fusions:
            told: dict[int, tuple[Moved, ...]] | None = {} if asked.explain else None
            fusions[depth] = fuse_hybrid(read(depth), 2 * depth, *by, unit, vectors, told)
            # What was given out of a lesser depth stays where that put it.
            moved.update({row: why for row, why in (told or {}).items() if row not in moved})
        return fusions[depth]

    order, counted = look_over(snapshot, ranked(read, fused), asked.k, asked.sort, asked.facets)
    both = asked.sort is None and asked.mode == "hybrid" and all(weights.get(leg) for leg in WEIGHTS)
    offset, k = asked.offset, asked.k
    if asked.precise:
        from suwen.retrieve.precise import HITS

        offset, k = 0, max(HITS, asked.offset + asked.k)
    less = says_less(text) if both and (not worded.bare or is_question(text)) else None
    # Of scores by other weights or by ranks nobody knows which are of answers.
    least = null.least("hybrid") if weights is usual and asked.fusion == "scores" else -math.inf
    page = cut_page(snapshot, order, offset, k, asked.per_document, fold=asked.fold, less=less, least=least)
    rows = [one.place.row for one in page]
    # How sure a hit is does not depend on how it was weighted.
    known = fused(STEPS[0]) if asked.mode == "hybrid" and weights is usual and asked.fusion == "scores" else None
    relevant, evidence, sure = judge(read(STEPS[0]), null, length, rows, known, usual, worded.elsewhere)
    if others := about_others(worded.mentions):
        # Of 270 such hits of real questions none was right, at a mean confidence of a half. Yet none is set lower than
        # this: whether there is an answer is told by the first hit, and that must stay so.
        told = ((one.item.passage, value) for one, value in zip(page, sure, strict=True))
        sure = [ANSWERS if value > ANSWERS and others(said.title, said.text) else value for said, value in told]
    return Found(page, dict(zip(rows, sure, strict=True)), relevant, evidence, counted, unit, weights, moved)


def _page(
    index: Index, asked: Asked, query: str, page: list[Placed]
) -> tuple[list[Placed], dict[int, float], tuple[str, ...]]:
    """The page as it is shown; in precise mode the first hits are read again, outside of the index's turn."""
    if not asked.precise:
        return page, {}, ()
    from suwen.retrieve.precise import need, reread

    done = reread(need(index.reranker), query, page, mode=asked.mode, budget_ms=asked.budget_ms)
    return done.page[asked.offset : asked.offset + asked.k], done.scores, (done.note,)


def _hits(
    index: Index,
    asked: Asked,
    text: str,
    found: Found,
    page: Sequence[Placed],
    tier: str | None,
    read: Mapping[int, float],
) -> tuple[Hit, ...]:
    pair = index.pair
    reader = partial(pair.encoder, pair.fastest) if asked.highlights and pair.tiers else None
    marker = Marker(text, reader) if asked.highlights else None
    hits = tuple(as_hit(one.item, one.place.score, found.sure[one.place.row], marker, one.same) for one in page)
    if not asked.explain:
        return hits
    told = Reasons(asked.mode, pair.space.id, tier, found.weights, asked.fusion, found.unit)
    return tuple(
        replace(
            hit,
            explanation=replace(
                told.of(one.item, one.place.legs),
                precise=read.get(one.item.row),
                moved=(*found.moved.get(one.item.row, ()), *one.moved),
            ),
        )
        for hit, one in zip(hits, page, strict=True)
    )
