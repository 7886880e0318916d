"""A jury's verdicts as an assembly uses them: labels and grades on texts as they are, refined for the test.

Asks no model and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from suwen.corpora.records import Document
from suwen.curate import CurateError
from suwen.jury.verdicts import Label, Verdict, is_on

#: By query, then by passage.
Labels = dict[str, dict[str, Label]]
Undecided = Literal["exclude", "drop", "keep"]


@dataclass
class Judged:
    """What a jury decided.

    Attributes:
        labels: The labels.
        grades: The same on TREC's scale, 0 to 3, where there are votes to tell.
        stale: Pairs left out: their texts have changed since they were judged.
    """

    labels: Labels = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    stale: int = 0


def read_labels(verdicts: Iterable[Verdict]) -> Labels:
    """The labels by query and passage; none at all, and two of one pair, are errors."""
    return _read(verdicts)[0].labels


def read_judged(verdicts: Iterable[Verdict], queries: Mapping[str, str], documents: Iterator[Document]) -> Judged:
    """The labels of pairs whose texts are as they were judged; a verdict without votes cannot tell and is taken.

    Args:
        verdicts: The jury's, after any expert review.
        queries: The queries' texts as they are.
        documents: The documents as they are.
    """
    judged, votes = _read(verdicts)
    for document in documents:
        for vote in votes.get(document.id, ()):
            query = queries.get(vote.query_id)
            if query is not None and not is_on(vote, query, document.content):
                judged.stale += 1
                del judged.labels[vote.query_id][document.id]
                judged.grades.get(vote.query_id, {}).pop(document.id, None)
    judged.labels = {query: own for query, own in judged.labels.items() if own}
    if not judged.labels:
        raise CurateError("all verdicts are on texts that have changed since: pool, judge and decide again")
    return judged


class _Cast(NamedTuple):
    """What of a vote tells the text it was cast on."""

    query_id: str
    digest: str
    cut: bool


def _read(verdicts: Iterable[Verdict]) -> tuple[Judged, dict[str, list[_Cast]]]:
    judged, votes = Judged(), dict[str, list[_Cast]]()
    for verdict in verdicts:
        query, passage = verdict.query_id, verdict.passage_id
        own = judged.labels.setdefault(query, {})
        if passage in own:
            raise CurateError(f"query {query!r} and passage {passage!r} have two verdicts: keep one of them")
        own[passage] = verdict.label
        # The votes of one verdict were cast on one text.
        if verdict.votes:
            votes.setdefault(passage, []).append(_Cast(query, verdict.votes[0].digest, verdict.votes[0].cut))
            if verdict.grade is not None:
                judged.grades.setdefault(query, {})[passage] = verdict.grade
    if not judged.labels:
        raise CurateError("there are no verdicts to assemble: run `suwen jury judge` and `suwen jury consensus` first")
    return judged, votes


class Refined(NamedTuple):
    """The test after refinement.

    Attributes:
        labels: Labels of the queries that stay.
        removed: The documents that leave the corpus.
        excluded: By query, the documents that are not counted for it, found or not.
    """

    labels: Labels
    removed: frozenset[str]
    excluded: dict[str, list[str]] = {}  # noqa: RUF012 (a NamedTuple default; nobody writes to it)


def refine(labels: Labels, queries: Iterable[str], undecided: Undecided = "drop") -> Refined:
    """Settle what becomes of undecided pairs of test queries, then leave out queries without a positive.

    Args:
        labels: All labels.
        queries: The test queries.
        undecided: ``exclude`` does not count the document for that query; ``drop`` takes it out of the corpus, for
            all queries; ``keep`` does so unless it is positive for another.
    """
    mine = {query: labels[query] for query in queries}
    doubtful = {passage for own in mine.values() for passage, label in own.items() if label == "undecided"}
    if undecided == "keep":
        doubtful -= {passage for own in mine.values() for passage, label in own.items() if label == "positive"}
    removed: frozenset[str] = frozenset() if undecided == "exclude" else frozenset(doubtful)
    left: Labels = {}
    excluded: dict[str, list[str]] = {}
    for query, own in mine.items():
        kept: dict[str, Label] = {p: label for p, label in own.items() if p not in removed and label != "undecided"}
        if "positive" in kept.values():
            left[query] = kept
            open_ = [passage for passage, label in own.items() if label == "undecided" and passage not in removed]
            if open_ and undecided == "exclude":
                excluded[query] = open_
    return Refined(left, removed, excluded)
