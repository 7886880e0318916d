"""The held-out check: what counts as the same text, what counts as near, and what the refusal says."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.files import CorpusError
from suwen.corpora.training_rows import TrainingRow
from suwen.curate.leakage import NEAR_WEIGHT, HeldOut, LeakageError, comparable, is_held_out, refuse_leaks, weight

LONG = "孕妇感冒了可以吃什么药"


@given(st.text())
def test_one_row_in_ten_is_held_out_by_its_hash(text: str) -> None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return
    assert is_held_out(text) == (int.from_bytes(hashlib.sha1(raw).digest()) % 10 == 0)


def test_about_a_tenth_is_held_out() -> None:
    assert 60 < sum(is_held_out(f"第{number}个问题") for number in range(1000)) < 140


@pytest.mark.parametrize("text", ["牙疼", "牙疼？", " 牙 疼！", "【牙疼】"])
def test_width_case_script_spaces_and_marks_do_not_matter(text: str) -> None:
    assert HeldOut(["牙疼"]).hit(text) == "牙疼"
    assert HeldOut(["HbA1c 檢查"]).hit("ＨＢＡ１Ｃ检查。") == "HbA1c 檢查"


def test_a_short_text_must_be_equal_and_a_long_one_may_stand_inside() -> None:
    held_out = HeldOut(["牙疼", LONG, "breast cancer", "how to lower cholesterol without drugs"])
    assert held_out.hit("牙疼怎么办") is None
    assert held_out.hit(f"医生你好，{LONG[:4]}，{LONG[4:]}呢？谢谢") == LONG
    assert held_out.hit(LONG[:-1]) is None
    assert held_out.hit("screening for breast cancer in women") is None
    assert held_out.hit("Doctor, how to lower cholesterol (without drugs)?") == "how to lower cholesterol without drugs"
    assert held_out.hits(["牙疼", "头疼", LONG + "好"]) == ["牙疼", LONG + "好"]


def test_texts_that_end_alike_are_told_apart() -> None:
    held_out = HeldOut(["我妈妈得了高血压应该怎么治疗才好", "我爸爸得了高血压应该怎么治疗才好"])
    assert held_out.hit("请问我爸爸得了高血压应该怎么治疗才好") == "我爸爸得了高血压应该怎么治疗才好"
    assert held_out.hit("请问我爷爷得了高血压应该怎么治疗才好") is None


@given(
    st.lists(st.text("高血压怎么办a1", max_size=16), max_size=6),
    st.lists(st.text("高血压怎么办a1", max_size=40), max_size=6),
)
def test_the_lookup_agrees_with_looking_through_everything(held: list[str], texts: list[str]) -> None:
    held_out = HeldOut(held)
    plain = [comparable(text) for text in held if comparable(text)]
    for text in texts:
        compared = comparable(text)
        expected = any(h == compared or (weight(h) >= NEAR_WEIGHT and h in compared) for h in plain)
        assert (held_out.hit(text) is not None) == expected
    assert len(held_out) == len(set(plain)) == len(list(held_out))


@given(
    st.lists(st.text("abé高𠀀", min_size=25, max_size=40), max_size=5),
    st.lists(st.text("abé高𠀀", min_size=25, max_size=40), max_size=5),
    st.text("abé高𠀀", max_size=130),
    st.integers(0, 260),
)
def test_what_stands_inside_a_long_text_is_found_wherever_it_stands(
    held: list[str], later: list[str], filler: str, place: int
) -> None:
    held_out = HeldOut(held)
    long = (filler + "z" * 130 + filler)[:250]
    for known in (held, [*held, *later]):
        for text in later:
            held_out.add(text) if known is not held else None
        for one in known:
            hit = held_out.hit(long[:place] + one + long[place:])
            assert hit is not None and comparable(hit) in comparable(long[:place] + one + long[place:])
        plain = [comparable(text) for text in known if weight(comparable(text)) >= NEAR_WEIGHT]
        assert (held_out.hit(long) is not None) == any(one in comparable(long) for one in plain)


def test_many_held_out_texts_and_half_a_surrogate_are_no_trouble() -> None:
    held_out = HeldOut(f"what is known of the illness number {number} today" for number in range(5000))
    for number in (0, 2500, 4999):
        text = f"{'so much else ' * 30}\ud800 what is known of the illness number {number} today, {'and on ' * 30}"
        assert held_out.hit(text) == f"what is known of the illness number {number} today"
    assert held_out.hit("so much else " * 60) is None


def test_leaking_rows_are_named_with_the_fix() -> None:
    rows = [
        TrainingRow("头疼", ("休息",)),
        TrainingRow("牙疼", ("看牙医",), ("跑步",)),
        TrainingRow("肚子疼", ("多喝水",), (f"{LONG}呢",)),
    ]
    with pytest.raises(LeakageError) as raised:
        list(refuse_leaks(rows, HeldOut(["牙疼", LONG]), name="rows.jsonl"))
    said = str(raised.value)
    assert said.startswith("rows.jsonl: 2 texts are evaluation texts")
    assert "row 2 (query): '牙疼'" in said and "row 3 (neg)" in said and "Remove these rows" in said
    assert list(refuse_leaks(rows, HeldOut(["咳嗽"]))) == rows


def test_many_leaks_are_counted_not_listed() -> None:
    with pytest.raises(LeakageError, match=r"7 texts .* and 2 more"):
        list(refuse_leaks(["牙疼"] * 7, HeldOut(["牙疼"])))


def test_the_held_out_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in ("牙疼", LONG, "牙疼！"))
    assert list(HeldOut.read(path)) == ["牙疼", LONG]


def test_a_bad_held_out_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "held-out.jsonl"
    path.write_text('{"text": "a"}\n{"query": "b"}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"held-out\.jsonl:2: not a held-out text"):
        HeldOut.read(path)
    with pytest.raises(CorpusError, match="there is no such file"):
        HeldOut.read(tmp_path / "none.jsonl")


def test_a_text_of_many_rows_is_looked_at_once_and_a_leak_is_named_in_each() -> None:
    asked: list[str] = []

    class Counting(HeldOut):
        def hit(self, text: str) -> str | None:
            asked.append(text)
            return super().hit(text)

    rows = [TrainingRow(query=f"问题{number}", pos=["多喝水", "牙疼！"]) for number in range(3)]
    with pytest.raises(LeakageError, match="3 texts are evaluation texts"):
        list(refuse_leaks(rows, Counting(["牙疼"])))
    assert asked.count("多喝水") == asked.count("牙疼！") == 1
