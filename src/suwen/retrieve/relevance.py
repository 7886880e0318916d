"""Whether anything relevant was found. Nearest neighbours always exist; this says when they are no answer.

A score alone says nothing: its level depends on the encoder and on the collection. So each index is asked a few dozen
questions from outside medicine (``off_topic.txt``), and a query's best scores are held against what those found. Where
vectors have lengths of their own, scores also grow with the query's, which says nothing either: it is divided out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from suwen.encoders.query import Encoder
from suwen.encoders.space import Space
from suwen.index.engine import Ranking, Vectors

#: How far above the off-topic questions the best hits must stand, in deviations, mean over the legs that were searched:
#: as high as keeps 57 of the bundled sample's 60 queries with either tier of the default pair, whoever encoded the
#: documents. It then turns away 5 or 6 of 8 questions from outside medicine that played no part in setting it
#: (tests/retrieve/test_relevance.py).
STANDS_OUT = 0.8
#: The least deviation that counts, for an index where the off-topic questions hardly differ.
_LEAST = {"dense": 0.01, "lexical": 1.0}
#: The scale of passages by several encoders that cannot be compared yet: for a while, any measure will do.
MIXED = "?"


@dataclass(frozen=True)
class Null:
    """What off-topic questions find in an index: for each leg the median and the deviation of their best scores."""

    dense: tuple[float, float]
    lexical: tuple[float, float]
    #: The index's highest row at the time; once it has grown by half, the null is measured again.
    rows: int
    #: Whose scores the dense ones were: a tier's documents score higher than the document encoder's.
    scale: str = MIXED
    #: In what dense scores are counted, by a query of length one: 1 for cosines, else what the questions mostly find.
    unit: float = 1.0

    def fits(self, rows: int, scale: str = MIXED) -> bool:
        """Whether it still fits an index of this size, whose dense scores are on this scale."""
        return self.rows > 0 and rows <= 1.5 * self.rows and scale in (self.scale, MIXED)

    def height(self, leg: str, score: float) -> float:
        """How many deviations a best score stands above the off-topic ones."""
        median, deviation = self.dense if leg == "dense" else self.lexical
        return (score - median) / max(deviation, _LEAST[leg])

    def to_json(self) -> str:
        """As the index remembers it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Null:
        """The reverse of :meth:`to_json`."""
        fields = json.loads(text)
        scale = str(fields.get("scale", MIXED))
        unit = float(fields.get("unit", 1.0))
        return cls(tuple(fields["dense"]), tuple(fields["lexical"]), int(fields["rows"]), scale, unit)


def measure_null(
    dense: Callable[[Vectors, int], Ranking],
    lexical: Callable[[str, int], Ranking],
    encoder: Encoder,
    rows: int,
    scale: str,
    space: Space,
) -> Null:
    """Ask both legs the off-topic questions, and take the best score of each.

    Args:
        dense: Finds so many passages nearest to a vector.
        lexical: Finds so many passages with the best BM25 score.
        encoder: Of the questions.
        rows: The index's highest row.
        scale: Whose scores the dense ones are like.
        space: Of the vectors.
    """
    probes = off_topic()
    vectors = encoder.encode_queries(probes)
    nearest = [_top(dense(vector, 1)) / query_length(vector, space) for vector in vectors]
    best = [_top(lexical(probe, 1)) for probe in probes]
    unit = 1.0 if space.normalise else float(np.median(np.abs(nearest))) or 1.0
    return Null(_summary([score / unit for score in nearest]), _summary(best), rows, scale, unit)


def query_length(vector: Vectors | None, space: Space) -> float:
    """How much a query's dense scores owe to its vector's length: nothing in a space of unit vectors."""
    return 1.0 if space.normalise or vector is None else float(np.linalg.norm(vector)) or 1.0


def judge(legs: Mapping[str, Ranking], null: Null, length: float = 1.0) -> tuple[bool, dict[str, float]]:
    """Decide, and say on what: how far each leg's best hit stands above what off-topic questions find.

    Args:
        legs: What was found.
        null: What off-topic questions find.
        length: Of the query's vector, see :func:`query_length`.
    """
    units = {"dense": length * null.unit, "lexical": 1.0}
    scored = {name: _top(ranking) / units[name] for name, ranking in legs.items()}
    heights = {name: round(null.height(name, score), 2) for name, score in scored.items()}
    if not any(len(ranking.rows) for ranking in legs.values()):
        return False, heights
    return float(np.mean(list(heights.values()))) >= STANDS_OUT, heights


@cache
def off_topic() -> tuple[str, ...]:
    """Questions in Chinese and English that no medical collection answers."""
    return tuple(Path(__file__).with_name("off_topic.txt").read_text(encoding="utf-8").splitlines())


def _top(ranking: Ranking) -> float:
    return float(ranking.scores[0]) if len(ranking.scores) else 0.0


def _summary(scores: list[float]) -> tuple[float, float]:
    values: Any = np.asarray(scores)
    return round(float(np.median(values)), 6), round(float(values.std()), 6)
