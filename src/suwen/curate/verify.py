"""Training rows whose labels a model has verified (CARE section 4.1, Table 25): positives, hard and false negatives.

For each query the best hits of a search are shown to the model. What answers is a positive, what does not is a hard
negative, and what the data called wrong (or never named) and answers all the same is a false negative: it is never
trained on as a negative. Rows stream through; memory holds one window of them and their hits.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from suwen.corpora.collection import Collection
from suwen.corpora.tabular import records
from suwen.corpora.training_rows import TrainingRow, to_training_row
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.mine import Search
from suwen.curate.near_duplicates import shingles, similarity
from suwen.llm.asker import Asker, label_schema
from suwen.llm.requests import Request
from suwen.text.clean import clean

Answer = Literal["yes", "unsure", "no"]


@dataclass(frozen=True)
class Verification:
    """How rows are verified.

    Attributes:
        depth: How many hits of a query are verified.
        batch: How many passages are shown at once.
        positives: The most positives of a row.
        negatives: The most hard negatives of a row; the published rows have 15.
        promote: Whether a false negative becomes a positive; else it is only left out.
        near_duplicate: From which similarity a negative is a copy of a positive, and left out.
        prompt: What is put before the query in training.
        type: The kind of row, for training.
        seed: Of every draw.
        window: Rows in memory at once.
    """

    depth: int = 50
    batch: int = 10
    positives: int = 5
    negatives: int = 15
    promote: bool = True
    near_duplicate: float = 0.8
    prompt: str = ""
    type: str = ""
    seed: int = 0
    window: int = 200

    def __post_init__(self) -> None:
        if min(self.depth, self.batch, self.positives, self.window) < 1 or self.negatives < 0:
            raise CurateError("depth, batch, positives and window are at least 1, negatives at least 0: correct them")


@dataclass
class RowFunnel:
    """What became of queries and their passages; ``unanswered`` passages got no reply that could be used."""

    queries: int = 0
    repeated: int = 0
    held_out: int = 0
    passages: int = 0
    answering: int = 0
    unsure: int = 0
    not_answering: int = 0
    unanswered: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    without_a_positive: int = 0
    rows: int = 0
    positives: int = 0
    hard_negatives: int = 0


class Candidate(NamedTuple):
    """A passage to verify: what the data say of it (``pos``, ``neg``), or ``hit`` where they say nothing."""

    text: str
    known: Literal["pos", "neg", "hit"]


@dataclass
class _Open:
    """A row on its way: its candidates, and what was said of them."""

    key: str
    row: TrainingRow
    candidates: list[Candidate]
    answers: dict[int, Answer] = field(default_factory=dict)


def verify_rows(
    rows: Iterable[TrainingRow],
    search: Search,
    asker: Asker,
    settings: Verification | None = None,
    *,
    held_out: HeldOut | None = None,
    funnel: RowFunnel | None = None,
) -> Iterator[TrainingRow]:
    """Verify rows, in order. A row needs no positive and no negative: a bare query gets both from the search.

    Args:
        rows: Queries, with what is known of them.
        search: See :func:`suwen.curate.mine.search_index`.
        asker: The model.
        settings: How.
        held_out: Texts that must not be trained on: such queries and passages are left out.
        funnel: Is counted into as rows pass.
    """
    maker = _Maker(search, asker, settings or Verification(), held_out or HeldOut(), funnel or RowFunnel())
    stream = enumerate(maker.fresh(rows))
    while window := list(islice(stream, maker.settings.window)):
        opened = maker.opened(window)
        maker.verify(opened)
        yield from (row for one in opened if (row := maker.row(one)) is not None)


def read_queries(path: Path) -> Iterator[TrainingRow]:
    """Read what is to be verified, one at a time: a collection's queries, or a jsonl file of rows or bare queries.

    A line is a training row, with or without ``pos`` and ``neg``, or a query as ``{"query"}`` or ``{"text"}``.
    """
    return (one.row for one in read_query_records(path))


class QueryRecord(NamedTuple):
    """A query to be verified, and the record it comes from, with its id and whatever else it has."""

    row: TrainingRow
    record: Mapping[str, Any]


def read_query_records(path: Path) -> Iterator[QueryRecord]:
    """Read what :func:`read_queries` reads, each with its record as it stands in the file."""
    if path.is_dir():
        for query in Collection.open(path).queries():
            yield QueryRecord(TrainingRow(query.text, ()), {"_id": query.id, "query": query.text})
        return
    for place, record in records(path):
        if any(record.get(name) for name in ("pos", "positive", "positives", "doc")):
            yield QueryRecord(to_training_row(record, place), record)
            continue
        text = record.get("query") or record.get("text")
        if not isinstance(text, str) or not clean(text):
            raise CurateError(f'{place}: no query here; write {{"query": "…"}}, or a training row')
        neg = record.get("neg") or ()
        row = TrainingRow(clean(text), (), tuple(map(clean, neg)) if isinstance(neg, list) else ())
        yield QueryRecord(row, record)


class _Maker:
    """Makes rows, counting as they pass."""

    def __init__(
        self, search: Search, asker: Asker, settings: Verification, held_out: HeldOut, funnel: RowFunnel
    ) -> None:
        self.search, self.asker, self.settings = search, asker, settings
        self.held_out, self.funnel = held_out, funnel
        schema = asker.prompt("verify").schema or {}
        self._item = schema["additionalProperties"]

    def fresh(self, rows: Iterable[TrainingRow]) -> Iterator[TrainingRow]:
        """The rows that come for the first time and are not held out; of a seen row eight bytes are remembered."""
        seen: set[bytes] = set()
        for row in rows:
            self.funnel.queries += 1
            whole = "\0".join(map(comparable, (row.query, *row.pos)))
            digest = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest()
            if digest in seen:
                self.funnel.repeated += 1
            elif self.held_out.hit(row.query) is not None:
                self.funnel.held_out += 1
            else:
                seen.add(digest)
                yield row

    def opened(self, window: Sequence[tuple[int, TrainingRow]]) -> list[_Open]:
        """The rows of a window with their candidates, shuffled so that the order says nothing."""
        hits = self.search([row for _, row in window], self.settings.depth)
        opened = []
        for (number, row), own in zip(window, hits, strict=True):
            # A text of the row that the index has with a title is judged, and trained on, with it.
            whole = {comparable(hit.text): hit.content for hit in reversed(own) if hit.title}
            pos, neg = ([whole.get(comparable(text), text) for text in texts] for texts in (row.pos, row.neg))
            known = [*(Candidate(text, "pos") for text in pos), *(Candidate(text, "neg") for text in neg)]
            candidates = self._distinct([*known, *(Candidate(hit.content, "hit") for hit in own)])
            random.Random(f"{self.settings.seed}:order:{comparable(row.query)}").shuffle(candidates)
            self.funnel.passages += len(candidates)
            opened.append(_Open(str(number), row, candidates))
        return opened

    def _distinct(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        first: dict[str, Candidate] = {}
        for candidate in candidates:
            compared = comparable(candidate.text)
            if compared and self.held_out.hit_compared(compared) is None:
                first.setdefault(compared, candidate)
        return list(first.values())

    def verify(self, opened: Sequence[_Open]) -> None:
        """Ask about every candidate of a window."""
        by_key = {one.key: one for one in opened}
        said = self.asker.ask("verify", self._requests(opened), dict[str, Answer], self._stand_in)
        for key, answers in said.items():
            owner, _, start = key.partition("/")
            for label, answer in answers.items():
                by_key[owner].answers[int(start) + int(label[1:]) - 1] = answer

    def _requests(self, opened: Iterable[_Open]) -> Iterator[Request]:
        for one in opened:
            for start in range(0, len(one.candidates), self.settings.batch):
                texts = [candidate.text for candidate in one.candidates[start : start + self.settings.batch]]
                values: dict[str, str | int | float] = {"query": one.row.query, "count": len(texts)}
                schema = label_schema(len(texts), self._item)
                yield self.asker.batch("verify", values, texts, key=f"{one.key}/{start}", schema=schema)

    @staticmethod
    def _stand_in(request: Request) -> dict[str, Answer]:
        labels = (request.schema or {})["properties"]
        return {label: "yes" if label == "P1" else "no" for label in labels}

    def row(self, one: _Open) -> TrainingRow | None:
        """The verified row; None where no positive is left."""
        self._count(one)
        right, wrong, unsure = (
            [candidate for place, candidate in enumerate(one.candidates) if one.answers.get(place) == answer]
            for answer in ("yes", "no", "unsure")
        )
        confirmed = [candidate.text for candidate in right if candidate.known == "pos"]
        others = [candidate.text for candidate in right if candidate.known != "pos"]
        pos = [*confirmed, *(others if self.settings.promote or not one.row.pos else ())][: self.settings.positives]
        if not pos:
            self.funnel.without_a_positive += 1
            return None
        neg = self._negatives(one, wrong, [*pos, *others, *(candidate.text for candidate in unsure)])
        self.funnel.rows += 1
        self.funnel.positives += len(pos)
        self.funnel.hard_negatives += len(neg)
        prompt, kind = self.settings.prompt or one.row.prompt, self.settings.type or one.row.type
        return TrainingRow(one.row.query, tuple(pos), tuple(neg), prompt, kind)

    def _negatives(self, one: _Open, wrong: Sequence[Candidate], right: Sequence[str]) -> list[str]:
        """A draw of what does not answer, without copies of what does; a known positive that was refuted is none."""
        shown = [shingles(text) for text in right]
        there = [
            candidate.text
            for candidate in wrong
            if candidate.known != "pos"
            and all(similarity(shingles(candidate.text), other) < self.settings.near_duplicate for other in shown)
        ]
        draw = random.Random(f"{self.settings.seed}:negatives:{comparable(one.row.query)}")
        return draw.sample(there, min(self.settings.negatives, len(there)))

    def _count(self, one: _Open) -> None:
        answers = [one.answers.get(place) for place in range(len(one.candidates))]
        self.funnel.answering += answers.count("yes")
        self.funnel.unsure += answers.count("unsure")
        self.funnel.not_answering += answers.count("no")
        self.funnel.unanswered += answers.count(None)
        for candidate, answer in zip(one.candidates, answers, strict=True):
            self.funnel.false_positives += candidate.known == "pos" and answer == "no"
            # Where the data name no positive, an answer among the hits contradicts nothing.
            contradicts = candidate.known == "neg" or (candidate.known == "hit" and bool(one.row.pos))
            self.funnel.false_negatives += contradicts and answer == "yes"
