"""What is gathered while an evaluation set is built: queries, judgements, and what was left out and why.

What a set's sources say is for its builder.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from suwen.bench.evaluation_records import LeftOut
from suwen.bench.task_data import DataError
from suwen.corpora.files import BadRecord
from suwen.corpora.records import Document, Qrel, Query
from suwen.curate.screening import draw, in_words
from suwen.text.clean import clean

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class Entry(NamedTuple):
    """A query with the text that answers it; ``asked`` is false where only the text is of use."""

    id: str
    query: str
    text: str
    asked: bool = True


@dataclass
class Pool:
    """What a builder gathers while documents stream by: queries, judgements, and what was left out.

    Attributes:
        queries: Texts by id.
        grades: Of documents, by query.
        counts: What became of what was read.
        progress: Told of what was read.
        problem: What was wrong with the first record that could not be used.
    """

    queries: dict[str, str] = field(default_factory=dict)
    grades: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    counts: Counter[str] = field(default_factory=Counter)
    progress: Callable[[int, int], None] | None = None
    problem: BadRecord | None = None

    def read(self, what: str) -> None:
        """Count what was read, and tell of it every thousand."""
        self.counts[what] += 1
        if self.progress is not None and self.counts[what] % 1000 == 0:
            self.progress(self.counts[what], 0)

    def made(
        self, items: Iterable[_Item], make: Callable[[_Item], _Made], what: str = "records", within: str = ""
    ) -> Iterator[_Made]:
        """What is made of each item; one that cannot be used is left out, and counted by the reason.

        Args:
            items: Records, as a rule.
            make: Makes something of one, or raises :class:`LeftOut`.
            what: What the items are counted as.
            within: Stands before the reasons, where items are parts of records.
        """
        for item in items:
            self.read(what)
            try:
                made = make(item)
            except LeftOut as problem:
                self.leave_out(within + problem.why, problem)
            else:
                yield made

    def leave_out(self, why: str, problem: BadRecord) -> None:
        """Count something that cannot be used."""
        self.counts[why] += 1
        self.problem = self.problem or problem

    def pairs(self, entries: Iterable[Entry]) -> Iterator[Document]:
        """The texts of entries as documents: one that comes again is the same document, and so is a query."""
        texts: dict[str, str] = {}
        asked: dict[str, str] = {}
        ids: set[str] = set()
        for entry in entries:
            query, text = clean(entry.query), clean(entry.text)
            if not query or not text or entry.id in ids:
                self.counts["ids_repeated" if entry.id in ids else "without_text"] += 1
                continue
            ids.add(entry.id)
            self.counts["documents_repeated"] += text in texts
            if text not in texts:
                yield Document(entry.id, text)
            document = texts.setdefault(text, entry.id)
            if entry.asked:
                self.counts["queries_repeated"] += query in asked
                self.queries[asked.setdefault(query, entry.id)] = query
                self.grades[asked[query]][document] = 1

    def keep(self, there: Container[str]) -> None:
        """Drop the judgements of documents that the abstracts do not have."""
        judged = {document for grades in self.grades.values() for document in grades}
        self.counts["judged_articles_that_are_not_here"] = sum(document not in there for document in judged)
        for query, grades in self.grades.items():
            self.grades[query] = {document: grade for document, grade in grades.items() if document in there}

    def chosen(self, most: int | None, seed: int) -> Iterator[Query]:
        """The queries that are measured."""
        for id_, text in list(self.queries.items()):
            if not clean(text) or not any(self.grades[id_].values()):
                del self.queries[id_]
                self.counts["queries_without_a_relevant_document" if clean(text) else "queries_without_text"] += 1
        kept = draw(self.queries, most or len(self.queries), seed)
        self.counts.update(queries=len(kept), queries_not_drawn=len(self.queries) - len(kept))
        if not kept:
            raise self.nothing_left()
        self.queries = {id_: self.queries[id_] for id_ in kept}
        yield from (Query(id_, text) for id_, text in self.queries.items())

    def nothing_left(self) -> DataError:
        """What to say where there is no query: what was read, and what was wrong with the first that was left out."""
        read, counted = "no record is in what was given", any(self.counts.values())
        read = f"no query is left of what was read ({in_words(self.counts)})" if counted else read
        first = f". The first that was left out: {self.problem}" if self.problem else ""
        return DataError(f"nothing is written, for {read}{first}")

    def judgements(self) -> Iterator[Qrel]:
        """Those of the queries that were chosen."""
        for query in self.queries:
            self.counts["judgements"] += len(self.grades[query])
            yield from (Qrel(query, document, grade) for document, grade in self.grades[query].items())
