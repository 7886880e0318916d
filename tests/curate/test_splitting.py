"""Splitting: shares, near-duplicates on one side, no test query inside a training one, no test positive trained on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.near_duplicates import Near, groups
from suwen.curate.splitting import Guard, refuse_duplicates, split_queries

DISEASES = ("高血压", "糖尿病", "肺炎", "胃溃疡", "偏头痛", "骨质疏松", "甲状腺结节", "湿疹", "哮喘", "痛风")
ASKS = ("吃什么药好", "能不能运动", "遗传给孩子吗", "要做哪些检查", "饮食注意哪些事项")
TEXTS = {f"q{n}": disease + ask for n, (disease, ask) in enumerate((d, a) for d in DISEASES for a in ASKS)}


@given(st.floats(0.2, 0.8), st.integers(0, 5))
@settings(max_examples=15)
def test_a_split_keeps_its_share_and_leaks_nothing(share: float, seed: int) -> None:
    texts = {**TEXTS, "copy": "高血压吃什么药好呢？", "longer": "请问医生糖尿病饮食注意哪些事项，谢谢医生"}
    split = split_queries(texts, share, seed=seed)
    assert sorted([*split.train, *split.test, *split.dropped]) == sorted(texts)
    assert abs(len(split.train) + len(split.dropped) - share * len(texts)) <= max(map(len, groups(texts)))
    assert ("copy" in split.test) == ("q0" in split.test)
    near = Near()
    for id_ in split.test:
        near.add(id_, texts[id_])
    assert [id_ for id_ in split.train if near.find(texts[id_])] == []
    assert HeldOut(texts[id_] for id_ in split.test).hits(texts[id_] for id_ in split.train) == []
    assert split == split_queries(texts, share, seed=seed)


def test_a_training_query_that_holds_a_test_query_is_dropped() -> None:
    texts = {**TEXTS, "longer": "请问医生我得了糖尿病饮食注意哪些事项才能好，谢谢医生"}
    seen = [split_queries(texts, 0.5, seed=seed) for seed in range(12)]
    assert all(("longer" in s.dropped) == ("q9" in s.test and "longer" not in s.test) for s in seen)
    assert any(split.dropped for split in seen)


def test_linked_queries_stay_together() -> None:
    links = {id_: text[:2] for id_, text in TEXTS.items()}
    split = split_queries(TEXTS, 0.5, links=links)
    assert {TEXTS[id_][:2] for id_ in split.train} & {TEXTS[id_][:2] for id_ in split.test} == set()


def test_no_share_is_all_test_and_bad_shares_are_refused() -> None:
    assert split_queries(TEXTS, 0.0).test == list(TEXTS)
    with pytest.raises(CurateError, match="but not with, 1"):
        split_queries(TEXTS, 1.0)
    with pytest.raises(CurateError, match="nothing is left to train on"):
        split_queries({"a": "感冒怎么办呢", "b": "感冒怎么办"}, 0.5)


def test_the_guard_knows_ids_copies_and_queries() -> None:
    guard = Guard(["痛风可以吃海鲜吗请问"], {"d1": "痛风患者应避免海鲜和动物内脏，多喝水，少饮酒。"})
    assert guard.leaks("d1", "随便什么")
    assert guard.leaks("d9", "痛风患者应避免海鲜和动物内脏，多喝水，少饮酒")
    assert guard.leaks("d9", "患者问：痛风可以吃海鲜吗，请问？")
    assert not guard.leaks("d9", "骨折后应固定患肢。")


def test_the_same_query_twice_is_named() -> None:
    with pytest.raises(CurateError, match="'a' and 'c' are the same"):
        refuse_duplicates({"a": "感冒怎么办？", "b": "发烧", "c": "感冒怎么辦"})
