"""A collection on disk: corpus, queries and qrels, opened in any public layout and written in BEIR's."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from suwen.corpora.collection_layouts import Layout, find_layout
from suwen.corpora.files import CorpusError
from suwen.corpora.readers import read_documents
from suwen.corpora.record_fields import tidy_metadata, to_qrel, to_query
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.tabular import records
from suwen.durable import new_folder, write_lines
from suwen.text.clean import clean

_T = TypeVar("_T")
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHOWN = 3


@dataclass(frozen=True)
class Collection:
    """A corpus with its queries and judgements, read when asked for."""

    path: Path
    layout: Layout

    @classmethod
    def open(cls, path: Path | str) -> Collection:
        """Open a folder in the layout of BEIR, CMIRB, MTEB or C-MTEB.

        Raises:
            CorpusError: there is no such folder, or it has no corpus.
        """
        path = Path(path)
        if not path.is_dir():
            raise CorpusError(f"{path}: there is no such folder; check the path")
        layout = find_layout(path)
        if not layout.corpus:
            raise CorpusError(
                f"{path}: no corpus here; a collection has corpus.jsonl, queries.jsonl and qrels/<split>.tsv (BEIR), "
                "or the files of CMIRB or MTEB"
            )
        return cls(path, layout)

    def documents(self) -> Iterator[Document]:
        """Read the documents one at a time."""
        return read_documents(self.path, format="collection")

    def queries(self, split: str | None = None) -> list[Query]:
        """Read the queries: all of them, or those that ``split`` judges, in file order."""
        if not self.layout.queries:
            raise CorpusError(f"{self.path}: the collection has no queries; add queries.jsonl (_id, text)")
        queries = [query for path in self.layout.queries for query in _read(path, to_query)]
        if split is None:
            return queries
        judged = self.qrels(split)
        return [query for query in queries if query.id in judged]

    def splits(self) -> list[str]:
        """Name the splits that have judgements, sorted."""
        return sorted(self.layout.qrels)

    def qrels(self, split: str | None = None) -> dict[str, dict[str, int]]:
        """Read judgements as ``{query id: {document id: grade}}``: those of one split, or of all when None.

        A pair that is judged twice keeps the later grade.
        """
        if split is not None and split not in self.layout.qrels:
            there = ", ".join(self.splits()) or "none"
            raise CorpusError(f"{self.path}: no judgements for the split {split!r}; the splits here are: {there}")
        qrels: dict[str, dict[str, int]] = {}
        for name in self.splits() if split is None else [split]:
            for path in self.layout.qrels[name]:
                for qrel in _read(path, to_qrel):
                    qrels.setdefault(qrel.query_id, {})[qrel.document_id] = qrel.grade
        return qrels

    def check(self) -> list[str]:
        """Say in words what is wrong inside the collection; an empty list when nothing is.

        Found are ids that occur twice, judgements of unknown queries or documents, and missing parts.
        """
        documents, twice = _distinct(document.id for document in self.documents())
        problems = _about("document ids occur more than once", twice)
        queries, twice = _distinct(query.id for query in (self.queries() if self.layout.queries else []))
        problems += _about("query ids occur more than once", twice)
        if not queries:
            problems.append("there are no queries")
        if not self.layout.qrels:
            problems.append("there are no judgements")
        for split in self.splits():
            qrels = self.qrels(split)
            judged = dict.fromkeys(document for grades in qrels.values() for document in grades)
            problems += _about(
                f"queries judged in {split} are not in the queries", [q for q in qrels if q not in queries]
            )
            problems += _about(
                f"documents judged in {split} are not in the corpus", [d for d in judged if d not in documents]
            )
        return problems


def write_collection(
    path: Path | str,
    documents: Iterable[Document],
    queries: Iterable[Query],
    qrels: Mapping[str, Iterable[Qrel]],
) -> Collection:
    """Write a collection in BEIR's layout and open it: it is there whole, or not at all.

    Texts are cleaned on the way, as they would be on reading.

    Raises:
        CorpusError: the folder is there already and not empty, an id occurs twice or cannot be written, or a text is
            empty.
    """
    path = Path(path)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise CorpusError(f"{path}: already there; remove it first or write the collection elsewhere")
    with new_folder(path) as folder:
        records: Iterator[dict[str, Any]] = (
            {"_id": document.id, "title": clean(document.title), "text": clean(document.text)}
            | ({"metadata": tidy_metadata(document.metadata)} if document.metadata else {})
            for document in documents
        )
        _write_records(folder / "corpus.jsonl", "document", records)
        texts = ({"_id": query.id, "text": clean(query.text)} for query in queries)
        _write_records(folder / "queries.jsonl", "query", texts)
        _write_qrels(folder / "qrels", qrels)
    return Collection.open(path)


def _read(path: Path, make: Callable[[Mapping[str, Any], str], _T]) -> Iterator[_T]:
    if path.is_file() and not path.stat().st_size:
        return  # a collection that has no queries yet
    yield from (make(record, place) for place, record in records(path))


def _distinct(ids: Iterable[str]) -> tuple[Mapping[str, int], list[str]]:
    counts = Counter(ids)
    return counts, [identifier for identifier, count in counts.items() if count > 1]


def _about(what: str, ids: list[str]) -> list[str]:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return [f"{len(ids)} {what}: {', '.join(ids[:_SHOWN])}{more}"] if ids else []


def _write_records(path: Path, what: str, records: Iterable[dict[str, Any]]) -> None:
    seen: set[str] = set()

    def checked() -> Iterator[dict[str, Any]]:
        for record in records:
            identifier = _writable(record["_id"], what)
            if identifier in seen:
                raise CorpusError(f"the {what} id {identifier!r} occurs twice; ids must differ")
            if not record["text"]:
                raise CorpusError(f"the {what} {identifier!r} has no text; leave it out")
            seen.add(identifier)
            yield record

    write_lines(path, checked())


def _write_qrels(folder: Path, qrels: Mapping[str, Iterable[Qrel]]) -> None:
    folder.mkdir()
    for split, judgements in qrels.items():
        if not _SPLIT_NAME.fullmatch(split):
            raise CorpusError(f"a split cannot be called {split!r}; use letters, digits, dots, dashes")
        with (folder / f"{split}.tsv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n")
            writer.writerow(("query-id", "corpus-id", "score"))
            for qrel in judgements:
                ids = (_writable(qrel.query_id, "query"), _writable(qrel.document_id, "document"))
                writer.writerow((*ids, qrel.grade))


def _writable(identifier: str, what: str) -> str:
    if not identifier or identifier != clean(identifier) or not identifier.isprintable():
        raise CorpusError(f"the {what} id {identifier!r} cannot be written; use an id without control or double spaces")
    return identifier
