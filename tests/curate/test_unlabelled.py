"""Texts drawn without labels: what is cut where, and that a seed draws the same again."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.curate.leakage import HeldOut
from suwen.curate.patterns import ONE_EN, ONE_ZH, TWO_EN, TWO_ZH
from suwen.curate.unlabelled import Mix, Text, ask, clauses, first_and_rest, halves, sentence_texts, spans, windows

CONSULTATION = "我咳嗽三天了，体温37.5度，有痰。需要吃药吗？谢谢！"
MIXED = st.text("咳嗽，。？！；a b,.;?!1\n", max_size=60)


def test_clauses_end_at_marks_but_not_inside_numbers() -> None:
    assert clauses(CONSULTATION) == ["我咳嗽三天了，", "体温37.5度，", "有痰。", "需要吃药吗？", "谢谢！"]
    assert clauses("Took 1,000 mg, felt ill. Why?") == ["Took 1,000 mg,", " felt ill.", " Why?"]
    assert clauses("。。，，") == [] == clauses("")


@given(MIXED)
def test_clauses_lose_no_letter(text: str) -> None:
    assert [c for clause in clauses(text) for c in clause if c.isalnum()] == [c for c in text if c.isalnum()]


@given(MIXED, st.integers(0, 12), st.integers())
def test_spans_stand_in_the_text_and_a_seed_draws_the_same(text: str, count: int, seed: int) -> None:
    drawn = list(spans(text, count, random.Random(seed)))
    assert drawn == list(spans(text, count, random.Random(seed))) and len(drawn) <= count
    letters = "".join(c for c in text if c.isalnum())
    assert all("".join(c for c in span if c.isalnum()) in letters for span in drawn)
    assert all(span and span[-1] not in "，。？！" for span in drawn)


def test_spans_follow_each_other_up_to_the_longest() -> None:
    drawn = set(spans(CONSULTATION, 100, random.Random(0), longest=2))
    assert len(drawn) == 9
    assert "有痰。需要吃药吗" in drawn and "我咳嗽三天了，体温37.5度" in drawn
    assert not any(span.startswith("我咳嗽") and "有痰" in span for span in drawn)


def test_first_and_rest_and_halves_make_up_the_text() -> None:
    text = "感冒多由病毒引起。一般一周自愈，注意休息。多喝水。"
    assert first_and_rest(text) == ("感冒多由病毒引起。", "一般一周自愈，注意休息。多喝水。")
    assert first_and_rest("只有一句话。") is None and first_and_rest("短。一般一周自愈。") is None
    left, right = halves(text) or ("", "")
    assert left + right == text and abs(len(left) - len(right)) < 8
    assert halves("没有逗号的一句话写在这里") is None and halves("") is None
    assert sentence_texts(text) == ["感冒多由病毒引起。", "一般一周自愈，注意休息。", "多喝水。"]


def test_windows_are_runs_of_words() -> None:
    text = "vitamin supplement elderly falls randomised trial village norway"
    drawn = list(windows(text, 20, random.Random(3), shortest=2, longest=4))
    assert len(drawn) == 20 and all(2 <= len(run.split()) <= 4 and run in text for run in drawn)
    assert list(windows("one two", 5, random.Random(0))) == []


@pytest.mark.parametrize(("one", "two", "least"), [(ONE_ZH, TWO_ZH, 60), (ONE_EN, TWO_EN, 40)])
def test_patterns_differ_and_ask_for_what_they_should(one: tuple[str, ...], two: tuple[str, ...], least: int) -> None:
    assert len(set(one)) == len(one) >= least and len(set(two)) == len(two)
    assert all(pattern.count("{x}") == 1 and "{y}" not in pattern for pattern in one)
    assert all(pattern.count("{x}") == 1 == pattern.count("{y}") for pattern in two)


def test_names_are_put_into_patterns() -> None:
    names = ["感冒", "肺炎", "哮喘"]
    asked = list(islice(ask(names, ["{x}怎么办"], ["{x}和{y}的区别"], random.Random(1)), 200))
    ones = [text for text in asked if text.endswith("怎么办")]
    assert set(ones) == {f"{name}怎么办" for name in names} and 130 < len(ones) < 190
    assert set(asked) - set(ones) == {f"{x}和{y}的区别" for x in names for y in names if x != y}
    assert list(ask([], ["{x}"], [], random.Random(0))) == []
    assert set(islice(ask(["感冒"], ["{x}"], ["{x}{y}"], random.Random(0)), 30)) == {"感冒"}


def mix(total: int = 20, held_out: tuple[str, ...] = ()) -> Mix:
    shares = {"zh": {"query": 0.2, "answer": 0.1}, "en": {"query": 0.1, "answer": 0.1}}
    return Mix(HeldOut(held_out), total, {"zh": 0.6, "en": 0.4}, shares, longest=12)


def texts(made: Mix, language: str, kind: str) -> list[str]:
    return [text.text for text in made.taken[language, kind]]


def test_a_mix_takes_each_kind_up_to_its_share_and_nothing_twice() -> None:
    made = mix(held_out=("牙疼",))
    offered = ["牙疼？", "头疼", "头 疼！", "痛", "腰疼", "fever", "cough", "腿疼", "fever and chills", "手疼", "脚疼"]
    made.take(Text(text, "query", "somewhere") for text in offered)
    assert texts(made, "zh", "query") == ["头疼", "腰疼", "腿疼", "手疼"]
    assert texts(made, "en", "query") == ["fever", "cough"]
    assert made.left_out == {"held out": 1, "repeated": 1, "too short": 1}


def test_a_mix_cuts_and_cleans() -> None:
    made = mix()
    made.take(
        [Text("  一二三四五六七八九十\u200b甲乙丙丁", "answer", "a"), Text("一二三四五六七八九十甲乙？", "answer", "b")]
    )
    assert texts(made, "zh", "answer") == ["一二三四五六七八九十甲乙"]


def test_a_language_is_filled_to_its_share_or_until_nothing_new_comes() -> None:
    made = mix()
    made.take([Text("头疼", "query", "a"), Text("fever", "query", "a")])
    made.fill("zh", "pattern", (Text(f"第{number // 2}个问题", "", "p") for number in range(100)))
    assert texts(made, "zh", "pattern") == [f"第{number}个问题" for number in range(11)]
    names = ask(["flu", "gout"], ["what is {x}"], ["{x} or {y}"], random.Random(0))
    made.fill("en", "pattern", (Text(name, "", "p") for name in names))
    assert sorted(texts(made, "en", "pattern")) == ["flu or gout", "gout or flu", "what is flu", "what is gout"[:12]]
    counts = made.counts()
    assert counts["total"] == 12 + 5 and counts["by language and kind"]["zh pattern"] == 11
    assert counts["by source"] == {"a": 2, "p": 15} and counts["share of query-like kinds"] == 1.0
    assert counts["share of Chinese"] == round(12 / 17, 3)
