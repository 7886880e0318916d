"""Pairs from plain text: titles, disjoint passages, the mix, memory, bad input."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.files import CorpusError
from suwen.corpora.records import Document
from suwen.corpora.training_rows import read_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.text_pairs import INSTRUCTION, SHORTEST, Corpus, make_pairs, pair_of, read_mix, two_passages

SENTENCES = [f"Sentence number {number} tells of something that no other one tells." for number in range(40)]
LONG = " ".join(SENTENCES)


def corpus(path: Path, records: Iterator[dict[str, object]] | list[dict[str, object]]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


@given(st.integers(0, 10_000), st.integers(SHORTEST, 2000))
def test_two_passages_share_nothing_and_are_whole_sentences(seed: int, size: int) -> None:
    one, other = two_passages(LONG, random.Random(seed), size) or ("", "")
    told = [{sentence for sentence in SENTENCES if sentence in passage} for passage in (one, other)]
    assert one in LONG and other in LONG and not told[0] & told[1]
    assert min(len(one), len(other)) >= SHORTEST and max(len(one), len(other)) <= max(size, SHORTEST)
    if size >= 200:
        assert all(passage.endswith(".") and passage.startswith("Sentence") for passage in (one, other))


def test_text_without_marks_is_cut_between_words_and_chinese_at_its_marks() -> None:
    plain = " ".join(f"word{number}" for number in range(200))
    one, other = two_passages(plain, random.Random(1)) or ("", "")
    assert not set(one.split()) & set(other.split()) and set(one.split()) <= set(plain.split())
    chinese = (
        "高血压患者应当低盐饮食，每天测量血压，按时服药，避免情绪激动和过度劳累，戒烟限酒，保持适当的运动和良好的睡眠。"
        * 2
    )
    assert sorted(two_passages(chinese, random.Random(0)) or ()) == [chinese[: len(chinese) // 2]] * 2
    assert two_passages("短。更短。", random.Random(0)) is None and two_passages("", random.Random(0)) is None


def test_the_order_of_the_two_is_drawn() -> None:
    firsts = Counter(LONG.index((two_passages(LONG, random.Random(seed)) or ("",))[0]) < 1200 for seed in range(60))
    assert min(firsts[True], firsts[False]) > 5


def test_a_title_asks_for_its_text_unless_crops_are_asked_for() -> None:
    document = Document("1", f"Gout\n{LONG}", "Gout")
    assert pair_of(document, random.Random(0)) == ("Gout", LONG)
    query, _ = pair_of(document, random.Random(0), crops=True) or ("", "")
    assert query != "Gout" and query in document.text
    assert pair_of(Document("1", "Gout", "Gout"), random.Random(0)) is None


def test_corpora_are_mixed_by_weight_with_a_seed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        corpus(tmp_path / f"{name}.jsonl", [{"title": f"{name} {n}", "abstract": LONG[:300]} for n in range(1000)])
    mix = tmp_path / "mix.toml"
    entry = '[[corpora]]\npath = "{}.jsonl"\nweight = {}\ntext = "abstract"\n'
    mix.write_text(entry.format("a", 3) + entry.format("b", 1), encoding="utf-8")
    counts = make_pairs(read_mix(mix), tmp_path / "one.jsonl", count=400, seed=1)
    assert counts["rows"] == 400 and 260 < counts[f"pairs of {tmp_path / 'a.jsonl'}"] < 340
    rows = list(read_training_rows(tmp_path / "one.jsonl"))
    assert {row.prompt for row in rows} == {INSTRUCTION} and rows[0].pos == (LONG[:300].strip(),)
    again = make_pairs(read_mix(mix), tmp_path / "two.jsonl", count=400, seed=1)
    assert again == counts and (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    make_pairs(read_mix(mix), tmp_path / "two.jsonl", count=400, seed=2)
    assert (tmp_path / "one.jsonl").read_bytes() != (tmp_path / "two.jsonl").read_bytes()
    # Where one corpus ends, the other goes on: all of both are there.
    assert make_pairs(read_mix(mix), tmp_path / "all.jsonl")["rows"] == 2000


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    held = "A sentence that is measured on and must not be learnt."
    records = [
        {"text": LONG[:600]},
        {"text": ""},
        {"text": "Too short."},
        {"title": "Measured", "text": f"{LONG[:100]} {held}"},
        {"title": "Long", "text": LONG},
    ]
    source = corpus(tmp_path / "a.jsonl", records)
    source.write_text(source.read_text("utf-8") + "{broken\n", encoding="utf-8")
    counts = make_pairs(read_mix(source), tmp_path / "rows.jsonl", held_out=HeldOut([held]), longest=500)
    wanted = {"documents": 4, "unreadable": 2, "too_short": 1, "rows": 2, "held_out": 1, "texts_cut": 1}
    assert counts | wanted == counts
    assert all(len(row.pos[0]) <= 500 for row in read_training_rows(tmp_path / "rows.jsonl"))
    with pytest.raises(CurateError, match="no row is left"):
        make_pairs(read_mix(corpus(tmp_path / "b.jsonl", [{"text": "Short."}])), tmp_path / "none.jsonl")
    with pytest.raises(CorpusError, match="no such file"):
        make_pairs([Corpus(path=tmp_path / "none")], tmp_path / "none.jsonl")


def test_a_title_without_a_letter_or_digit_is_none(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"docid": str(n), "title": "-", "text": LONG} for n in range(3)]
    source = corpus(tmp_path / "passages.jsonl", records)
    counts = make_pairs(read_mix(source), tmp_path / "rows.jsonl")
    assert counts["rows"] == counts[f"pairs of {source}"] == 3 and counts["without_text"] == 0
    for row in read_training_rows(tmp_path / "rows.jsonl"):
        assert min(len(row.query), len(row.pos[0])) >= SHORTEST and row.query in LONG and row.pos[0] in LONG


def test_pairs_of_a_corpus_are_those_that_are_written(tmp_path: Path) -> None:
    held = "A sentence that is measured on and must not be learnt."
    records: list[dict[str, object]] = [{"title": "Kept", "text": LONG[:300]}, {"title": "Held", "text": held}]
    source = corpus(tmp_path / "a.jsonl", records)
    counts = make_pairs(read_mix(source), tmp_path / "rows.jsonl", held_out=HeldOut([held]))
    assert (counts["documents"], counts["held_out"], counts["rows"], counts[f"pairs of {source}"]) == (2, 1, 1, 1)


def test_a_corpus_without_its_text_field_is_named_with_the_reason(tmp_path: Path) -> None:
    corpus(tmp_path / "good.jsonl", [{"title": "Gout", "text": LONG[:300]}])
    lacking = corpus(tmp_path / "lacking.jsonl", [{"id": n, "summary": LONG} for n in range(2)])
    mix, told = tmp_path / "mix.toml", list[str]()
    mix.write_text('[[corpora]]\npath = "good.jsonl"\n[[corpora]]\npath = "lacking.jsonl"\n', encoding="utf-8")
    counts = make_pairs(read_mix(mix), tmp_path / "rows.jsonl", tell=told.append)
    assert counts["unreadable"] == counts[f"unreadable of {lacking}"] == 2 and counts[f"pairs of {lacking}"] == 0
    assert f"pairs of {lacking}" in counts and len(told) == 1
    assert re.search(r'lacking\.jsonl:1: no field called .*: id, summary; .*such as text = "abstract"$', told[0])
    with pytest.raises(
        CurateError, match=r"no row is left .*: 2 unreadable.* here are: id, summary; name the one"
    ) as none:
        make_pairs(read_mix(lacking), tmp_path / "none.jsonl")
    assert f"2 unreadable of {lacking}." in str(none.value)
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[corpora", "no TOML file"),
        ('[[corpora]]\npath = "a"\nweight = 0\n', r"corpora\[0\]\.weight: Input should be greater than 0\. Correct"),
        ("x = 1\n", r"x: no such key"),
        ('[[corpora]]\nway = "a"\n', r"corpora\[0\]\.path: missing\. Add it\.\n.*corpora\[0\]\.way: no such key"),
        ("[other]\n", r"corpora: missing\. Add it\.(.|\n)*A mix has \[\[corpora\]\], each with a path and, .* weight"),
        ("corpora = []\n", r"corpora: List should have at least 1"),
        ('corpora = "a"\n', r"corpora: a list belongs here"),
    ],
)
def test_a_bad_mix_is_refused_key_by_key(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "mix.toml").write_text(text, encoding="utf-8")
    with pytest.raises(CurateError, match=problem) as refused:
        read_mix(tmp_path / "mix.toml")
    assert "pydantic" not in str(refused.value) and str(refused.value).startswith(str(tmp_path / "mix.toml"))
    with pytest.raises(CurateError, match=r"mixes\.toml: there is no such file or folder; did you mean .*mix\.toml"):
        read_mix(tmp_path / "mixes.toml")


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    def peak(size: int) -> int:
        source = corpus(tmp_path / f"{size}.jsonl", ({"title": f"T{n}", "text": LONG[:200]} for n in range(size)))
        tracemalloc.start()
        make_pairs(read_mix(source), tmp_path / "rows.jsonl.gz")
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(50)
    assert peak(1500) < peak(300) + 50_000
