"""What every training row passes that is made and not mined: no copies, nothing held out, nothing empty; all counted.

And what a file passes that rows are to be written into.

Where a row comes from is its maker's matter (``convert``, ``text_pairs``, ``synthesise``). Texts are compared by their
letters and digits; of a row that passed, eight bytes are remembered.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeVar

from suwen.choices import LONGEST_TEXT as LONGEST
from suwen.corpora.collection_layouts import find_layout
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.near_duplicates import copied_share, shingles, similarity
from suwen.text.split import sentences

#: What is counted of every kind of row: those written, and why others, or some of their texts, were not.
COUNTED = (
    *("rows", "not_drawn", "repeated", "held_out", "without_text", "without_a_positive", "positive_is_the_query"),
    *("negative_is_a_positive", "begins_with_the_instruction", "copied_from_the_passage", "texts_cut"),
)
#: From which share of a written query that stands in its passage it is a copy: one word in five may be another.
COPIED = 0.8
_T = TypeVar("_T")


class Screen:
    """Passes rows one at a time; ``counts`` has what was left out and why."""

    def __init__(
        self,
        *counted: str,
        held_out: HeldOut | None = None,
        longest: int = LONGEST,
        repeats: bool = False,
        by_model: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Start with nothing seen.

        Args:
            *counted: What the maker of the rows counts beside :data:`COUNTED`.
            held_out: What must not be trained on.
            longest: The most characters of a text; of a longer one the whole sentences of its beginning are kept.
            repeats: Let copies of a row pass, and so remember nothing.
            by_model: A model wrote the queries. One that stands in its passage, but for a few words perhaps, teaches
                to match words and nothing else, and one that was written before has other answers: both are left
                out, and so is a negative that is nearly the positive.
            progress: Called with the rows that passed and 0 (their end is not known), every thousand.
        """
        self.counts: Counter[str] = Counter(dict.fromkeys((*counted, *COUNTED), 0))
        #: Why the first record that could not be read could not.
        self.problem: str | None = None
        self._held_out, self._longest, self._repeats, self._by_model = held_out, longest, repeats, by_model
        self._progress = progress or (lambda _done, _total: None)
        self._seen: set[bytes] = set()

    def unreadable(self, why: str) -> None:
        """Count a record that no row can be made of; the first reason is told where no row is left at all."""
        self.counts["unreadable"] += 1
        self.problem = self.problem or why

    def passed(self, row: TrainingRow) -> TrainingRow | None:
        """The row as it is kept, without empty and repeated texts; None where it is left out."""
        asked = comparable(row.query)
        right, wrong = ({comparable(text): text for text in texts} for texts in (row.pos, row.neg))
        copies = {
            one
            for one, text in wrong.items()
            if one in (*right, asked)
            or (self._by_model and any(similarity(shingles(text), shingles(other)) >= 0.8 for other in row.pos))
        }
        pos = tuple(text for compared, text in right.items() if compared not in ("", asked))
        neg = tuple(text for compared, text in wrong.items() if compared and compared not in copies)
        own = TrainingRow(row.query, pos, neg, *row[3:5], hypothetical=row.hypothetical)
        reason = self._reason(asked, right, own)
        self.counts.update({reason or "rows": 1, "negative_is_a_positive": 0 if reason else len(copies)})
        return (
            None
            if reason
            else own._replace(
                query=self._cut(row.query), pos=tuple(map(self._cut, pos)), neg=tuple(map(self._cut, neg))
            )
        )

    def _reason(self, asked: str, right: Iterable[str], row: TrainingRow) -> str | None:
        """Why a row is left out, as the counts call it."""
        if asked and not row.pos and (asked in right or row.neg):
            return "positive_is_the_query" if asked in right else "without_a_positive"
        if not asked or not row.pos:
            return "without_text"
        texts, start = (row.query, *row.pos, *row.neg), row.prompt.strip()
        if start and any(text.startswith(start) for text in texts):
            return "begins_with_the_instruction"
        if self._held_out is not None and self._held_out.hits(texts):
            return "held_out"
        if self._by_model and (
            HeldOut([row.query]).hits(row.pos) or any(copied_share(row.query, text) >= COPIED for text in row.pos)
        ):
            return "copied_from_the_passage"
        if self._repeats:
            return None
        whole = asked if self._by_model else "\0".join((asked, *right))
        digest = hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=8).digest()
        seen = digest in self._seen
        self._seen.add(digest)
        return "repeated" if seen else None

    def _cut(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        self.counts["texts_cut"] += 1
        ends = [end for _, end in sentences(text[: self._longest])]
        return text[: ends[-2] if len(ends) > 1 else self._longest]

    def write(self, to: Path, rows: Iterable[TrainingRow], count: int | None = None, seed: int = 0) -> None:
        """Write the rows that pass, or a draw of so many of them; none at all is an error, and writes nothing."""
        passed: Iterator[TrainingRow] = (kept for row in rows if (kept := self.passed(row)) is not None)
        drawn = passed if count is None else iter(draw(passed, count, seed))
        if (first := next(drawn, None)) is None:
            raise CurateError(f"{to} is not written, for no row is left of what was read: {self._told()}")
        total = write_training_rows(to, chain([first], drawn))
        self.counts.update(not_drawn=self.counts["rows"] - total, rows=total - self.counts["rows"])

    def _told(self) -> str:
        """What was counted, in words, and what was wrong with the first record that could not be read."""
        return in_words(self.counts) + (f". The first: {self.problem}" if self.problem else "")


def in_words(counts: Mapping[str, int]) -> str:
    """What was counted and is not 0, for a message.

    >>> in_words({"rows": 0, "held_out": 1200, "without_text": 3})
    '1,200 held out, 3 without text'
    """
    # A name that has words already ends in that of a file.
    words = {name: name if " " in name else name.replace("_", " ") for name in counts}
    return ", ".join(f"{count:,} {words[name]}" for name, count in counts.items() if count) or "nothing was there"


def check_output(to: Path, *sources: Path) -> None:
    """Refuse a file for rows, before anything is read or asked: one of another name, or one that would be read as well.

    Raises:
        CurateError: It is not called .jsonl or .jsonl.gz, or it is a source, or a file of one.
    """
    if not to.name.endswith((".jsonl", ".jsonl.gz")):
        raise CurateError(f"{to}: rows are written as JSON lines; give OUT a name that ends in .jsonl or .jsonl.gz")
    for source in sources if to.exists() else ():
        if source.exists() and _is_read(to, source):
            raise CurateError(f"{to} is a file of the source, which would be overwritten; give OUT another name")


def _is_read(file: Path, source: Path) -> bool:
    """Whether a file that is there is a part of a source: of a collection its own files, of a folder all in it."""
    if not source.is_dir():
        return file.samefile(source)
    layout = find_layout(source)
    if layout.corpus:
        return any(map(file.samefile, chain(layout.corpus, layout.queries, *layout.qrels.values())))
    return source.resolve() in file.resolve().parents


def draw(items: Iterable[_T], count: int, seed: int = 0) -> list[_T]:
    """A random draw of so many items, all where there are fewer, in their order; memory holds the draw alone.

    >>> draw(range(100), 5, seed=1) == draw(range(100), 5, seed=1), len(draw(range(3), 5))
    (True, 3)
    """
    dice, kept = random.Random(f"{seed}:draw"), dict[int, tuple[int, _T]]()
    for number, item in enumerate(items):
        if (place := number if number < count else dice.randrange(number + 1)) < count:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept.values(), key=lambda entry: entry[0])]
