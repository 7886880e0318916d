"""Near-duplicates: found at any size, decided by exact overlap, grouped across chains and links."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.curate import CurateError
from suwen.curate.near_duplicates import Near, groups, shingles, similarity


def test_copies_but_for_marks_are_found_and_others_are_not() -> None:
    near = Near()
    near.add("a", "孕妇感冒发烧可以吃布洛芬吗")
    near.add("b", "高血压患者可以喝酒吗")
    near.add("c", "？？")
    assert len(near) == 2
    assert near.find("孕妇感冒、发烧，可以吃布洛芬吗？") == ["a"]
    assert near.find("孕妇感冒发烧可以吃布洛芬缓释片吗") == [] and near.find("……") == []


@given(st.lists(st.text("病痛药吃", min_size=4, max_size=12), min_size=2, max_size=12, unique=True))
@settings(max_examples=30)
def test_whatever_is_over_the_threshold_is_found(texts: list[str]) -> None:
    near = Near(0.7)
    for text in texts:
        near.add(text, text)
    for text in texts:
        wanted = sorted(other for other in texts if similarity(shingles(text), shingles(other)) >= 0.7)
        assert near.find(text) == wanted


def test_long_passages_with_a_few_changes_are_found() -> None:
    draw = random.Random(1)
    letters = [chr(0x4E00 + draw.randrange(3000)) for _ in range(400)]
    changed = letters.copy()
    for place in draw.sample(range(400), 12):
        changed[place] = "改"
    near = Near(0.7)
    near.add("a", "".join(letters))
    assert near.find("".join(changed)) == ["a"]


def test_groups_go_over_others_in_between_and_over_links() -> None:
    texts = {
        "1": "糖尿病患者早餐吃什么好",
        "2": "糖尿病患者早餐吃什么好呢",
        "3": "糖尿病患者的早餐吃什么好呢",
        "4": "失眠怎么办",
    }
    assert groups({**texts, "5": "骨折多久能好"}, 0.6) == [["1", "2", "3"], ["4"], ["5"]]
    linked = groups({**texts, "5": "骨折多久能好"}, 1.0, {"4": "x", "5": "x"})
    assert ["4", "5"] in linked and len(linked) == 4


def test_a_threshold_that_means_nothing_is_refused() -> None:
    with pytest.raises(CurateError, match=r"0\.3 to 1"):
        Near(0.05)
