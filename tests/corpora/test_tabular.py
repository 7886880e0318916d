"""Rows of every table format, whole or broken."""

import csv
import gzip
import json
import re
import subprocess
import sys
import tracemalloc
from itertools import islice

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from suwen.corpora.files import BadRecord, CorpusError
from suwen.corpora.tabular import format_of, records, rows

RECORDS = [{"id": f"d{number}", "text": f"第{number}条，头痛。"} for number in range(1, 13)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def write(folder, format, gz=False):
    path = folder / f"records.{format}{'.gz' if gz else ''}"
    if format == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(RECORDS), path)
        return path
    delimiter = {"csv": ",", "tsv": "\t"}.get(format)
    if format == "json":
        text = json.dumps(RECORDS, ensure_ascii=False, indent=1)
    elif format == "jsonl":
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)
    else:
        text = "".join(f"{delimiter.join(cells)}\r\n" for cells in [RECORDS[0], *(r.values() for r in RECORDS)])
    path.write_bytes(gzip.compress(text.encode()) if gz else text.encode())
    return path


@pytest.mark.parametrize(
    ("format", "gz"),
    [(name, gz) for name in ("jsonl", "json", "csv", "tsv") for gz in (False, True)] + [("parquet", False)],
)
def test_every_format_gives_the_same_records(tmp_path, format, gz):
    path = write(tmp_path, format, gz)
    assert format_of(path) == format
    found = [record for _, record in rows(path, format)]
    assert len(found) == 12
    assert (found[0], found[8], found[-1]) == (RECORDS[0], RECORDS[8], RECORDS[11])


def test_places_are_lines_records_or_rows(tmp_path):
    places = {format: [place for place, _ in rows(write(tmp_path, format), format)][8] for format in ("jsonl", "csv")}
    assert places["jsonl"].endswith("records.jsonl:9")
    assert places["csv"].endswith("records.csv:10")
    assert next(rows(write(tmp_path, "json"), "json"))[0].endswith("records.json: record 1")
    assert next(rows(write(tmp_path, "parquet"), "parquet"))[0].endswith("records.parquet: row 1")


@pytest.mark.parametrize("name", ["a.xml", "a", "a.gz", "a.parquet.gz", "a.txt.gz"])
def test_names_that_say_nothing(tmp_path, name):
    assert format_of(tmp_path / name) is None


def test_bad_lines_are_reported_and_the_rest_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{oops}\n[1]\n{"a": 2}\n{"a": "cut', encoding="utf-8")
    found = list(rows(path, "jsonl"))
    assert [record for _, record in found if isinstance(record, dict)] == [{"a": 1}, {"a": 2}]
    bad = [str(record) for _, record in found if isinstance(record, BadRecord)]
    assert "a.jsonl:3: not valid JSON" in bad[0]
    assert "a.jsonl:4: a JSON list" in bad[1]
    assert "a.jsonl:6:" in bad[2] and "the file looks cut off" in bad[2]


def test_deep_nesting_is_a_bad_record_not_a_crash(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("[" * 200_000 + "\n", encoding="utf-8")
    assert isinstance(next(rows(path, "jsonl"))[1], BadRecord)


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=5), st.sampled_from([None, 1]))
def test_json_arrays_come_back_as_they_were(tmp_path_factory, records, indent):
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text(json.dumps(records, indent=indent), encoding="utf-8")
    assert [record for _, record in rows(path, "json")] == records


def test_json_items_longer_than_a_chunk(tmp_path):
    records = [{"text": character * 300_000} for character in "abc"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(records), encoding="utf-8")
    assert [record for _, record in rows(path, "json")] == records


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}\n{"a": 2}\n', "one array.*jsonl"),
        ('[{"a": 1}, {"a": "cu', "record 2 does not end; the file looks cut off"),
        ('[{"a": 1}', "the file looks cut off"),
        ('[{"a": 1}, {a: 2}, {"a": 3}, {"a": 4}]', "record 2 is not valid JSON"),
    ],
)
def test_broken_json_arrays(tmp_path, text, said):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=said):
        list(rows(path, "json"))


def test_csv_quotes_marks_and_empty_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffid, text\r\n1,"头痛, ""剧烈""\n三天"\r\n\r\n2,\r\n'.encode())
    assert list(rows(path, "csv")) == [
        (f"{path}:2", {"id": "1", "text": '头痛, "剧烈"\n三天'}),
        (f"{path}:5", {"id": "2", "text": None}),
    ]


def test_csv_takes_long_cells_and_only_raises_the_limit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "痛" * 1_000_000 + "\n", encoding="utf-8")
    assert len(next(rows(path, "csv"))[1]["text"]) == 1_000_000
    assert csv.field_size_limit() >= 1_000_000


def test_csv_rows_of_the_wrong_width_and_stray_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,a,b\n2,"x"y\n3,c\n', encoding="utf-8")
    found = [record for _, record in rows(path, "csv")]
    assert "a.csv:2: 3 cells where the header names 2" in str(found[0])
    assert "a.csv:3:" in str(found[1])
    assert found[2] == {"id": "3", "text": "c"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('id,text\n1,"never closed\n2,b\n', "a.csv:2: a quoted cell opens here.*cut off"),
        ("id,id\n1,2\n", "must name each column once"),
        ("\n1,2\n", "must name each column once"),
    ],
)
def test_broken_csv(tmp_path, text, said):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=said):
        list(rows(path, "csv"))


def test_parquet_that_is_none_or_cut(tmp_path):
    path = write(tmp_path, "parquet")
    whole = path.read_bytes()
    for content, said in ((whole[:-20], "not a whole parquet file"), (b"", "the file is empty")):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=said):
            list(rows(path, "parquet"))
    with pytest.raises(CorpusError, match="not a whole"):
        list(rows(tmp_path / "none.parquet", "parquet"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path, "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=r"pip install 'suwen\[parquet\]'"):
        list(rows(path, "parquet"))


@pytest.mark.parametrize("format", ["jsonl", "json", "csv"])
def test_memory_does_not_grow_with_the_file(tmp_path, format):
    path = tmp_path / f"a.{format}"
    record = json.dumps({"id": 1, "text": "头痛" * 60}, ensure_ascii=False)
    with path.open("w", encoding="utf-8") as file:
        file.write({"jsonl": "", "json": "[", "csv": "id,text\n"}[format])
        for number in range(100_000):
            comma = "," if format == "json" and number else ""
            file.write(f"{number},{'头痛' * 60}\n" if format == "csv" else f"{comma}{record}\n")
        file.write("]" if format == "json" else "")
    assert path.stat().st_size > 30_000_000
    reading = rows(path, format)
    tracemalloc.start()
    try:
        # The first tenth is 3 MB of records: both slurping and keeping would show.
        assert sum(1 for _ in islice(reading, 10_000)) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in reading) == 90_000


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", '1,"two, three"\n4,five\n', [{"x": "1", "y": "two, three"}, {"x": "4", "y": "five"}]),
        ("a.csv", "y,x\n1,2\n", [{"y": "1", "x": "2"}]),
        ("a.tsv", 'say "a\tb" c\n', [{"x": 'say "a', "y": 'b" c'}]),
        ("a.jsonl", '["a", "b"]\n["c"]\n{"y": 1}\n', [{"x": "a", "y": "b"}, {"x": "c"}, {"y": 1}]),
        ("a.tsv", "one\ntwo\n", [{"x": "one"}, {"x": "two"}]),
    ],
)
def test_columns_name_what_a_file_does_not(tmp_path, name, text, found):
    (tmp_path / name).write_text(text, encoding="utf-8")
    path = tmp_path / name
    assert [record for _, record in rows(path, format_of(path), columns=("x", "y"))] == found


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.jsonl", '["a", "b"]\n["a", "b", "c"]\n', r"a\.jsonl:2: an array of 3 where at most 2 .*\(x, y\)"),
        ("a.tsv", "a\tb\na\tb\tc\n", r"a\.tsv:2: 3 cells where .* 2 columns"),
        ("a.csv", "a\na,b\n", r"a\.csv:2: 2 cells where .* 1 columns"),
        ("a.csv", "a,b\na\n", r"a\.csv:2: 1 cells where .* 2 columns"),
    ],
)
def test_nothing_of_a_row_is_cut_off_where_columns_name_less(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text, encoding="utf-8")
    good, bad = (record for _, record in rows(tmp_path / name, format_of(tmp_path / name), columns=("x", "y")))
    assert isinstance(bad, BadRecord) and re.search(problem, str(bad))
    assert not isinstance(good, BadRecord)


# -- JSON objects ------------------------------------------------------------------------------------------------------


def test_records_under_a_name_and_records_by_their_ids(tmp_path):
    """As BioASQ and PubMedQA give theirs out."""
    named, keyed = tmp_path / "named.json", tmp_path / "keyed.json"
    named.write_text(json.dumps({"questions": RECORDS, "version": 2}, indent=1), encoding="utf-8")
    keyed.write_text(json.dumps({record["id"]: {"text": record["text"]} for record in RECORDS}), encoding="utf-8")
    assert [record for _, record in rows(named, "json")] == RECORDS
    found = list(rows(keyed, "json"))
    assert [record["_id"] for _, record in found] == [record["id"] for record in RECORDS]
    assert found[8][1]["text"] == RECORDS[8]["text"] and found[8][0].endswith("record 9")


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), st.fixed_dictionaries({"x": JSON}), min_size=1)
)
def test_any_records_by_their_ids_are_read_whole(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("keyed") / "a.json"
    path.write_text(json.dumps(records), encoding="utf-8")
    assert [record for _, record in rows(path, "json")] == [{"_id": key, **value} for key, value in records.items()]


def test_objects_that_are_cut_off_or_hold_no_records(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"1": {"text": "a"}, "2": {"te', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"record 2 does not end; .*cut off"):
        list(rows(path, "json"))
    path.write_text('{"1": {"text": "a"}, "2": "b"}', encoding="utf-8")
    assert isinstance(list(rows(path, "json"))[1][1], BadRecord)
    path.write_text('{"id": "1", "text": "a"}', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"or objects by their ids; .* name it \.jsonl"):
        list(rows(path, "json"))


def test_columns_of_a_json_object_come_with_the_command_that_makes_lines_of_them(tmp_path):
    columns = {"answers": {"0": ["x"], "7": []}, "query": {"0": "gout", "7": "flu"}}
    path = tmp_path / "train_v2.1.json"
    path.write_text(json.dumps(columns), encoding="utf-8")
    with pytest.raises(CorpusError, match="it holds columns, not records") as refused:
        list(rows(path, "json"))
    command = str(refused.value).partition("a line each: ")[2].replace("python", f"'{sys.executable}'", 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    made = [record for _, record in rows(tmp_path / "train_v2.1.jsonl", "jsonl")]
    assert made == [{"answers": ["x"], "query": "gout"}, {"answers": [], "query": "flu"}]
    path.write_text(json.dumps({"17": {"0": "a"}, "x": {"0": "b"}}), encoding="utf-8")
    assert [record for _, record in rows(path, "json")] == [{"_id": "17", "0": "a"}, {"_id": "x", "0": "b"}]


def test_a_text_file_has_no_records(tmp_path):
    (tmp_path / "a.txt").write_text("some words")
    with pytest.raises(CorpusError, match=r"a\.txt: a text has no records.*give jsonl, json"):
        list(records(tmp_path / "a.txt"))
