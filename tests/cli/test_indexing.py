"""The verbs that put documents in and take them out, and what happens to a run that is interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_pair import NOTES, jsonl

sys.path.insert(0, str(Path(__file__).parents[1]))

import suwen as package
from books_on_the_spot import pdf
from suwen.corpora.passages import split_document
from suwen.corpora.readers import read_documents
from suwen.encoders.pair import Pair
from suwen.retrieve import foresight
from suwen.retrieve.ingest import IngestReport

Suwen = Callable[..., Any]


def test_index_then_index_again(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    first = suwen("index", tmp_path / "new", source)
    assert first.code == 0
    assert "10 added, 0 changed, 0 unchanged, 0 removed" in first.out
    assert "documents are encoded by the tier 'static'" in first.err
    again = suwen("index", tmp_path / "new", source, "--json").json
    assert (again["unchanged"], again["encoded"], again["encoder"]) == (10, 0, "static")
    assert "tier 'static'" in again["note"]
    source.write_text(jsonl(NOTES[1:]).replace("多饮水", "大量饮水"), encoding="utf-8")
    changed = suwen("index", tmp_path / "new", source, "--json").json
    assert (changed["changed"], changed["unchanged"], changed["removed"]) == (1, 8, 1)
    assert suwen("search", tmp_path / "new", "大量饮水", "--json").json["hits"][0]["document_id"] == "stone"


def test_passages_are_found_by_their_questions(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    asked = tmp_path / "questions.jsonl"
    lines = {"id": "bp#0", "questions": ["头晕能吃咸菜吗"]}, {"id": "nobody", "questions": ["谁"]}
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    made = suwen("index", tmp_path / "new", source, "--questions", asked)
    assert made.code == 0 and "10 passages and 1 question stored, 11 texts encoded" in made.out
    assert "1 line of documents that are not in these sources" in made.err
    search = "search", tmp_path / "new", "头晕能吃咸菜吗", "--mode", "dense", "--json"
    assert suwen(*search).json["hits"][0]["document_id"] == "bp"
    assert suwen("info", tmp_path / "new", "--json").json["questions"] == 1
    for verb in ("rebuild", "compact", "verify"):
        assert suwen(verb, tmp_path / "new").code == 0
    assert suwen("index", tmp_path / "new", source, "--json").json["unchanged"] == 10
    assert suwen(*search).json["hits"][0]["document_id"] == "bp"
    refused = suwen("index", tmp_path / "other", source, "--questions", asked, "--vectors", "v.npy")
    assert refused.code == 1 and "leave --vectors out" in refused.err and not (tmp_path / "other").exists()
    asked.write_text("{}", encoding="utf-8")
    refused = suwen("index", tmp_path / "other", source, "--questions", asked)
    assert refused.code == 1 and "no line of questions" in refused.err and not (tmp_path / "other").exists()


def test_most_of_an_index_goes_only_when_asked(suwen: Suwen, index: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(jsonl(NOTES[:3]).replace('"_id": "', '"_id": "my-'), encoding="utf-8")
    refused = suwen("index", index, other)
    assert refused.code == 1
    assert "not in these sources, and was not removed (documents: 10)" in refused.err and "--prune" in refused.err
    assert stored(index) == 13
    assert suwen("search", index, "痛风", "--json").code == 0, "what was stored can be searched"
    done = suwen("index", index, other, "--prune", "--json").json
    assert (done["removed"], done["unchanged"], done["kept"]) == (10, 3, 0)
    assert stored(index) == 3


def test_a_fifth_of_an_index_goes_unasked_and_no_more(suwen: Suwen, index: Path, source: Path) -> None:
    source.write_text(jsonl(NOTES[2:]), encoding="utf-8")
    assert suwen("index", index, source, "--json").json["removed"] == 2
    source.write_text(jsonl(NOTES[4:]), encoding="utf-8")
    assert suwen("index", index, source).code == 1
    assert stored(index) == 8


def test_the_index_remembers_its_tier(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert suwen("index", new, source, "--tier", "rough").code == 0
    again = suwen("index", new, source, "--json").json
    assert (again["encoder"], again["unchanged"], again["encoded"]) == ("rough", 10, 0)
    assert "as the index was built" in again["note"]
    assert suwen("add", new, "--id", "x", "--text", "新的一条。", "--json").json["encoder"] == "rough"
    other = suwen("index", new, source, "--tier", "static")
    assert "0 added, 0 changed, 10 encoded again, 0 unchanged" in other.out
    assert suwen("index", new, source, "--json").json["encoder"] == "static"


def test_documents_cut_anew_are_not_called_changed(suwen: Suwen, index: Path, source: Path) -> None:
    source.write_text(jsonl().replace("多饮水", "大量饮水"), encoding="utf-8")
    done = suwen("index", index, source, "--size", 12, "--json").json
    assert (done["changed"], done["reencoded"]) == (1, 9)


def test_several_sources_of_different_kinds(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "fever.txt").write_text("发烧时多喝水。", encoding="utf-8")
    (folder / "cough.md").write_text("# 咳嗽\n\n咳嗽一周不好要就医。", encoding="utf-8")
    table = tmp_path / "table.csv"
    table.write_text("nummer,inhalt\n7,胃痛反酸可能是慢性胃炎\n", encoding="utf-8")
    one = suwen("index", tmp_path / "new", source, folder, "--json")
    assert one.code == 0 and one.json["read"] == 12
    two = suwen("add", tmp_path / "new", table, "--id-field", "nummer", "--text-field", "inhalt", "--json")
    assert two.code == 0 and two.json["added"] == 1
    assert suwen("search", tmp_path / "new", "胃痛反酸", "--json").json["hits"][0]["document_id"] == "7"


def test_files_left_out_are_named_and_counted(suwen: Suwen, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "fever.txt").write_bytes("发烧时应当多喝水，注意休息。".encode("gb18030"))
    (folder / "guide.rtf").write_bytes(b"{")
    (folder / "letter.doc").write_bytes(b"PK")
    done = suwen("index", tmp_path / "new", folder)
    assert done.code == 0
    assert "left out 2 files that cannot be read here (1 .rtf, 1 .doc): guide.rtf, letter.doc" in done.err
    assert "1 added" in done.out and "1 passage encoded" in done.out
    assert "1 file read as gb18030: fever.txt" in done.err
    told = suwen("index", tmp_path / "new", folder, "--json").json["left_out"]
    assert told == {"files": [str(folder / "guide.rtf"), str(folder / "letter.doc")], "records": 0, "pages": []}
    (tmp_path / "more").mkdir()
    (folder / "linked").symlink_to(tmp_path / "more")
    linked = suwen("index", tmp_path / "new", folder).err
    assert "(1 .rtf, 1 .doc, 1 linked folder): guide.rtf, letter.doc, linked" in linked
    assert "; name a linked folder itself to have it read" in linked
    (folder / "linked").unlink()
    (folder / "fever.txt").unlink()
    assert "only guide.rtf, letter.doc" in suwen("index", tmp_path / "other", folder).err


def test_a_department_can_be_filtered_by_in_chinese(suwen: Suwen, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("标题;内容;科室\n发烧;发烧时多喝水;儿科\n咳嗽;咳嗽时多喝水;呼吸科\n", encoding="utf-8")
    assert suwen("index", tmp_path / "new", table).code == 0
    found = suwen("search", tmp_path / "new", "多喝水", "--where", "科室=儿科", "--json").json["hits"]
    assert [hit["title"] for hit in found] == ["发烧"]


def test_a_misspelt_source_gets_the_nearest_name(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    said = suwen("index", tmp_path / "new", source.with_name("note.jsonl")).err
    assert f"did you mean {source}?" in said


def test_errors_name_the_options_of_the_command(suwen: Suwen, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("患者頭痛三日不癒".encode("big5"))
    (tmp_path / "b.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    (tmp_path / "c.dat").write_text("头痛", encoding="utf-8")
    for name, option in (("a.txt", "--encoding"), ("b.csv", "--text-field"), ("c.dat", "--format")):
        said = suwen("index", tmp_path / "new", tmp_path / name).err
        assert option in said and "=" not in said.replace(str(tmp_path), "")


def test_bad_records_are_skipped_on_request(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    with source.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    refused = suwen("index", tmp_path / "new", source)
    assert refused.code == 1 and "notes.jsonl:11" in refused.err
    done = suwen("index", tmp_path / "new", source, "--skip-bad", "--json")
    assert done.code == 0 and done.json["read"] == 10
    assert "left out: " in done.err and "notes.jsonl:11" in done.err and "1 bad record left out" in done.err
    assert done.json["left_out"] == {"files": [], "records": 1, "pages": []}


def test_what_could_not_be_read_this_time_is_not_gone(suwen: Suwen, tmp_path: Path) -> None:
    shelf, index = tmp_path / "shelf", tmp_path / "new"
    (shelf / "deep").mkdir(parents=True)
    pages = [[(60, 100, f"Ward {number} gives bisoprolol at eight.")] for number in range(4)]
    pdf(shelf / "deep" / "rules.pdf", pages)
    for number in range(8):
        (shelf / f"n{number}.md").write_text(f"第{number}条：骨折后应固定患肢。", encoding="utf-8")
    assert suwen("index", index, shelf, "--json").json["added"] == 12
    whole = (shelf / "deep" / "rules.pdf").read_bytes()
    (shelf / "deep" / "rules.pdf").write_bytes(whole[:100])
    (shelf / "n0.md").write_bytes(b"\x00\x01\x02")
    (shelf / "n1.md").unlink()
    for options in ((), ("--prune",)):
        again = suwen("index", index, shelf, "--skip-bad", *options)
        assert (
            again.code == 0 and f"{1 - len(options)} removed, 5 kept of what could not be read this time" in again.out
        )
        assert "2 bad records left out" in again.err
    assert (
        suwen("search", index, "Ward 3 bisoprolol", "--json").json["hits"][0]["document_id"] == "deep/rules.pdf#page=4"
    )
    (shelf / "deep" / "rules.pdf").write_bytes(whole)
    (shelf / "n0.md").unlink()
    assert "1 removed; " in suwen("index", index, shelf).out


def test_a_first_run_that_fails_leaves_no_empty_index(suwen: Suwen, tmp_path: Path) -> None:
    shelf, index = tmp_path / "shelf", tmp_path / "new"
    shelf.mkdir()
    (shelf / "a.pdf").write_bytes(b"%PDF-1.7 cut")
    assert suwen("index", index, shelf).code == 1 and not index.exists()
    (shelf / "a.pdf").rename(shelf / "b.pdf")
    (shelf / "a.md").write_text("尿酸结石的病人应当多饮水。", encoding="utf-8")
    index.mkdir()
    assert suwen("index", index, shelf).code == 1 and index.exists(), "what was there is not taken away"
    done = suwen("curate", "shelf", shelf)
    assert done.code == 0 and "1 file left out; the reasons are above" in done.err
    assert done.err.count(str(shelf)) == 1, "its path is said once"


def test_a_bad_record_of_a_table_may_be_any_document(suwen: Suwen, index: Path, source: Path) -> None:
    lines = source.read_text(encoding="utf-8").splitlines()
    source.write_text("\n".join(["{cut off", *lines[1:]]), encoding="utf-8")
    kept = suwen("index", index, source, "--skip-bad", "--json").json
    assert (kept["removed"], kept["unread"], kept["unchanged"]) == (0, 1, 9)
    pruned = suwen("index", index, source, "--skip-bad", "--prune", "--json").json
    assert (pruned["removed"], pruned["unread"]) == (1, 0)


def test_duplicates(suwen: Suwen, source: Path, tmp_path: Path) -> None:
    with source.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"_id": "bp", "text": "另一个版本的高血压。"}, ensure_ascii=False) + "\n")
    done = suwen("index", tmp_path / "new", source)
    assert done.code == 1 and "'bp' comes twice" in done.err and "--duplicates first|last" in done.err
    assert suwen("index", tmp_path / "new", source, "--duplicates", "last").code == 0
    assert suwen("search", tmp_path / "new", "另一个版本", "--json").json["hits"][0]["document_id"] == "bp"


def test_add_and_delete(suwen: Suwen, index: Path, source: Path) -> None:
    done = suwen("add", index, "--id", "note-7", "--title", "用药", "--text", "布洛芬不宜与阿司匹林同服。", "--json")
    assert (done.code, done.json["added"]) == (0, 1)
    found = suwen("search", index, "阿司匹林", "--json").json["hits"][0]
    assert (found["document_id"], found["title"]) == ("note-7", "用药")
    assert suwen("index", index, source, "--json").json["removed"] == 0
    assert suwen("delete", index, "note-7", "nobody", "--json").json == {"deleted": 1, "missing": ["nobody"]}
    assert suwen("search", index, "阿司匹林", "--json").json["hits"][0]["document_id"] != "note-7"


def test_ids_that_look_like_markup(suwen: Suwen, index: Path) -> None:
    assert (
        suwen("add", index, "--id", "[bold]x[/red]", "--text", "方括号[/b]的文档。", "--title", "[red]题[/]").code == 0
    )
    shown = suwen("search", index, "方括号的文档")
    assert "[bold]x[/red]" in shown.out and "[red]题[/]" in shown.out and "方括号[/b]的文档" in shown.out
    done = suwen("delete", index, "[bold]x[/red]", "[/none]")
    assert done.code == 0
    assert "deleted 1 of 2 documents; not there: [/none]" in done.out


def ship(folder: Path, source: Path, pair: Pair) -> None:
    """What ``suwen encode`` would have written on another machine."""
    folder.mkdir()
    passages = [p for note in read_documents(source) for p in split_document(note, pair.count_tokens, 24, 0)]
    np.save(folder / "vectors.npy", pair.encoder("rough").encode_documents([p.content for p in passages]))
    digests = [hashlib.sha1(p.content.encode()).hexdigest()[:12] for p in passages]
    lines = [f"{p.id}\t{digest}\n" for p, digest in zip(passages, digests, strict=True)]
    (folder / "ids.txt").write_text("".join(lines))
    (folder / "vectors.json").write_text(json.dumps({"space": pair.space.id}))


def test_ready_vectors(suwen: Suwen, source: Path, small: Path, tmp_path: Path) -> None:
    ship(tmp_path / "ready", source, Pair.load(small))
    options = ["--vectors", tmp_path / "ready" / "vectors.npy", "--ids", tmp_path / "ready" / "ids.txt"]
    done = suwen("index", tmp_path / "new", source, *options, "--size", 24, "--overlap", 0, "--json")
    assert done.code == 0
    assert (done.json["encoded"], done.json["encoder"]) == (0, "document")
    assert "vectors.npy" in done.json["note"]
    assert (
        suwen("search", tmp_path / "new", "尿酸结石", "--mode", "dense", "--json").json["hits"][0]["document_id"]
        == "stone"
    )
    other = suwen("index", tmp_path / "other", source, *options, "--size", 100)
    assert other.code == 1 and "has changed since" in other.err
    (tmp_path / "more.jsonl").write_text(jsonl() + '{"_id": "extra", "text": "text"}\n', encoding="utf-8")
    more = suwen("index", tmp_path / "more", tmp_path / "more.jsonl", *options, "--size", 24, "--overlap", 0)
    assert more.code == 1 and "no vector for passage 'extra#0'" in more.err and "same --size and --overlap" in more.err


def test_ready_vectors_of_another_space(suwen: Suwen, source: Path, small: Path, foreign: Path, tmp_path: Path) -> None:
    ship(tmp_path / "ready", source, Pair.load(small))
    (tmp_path / "ready" / "vectors.json").write_text(json.dumps({"space": Pair.load(foreign).space.id}))
    options = ["--vectors", tmp_path / "ready" / "vectors.npy", "--ids", tmp_path / "ready" / "ids.txt"]
    done = suwen("index", tmp_path / "new", source, *options)
    assert done.code == 1 and Pair.load(foreign).space.id in done.err


def stored(index: Path) -> int:
    if not (index / "truth.db").exists():
        return 0
    truth = sqlite3.connect(index / "truth.db", timeout=30)
    try:
        return int(truth.execute("SELECT count(*) FROM documents").fetchone()[0])
    finally:
        truth.close()


def test_a_large_collection_is_encoded_by_the_fastest_tier_first(
    suwen: Suwen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both tiers of the small pair are tables.
    monkeypatch.setattr(Pair, "fastest", "rough")
    monkeypatch.setattr(foresight, "_FEW", 1)
    monkeypatch.setattr(foresight, "NOTABLE", 0.0)
    lines = [f'{{"_id": "d{number}", "text": "number {number} page"}}\n' for number in range(60)]
    (tmp_path / "large.jsonl").write_text("".join(lines))
    told = suwen("index", tmp_path / "told", tmp_path / "large.jsonl")
    info = suwen("info", "--json").json
    usual = next(line.split()[0] for line in info["tiers"] if "(default)" in line)
    assert f"with `{usual}`, for some 60 passages; `--tier " in told.err and "encoded by the tier" in told.err
    monkeypatch.setattr(foresight, "LONG", 0.0)
    done = suwen("index", tmp_path / "two", tmp_path / "large.jsonl", "--json")
    assert "can be searched now; from here on" in done.err
    report = done.json
    assert (report["added"], report["reencoded"], report["encoder"], report["encoded"]) == (60, 0, usual, 120)
    about = suwen("info", tmp_path / "two", "--json").json
    assert (about["documents"], about["deleted"], about["encoded by"]) == (60, 0, [f"{usual}: 60 passages"])
    again = suwen("index", tmp_path / "two", tmp_path / "large.jsonl", "--json").json
    assert (again["unchanged"], again["encoded"]) == (60, 0)


def test_a_first_pass_cut_short_goes_on_to_the_usual_tier(
    suwen: Suwen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both tiers of the small pair are tables.
    monkeypatch.setattr(Pair, "fastest", "rough")
    monkeypatch.setattr(foresight, "_FEW", 1)
    monkeypatch.setattr(foresight, "LONG", 0.0)
    (tmp_path / "large.jsonl").write_text("".join(f'{{"_id": "d{n}", "text": "number {n}"}}\n' for n in range(9)))
    stored = IngestReport.and_then
    monkeypatch.setattr(IngestReport, "and_then", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert suwen("index", tmp_path / "cut", tmp_path / "large.jsonl").code == 130
    monkeypatch.setattr(IngestReport, "and_then", stored)
    done = suwen("index", tmp_path / "cut", tmp_path / "large.jsonl", "--json").json
    assert (done["read"], done["added"]) == (9, 0)
    (encoded,) = suwen("info", tmp_path / "cut", "--json").json["encoded by"]
    assert encoded.startswith(done["encoder"])


def test_control_c_in_the_middle_and_again(suwen: Suwen, small: Path, tmp_path: Path) -> None:
    """The source is a pipe that stops in the middle: the run is waiting for more when it is interrupted."""
    lines = [f'{{"_id": "d{number}", "text": "number {number}"}}\n' for number in range(4500)]
    os.mkfifo(tmp_path / "slow.jsonl")
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1]), "SUWEN_PAIR": str(small)}
    # A shell's background jobs ignore interrupts, and so would everything the tests start there.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = f"{listen}; from suwen.cli.main import run; run()"
    index = tmp_path / "new"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "index", str(index), str(tmp_path / "slow.jsonl")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process, (tmp_path / "slow.jsonl").open("w") as pipe:
        pipe.writelines(lines)
        pipe.flush()
        deadline = time.monotonic() + 120
        while not stored(index) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted: what was stored stays; run the same command again" in err
    assert "Traceback" not in err and out == ""
    before = stored(index)
    assert 0 < before < 4500
    (tmp_path / "whole.jsonl").write_text("".join(lines))
    done = suwen("index", index, tmp_path / "whole.jsonl", "--json").json
    assert (done["read"], done["unchanged"], done["added"]) == (4500, before, 4500 - before)
    assert stored(index) == 4500
    assert suwen("verify", index).code == 0


@pytest.mark.parametrize("content", ["", "   \n"])
def test_an_empty_source_changes_nothing(suwen: Suwen, index: Path, source: Path, content: str) -> None:
    source.write_text(content)
    done = suwen("index", index, source)
    assert done.code == 1
    assert stored(index) == 10
