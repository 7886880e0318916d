from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.bench.contamination import ContaminationError, TrainingText, find_overlap, queries_of, training_texts
from suwen.bench.task_data import Paired, Source
from suwen.curate.leakage import comparable

QUERIES = {
    "a": "高血压患者饮食上应该注意什么？",
    "b": "Does aspirin prevent a second heart attack?",
    "c": "头痛",
    "d": "从未出现过的问题应当没有重叠",
}


def look(*texts: str, queries=QUERIES, **options):
    return find_overlap(queries, [TrainingText(f"t:{n}", "query", text) for n, text in enumerate(texts)], **options)


def test_exact_after_folding_and_cleaning():
    found = look("高血壓患者，饮食上应该注意什么", "ＤＯＥＳ Aspirin prevent  a second heart attack", "头痛！")
    assert [(one.query, one.kind, one.share, one.place) for one in found.overlaps] == [
        ("a", "exact", 1.0, "t:0"),
        ("b", "exact", 1.0, "t:1"),
        ("c", "exact", 1.0, "t:2"),
    ]
    assert (found.queries, found.texts, found.share) == (4, 3, 0.75)


def test_near_by_the_share_of_the_querys_grams():
    found = look("医生您好，高血压患者饮食上应该注意什么呢，谢谢")
    assert [(one.query, one.kind, one.share) for one in found.overlaps] == [("a", "near", 1.0)]
    # 14 characters are 7 grams; without its last three, four of them are left.
    assert look("高血压患者饮食上应该注").overlaps == []
    (half,) = look("高血压患者饮食上应该注", least=0.5).overlaps
    assert half.share == pytest.approx(4 / 7)


def test_the_best_overlap_of_a_query_is_kept():
    near, exact = "请问高血压患者饮食上应该注意什么", "高血压患者饮食上应该注意什么"
    for texts in ((near, exact), (exact, near)):
        (one,) = look(*texts).overlaps
        assert (one.kind, one.found) == ("exact", exact)


def test_a_short_query_counts_only_as_a_whole():
    assert look("我头痛三天了怎么办").overlaps == []


def test_grams_of_two_texts_do_not_add_up():
    assert look("高血压患者饮食上应", "饮食上应该注意什么").overlaps == []


@settings(deadline=None)
@given(text=st.text(max_size=40), before=st.text(max_size=10), after=st.text(max_size=10))
def test_what_holds_a_query_is_found(text: str, before: str, after: str):
    found = look(comparable(before) + comparable(text) + comparable(after), queries={"q": text})
    long_enough = len(comparable(text)) >= 8
    whole = bool(comparable(text)) and not comparable(before) and not comparable(after)
    assert bool(found.overlaps) == (long_enough or whole)


def test_texts_of_every_kind_of_training_row(tmp_path: Path):
    rows = [
        {"query": "q1", "pos": ["p1", "p2"], "neg": ["n1"], "prompt": "Instruct", "type": "retrieval"},
        {"id": "7", "text": "t1", "rewrite_query": "r1", "doc": "x1"},
        {"anchor": "a1", "positive": "b1", "negatives": ["c1"]},
        {"body": "only this"},
    ]
    file = tmp_path / "rows.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    found = [(item.field, item.text) for item in training_texts([file])]
    assert found[:6] == [
        *(("query", "q1"), ("pos", "p1"), ("pos", "p2"), ("neg", "n1")),
        *(("prompt", "Instruct"), ("type", "retrieval")),
    ]
    assert found[6:] == [
        *(("id", "7"), ("text", "t1"), ("rewrite_query", "r1"), ("doc", "x1")),
        *(("anchor", "a1"), ("positive", "b1"), ("negatives", "c1")),
        ("body", "only this"),
    ]
    assert next(iter(training_texts([file]))).place == f"{file}:1"


def rows_file(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_texts_in_lists_and_objects_are_looked_at(tmp_path: Path):
    passages = [{"docid": 1, "title": "T", "text": "x"}, {"docid": 2, "text": QUERIES["a"]}]
    row = {"query": "无关", "positive_passages": passages, "messages": [{"turns": [["y", {"content": QUERIES["b"]}]]}]}
    file = rows_file(tmp_path / "rows.jsonl", row)
    found = find_overlap(QUERIES, training_texts([file]))
    assert [(one.query, one.kind, one.field) for one in found.overlaps] == [
        ("a", "exact", "positive_passages.text"),
        ("b", "exact", "messages.turns.content"),
    ]
    deep = "[" * 900 + json.dumps(QUERIES["d"]) + "]" * 900
    (tmp_path / "deep.jsonl").write_text(f'{{"a": {deep}}}\n', encoding="utf-8")
    assert [one.text for one in training_texts([tmp_path / "deep.jsonl"])] == [QUERIES["d"]]


def test_what_every_row_has_is_given_once(tmp_path: Path):
    rows = [{"prompt": "Instruct", "query": f"q{number}"} for number in range(3)]
    found = [item.text for item in training_texts([rows_file(tmp_path / "rows.jsonl", *rows)])]
    assert found == ["Instruct", "q0", "q1", "q2"]


def test_rows_without_a_text_are_told_and_a_file_of_them_is_refused(tmp_path: Path):
    told: list[str] = []
    file = rows_file(tmp_path / "a.jsonl", {"query": "x"}, {"id": 3, "pos": [{"text": " "}]})
    assert [item.text for item in training_texts([file], told.append)] == ["x"]
    assert told == [f"{file}:2: the row holds no text; its fields are id, pos"]
    with pytest.raises(ContaminationError, match=r"b\.jsonl: nothing in it can be compared. .*:1: the row holds no"):
        list(training_texts([rows_file(tmp_path / "b.jsonl", {"id": 3})], told.append))
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(ContaminationError, match="It has no rows"):
        list(training_texts([tmp_path / "c.json"]))


def test_rows_that_cannot_be_read_are_named(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"query": "x"}\n{"query"\n')
    (tmp_path / "b.jsonl").write_text('{"id": 3}\n')
    (tmp_path / "c.txt").write_text("text")
    for name, words in (
        ("a.jsonl", r"a\.jsonl:2"),
        ("b.jsonl", "no text; its fields are id"),
        ("c.txt", "come as .jsonl"),
    ):
        with pytest.raises(ContaminationError, match=words):
            list(training_texts([tmp_path / name]))
    with pytest.raises(ContaminationError, match="share 0"):
        look("x", least=0)


def test_both_sentences_of_a_pair_are_looked_for():
    data = Paired(["左"], ["右"], [1.0], Source(Path()))
    assert queries_of(data) == {"0:1": "左", "0:2": "右"}
