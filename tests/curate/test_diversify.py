"""Diversity selection against a plain numpy loop, one candidate at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.curate import CurateError
from suwen.curate.diversify import DOCUMENTS, QUERIES, Diversity, Selected, select


class Vectors:
    """An encoder of the texts "0", "1", …: rows of a table in which many are near each other."""

    def __init__(self, seed: int, size: int = 200, dimension: int = 8) -> None:
        draw = np.random.default_rng(seed)
        centres = draw.standard_normal((12, dimension))
        self.rows = (centres[draw.integers(0, 12, size)] + 0.35 * draw.standard_normal((size, dimension))) * 3
        self.batches: list[int] = []

    def __call__(self, texts: list[str]) -> npt.NDArray[Any]:
        self.batches.append(len(texts))
        return self.rows[[int(text) for text in texts]]


def plain(rows: npt.NDArray[Any], seeds: int, diversity: Diversity) -> list[str]:
    """The selection as the paper words it."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    index, kept = list(range(seeds)), []
    for candidate in range(seeds, len(rows)):
        nearest = sorted((float(unit[candidate] @ unit[other]) for other in index), reverse=True)[: diversity.k]
        over = sum(score > diversity.threshold for score in nearest)
        if over <= diversity.most:
            index.append(candidate)
            kept.append(str(candidate))
    return kept


def names(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    seeds=st.sampled_from([0, 3, 40]),
    batch=st.sampled_from([1, 7, 64, 500]),
    threshold=st.sampled_from([0.5, 0.78, 0.85, 0.95]),
    k=st.integers(2, 6),
    most=st.integers(0, 1),
)
def test_it_keeps_what_the_plain_loop_keeps(
    seed: int, seeds: int, batch: int, threshold: float, k: int, most: int
) -> None:
    encode, diversity = Vectors(seed), Diversity(k, threshold, most)
    count = Selected()
    kept = list(select(iter(names(0, 200)), str, encode, diversity, seeds=seeds, count=count, batch=batch))
    assert kept == [*names(0, seeds), *plain(encode.rows, seeds, diversity)]
    assert count == Selected(seeds, 200 - seeds, len(kept) - seeds)
    assert max(encode.batches) <= batch


def test_the_paper_settings() -> None:
    assert QUERIES == (5, 0.85, 1) and DOCUMENTS == (5, 0.78, 1)
    encode = Vectors(1)
    kept = [len(list(select(names(0, 200), str, encode, setting, seeds=50))) for setting in (QUERIES, DOCUMENTS)]
    assert 50 < kept[1] < kept[0] < 200


def test_candidates_stream() -> None:
    taken: list[str] = []

    def stream() -> Any:
        for name in names(0, 100):
            taken.append(name)
            yield name

    chosen = select(stream(), str, Vectors(2), seeds=0, batch=10)
    next(chosen)
    assert len(taken) == 10
    assert list(chosen) and len(taken) == 100


@pytest.mark.parametrize("wrong", [Diversity(k=1, most=1), Diversity(most=-1), Diversity(threshold=1.5)])
def test_settings_that_make_no_sense_are_refused(wrong: Diversity) -> None:
    with pytest.raises(CurateError):
        list(select(["0"], str, Vectors(0), wrong))


def test_bad_vectors_are_refused() -> None:
    with pytest.raises(CurateError, match="one row per text"):
        list(select(["0", "1"], str, lambda texts: np.ones((1, 4))))
    with pytest.raises(CurateError, match="length zero"):
        list(select(["0", "1"], str, lambda texts: np.zeros((2, 4))))
    with pytest.raises(CurateError, match="of 4, then of 2"):
        list(select(["s", "0"], str, lambda texts: np.ones((1, 4 if texts == ["s"] else 2)), seeds=1))
    with pytest.raises(CurateError, match="batches of 0"):
        list(select(["0"], str, Vectors(0), batch=0))
