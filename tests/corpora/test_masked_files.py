"""Masking of files: one masker a document, every text of a record, and a sample that can be checked."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from suwen.corpora.files import CorpusError
from suwen.corpora.masked_files import mask_documents, mask_file, sample

NOTES = [
    {
        "id": 7,
        "title": "王小明出院小结",
        "text": "患者王小明，男，电话13912345678。予阿莫西林0.5g。",
        "tags": ["签名：李强"],
    },
    {"id": 8, "title": "随访", "text": "患者赵敏，女。帕金森病稳定。", "more": {"phone": "电话13812345678"}},
]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "notes.jsonl"
    file.write_text("\n".join(json.dumps(note, ensure_ascii=False) for note in NOTES), encoding="utf-8")
    return file


def test_every_text_of_a_record_is_masked_and_numbers_start_again(notes: Path) -> None:
    first, second = mask_documents(notes)
    assert first.content == {
        "id": 7,
        "title": "[姓名1]出院小结",
        "text": "患者[姓名1]，男，电话[电话1]。予阿莫西林0.5g。",
        "tags": ["签名：[姓名2]"],
    }
    assert first.counts == {"name": 3, "phone": 1}
    assert first.key == {"[姓名1]": "王小明", "[电话1]": "13912345678", "[姓名2]": "李强"}
    assert json.loads(second.line()) == {
        "id": 8,
        "title": "随访",
        "text": "患者[姓名1]，女。帕金森病稳定。",
        "more": {"phone": "[电话1]"},
    }


def test_fields_and_kinds_limit_it(notes: Path) -> None:
    first, _ = mask_documents(notes, kinds=["phone"], fields=["text"])
    assert first.content["text"] == "患者王小明，男，电话[电话1]。予阿莫西林0.5g。"
    assert first.content["title"] == "王小明出院小结"
    with pytest.raises(CorpusError, match="none of the fields body; it has id, title, text, tags"):
        list(mask_documents(notes, fields=["body"]))


def test_a_text_file_is_one_document_and_bad_input_is_named(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("医师签名：李强\n李强 记录\n", encoding="utf-8")
    (done,) = mask_documents(note)
    assert done.line() == "医师签名：[姓名1]\n[姓名1] 记录\n"
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": 1}\n[2]\n', encoding="utf-8")
    assert [bool(done.problems) for done in mask_documents(bad)] == [False, True]
    with pytest.raises(CorpusError, match=r"bad\.jsonl:2: a JSON list.*--skip-bad"):
        mask_file(bad, io.StringIO())
    out = io.StringIO()
    counts = mask_file(bad, out, skip_bad=True)
    assert (counts.documents, counts.bad, out.getvalue()) == (1, 1, '{"text": 1}\n')
    (tmp_path / "note.what").write_text("x", encoding="utf-8")
    with pytest.raises(CorpusError, match="does not say what it is"):
        list(mask_documents(tmp_path / "note.what"))
    with pytest.raises(CorpusError, match=r"note\.whta: there is no such file or folder; did you mean .*note\.what"):
        list(mask_documents(tmp_path / "note.whta"))


def test_a_sample_has_both_sides_in_context_and_can_be_drawn_again(notes: Path) -> None:
    rows = sample(mask_documents(notes), 4, seed=3)
    assert [bool(row.kinds) for row in rows] == [True, True, False, False]
    assert rows == sample(mask_documents(notes), 4, seed=3)
    everything = sample(mask_documents(notes), 100)
    (shown,) = [row for row in everything if row.sentence == "予阿莫西林0.5g。"]
    assert shown.before == "患者[姓名1]，男，电话[电话1]。" and shown.after == "" and shown.right == ""
    assert {row.kinds for row in everything} == {"", "name", "phone", "name phone"}
    assert not any("王小明" in "".join(row) for row in everything)
