"""One query's way through an index: checked, searched by each leg, fused, cut to a page, explained. Encodes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, get_args

import numpy as np

from suwen.choices import DEEPEST as DEEPEST
from suwen.choices import Mode as Mode
from suwen.errors import SuwenError
from suwen.index.engine import Ranking, Snapshot, StoredPassage
from suwen.index.filters import Where
from suwen.retrieve.folding import Content, first_of_each
from suwen.retrieve.freshness import Freshness
from suwen.retrieve.fuse import CONSTANT, DEPTH, WEIGHTS, Fusion, values, words_read
from suwen.retrieve.highlight import Marker
from suwen.retrieve.naming import holds
from suwen.retrieve.results import Explanation, Hit, Leg, Moved
from suwen.retrieve.wording import Wording
from suwen.text.clean import clean
from suwen.text.fold import fold

_MODES, _FUSIONS = get_args(Mode), get_args(Fusion)
#: A query longer than this many characters is cut: no encoder reads further, and lexical terms are capped anyway.
LONGEST_QUERY = 8192
#: How far down each leg is read: half of a step is given out before the next is taken, since the fusion of two legs
#: cut at a depth is only sure of its upper part.
STEPS = (DEPTH, 2000, DEEPEST)


class Ranked(NamedTuple):
    """A row of the fused ranking, with the legs it was fused from."""

    row: int
    score: float
    legs: Mapping[str, Ranking]


class SearchError(SuwenError):
    """A search that cannot be run as asked."""


class EmptyQuery(SearchError):
    """A query with nothing in it to search for."""


def check_query(
    query: str, k: int, offset: int, mode: str, weights: Mapping[str, float], fusion: str
) -> tuple[str, tuple[str, ...]]:
    """The query as it is searched, and what the caller should know about it."""
    if mode not in _MODES:
        raise SearchError(f"mode {mode!r} is unknown: use {', '.join(_MODES)}")
    if fusion not in _FUSIONS:
        raise SearchError(f"fusion {fusion!r} is unknown: use {', '.join(_FUSIONS)}")
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


def search_legs(
    snapshot: Snapshot,
    freshness: Freshness,
    asked: Wording,
    vector: Any,
    mode: str,
    depth: int,
    where: Where | None,
    weights: Mapping[str, float] = WEIGHTS,
    fusion: Fusion = "scores",
    lexical: Ranking | None = None,
) -> dict[str, Ranking]:
    """What each leg of a mode finds, down to a depth; of words no more than count, or what is known of them already.

    Where scores are fused, the dense leg tells those of what words found as well: what it would be worth to have been
    passed over depends on how far down a search that guesses still finds everything, which differs between engines.
    """
    if mode == "dense":
        return {"dense": freshness.dense(snapshot, vector, depth, where)}
    if lexical is None:
        lexical = search_words(snapshot, asked, mode, depth, where, weights, fusion)
    if mode == "lexical":
        return {"lexical": lexical}
    beside = np.sort(lexical.rows) if fusion == "scores" else None
    return {"dense": freshness.dense(snapshot, vector, depth, where, beside), "lexical": lexical}


def search_words(
    snapshot: Snapshot,
    asked: Wording,
    mode: str,
    depth: int,
    where: Where | None,
    weights: Mapping[str, float] = WEIGHTS,
    fusion: Fusion = "scores",
) -> Ranking:
    """The lexical leg of :func:`search_legs`."""
    words = depth if mode == "lexical" else words_read(depth, weights, fusion)
    lexical = snapshot.lexical(asked.text, words, where, asked.also)
    return _holding(snapshot, lexical, asked) if any(name.few for name in asked.names) else lexical


#: Where a passage that holds a rare name stands by its words: 0.995 of such mentions are among the first three.
_LOOKED_THROUGH = 8


def _holding(snapshot: Snapshot, found: Ranking, asked: Wording) -> Ranking:
    """With what passages, of the best by their words, hold rare names as typed, and which hold a whole bare name."""
    items = snapshot.fetch(found.rows[:_LOOKED_THROUGH].tolist())
    texts = {item.row: fold(item.passage.content) for item in items}
    few = [name for name in asked.names if name.few]
    counts = {row: sum(holds(text, name.typed) for name in few) for row, text in texts.items()}
    rare = sorted((row for row, count in counts.items() if count), key=lambda row: -counts[row])
    grades = {row: min(name.held_by(text) for name in asked.names) for row, text in texts.items()} if asked.bare else {}
    return found._replace(rare=tuple(rare), exact={row: grade for row, grade in grades.items() if grade})


def ranked(
    read: Callable[[int], dict[str, Ranking]],
    fused: Callable[[int], Ranking],
    steps: Sequence[int] = STEPS,
) -> Iterator[Ranked]:
    """The fused ranking, best first, reading the legs deeper as more of it is asked for.

    It is the same whatever page is cut from it: fusing deeper legs may move a row up, so what an earlier step gave out
    stays where it was and is left out of the later ones.

    Args:
        read: What each leg finds down to a depth.
        fused: The same as one ranking; asked for where there are several legs.
        steps: The depths.
    """
    given: set[int] = set()
    for depth in steps:
        legs = read(depth)
        found = fused(depth) if len(legs) > 1 else next(iter(legs.values()))
        whole = depth == steps[-1] or all(len(leg.rows) < depth for leg in legs.values())
        for row, score in zip(found.rows.tolist(), found.scores.tolist(), strict=True):
            if not whole and len(given) >= depth // 2:
                break
            if row not in given:
                given.add(row)
                yield Ranked(row, score, legs)
        if whole:
            return


#: Rows looked at together for what is the same: a page is cut from such pieces, so that it does not depend on its size.
_PIECE = 20
#: A piece is so many times as large at the most, where it has few but names: answers lie below whole code lists.
_LARGER = 4


class Placed(NamedTuple):
    """A passage on a page: its place in the ranking, others that say the same, and why it was moved for this page."""

    item: StoredPassage
    place: Ranked
    same: tuple[str, ...] = ()
    moved: tuple[Moved, ...] = ()


def cut_page(
    snapshot: Snapshot,
    ranked: Iterator[Ranked],
    offset: int,
    k: int,
    per_document: bool,
    *,
    fold: bool = False,
    less: Callable[[StoredPassage], bool] | None = None,
    least: float = -np.inf,
) -> list[Placed]:
    """The passages from ``offset`` on.

    Args:
        snapshot: The moment.
        ranked: Its rows, best first.
        offset: How many to leave out; with ``per_document``, documents.
        k: How many.
        per_document: One passage of each document.
        fold: One of those that say the same.
        less: Which say less than the query asks for: they stand below those of the piece that answer it.
        least: The score from which on one that says enough is an answer.
    """
    kept: dict[str, Placed] = {}
    piece = _PIECE if fold or less else offset + k
    while len(kept) < offset + k and (part := list(islice(ranked, piece))):
        found = _fetched(snapshot, part)
        if less:
            found = _answers_first(snapshot, found, ranked, less, least)
        for placed in _folded(found) if fold else found:
            passage = placed.item.passage
            kept.setdefault(passage.document_id if per_document else passage.id, placed)
    return list(kept.values())[offset : offset + k]


def _answers_first(
    snapshot: Snapshot,
    found: list[Placed],
    ranked: Iterator[Ranked],
    less: Callable[[StoredPassage], bool],
    least: float,
) -> list[Placed]:
    """What answers a query before what says less than it asks for, from as many rows more as it takes to have some."""
    names = {one.place.row for one in found if less(one.item)}
    before = -1
    # Where further rows are names too, it is a list of names that is searched.
    while 2 * len(names) > len(found) and len(found) < _LARGER * _PIECE and len(found) - len(names) > before:
        before = len(found) - len(names)
        more = _fetched(snapshot, list(islice(ranked, _PIECE)))
        names.update(one.place.row for one in more if less(one.item))
        found = found + more
    if not names:
        return found
    places = sorted(
        range(len(found)), key=lambda place: found[place].place.row in names or found[place].place.score < least
    )
    return [_moved(found[before], before - now, names) for now, before in enumerate(places)]


def _moved(one: Placed, higher: int, names: set[int]) -> Placed:
    if one.place.row in names:
        return one._replace(moved=("bare_name",)) if higher < 0 else one
    return one._replace(moved=("answer",)) if higher > 0 else one


def _fetched(snapshot: Snapshot, part: list[Ranked]) -> list[Placed]:
    # By row: where an engine's moment does not hold still, a passage may be gone by now.
    places = {place.row: place for place in part}
    return [Placed(item, places[item.row]) for item in snapshot.fetch(list(places))]


def _folded(found: list[Placed]) -> list[Placed]:
    """One of each."""
    contents = {Content(one.item, one.place.score): one for one in found}
    return [
        contents[first]._replace(same=tuple(other.item.passage.id for other in others)) if others else contents[first]
        for first, *others in first_of_each(list(contents))
    ]


def as_hit(
    item: StoredPassage,
    score: float,
    confidence: float = 0.0,
    marker: Marker | None = None,
    same: Sequence[str] = (),
) -> Hit:
    """A passage as callers see it, with what a marker finds in it."""
    passage = item.passage
    return Hit(
        id=passage.id,
        document_id=passage.document_id,
        score=round(float(score), 6),
        confidence=round(confidence, 3),
        title=passage.title,
        text=passage.text,
        start=passage.start,
        end=passage.end,
        metadata=item.metadata,
        highlights=marker.marks(passage.text) if marker else (),
        encoder=item.encoder,
        title_terms=marker.terms(passage.title) if marker else (),
        same=tuple(same),
    )


class Reasons:
    """Says of the hits of one query where either leg put them, and what the fusion made of that.

    Args:
        mode: How it was searched.
        space: Whose vectors they are.
        tier: Who encoded the query.
        weights: Of the legs.
        fusion: What they were fused by.
        unit: What a dense score is counted in.
    """

    def __init__(
        self, mode: str, space: str, tier: str | None, weights: Mapping[str, float], fusion: Fusion, unit: float
    ) -> None:
        self._mode, self._space, self._tier, self._weights, self._fusion = mode, space, tier, weights, fusion
        self._unit = unit
        #: By leg: the ranking, the place of each row in it, and what each place is worth. The same for all hits.
        self._known: dict[str, tuple[Ranking, dict[int, int], Sequence[float]]] = {}

    def of(self, item: StoredPassage, legs: Mapping[str, Ranking]) -> Explanation:
        """Why a hit stands where it stands."""
        used = {name: float(self._weights.get(name, 0.0)) for name in legs} if self._mode == "hybrid" else {}
        how = self._fusion if self._mode == "hybrid" else None
        dense, lexical = (self._leg(name, legs, item.row) for name in ("dense", "lexical"))
        return Explanation(self._mode, self._space, self._tier, item.encoder, dense, lexical, used, how)

    def _leg(self, name: str, legs: Mapping[str, Ranking], row: int) -> Leg | None:
        if name not in legs:
            return None
        ranking, places, worth = self._looked_over(name, legs[name])
        if (place := places.get(row)) is None:
            return None
        value = worth[place] if self._fusion == "scores" else 1 / (CONSTANT + place + 1)
        return Leg(place + 1, round(float(ranking.scores[place]), 6), round(value, 6))

    def _looked_over(self, name: str, ranking: Ranking) -> tuple[Ranking, dict[int, int], Sequence[float]]:
        known = self._known.get(name)
        if known is None or known[0] is not ranking:
            places = {row: place for place, row in enumerate(ranking.rows.tolist())}
            found, least = values(name, ranking, self._unit)
            worth = np.maximum(found, least) if self._mode == "hybrid" else found
            known = self._known[name] = (ranking, places, worth.tolist())
        return known
