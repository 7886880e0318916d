"""Questions that passages answer: found by them, kept by runs that do not name them, gone with their passage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_pair import Counting

from suwen.corpora.files import CorpusError
from suwen.corpora.question_files import content_hash
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve.ingest import IngestReport
from suwen.retrieve.questions import QuestionFile
from suwen.retrieve.retriever import Index

#: Nothing of this is in the note about hypertension.
ASKED = "头晕能吃咸菜吗"


def write(folder: Path, *lines: dict[str, object]) -> QuestionFile:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return QuestionFile(file)


def mirror(index: Index, documents: list[Document], **options: object) -> tuple[IngestReport, list[str]]:
    counting = Counting(index.pair.encoder())
    return index.add(documents, mirror=True, encoder=counting, **options), counting.texts  # type: ignore[arg-type]


def asked_of(index: Index, id_: str) -> list[tuple[int, str]]:
    stored = index.document(id_)
    assert stored is not None
    return [tuple(one) for one in stored.questions]


def test_a_passage_is_found_by_a_question_that_shares_no_word_with_it(
    empty: Index, notes: list[Document], tmp_path: Path
) -> None:
    mirror(empty, notes)
    before = [hit.document_id for hit in empty.search(ASKED, mode="dense", synonyms=False)]
    report, texts = mirror(
        empty, notes, questions=write(tmp_path, {"id": "bp#0", "questions": [ASKED, "血压高怎么办"]})
    )
    assert (report.questions, report.reencoded, report.unchanged) == (2, 1, len(notes) - 1)
    assert texts == [ASKED, "血压高怎么办"], "passages were encoded again"
    hits = empty.search(ASKED, mode="dense", synonyms=False).hits
    assert before[0] != "bp" and hits[0].id == "bp#0" and hits[0].score > 0.999
    assert [hit.id for hit in hits].count("bp#0") == 1 and empty.stats().questions == 2
    assert asked_of(empty, "bp") == [(0, ASKED), (0, "血压高怎么办")]


def test_questions_stay_until_their_passage_changes_or_a_file_says_otherwise(
    empty: Index, notes: list[Document], tmp_path: Path
) -> None:
    lines = {"id": "bp", "questions": [ASKED]}, {"id": "stone#0", "questions": ["结石疼不疼"]}
    mirror(empty, notes, questions=write(tmp_path, *lines))
    for options in ({}, {"questions": write(tmp_path, *lines)}):
        report, texts = mirror(empty, notes, **options)
        assert report.unchanged == len(notes) and not texts and empty.stats().questions == 2
    report, _ = mirror(empty, notes[1:], prune=True)
    assert report.removed == 1 and empty.stats().questions == 1, "the question of a document that is gone stayed"
    changed = [notes[1]._replace(text="全是别的话。"), *notes[2:]]
    mirror(empty, changed)
    assert empty.stats().questions == 0, "the question of a text that is gone stayed"
    mirror(empty, notes, questions=write(tmp_path, *lines))
    report, _ = mirror(empty, notes, questions=write(tmp_path, {"id": "bp", "questions": []}))
    assert report.reencoded == 2 and empty.stats().questions == 0


def test_another_encoder_encodes_the_questions_too(tiered: Pair, notes: list[Document], tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", pair=tiered) as index:
        index.add(notes, mirror=True, questions=write(tmp_path, {"id": "bp", "questions": [ASKED]}))
        report = index.add(notes, mirror=True, encoder=tiered.encoder("rough"), keep=False)
        assert report.reencoded == len(notes) and report.questions == 1
        assert asked_of(index, "bp") == [(0, ASKED)]
        assert index.search(ASKED, mode="dense", tier="rough", synonyms=False).hits[0].id == "bp#0"
        assert index.engine.verify() == []


def test_a_documents_question_is_its_nearest_passages(empty: Index, tmp_path: Path) -> None:
    text = "高血压患者应低盐饮食，每天早晚测量血压。" * 3 + "糖尿病患者应定期复查眼底，二甲双胍是常用药。" * 3
    questions = write(tmp_path, {"id": "d", "questions": ["二甲双胍是糖尿病的常用药吗"]})
    mirror(empty, [Document("d", text)], size=40, overlap=0, questions=questions)
    ((ordinal, _),) = asked_of(empty, "d")
    stored = empty.document("d")
    assert stored is not None and len(stored.passages) > 2
    assert "二甲双胍" in stored.passages[ordinal].passage.text


def test_what_is_of_no_use_is_left_out_and_counted(empty: Index, notes: list[Document], tmp_path: Path) -> None:
    bp = notes[0]
    questions = write(
        tmp_path,
        {"id": "bp#0", "questions": [ASKED], "sha1": content_hash("另一段话")},
        {"id": "stone#0", "questions": ["结石疼不疼", " "], "sha1": content_hash(notes[1].content)},
        {"id": "bp#7", "questions": ["没有这一段"]},
        {"id": "nobody", "questions": ["谁"]},
        {"id": f"{bp.id}#x", "questions": ["别的文档"]},
    )
    mirror(empty, notes, questions=questions)
    assert empty.stats().questions == 1 and asked_of(empty, "bp") == []
    assert (questions.outdated(), questions.unused()) == (2, 1)
    questions.close()
    for line in ({"id": "bp"}, {"id": 3, "questions": []}, {"id": "bp", "questions": [1]}):
        with pytest.raises(CorpusError, match=r"questions\.jsonl:1 is no line of questions"):
            write(tmp_path, line)
