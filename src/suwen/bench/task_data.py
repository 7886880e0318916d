"""What a task's data are once they are loaded, and the checks they must pass. Reading files is for ``task_loading``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from suwen.corpora.records import Qrel
from suwen.errors import SuwenError

_SHOWN = 3


class DataError(SuwenError):
    """The data of a task are there but cannot be scored."""


class MissingData(DataError):
    """The data of a task are not here; the message says how to get them."""


@dataclass(frozen=True)
class Source:
    """Where data came from; ``revision`` is None where nothing on the disk states one."""

    path: Path
    hub: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Ranked:
    """A corpus, queries and judgements.

    In a reranking, ``candidates`` holds the corpus rows of each query. ``excluded`` has documents that are taken out of
    a query's ranking before it is scored: whether they answer it is not known.
    """

    document_ids: list[str]
    documents: list[str]
    query_ids: list[str]
    queries: list[str]
    qrels: dict[str, dict[str, int]]
    source: Source
    candidates: list[list[int]] | None = None
    notes: tuple[str, ...] = ()
    excluded: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """A hash of all that a score depends on."""
        texts = (self.document_ids, self.documents, self.query_ids, self.queries)
        # Only where there are any: results that were stored before stay valid.
        more = {"excluded": dict(self.excluded)} if self.excluded else {}
        return text_hash(chain(*texts), {"qrels": self.qrels, "candidates": self.candidates} | more)


@dataclass(frozen=True)
class Paired:
    """Pairs of sentences with a gold score each."""

    left: list[str]
    right: list[str]
    scores: list[float]
    source: Source
    notes: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """A hash of all that a score depends on."""
        return text_hash(chain(self.left, self.right), self.scores)


Data = Ranked | Paired


def text_hash(texts: Iterable[str], rest: Any = None) -> str:
    """A hash of texts in their order, and of anything JSON can carry; no two lists share one, however they are cut."""
    digest = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    if rest is not None:
        digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()


@dataclass
class Judgements:
    """Gathers judgements and refuses a pair that is judged twice.

    Args:
        lenient: Keep the first of equal judgements, and the higher of two that differ, and make a note of it.
    """

    lenient: bool = False
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    repeated: int = 0

    def add(self, qrel: Qrel, place: str) -> None:
        """Take one judgement in."""
        grades = self.grades.setdefault(qrel.query_id, {})
        known = grades.get(qrel.document_id)
        if known is None:
            grades[qrel.document_id] = qrel.grade
            return
        if not self.lenient:
            raise DataError(
                f"{place}: query {qrel.query_id!r} judges document {qrel.document_id!r} twice (grades {known} and "
                f"{qrel.grade}). Remove one of the two, or pass --lenient to keep the higher"
            )
        self.repeated += 1
        grades[qrel.document_id] = max(known, qrel.grade)


def make_ranked(
    name: str,
    source: Source,
    documents: Iterable[tuple[str, str]],
    queries: Iterable[tuple[str, str]],
    judgements: Judgements,
    *,
    candidates: Mapping[str, Sequence[str]] | None = None,
    rerank: bool = False,
    notes: Sequence[str] = (),
) -> Ranked:
    """Put the parts together and check that they know each other.

    Args:
        name: The task, for messages.
        source: Where the parts came from.
        documents: Ids and texts.
        queries: Ids and texts; those without a judgement are left out.
        judgements: Grades; unknown ids are an error unless they are lenient.
        candidates: In a reranking, the document ids of each query; the judged ones where this is None.
        rerank: Whether only candidates are ranked.
        notes: What was found out on the way.

    Raises:
        DataError: An id is unknown or occurs twice, a query has no candidate, or nothing is judged.
    """
    remarks = [*notes]
    if judgements.repeated:
        remarks.append(f"{judgements.repeated} judgements came twice; the higher grade was kept")
    rows, texts = _distinct(name, "document", documents)
    wanted, asked = _distinct(name, "query", (query for query in queries if query[0] in judgements.grades))
    qrels = _known(name, judgements, rows, wanted, remarks)
    if not any(qrels.values()):
        raise DataError(f"Task {name}: {source.path} holds no judgement to score; check the split")
    kept = [query for query in wanted if qrels.get(query)]
    asked = [asked[wanted[query]] for query in kept]
    ids, chosen = list(rows), None
    if rerank:
        chosen = _candidates(name, candidates, kept, qrels, rows)
        # Passages that are nobody's candidate would only be encoded for nothing.
        used = sorted({row for group in chosen for row in group})
        place = {row: number for number, row in enumerate(used)}
        ids, texts = [ids[row] for row in used], [texts[row] for row in used]
        chosen = [[place[row] for row in group] for group in chosen]
    return Ranked(ids, texts, kept, asked, {query: qrels[query] for query in kept}, source, chosen, tuple(remarks))


def _distinct(name: str, what: str, items: Iterable[tuple[str, str]]) -> tuple[dict[str, int], list[str]]:
    rows: dict[str, int] = {}
    texts: list[str] = []
    for identifier, text in items:
        if identifier in rows:
            raise DataError(
                f"Task {name}: the {what} id {identifier!r} occurs twice; give each {what} an id of its own"
            )
        rows[identifier] = len(texts)
        texts.append(text)
    return rows, texts


def _known(
    name: str, judgements: Judgements, rows: Mapping[str, int], queries: Mapping[str, int], notes: list[str]
) -> dict[str, dict[str, int]]:
    """The judgements whose ids exist; the others are an error, or counted and left out."""
    unasked = [query for query in judgements.grades if query not in queries]
    lost = [document for grades in judgements.grades.values() for document in grades if document not in rows]
    for what, where, ids in (("queries", "queries", unasked), ("documents", "corpus", list(dict.fromkeys(lost)))):
        if not ids:
            continue
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        shown = ", ".join(map(repr, ids[:_SHOWN])) + more
        if not judgements.lenient:
            raise DataError(
                f"Task {name}: the qrels name {len(ids)} {what} that are not in the {where}: {shown}. Get corpus, "
                f"queries and qrels of one version, or pass --lenient to leave those judgements out"
            )
        notes.append(f"judgements of {len(ids)} unknown {what} were left out: {shown}")
    return {
        query: {document: grade for document, grade in grades.items() if document in rows}
        for query, grades in judgements.grades.items()
        if query in queries
    }


def _candidates(
    name: str,
    candidates: Mapping[str, Sequence[str]] | None,
    queries: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    rows: Mapping[str, int],
) -> list[list[int]]:
    chosen = []
    for query in queries:
        ids = list(dict.fromkeys(qrels[query] if candidates is None else candidates.get(query, ())))
        if not ids:
            raise DataError(f"Task {name}: query {query!r} has no candidates to rank; give it some, or remove it")
        if unknown := [document for document in ids if document not in rows]:
            raise DataError(
                f"Task {name}: query {query!r} has the candidate {unknown[0]!r}, which is not in the corpus; get "
                f"corpus and candidates of one version"
            )
        chosen.append([rows[document] for document in ids])
    return chosen
