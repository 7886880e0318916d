"""Selection over items: seeds pass, the rest is judged by its texts alone, items keep who they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.curate import CurateError
from suwen.curate.diversify import Diversity, Selected, select

STRICT = Diversity(k=3, threshold=0.9, most=0)


def encode(texts: list[str]) -> np.ndarray:
    """One direction for each first letter: texts that begin alike are alike."""
    return np.eye(26, dtype=np.float32)[[ord(text[0]) - 97 for text in texts]]


def test_seeds_pass_unjudged_and_the_rest_is_held_to_them() -> None:
    items = [("1", "apple"), ("2", "avocado"), ("3", "banana"), ("4", "apricot"), ("5", "cherry"), ("6", "citrus")]
    count = Selected()
    kept = list(select(items, lambda item: item[1], encode, STRICT, seeds=2, count=count))
    assert kept == [("1", "apple"), ("2", "avocado"), ("3", "banana"), ("5", "cherry")]
    assert count == Selected(seeds=2, judged=4, kept=2)


@given(
    st.lists(st.sampled_from(["aa", "ab", "ba", "bb", "ca", "aa"]), max_size=30), st.integers(0, 5), st.integers(0, 2)
)
def test_the_rule_is_the_same_whatever_the_items(texts: list[str], seeds: int, most: int) -> None:
    diversity = Diversity(k=3, threshold=0.9, most=most)
    items = list(enumerate(texts))
    kept = list(select(items, lambda item: item[1], encode, diversity, seeds=seeds))
    assert [text for _, text in kept] == list(select(texts, str, encode, diversity, seeds=seeds))
    assert [number for number, _ in kept] == sorted({number for number, _ in kept})


def test_items_stream() -> None:
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield "abcdefgh"[taken % 8]

    stream = select(endless(), str, encode, STRICT, seeds=1)
    assert [next(stream) for _ in range(8)] == list("bcdefgha") and taken < 2000


def test_fewer_than_no_seeds_are_refused() -> None:
    with pytest.raises(CurateError, match="0 or more"):
        list(select(["a"], str, encode, seeds=-1))
