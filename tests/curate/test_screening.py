"""The file that rows are to be written into: its name, and that it is none of those they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suwen.bench.published_tables import instructions
from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate import CurateError
from suwen.curate.anonymise import anonymise_file
from suwen.curate.convert import convert
from suwen.curate.row_files import choose_diverse, make_rows, mine_file, round_trip_file
from suwen.curate.screening import check_output
from suwen.curate.synthesise import synthesise_rows
from suwen.curate.text_pairs import Corpus, make_pairs


@pytest.mark.parametrize("name", ["rows.csv", "rows", "rows.json", "rows.jsonl.zip", "rows.gz", "rows.parquet"])
def test_rows_are_written_as_json_lines_alone(tmp_path: Path, name: str) -> None:
    with pytest.raises(CurateError, match=r"ends in \.jsonl or \.jsonl\.gz"):
        check_output(tmp_path / name)
    check_output(tmp_path / "rows.jsonl")
    check_output(tmp_path / "none" / "rows.jsonl.gz", tmp_path / "none.csv")


def test_a_source_is_known_by_other_names_too(tmp_path: Path) -> None:
    source, other = tmp_path / "source.jsonl", tmp_path / "other.jsonl"
    source.write_text("{}\n", encoding="utf-8")
    other.symlink_to(source)
    for same in (source, other, tmp_path / "." / "source.jsonl"):
        with pytest.raises(CurateError, match="would be overwritten; give OUT another name"):
            check_output(same, tmp_path / "none.jsonl", source)
    with pytest.raises(CurateError, match="is a file of the source"):
        check_output(source, tmp_path)
    check_output(tmp_path / "new.jsonl", tmp_path, source)


def test_of_a_collection_its_own_files_are_the_source(tmp_path: Path) -> None:
    qrels = {"test": [Qrel("q", "d", 1)]}
    folder = write_collection(tmp_path / "c", [Document("d", "x")], [Query("q", "y")], qrels).path
    (folder / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    check_output(folder / "rows.jsonl", folder)
    for name in ("corpus.jsonl", "queries.jsonl"):
        with pytest.raises(CurateError, match="is a file of the source"):
            check_output(folder / name, folder)


def test_every_verb_refuses_its_source_before_it_reads_or_asks(tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    write_training_rows(source, [TrainingRow("What is gout?", ("An arthritis.",))])
    before = source.read_bytes()
    nobody: Any = None
    for write in (
        lambda to: convert("msmarco", source, to, instructions("bmretriever")),
        lambda to: make_pairs([Corpus(path=tmp_path / "none"), Corpus(path=source)], to),
        lambda to: synthesise_rows(to, nobody, source=source, dataset="pubmed"),
        lambda to: make_rows(source, nobody, to, nobody),
        lambda to: mine_file(source, nobody, to),
        lambda to: round_trip_file(source, nobody, to),
        lambda to: choose_diverse(source, to, nobody, nobody),
        lambda to: anonymise_file(source, to, nobody),
    ):
        with pytest.raises(CurateError, match="is a file of the source"):
            write(source)
        with pytest.raises(CurateError, match="ends in"):
            write(tmp_path / "out.csv")
    assert source.read_bytes() == before
