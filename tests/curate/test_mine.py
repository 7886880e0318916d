"""Mining: the window, the margin, copies, scores and the draw; then over a real index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from small_pair import NOTES, make_pair

from suwen.corpora.records import Document
from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError
from suwen.curate.mine import Found, Window, look_alikes, mine_negatives, search_index
from suwen.curate.near_duplicates import shingles, similarity
from suwen.encoders.pair import Pair
from suwen.retrieve.retriever import Index

HITS = [
    Found("正确的回答在这里", 0.9),
    *(Found(f"错误的内容{chr(0x4E00 + 97 * n)}" * 2, 0.88 - 0.02 * n) for n in range(20)),
]
ROW = TrainingRow("问题是什么", (HITS[0].text,))


def fixed(queries: list[str], k: int) -> list[list[Found]]:
    return [HITS[:k] for _ in queries]


def mined(row: TrainingRow = ROW, **window: Any) -> TrainingRow:
    settings_ = {"first_rank": 1, "last_rank": 50, "margin": None, "count": 50, "near_duplicate": 1.0} | window
    return next(mine_negatives([row], fixed, Window(**settings_)))


def test_only_the_window_is_looked_at() -> None:
    row = mined(first_rank=4, last_rank=8)
    assert row.neg == tuple(hit.text for hit in HITS[3:8]) and row.neg_scores == tuple(hit.score for hit in HITS[3:8])
    assert row.pos_scores == (0.9,) and row.query == ROW.query and row.pos == ROW.pos


def test_candidates_near_the_positives_score_are_left_out() -> None:
    row = mined(margin=0.9)
    assert row.neg_scores == tuple(hit.score for hit in HITS if hit.score <= 0.81) and row.neg_scores
    low = ROW._replace(pos=(*ROW.pos, HITS[10].text))
    assert max(mined(low, margin=1.0).neg_scores) < HITS[10].score


def test_a_margin_below_zero_lies_lower() -> None:
    hits = [Found("甲乙丙丁", -0.1), Found("子丑寅卯", -0.102), Found("天地玄黄", -0.2)]
    (row,) = mine_negatives([TrainingRow("问", ("甲乙丙丁",))], lambda q, k: [hits], Window(1, margin=0.9))
    assert row.neg == ("天地玄黄",)


def test_the_rule_is_the_same_for_one_row_and_for_many() -> None:
    scores = np.sort(np.random.default_rng(0).standard_normal((30, 12)))[:, ::-1]
    positive, window = scores[:, 3:4] * 1.01, Window(2, 9, 0.9)
    many = window.allows(scores, positive)
    assert many.any() and np.array_equal(many, [window.allows(*row) for row in zip(scores, positive, strict=True)])
    for row, mark, may in zip(scores, positive[:, 0], many, strict=True):
        limit = mark - 0.1 * abs(mark)
        assert may.tolist() == [2 <= rank <= 9 and score <= limit for rank, score in enumerate(row, 1)]


def test_without_the_positives_score_a_margin_takes_nothing() -> None:
    lost = TrainingRow("问题是什么", ("别处的回答",), ("自己的反例",))
    assert mined(lost, margin=0.95) == lost
    assert len(mined(lost).neg) == 1 + len(HITS) and mined(lost).neg_scores == ()
    assert mined(lost._replace(pos_scores=(0.8,)), margin=1.0).neg[1:] == tuple(h.text for h in HITS if h.score <= 0.8)


def test_own_negatives_stay_in_front_and_keep_their_scores() -> None:
    own = ROW._replace(neg=("自己的反例",), neg_scores=(0.3,))
    row = mined(own, count=2)
    assert row.neg[0] == "自己的反例" and row.neg_scores[0] == 0.3 and len(row.neg) == 3 == len(row.neg_scores)
    found = mined(ROW._replace(neg=(HITS[3].text,)))
    assert found.neg.count(HITS[3].text) == 1 and found.neg_scores[0] == HITS[3].score


def test_copies_and_near_copies_are_left_out() -> None:
    texts = [
        "高血压患者要低盐饮食。",
        "高血压 患者要低盐饮食！",
        "高血压患者要低盐饮食的",
        "糖尿病要控制血糖水平",
        "糖尿病要控制血糖水平了",
        "骨折",
    ]
    hits = [Found(text, 1 - n / 10) for n, text in enumerate(texts)]
    row = TrainingRow("高血压", (texts[0],))

    def neg(near: float) -> tuple[str, ...]:
        found = mine_negatives([row], lambda q, k: [hits], Window(1, margin=None, near_duplicate=near))
        return next(found).neg

    assert set(neg(1.0)) == set(texts[2:])
    few = neg(0.7)
    assert len(few) == 2 and "骨折" in few and few[0] in texts[3:5]


def test_a_piece_of_a_positive_is_no_negative() -> None:
    whole = "痛风是一种关节炎。它常在夜间发作，大脚趾疼痛难忍。治疗上要降低尿酸，少喝酒，多喝水。"
    pieces = [Found(whole[:9], 0.9), Found(whole[9:24], 0.8), Found("高血压病人要少吃盐，多走路。", 0.7)]
    (row,) = mine_negatives([TrainingRow("痛风怎么办", (whole,))], lambda q, k: [pieces], Window(1, margin=None))
    assert row.neg == (pieces[2].text,)


def test_the_draw_follows_the_seed_and_not_the_batch() -> None:
    rows = [ROW._replace(query=f"问题{number}") for number in range(9)]

    def drawn(**kind: Any) -> list[TrainingRow]:
        return list(mine_negatives(rows, fixed, Window(1, margin=None, count=4), **kind))

    first = drawn(batch=2)
    assert first == drawn(batch=256) != drawn(seed=1)
    assert len({row.neg for row in first}) > 1 and all(len(row.neg) == 4 for row in first)
    assert all(list(row.neg_scores) == sorted(row.neg_scores, reverse=True) for row in first)


def test_rows_stream() -> None:
    taken: list[int] = []

    def stream() -> Iterator[TrainingRow]:
        for number in range(100):
            taken.append(number)
            yield ROW

    next(mine_negatives(stream(), fixed, batch=8))
    assert len(taken) == 8


@pytest.mark.parametrize(
    "window",
    [{"first_rank": 0}, {"first_rank": 9, "last_rank": 8}, {"count": 0}, {"margin": 0.0}, {"near_duplicate": 1.1}],
)
def test_a_window_that_makes_no_sense_is_refused(window: dict[str, Any]) -> None:
    with pytest.raises(CurateError, match=next(iter(window)).replace("first_rank", "ranks")):
        Window(**window)


@given(st.text("甲乙丙丁", max_size=9), st.text("甲乙丙丁", max_size=9))
def test_similarity_is_jaccards(one: str, other: str) -> None:
    a, b = shingles(one), shingles(other)
    assert similarity(a, b) == (len(a & b) / len(a | b) if a | b else 0.0)


def test_negatives_come_from_a_real_index(tmp_path: Path) -> None:
    pair = Pair.load(make_pair(tmp_path / "pair", tiers=("static", "rough")))
    documents = [Document(id_, text, title, metadata) for id_, title, text, metadata in NOTES]
    with Index.create(tmp_path / "index", pair=pair) as index:
        index.add(documents)
        passages = {text for _, _, text, _ in NOTES}
        (first,) = search_index(index, "rough")([TrainingRow("高血压要怎么饮食", (NOTES[0][2],))], 10)
        assert {hit.text for hit in first} <= passages and first[0].score >= first[-1].score
        assert all(-1.01 <= hit.score <= 1.01 for hit in first)
        positive = NOTES[0][2]
        rows = [TrainingRow("高血压患者低盐饮食", (positive,)), TrainingRow("骨折愈合", (NOTES[7][2],))]
        mined_rows = list(mine_negatives(rows, search_index(index, "static"), Window(1, margin=0.95, count=3)))
    for row in mined_rows:
        assert len(row.neg) == 3 and set(row.neg) <= passages - set(row.pos)
        assert max(row.neg_scores) <= 0.95 * row.pos_scores[0]


def test_look_alikes_share_character_pairs() -> None:
    near = look_alikes(["心脏移植术", "右肺切除术", "左肺切除术", "左肺活检术"], 3)
    assert near("左肺切除") == ["左肺切除术", "右肺切除术", "左肺活检术"]
    assert near("无关") == []


TITLED = [
    Found("每日食盐不超过5克。", 0.9, "高血压"),
    *(Found(f"错误的内容{chr(0x4E00 + 97 * n)}" * 2, 0.7, f"题{n}") for n in range(5)),
]


@pytest.mark.parametrize(("pos", "titled"), [("高血压\n每日食盐不超过5克。", True), ("每日食盐不超过5克。", False)])
def test_titles_travel_as_the_row_has_them(pos: str, titled: bool) -> None:
    (row,) = mine_negatives([TrainingRow("吃多少盐", (pos,))], lambda rows, k: [TITLED], Window(1, count=3))
    assert len(row.neg) == 3 and row.pos_scores == (0.9,)
    assert all(text.startswith("题") == titled for text in row.neg)


def test_a_piece_of_a_titled_positive_is_no_negative() -> None:
    whole = "高血压\n每日食盐不超过5克，多吃蔬菜水果，少吃腌制食品，规律运动。"
    pieces = [Found("每日食盐不超过5克，多吃蔬菜水果，", 0.5, "高血压"), Found("骨折后应固定患肢。", 0.4, "骨折")]
    rows = [TrainingRow("吃多少盐", (whole,), pos_scores=(0.9,))]
    (row,) = mine_negatives(rows, lambda rows, k: [pieces], Window(1, count=3))
    assert row.neg == ("骨折\n骨折后应固定患肢。",)
