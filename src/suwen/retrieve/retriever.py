"""The index as its users see it: documents in, answers out. Joins an engine with the encoders of a pair."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from suwen.encoders.pair import Pair
from suwen.encoders.space import SpaceMismatch
from suwen.errors import SuwenError
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import Ranking, StoredPassage
from suwen.index.filters import Where
from suwen.retrieve.freshness import Calibrated, Freshness
from suwen.retrieve.fuse import CONSTANT, DEPTH, FLOORS, WEIGHTS, Fusion, fuse_hybrid, relative
from suwen.retrieve.highlight import highlight
from suwen.retrieve.relevance import Null, judge, measure_null
from suwen.retrieve.results import Explanation, Hit, Leg, Results
from suwen.text.clean import clean

Mode = Literal["hybrid", "dense", "lexical"]
#: The deepest position that can be asked for: ``offset + k``.
DEEPEST = 10_000
#: A query longer than this many characters is cut: no encoder reads further, and lexical terms are capped anyway.
LONGEST_QUERY = 8192


#: How far down each leg is read: half of a step is given out before the next is taken, since the fusion of two legs
#: cut at a depth is only sure of its upper part.
_STEPS = (DEPTH, 2000, DEEPEST)


class _Found(NamedTuple):
    """A row of the fused ranking, with the legs it was fused from."""

    row: int
    score: float
    legs: Mapping[str, Ranking]


class SearchError(SuwenError):
    """A search that cannot be run as asked."""


class EmptyQuery(SearchError):
    """A query with nothing in it to search for."""


class Index:
    """An open index. Made by :func:`suwen.open`; closes like a file, or with ``with``."""

    def __init__(self, engine: EmbeddedEngine, pair: Pair) -> None:
        settings = engine.settings()
        if pair.space.id != engine.space:
            raise SpaceMismatch(engine.space, pair.space.id, needed_name=settings.get("pair_name"), got_name=pair.name)
        self.engine, self.pair = engine, pair
        self.freshness = Freshness(engine.folder, pair)
        self._nulls: dict[str, Null] = {}
        self._measuring = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, *, pair: str | Path | Pair | None = None, write: bool = False) -> Index:
        """Open an index with the pair of its space.

        Args:
            path: The index folder.
            pair: A pair or its folder. Without one: ``SUWEN_PAIR``, the pair the index was built with, the default.
            write: Whether documents will be added or deleted; only one process at a time may.
        """
        engine = EmbeddedEngine.open(path, write=write)
        try:
            return cls(engine, pair if isinstance(pair, Pair) else find_pair(pair, engine.settings()))
        except BaseException:
            engine.close()
            raise

    @classmethod
    def create(cls, path: str | Path, *, pair: str | Path | Pair | None = None) -> Index:
        """Make an empty index in a pair's space and open it for writing."""
        pair = pair if isinstance(pair, Pair) else Pair.load(pair)
        engine = EmbeddedEngine.create(path, space=pair.space.id, dimension=pair.space.dimension)
        engine.remember(pair=str(pair.path.resolve()), pair_name=pair.name)
        return cls(engine, pair)

    def close(self) -> None:
        """Let go of the index."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: Mode = "hybrid",
        tier: str | None = None,
        where: Where | None = None,
        offset: int = 0,
        per_document: bool = False,
        highlights: bool = False,
        explain: bool = False,
        weights: Mapping[str, float] = WEIGHTS,
        fusion: Fusion = "scores",
    ) -> Results:
        """Find the passages that answer a query.

        Args:
            query: What the user typed.
            k: How many hits.
            mode: ``dense`` (meaning), ``lexical`` (words) or ``hybrid`` (both, fused).
            tier: The query encoder; the pair's default when not given.
            where: Metadata filter, see :data:`suwen.index.filters.Where`.
            offset: Hits to leave out, for the next page.
            per_document: At most one hit of each document, its best.
            highlights: Mark the matching sentences.
            explain: Say of each hit where either leg put it.
            weights: How much each leg counts in ``hybrid``.
            fusion: What the legs of ``hybrid`` are fused by, see :mod:`suwen.retrieve.fuse`.
        """
        started = time.perf_counter()
        text, notes = _checked(query, k, offset, mode, weights, fusion)
        encoder = None if mode == "lexical" else self.pair.encoder(tier)
        vector = None if encoder is None else encoder.encode_queries([text])[0]
        encoded = time.perf_counter()
        with self._moment() as snapshot:
            read = cache(lambda depth: _legs(snapshot, text, vector, mode, depth, where))
            page = _page(snapshot, _ranked(read, weights, fusion), offset, k, per_document)
            searched = time.perf_counter()
            relevant, evidence = judge(read(_STEPS[0]), self._null(snapshot, tier or self.pair.default_tier))
        reader = self.pair.encoder(self.pair.fastest) if highlights and self.pair.tiers else None
        hits = tuple(
            _hit(item, found.score, highlight(text, item.passage.text, reader) if highlights else ())
            for item, found in page
        )
        if explain:
            tier_name = encoder.name if encoder else None
            hits = tuple(
                replace(hit, explanation=_why(item, found.legs, mode, self.pair.space.id, tier_name, weights, fusion))
                for hit, (item, found) in zip(hits, page, strict=True)
            )
        ended = time.perf_counter()
        spent = {"encode": encoded - started, "search": searched - encoded, "total": ended - started}
        timings = {name: round(1000 * seconds, 3) for name, seconds in spent.items()}
        return Results(query, hits, mode, encoder.name if encoder else None, relevant, evidence, timings, notes)

    @contextmanager
    def _moment(self) -> Iterator[Calibrated]:
        with self.engine.snapshot() as snapshot:
            yield Calibrated(snapshot, self.freshness)

    def calibrate(self) -> None:
        """Measure, for every tier, what off-topic questions find, and keep it in the index: see :mod:`.relevance`."""
        with self._moment() as snapshot:
            of = snapshot.last_row, snapshot.scale
            self._nulls = {tier: measure_null(snapshot, self.pair.encoder(tier), *of) for tier in self.pair.tiers}
        self.engine.remember(**{f"null:{tier}": null.to_json() for tier, null in self._nulls.items()})

    def calibrated(self) -> bool:
        """Whether what :meth:`calibrate` measured still speaks for the index as it is."""
        with self._moment() as snapshot:
            known = [self._known_null(tier) for tier in self.pair.tiers]
            return all(null is not None and null.fits(snapshot.last_row, snapshot.scale) for null in known)

    def _known_null(self, tier: str) -> Null | None:
        null = self._nulls.get(tier)
        if null is None and (kept := self.engine.settings().get(f"null:{tier}")):
            null = self._nulls[tier] = Null.from_json(str(kept))
        return null

    def _null(self, snapshot: Calibrated, tier: str) -> Null:
        null, of = self._known_null(tier), (snapshot.last_row, snapshot.scale)
        if null is not None and null.fits(*of):
            return null
        # One thread measures; the others, where they have an older measure, do not wait for it.
        if not self._measuring.acquire(blocking=null is None):
            assert null is not None
            return null
        try:
            null = self._nulls.get(tier)
            if null is None or not null.fits(*of):
                null = self._nulls[tier] = measure_null(snapshot, self.pair.encoder(tier), *of)
            return null
        finally:
            self._measuring.release()


def find_pair(path: str | Path | None, settings: Mapping[str, Any]) -> Pair:
    """The pair to use with an index: the one named, ``SUWEN_PAIR``, the one it was built with, the default."""
    if path is None and "SUWEN_PAIR" not in os.environ and settings.get("pair"):
        built_with = Path(str(settings["pair"]))
        if (built_with / "suwen.json").is_file():
            return Pair.load(built_with)
    return Pair.load(path)


def _checked(
    query: str, k: int, offset: int, mode: str, weights: Mapping[str, float], fusion: str
) -> tuple[str, tuple[str, ...]]:
    """The query as it is searched, and what the caller should know about it."""
    if mode not in get_args(Mode):
        raise SearchError(f"mode {mode!r} is unknown: use {', '.join(get_args(Mode))}")
    if fusion not in get_args(Fusion):
        raise SearchError(f"fusion {fusion!r} is unknown: use {', '.join(get_args(Fusion))}")
    if k < 1 or offset < 0 or offset + k > DEEPEST:
        raise SearchError(
            f"k is {k} and offset {offset}: k must be at least 1, offset at least 0, both together at most {DEEPEST}"
        )
    if set(weights) - {"dense", "lexical"} or any(not 0 <= weight < np.inf for weight in weights.values()):
        raise SearchError(f"weights {dict(weights)} are not usable: give 'dense' and 'lexical', each zero or more")
    if mode == "hybrid" and not any(weights.values()):
        raise SearchError(f"weights {dict(weights)} leave nothing to rank by: give one leg a weight above zero")
    text = clean(query)
    if not any(character.isalnum() for character in text):
        raise EmptyQuery("the query holds no letter or digit to search for: type a word or a question")
    if len(text) > LONGEST_QUERY:
        return text[:LONGEST_QUERY], (f"the query was cut to its first {LONGEST_QUERY} characters",)
    return text, ()


def _legs(
    snapshot: Calibrated, text: str, vector: Any, mode: str, depth: int, where: Where | None
) -> dict[str, Ranking]:
    legs = {}
    if mode != "lexical":
        legs["dense"] = snapshot.dense(vector, depth, where)
    if mode != "dense":
        legs["lexical"] = snapshot.lexical(text, depth, where)
    return legs


def _ranked(
    read: Callable[[int], dict[str, Ranking]], weights: Mapping[str, float], fusion: Fusion
) -> Iterator[_Found]:
    """The fused ranking, best first, reading the legs deeper as more of it is asked for.

    It is the same whatever page is cut from it: fusing deeper legs may move a row up, so what an earlier step gave out
    stays where it was and is left out of the later ones.
    """
    given: set[int] = set()
    for depth in _STEPS:
        legs = read(depth)
        fused = fuse_hybrid(legs, 2 * depth, weights, fusion) if len(legs) > 1 else next(iter(legs.values()))
        whole = depth == DEEPEST or all(len(leg.rows) < depth for leg in legs.values())
        for row, score in zip(fused.rows.tolist(), fused.scores.tolist(), strict=True):
            if not whole and len(given) >= depth // 2:
                break
            if row not in given:
                given.add(row)
                yield _Found(row, score, legs)
        if whole:
            return


def _page(
    snapshot: Calibrated, ranked: Iterator[_Found], offset: int, k: int, per_document: bool
) -> list[tuple[StoredPassage, _Found]]:
    """The passages from ``offset`` on; with ``per_document``, offsets count documents."""

    def fetched(part: list[_Found]) -> Iterator[tuple[StoredPassage, _Found]]:
        return zip(snapshot.fetch([found.row for found in part]), part, strict=True)

    if not per_document:
        return list(fetched(list(islice(ranked, offset, offset + k))))
    kept: dict[str, tuple[StoredPassage, _Found]] = {}
    while len(kept) < offset + k and (part := list(islice(ranked, 64))):
        for item, found in fetched(part):
            kept.setdefault(item.passage.document_id, (item, found))
    return list(kept.values())[offset : offset + k]


def _hit(item: StoredPassage, score: float, highlights: Any) -> Hit:
    passage = item.passage
    return Hit(
        id=passage.id,
        document_id=passage.document_id,
        score=round(float(score), 6),
        title=passage.title,
        text=passage.text,
        start=passage.start,
        end=passage.end,
        metadata=item.metadata,
        highlights=highlights,
        encoder=item.encoder,
    )


def _why(
    item: StoredPassage,
    legs: Mapping[str, Ranking],
    mode: str,
    space: str,
    tier: str | None,
    weights: Mapping[str, float],
    fusion: Fusion,
) -> Explanation:
    def leg(name: str) -> Leg | None:
        places = np.flatnonzero(legs[name].rows == item.row).tolist() if name in legs else []
        if not places:
            return None
        place = places[0]
        by_score = relative(legs[name], FLOORS[name])[0][place]
        value = float(by_score) if fusion == "scores" else 1 / (CONSTANT + place + 1)
        return Leg(place + 1, round(float(legs[name].scores[place]), 6), round(value, 6))

    used = {name: float(weights.get(name, 0.0)) for name in legs} if mode == "hybrid" else {}
    how = fusion if mode == "hybrid" else None
    return Explanation(mode, space, tier, item.encoder, leg("dense"), leg("lexical"), used, how)
