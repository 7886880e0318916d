"""MedDialog's text form: blocks, their parts and turns, and what is none."""

from pathlib import Path

import pytest

from suwen.corpora.dialogues import read_dialogues
from suwen.corpora.files import CorpusError

TEXT = """id=7
https://www.example.org/qa/ringing
Description
Q. My ear rings.

Dialogue
Patient:
My ear rings at night.
id est, when it is quiet.

Why?

Doctor:
Ringing may come from noise. Read https://www.example.org first.
Description
of its height helps.


id=8
Description
Nothing was said.
"""


def test_dialogues_have_their_turns_with_speakers(tmp_path: Path) -> None:
    file = tmp_path / "icliniq_dialogue.txt"
    file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    (place, first), (_, second) = read_dialogues(file)
    assert place == f"{file}:1" and (first["id"], second["id"]) == ("7", "8")
    assert first["dialogue_url"] == "https://www.example.org/qa/ringing"
    assert first["description"] == "Q. My ear rings."
    patient, doctor = (" ".join(turn.split()) for turn in first["utterances"])
    assert patient == "Patient: My ear rings at night. id est, when it is quiet. Why?"
    assert (
        doctor
        == "Doctor: Ringing may come from noise. Read https://www.example.org first. Description of its height helps."
    )
    assert second["utterances"] == []


def test_a_speaker_may_stand_on_the_line_of_what_is_said(tmp_path: Path) -> None:
    file = tmp_path / "d.txt"
    file.write_text("id=1\nDescription\nx\nDialogue\nPatient: Why?\nDoctor: It is so.\n", encoding="utf-8")
    ((_, record),) = read_dialogues(file)
    assert record["utterances"] == ["Patient: Why?", "Doctor: It is so."]


def test_another_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Patient: hello\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"notes\.txt: no dialogues as MedDialog writes them .*\.jsonl"):
        list(read_dialogues(tmp_path / "notes.txt"))
