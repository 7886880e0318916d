"""What is not taken of public sets, and how that is said: splits, files, labels, forms that are not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suwen.bench.published_tables import instructions
from suwen.corpora.files import CorpusError
from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate import CurateError
from suwen.curate.convert import convert
from suwen.curate.leakage import HeldOut

PRINTED = instructions("bmretriever")
ALL_NLI = (
    "split\tdataset\tfilename\tsentence1\tsentence2\tlabel\n"
    "train\tSNLI\ta.txt\tA man eats.\tA human eats.\tentailment\n"
    "dev\tSNLI\tb.txt\tA dog runs.\tAn animal runs.\tentailment\n"
    "test\tSNLI\tc.txt\tA cat sits.\tAn animal sits.\tentailment\n"
)


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def converted(tmp_path: Path, name: str, file: str, text: str, **more: Any) -> tuple[list[TrainingRow], Any]:
    source = tmp_path / "source" / file
    source.parent.mkdir(exist_ok=True)
    source.write_text(text, encoding="utf-8")
    return run(tmp_path, name, source, **more)


def run(tmp_path: Path, name: str, source: Path, **more: Any) -> tuple[list[TrainingRow], Any]:
    counts = convert(name, source, tmp_path / "rows.jsonl", PRINTED, **more)
    return list(read_training_rows(tmp_path / "rows.jsonl")), counts


def test_arrays_of_two_and_of_three_and_none_is_cut(tmp_path: Path) -> None:
    text = lines(["Why do cells die?", "Apoptosis.", "They do not."], ["Why sleep?", "To rest."], ["a", "b", "c", "d"])
    rows, counts = converted(tmp_path, "stackexchange", "a.jsonl", text)
    assert [row[:3] for row in rows] == [
        ("Why do cells die?", ("Apoptosis.",), ("They do not.",)),
        ("Why sleep?", ("To rest.",), ()),
    ]
    assert counts["unreadable"] == 1
    rows, _ = converted(tmp_path, "stackexchange", "a.tsv", "Why sleep?\tTo rest.\n")
    assert rows[0][:3] == ("Why sleep?", ("To rest.",), ())


def test_triples_of_one_pair_give_one_row_with_all_negatives(tmp_path: Path) -> None:
    text = "gout\tAn arthritis.\tA goat.\nflu\tA virus.\tA flute.\ngout\tAn arthritis.\tA gown.\n"
    rows, counts = converted(tmp_path, "msmarco", "triples.train.small.tsv", text)
    assert [(row.query, row.neg) for row in rows] == [("gout", ("A goat.", "A gown.")), ("flu", ("A flute.",))]
    assert (counts["records"], counts["rows"], counts["merged_into_another"], counts["repeated"]) == (3, 2, 1, 0)
    held_out = HeldOut(["a gown that nobody may train on"])
    text = text.replace("A gown.", "A gown that nobody may train on.")
    rows, counts = converted(tmp_path, "msmarco", "triples.train.small.tsv", text, held_out=held_out)
    assert [row.neg for row in rows] == [("A goat.",), ("A flute.",)] and counts["held_out"] == 1


def test_records_of_another_split_are_left_out(tmp_path: Path) -> None:
    rows, counts = converted(tmp_path, "nli", "AllNLI.tsv", ALL_NLI)
    assert [row.query for row in rows] == ["A man eats."] and counts["of_another_split"] == 2
    rows, counts = converted(tmp_path, "nli", "AllNLI.tsv", ALL_NLI, split="dev")
    assert [row.query for row in rows] == ["A dog runs."] and counts["of_another_split"] == 2
    with pytest.raises(CurateError, match=r"The first: .*AllNLI\.tsv:2: it is of the split train, and cross is taken"):
        converted(tmp_path, "nli", "AllNLI.tsv", ALL_NLI, split="cross")
    pairs = [{"question": f"q{n}", "answer": "a", "split": own} for n, own in enumerate(("Training", "", None, 3))]
    assert len(converted(tmp_path, "gooaq", "a.jsonl", lines(*pairs, {**pairs[0], "split": "test"}))[0]) == 4


def test_files_of_a_folder_that_are_left_out_are_named_and_counted(tmp_path: Path) -> None:
    folder, told = tmp_path / "gooaq", list[str]()
    folder.mkdir()
    (folder / "a.jsonl").write_text(lines({"question": "q", "answer": "a"}), encoding="utf-8")
    for name in ("more.txt", "more.zip", "posts.xml"):
        (folder / name).write_text("q and a", encoding="utf-8")
    rows, counts = run(tmp_path, "gooaq", folder, tell=told.append)
    assert len(rows) == 1 and counts["files_left_out"] == 3
    assert told == [f"3 files of {folder} are no tables of gooaq's train: more.txt, more.zip, posts.xml"]


def test_files_named_after_another_split_stay_out_where_one_is_named_after_this(tmp_path: Path) -> None:
    folder, told = tmp_path / "folder", list[str]()
    folder.mkdir()
    for part in ("train", "dev", "test"):
        pair = {"sentence1": f"Has fever, {part}.", "sentence2": f"Is febrile, {part}.", "gold_label": "entailment"}
        (folder / f"mli_{part}_v1.jsonl").write_text(lines(pair), encoding="utf-8")
    rows, counts = run(tmp_path, "mednli", folder, tell=told.append)
    assert [row.query for row in rows] == ["Has fever, train."] and counts["files_left_out"] == 2
    assert told == [f"2 files of {folder} are no tables of mednli's train: mli_dev_v1.jsonl, mli_test_v1.jsonl"]
    rows, _ = run(tmp_path, "mednli", folder, split="dev")
    assert [row.query for row in rows] == ["Has fever, dev."]
    (folder / "mli_train_v1.jsonl").unlink()
    assert len(run(tmp_path, "mednli", folder)[0]) == 2


def test_labels_that_say_nothing_are_named_with_those_expected(tmp_path: Path) -> None:
    pair = {"sentence1": "Has fever.", "sentence2": "Is febrile."}
    text = lines(*({**pair, "label": label} for label in (0, 1, 2)))
    with pytest.raises(CurateError, match=r"expected are entailment, contradiction, found 0, 1, 2\. Write those"):
        converted(tmp_path, "mednli", "train.jsonl", text)
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "file", "text", "problem"),
    [
        ("stackexchange", "Posts.xml", "<posts><row Id='1'/></posts>", "no XML form .* called title_body and upvoted"),
        ("medquad", "other.xml", "<posts><row Id='1'/></posts>", r"other\.xml: no record here, no element QAPair"),
        (
            "gooaq",
            "squad.json",
            '{"version": "2", "data": [{"paragraphs": []}]}',
            "lie deeper, write them into one array",
        ),
    ],
)
def test_a_form_that_is_not_read_says_which_is(tmp_path: Path, name: str, file: str, text: str, problem: str) -> None:
    with pytest.raises((CurateError, CorpusError), match=problem):
        converted(tmp_path, name, file, text)


def test_a_text_in_another_encoding_says_how_it_is_saved_as_utf8(tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    source.write_bytes('{"question": "Caf\u00e9?", "answer": "Non."}\n'.encode("latin-1"))
    with pytest.raises(
        CorpusError, match=r"source\.jsonl:1: .* save it as UTF-8 .*iconv -f ENCODING .*where the command has"
    ):
        run(tmp_path, "gooaq", source)
