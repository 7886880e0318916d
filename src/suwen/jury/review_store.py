"""The store of experts' labels and taking labels in from CSV files and other stores. Measures nothing.

Labels are only ever added: who changed their mind has both in the history.
"""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from suwen.corpora.files import open_text
from suwen.jury.sampling import Sampled
from suwen.jury.verdicts import JuryProblem, Label
from suwen.sqlite_file import SqliteFile

Opinion = Literal["positive", "negative", "unsure"]
OPINIONS: tuple[Opinion, ...] = get_args(Opinion)
#: What a CSV may say: the words themselves and others for them.
_WORDS: Mapping[str, Opinion] = {
    "positive": "positive", "negative": "negative", "unsure": "unsure",
    "1": "positive", "+": "positive", "yes": "positive", "相关": "positive", "是": "positive",
    "0": "negative", "-": "negative", "no": "negative", "不相关": "negative", "否": "negative",
    "?": "unsure", "？": "unsure", "不确定": "unsure",
}  # fmt: skip
#: The source of a label that settles what reviewers disagree on.
ADJUDICATION = "adjudication"


class Review(NamedTuple):
    """One expert's word on one pair."""

    pair: str
    reviewer: str
    label: Opinion
    note: str
    source: str
    at: float


class Reviews(SqliteFile):
    """The store of experts' labels, one SQLite file; each label is on the disk when ``add`` returns."""

    holds = "reviews"
    made_by = "name the reviews.db of the other page"
    problem = JuryProblem
    tables = (
        """CREATE TABLE IF NOT EXISTS labels (
    id INTEGER PRIMARY KEY, pair TEXT NOT NULL, reviewer TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL,
    source TEXT NOT NULL, at REAL NOT NULL)""",
    )

    def add(
        self, pair: str, reviewer: str, label: str, note: str = "", source: str = "page", at: float | None = None
    ) -> bool:
        """Keep a label; False where it is what this reviewer said last. ``at`` is now unless given."""
        if label not in OPINIONS or not reviewer.strip():
            raise JuryProblem(
                f"{label!r} by {reviewer!r} is no label: name a reviewer and one of {', '.join(OPINIONS)}"
            )
        with self.writing() as base:
            last = base.execute(
                "SELECT label, note FROM labels WHERE pair = ? AND reviewer = ? AND (source = ?) = ? "
                "ORDER BY id DESC LIMIT 1",
                (pair, reviewer, ADJUDICATION, source == ADJUDICATION),
            ).fetchone()
            if last == (label, note):
                return False
            row = (pair, reviewer, label, note, source, time.time() if at is None else at)
            base.execute("INSERT INTO labels VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)
            return True

    def __iter__(self) -> Iterator[Review]:
        """Every label ever given, oldest first."""
        return map(Review._make, self.rows("SELECT pair, reviewer, label, note, source, at FROM labels ORDER BY id"))

    def latest(self) -> dict[str, dict[str, Review]]:
        """What each reviewer said last of each pair, blind: ``{pair: {reviewer: review}}``."""
        by_pair: dict[str, dict[str, Review]] = {}
        for review in self:
            if review.source != ADJUDICATION:
                by_pair.setdefault(review.pair, {})[review.reviewer] = review
        return by_pair

    def by(self, reviewer: str) -> dict[str, Review]:
        """What one reviewer said last of each pair, blind."""
        return {pair: said[reviewer] for pair, said in self.latest().items() if reviewer in said}

    def adjudicated(self) -> dict[str, Review]:
        """The last adjudication of each pair that has one."""
        return {review.pair: review for review in self if review.source == ADJUDICATION}

    def settled(self) -> dict[str, Label | None]:
        """The experts' label of each pair: the adjudicated one, else the side with more of them; None where neither."""
        labels = {pair: settled(one.label for one in said.values()) for pair, said in self.latest().items()}
        final = {pair: settled([one.label]) for pair, one in self.adjudicated().items()}
        return labels | {pair: label for pair, label in final.items() if label is not None}

    def disputed(self) -> list[str]:
        """The pairs on which reviewers differ, positive against negative, settled or not."""
        said = {pair: {one.label for one in by.values()} for pair, by in self.latest().items()}
        return [pair for pair, labels in said.items() if {"positive", "negative"} <= labels]


def settled(said: Iterable[Opinion]) -> Label | None:
    """The experts' label: the side with more of them; None where they are unsure or tied."""
    counts = Counter(said)
    if counts["positive"] == counts["negative"]:
        return None
    return "positive" if counts["positive"] > counts["negative"] else "negative"


def import_csv(path: Path, reviews: Reviews, sample: Sequence[Sampled], reviewer: str | None = None) -> int:
    """Take labels from a CSV with the columns ``pair`` and ``label``, and perhaps ``note`` and ``reviewer``.

    Rows without a label are left for later; a file may be imported again when it has more. Nothing is taken from a
    file with an error.

    Args:
        path: The file.
        reviews: Where the labels go.
        sample: What may be labelled.
        reviewer: Who labelled, unless a column says so.

    Returns:
        How many labels were new.
    """
    known = {one.pair for one in sample}
    taken: list[tuple[str, str, Opinion, str]] = []
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if missing := {"pair", "label"} - set(rows.fieldnames or ()):
            raise JuryProblem(
                f"{path}: the column {min(missing)!r} is missing: take the CSV of `suwen jury review sample`"
            )
        for row in rows:
            said = (row["label"] or "").strip().lower()
            if not said:
                continue
            place = f"{path}:{rows.line_num}"
            who = (row.get("reviewer") or reviewer or "").strip()
            if row["pair"] not in known:
                raise JuryProblem(f"{place}: the pair {row['pair']!r} is not in the sample: is it of another one?")
            if not who:
                raise JuryProblem(f"{place}: who labelled this? Add a column reviewer, or say so with --reviewer")
            if said not in _WORDS:
                raise JuryProblem(f"{place}: {said!r} is no label: write positive, negative or unsure (or 1, 0, ?)")
            taken.append((row["pair"], who, _WORDS[said], (row.get("note") or "").strip()))
    return sum(reviews.add(*one, source="csv") for one in taken)


def import_store(path: Path, reviews: Reviews, sample: Sequence[Sampled]) -> int:
    """Take the labels of another labelling page's store, such as one served elsewhere; gives how many were new."""
    known = {one.pair for one in sample}
    with Reviews(path, create=False) as other:
        said = list(other)
    if strange := [review.pair for review in said if review.pair not in known]:
        raise JuryProblem(f"{path}: the pair {strange[0]!r} is not in the sample: is it of another one?")
    # A label that is in the history already is not taken again, even when the reviewer has since changed their mind.
    here = {review[:4] + review[5:] for review in reviews}
    new = [review for review in said if review[:4] + review[5:] not in here]
    return sum(reviews.add(*review[:4], source=review.source, at=review.at) for review in new)


def import_labels(path: Path, reviews: Reviews, sample: Sequence[Sampled], reviewer: str | None = None) -> int:
    """Take labels from another page's store (``.db``) or from a CSV; gives how many were new."""
    return import_store(path, reviews, sample) if path.suffix == ".db" else import_csv(path, reviews, sample, reviewer)
