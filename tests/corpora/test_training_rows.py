"""Training rows: the shapes that are read, what is refused and why, and that what is written reads back the same."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.files import BadRecord, CorpusError
from suwen.corpora.training_rows import TrainingRow, TrainingRowError, read_training_rows, write_training_rows
from suwen.text.clean import clean

GOOD = {"query": "牙疼", "pos": ["去看牙医"]}


def wrote(folder: Path, *records: Any) -> Path:
    path = folder / "rows.jsonl"
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_shape_of_flag_embedding_and_care_is_read(tmp_path: Path) -> None:
    record = {
        **{
            "query": " 牙疼\u200b ",
            "pos": ["去看牙医"],
            "neg": ["多喝水", "跑步"],
            "prompt": "找答案：",
            "type": "retrieval",
        },
        **{"pos_scores": [0.9], "neg_scores": [0.5, 1], "pos_id": 7},
    }
    assert list(read_training_rows(wrote(tmp_path, record))) == [
        TrainingRow("牙疼", ("去看牙医",), ("多喝水", "跑步"), "找答案：", "retrieval", (0.9,), (0.5, 1.0))
    ]


def test_the_shapes_of_auto_mir_and_cardio_embed_are_read(tmp_path: Path) -> None:
    mir = {"id": "1", "text": "心衰能运动吗", "rewrite_query": "心衰患者可以适量运动。", "doc": "心衰与运动"}
    cardio = {"anchor": "heart failure", "positive": "cardiac failure", "negatives": ["angina"]}
    path = wrote(tmp_path, mir, "", cardio)
    assert list(read_training_rows(path)) == [
        TrainingRow("心衰能运动吗", ("心衰与运动",), hypothetical=("心衰患者可以适量运动。",)),
        TrainingRow("heart failure", ("cardiac failure",), ("angina",)),
    ]


@pytest.mark.parametrize("nothing", [None, "", "None"])
def test_cares_none_is_no_prompt(tmp_path: Path, nothing: str | None) -> None:
    (row,) = read_training_rows(wrote(tmp_path, GOOD | {"prompt": nothing}))
    assert row.prompt == ""


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"query": "a"}, "no positive"),
        ({"query": "a", "pos": []}, "no positive"),
        ({"query": "a", "pos": ["b", "  "]}, "pos has an empty text"),
        ({"query": "\u200b", "pos": ["b"]}, "query has an empty text"),
        ({"pos": ["b"]}, "query is missing"),
        ({"query": "a", "pos": ["b"], "neg": [""]}, "neg has an empty text"),
        ({"query": "a", "pos": [3]}, "pos is of type int"),
        ({"query": "a", "pos": ["b"], "pos_scores": [1, 2]}, "2 pos_scores for 1 pos texts"),
        ({"query": "a", "pos": ["b"], "neg_scores": [1]}, "1 neg_scores for 0 neg texts"),
        ({"query": "a", "pos": ["b"], "pos_scores": ["x"]}, "not a list of numbers"),
        ({"query": "a", "pos": ["b"], "pos_scores": [float("nan")]}, "not a list of numbers"),
        ({"query": "p: a", "pos": ["b"], "prompt": "p: "}, "would then stand twice"),
        ({"query": "a", "pos": ["p: b"], "prompt": "p: "}, "would then stand twice"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, record: Any, says: str) -> None:
    path = wrote(tmp_path, GOOD, record)
    with pytest.raises(TrainingRowError, match=says) as raised:
        list(read_training_rows(path))
    assert str(raised.value).startswith(f"{path}:2: ")


@pytest.mark.parametrize(("record", "says"), [(["a", "b"], "a JSON list where an object"), ("{", "JSON")])
def test_a_line_that_is_no_object_is_named_too(tmp_path: Path, record: Any, says: str) -> None:
    path = wrote(tmp_path, GOOD, record)
    with pytest.raises(BadRecord, match=says) as raised:
        list(read_training_rows(path))
    assert str(raised.value).startswith(f"{path}:2: ")


def test_a_prompt_on_some_rows_of_a_type_only_is_refused(tmp_path: Path) -> None:
    prompted = GOOD | {"prompt": "找答案："}
    other_type = prompted | {"type": "symmetric_sts"}
    assert len(list(read_training_rows(wrote(tmp_path, GOOD, other_type, GOOD)))) == 3
    with pytest.raises(TrainingRowError, match=r":3: this row has a prompt, unlike .*:1 of the same type"):
        list(read_training_rows(wrote(tmp_path, GOOD, other_type, prompted)))
    with pytest.raises(TrainingRowError, match=r":2: this row has no prompt, unlike .*:1 of the same type"):
        list(read_training_rows(wrote(tmp_path, prompted, GOOD)))


def test_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    rows = read_training_rows(wrote(tmp_path, GOOD, {"query": "a"}))
    assert next(rows).query == "牙疼"
    with pytest.raises(TrainingRowError):
        next(rows)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"none\.jsonl: there is no such file"):
        list(read_training_rows(tmp_path / "none.jsonl"))


TEXT = st.text(max_size=20).map(clean).filter(bool).filter(lambda text: not text.startswith("§"))
SCORE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def a_row(draw: st.DrawFn) -> TrainingRow:
    pos = tuple(draw(st.lists(TEXT, min_size=1, max_size=3)))
    neg = tuple(draw(st.lists(TEXT, max_size=3)))
    scored = draw(st.booleans())
    scores = [tuple(draw(st.lists(SCORE, min_size=len(part), max_size=len(part)))) for part in (pos, neg)]
    return TrainingRow(draw(TEXT), pos, neg, "§ ", draw(TEXT), *(scores if scored else [(), ()]))


@given(st.lists(a_row(), min_size=1, max_size=4), st.sampled_from(["rows.jsonl", "rows.jsonl.gz"]))
def test_what_is_written_reads_back_the_same(rows: list[TrainingRow], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new" / name
        assert write_training_rows(path, rows) == len(rows)
        assert list(read_training_rows(path)) == rows
        assert [file.name for file in path.parent.iterdir()] == [name]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    write_training_rows(path, [TrainingRow("a", ("b",))])
    with pytest.raises(TrainingRowError, match=":2: a row needs a query"):
        write_training_rows(path, [TrainingRow("c", ("d",)), TrainingRow("e", ())])
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == [{"query": "a", "pos": ["b"]}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl.gz"]
