"""Whether anything relevant was found. Nearest neighbours always exist; this says when they are no answer.

A score alone says nothing: its level depends on the encoder and on the collection. So each index is asked a few dozen
questions from outside medicine (``off_topic.txt``), and a query's best scores are held against what those found. Where
vectors have lengths of their own, scores also grow with the query's, which says nothing either: it is divided out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from suwen.encoders.query import Encoder
from suwen.encoders.space import Space
from suwen.index.engine import Ranking, Rows, Vectors
from suwen.retrieve.fuse import DEPTH, WEIGHTS, WORDS, fuse_hybrid, highest, values

#: Whose heights they are: of questions by a transformer or by a token table, or of vectors that keep their lengths.
Curve = Literal["transformer", "static", "lengths"]

#: How a height becomes a confidence: of each mode, slope and the height of one half, of a logistic curve. By `static`
#: what off-topic questions find differs twice as much as by a transformer, so a question that has an answer stands
#: fewer deviations above it. Lengths of vectors spread it too: with those curves, 30 of 30 questions of the sample are
#: kept in such a space, and 1 of 5 off-topic ones is. What set these numbers, and how they hold on other questions, is
#: in docs/results/search.md.
CURVES: Mapping[Curve, Mapping[str, tuple[float, float]]] = {
    "transformer": {"hybrid": (0.46, 3.38), "dense": (0.57, 3.06), "lexical": (0.64, 1.78)},
    "static": {"hybrid": (0.66, 2.51), "dense": (0.57, 2.34), "lexical": (0.64, 1.78)},
    "lengths": {"hybrid": (0.47, 2.22), "dense": (0.57, 1.40), "lexical": (0.64, 1.07)},
}
#: The least confidence of a first hit that counts as an answer. Below a half: what a question costs that is turned away
#: though it has an answer is more than what a page of poor hits costs.
ANSWERS = 0.4
#: What is left of the doubt about a hit that holds all of a query that is a rare name and no more. Such a query is one
#: word or two, of which a vector says little; the name is what was asked for.
DOUBT = 0.25
#: What is left of the odds of an answer to a query of another field than medicine, of which the index has nothing.
ELSEWHERE = 0.25
#: The least deviation that counts, for an index where the off-topic questions hardly differ.
_LEAST = {"dense": 0.01, "lexical": 0.05, "hybrid": 0.01}
#: Where nearly all hits of a page stand: what is further down is looked up only where one is not among these.
_NEAR_THE_TOP = 64
#: The scale of passages by several encoders that cannot be compared yet: for a while, any measure will do.
MIXED = "?"


#: What a measure's values are: kept ones of another number, or of none, are made anew.
_VALUES = 4


@dataclass(frozen=True)
class Null:
    """What off-topic questions find in an index: the median and the deviation of their best values.

    Values are those of :func:`suwen.retrieve.fuse.values`, for each leg and for both fused.
    """

    dense: tuple[float, float]
    lexical: tuple[float, float]
    hybrid: tuple[float, float]
    #: The index's highest row at the time; once it has grown by half, the null is measured again.
    rows: int
    #: Whose scores the dense ones were: a tier's documents score higher than the document encoder's.
    scale: str = MIXED
    #: In what dense scores are counted, by a query of length one: 1 for cosines, else what the questions mostly find.
    unit: float = 1.0
    #: How its heights become confidences.
    curve: Curve = "transformer"

    def fits(self, rows: int, scale: str = MIXED) -> bool:
        """Whether it still fits an index of this size, whose dense scores are on this scale."""
        return self.rows > 0 and rows <= 1.5 * self.rows and scale in (self.scale, MIXED)

    def height(self, of: str, value: float) -> float:
        """How many deviations a value stands above the best of off-topic questions: of a leg, or of both fused."""
        best: tuple[float, float] = getattr(self, of)
        median, deviation = best
        return (value - median) / max(deviation, _LEAST[of])

    def confidence(self, mode: str, value: float) -> float:
        """How likely a passage of this value is to help."""
        return self.confidences(mode, [value])[0]

    def confidences(self, mode: str, values: Sequence[float]) -> list[float]:
        """The same of several passages."""
        (slope, half), (median, deviation) = CURVES[self.curve][mode], getattr(self, mode)
        spread = max(deviation, _LEAST[mode])
        powers = [slope * ((value - median) / spread - half) for value in values]
        return [1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, power)))) for power in powers]

    def least(self, mode: str) -> float:
        """The value from which on a first hit counts as an answer."""
        slope, half = CURVES[self.curve][mode]
        median, deviation = getattr(self, mode)
        return float(median + (half + math.log(ANSWERS / (1 - ANSWERS)) / slope) * max(deviation, _LEAST[mode]))

    def to_json(self) -> str:
        """As the index remembers it."""
        return json.dumps({**asdict(self), "values": _VALUES})

    @classmethod
    def from_json(cls, text: str) -> Null:
        """The reverse of :meth:`to_json`."""
        fields: dict[str, Any] = json.loads(text)
        if fields.pop("values", None) != _VALUES:  # by an earlier version, in scores that say nothing here: made anew
            return cls((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0)
        fields |= {name: tuple(fields[name]) for name in ("dense", "lexical", "hybrid")}
        return cls(**fields)


def measure_null(
    dense: Callable[..., Ranking],
    lexical: Callable[[str, int], Ranking],
    encoder: Encoder,
    rows: int,
    scale: str,
    space: Space,
    weights: Mapping[str, float] = WEIGHTS,
    static: bool = False,
) -> Null:
    """Ask both legs the off-topic questions, and take the best score of each.

    Args:
        dense: Finds so many passages nearest to a vector, filter or not, beside rows that are named.
        lexical: Finds so many passages with the best BM25 score.
        encoder: Of the questions.
        rows: The index's highest row.
        scale: Whose scores the dense ones are like.
        space: Of the vectors.
        weights: Of the legs where both are fused.
        static: Whether the encoder is a token table.
    """
    probes = off_topic()
    vectors = encoder.encode_queries(probes)
    lengths = [query_length(vector, space) for vector in vectors]
    worded = [lexical(probe, WORDS) for probe in probes]
    nearest = [dense(vector, DEPTH, None, np.sort(hits.rows)) for vector, hits in zip(vectors, worded, strict=True)]
    best = [_top(ranking) / length for ranking, length in zip(nearest, lengths, strict=True)]
    unit = 1.0 if space.normalise else float(np.median(np.abs(best))) or 1.0
    found = []
    for hits, ranking, length in zip(worded, nearest, lengths, strict=True):
        legs = {"dense": ranking, "lexical": hits}
        both = _top(fuse_hybrid(legs, 1, weights, unit=unit * length))
        found.append({"hybrid": both} | {name: highest(name, leg, unit * length) for name, leg in legs.items()})
    by_words, by_meaning, by_both = (
        _summary([value[name] for value in found]) for name in ("lexical", "dense", "hybrid")
    )
    curve: Curve = "lengths" if not space.normalise else "static" if static else "transformer"
    return Null(by_meaning, by_words, by_both, rows, scale, unit, curve)


def query_length(vector: Vectors | None, space: Space) -> float:
    """How much a query's dense scores owe to its vector's length: nothing in a space of unit vectors."""
    return 1.0 if space.normalise or vector is None else float(np.linalg.norm(vector)) or 1.0


def judge(
    legs: Mapping[str, Ranking],
    null: Null,
    length: float = 1.0,
    rows: Sequence[int] = (),
    fused: Ranking | None = None,
    weights: Mapping[str, float] = WEIGHTS,
    elsewhere: bool = False,
) -> tuple[bool, dict[str, float], list[float]]:
    """Decide, and say on what: how far each leg's best hit stands above what off-topic questions find.

    Args:
        legs: What was found.
        null: What off-topic questions find.
        length: Of the query's vector, see :func:`query_length`.
        rows: The hits.
        fused: The legs fused as hybrid search does by itself, where that is known already.
        weights: Of the legs, as hybrid search has them by itself.
        elsewhere: Whether the query's words speak of another field.

    Returns:
        Whether anything helps, the heights, and how likely each hit is to; what no leg holds counts as its last.
    """
    unit = length * null.unit
    mode = "hybrid" if len(legs) > 1 else next(iter(legs))
    best = {name: highest(name, leg, unit) for name, leg in legs.items()}
    there, worth = _worth(legs, mode, unit, weights, fused)
    best["hybrid"] = max(worth[:WORDS].tolist(), default=0.0)
    heights = {name: round(null.height(name, best[name]), 2) for name in legs}
    first, *sure = null.confidences(mode, [best[mode], *_looked_up(there, worth, rows)])
    if elsewhere:
        first, *sure = (ELSEWHERE * value / (1 - (1 - ELSEWHERE) * value) for value in (first, *sure))
    if not any(len(ranking.rows) for ranking in legs.values()):
        return False, heights, sure
    exact = legs["lexical"].exact if "lexical" in legs else {}
    if len(there) and int(there[0]) in exact:  # where it is not the first, the first would say otherwise
        sure = [1 - DOUBT * (1 - value) if row in exact else value for row, value in zip(rows, sure, strict=True)]
        return True, heights, sure
    return round(first, 3) >= ANSWERS, heights, sure


def _worth(
    legs: Mapping[str, Ranking], mode: str, unit: float, weights: Mapping[str, float], fused: Ranking | None
) -> tuple[Rows, Any]:
    """The rows, best first, and what each is worth in the end; a leg alone is not fused."""
    if mode == "hybrid":
        fused = fuse_hybrid(legs, 2 * DEPTH, weights, unit=unit) if fused is None else fused
        return fused.rows, fused.scores
    return legs[mode].rows, values(mode, legs[mode], unit)[0]


def _looked_up(there: Rows, worth: Any, rows: Sequence[int]) -> list[float]:
    """What these rows are worth; what is not there counts as the last."""
    for count in (_NEAR_THE_TOP, len(there)):
        known = dict(zip(there[:count].tolist(), worth[:count].tolist(), strict=True))
        if all(row in known for row in rows):
            break
    least = float(worth[-1]) if len(worth) else 0.0
    return [known.get(row, least) for row in rows]


@cache
def off_topic() -> tuple[str, ...]:
    """Questions in Chinese and English that no medical collection answers."""
    return tuple(Path(__file__).with_name("off_topic.txt").read_text(encoding="utf-8").splitlines())


def _top(ranking: Ranking) -> float:
    return float(ranking.scores[0]) if len(ranking.scores) else 0.0


def _summary(scores: list[float]) -> tuple[float, float]:
    values: Any = np.asarray(scores)
    return round(float(np.median(values)), 6), round(float(values.std()), 6)
