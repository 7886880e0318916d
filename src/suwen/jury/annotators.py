"""Votes of people: a sheet of the pool for annotators, and their grades from a CSV as votes of a judge. Asks nobody.

An annotator is a judge like any other: votes are held against the texts as they are, counted by the same rules, and
measured beside the models'. Experts who check the jury's labels on a sample are another matter: see ``review``.
"""

from __future__ import annotations

import csv
import io
import time
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from suwen.corpora.files import open_text
from suwen.durable import replacing
from suwen.jury.judge_batches import grade_of
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import read_pool
from suwen.jury.sampling import as_cell
from suwen.jury.texts import Texts
from suwen.jury.verdicts import GRADES, Grade, Judge, JuryProblem, Vote, text_digest
from suwen.jury.votes import Votes

#: Columns of the sheet; an annotator fills the grade, and the reason if there is something to say.
COLUMNS = ("query_id", "passage_id", "query", "passage", "grade", "reason")
#: What the votes of people have in the places of a model and a prompt.
_MODEL, _PROMPT = "human", "annotator/-/1"
#: TREC's scale, and what says that somebody cannot tell.
_NUMBERS: Mapping[str, Grade] = {"3": "S", "2": "A", "1": "B", "0": "D"}
_UNSURE = frozenset({"?", "unsure", "不确定"})
#: The ids of a query and a passage.
Pair = tuple[str, str]
Row = Mapping[str, str | None]


class Imported(NamedTuple):
    """What came of a CSV: new votes by annotator, and rows without a grade yet."""

    new: dict[str, int]
    empty: int


def write_sheet(folder: JuryFolder, to: Path) -> int:
    """Write the pool as a CSV for annotators, with its texts; gives the number of pairs."""
    count = 0
    # The mark at the beginning of utf-8-sig says to a spreadsheet that this is UTF-8.
    with replacing(to) as raw:
        text = io.TextIOWrapper(raw, "utf-8-sig", "backslashreplace", newline="")
        sheet = csv.writer(text)
        sheet.writerow(COLUMNS)
        for (query_id, passage_id), (query, passage) in _pairs(folder):
            sheet.writerow((query_id, passage_id, as_cell(query), as_cell(passage), "", ""))
            count += 1
        # Not closed: the file is synced to the disk first.
        text.detach()
    return count


def _pairs(folder: JuryFolder, wanted: Container[Pair] | None = None) -> Iterator[tuple[Pair, tuple[str, str]]]:
    """The pairs of the pool with their texts: all, or those that are wanted."""
    with Texts(folder.texts) as texts:
        for pooled in read_pool(folder.pool):
            ids = [
                one.passage_id for one in pooled.candidates if wanted is None or (pooled.id, one.passage_id) in wanted
            ]
            yield from (((pooled.id, id_), (pooled.text, text)) for id_, text in texts.get(ids).items())


def import_votes(folder: JuryFolder, path: Path, annotator: str | None = None) -> Imported:
    """Take grades from a CSV: ``query_id``, ``passage_id``, ``grade``, perhaps ``reason``, ``annotator`` and the texts.

    A grade is S to D, or 3 to 0 of TREC's scale (S, A, B, D), or ``?``. Rows without one are left for later; a file may
    be imported again when it has more, and a grade that has changed takes the place of the old one, which is kept.
    Nothing is taken from a file with an error.

    Args:
        folder: The jury's folder.
        path: The file.
        annotator: Who graded, unless a column says so.
    """
    rows, empty = _graded_rows(path)
    known = dict(_pairs(folder, {_pair(row) for _, row in rows}))
    taken: dict[tuple[str, str, str], Vote] = {}
    for place, row in rows:
        vote = _vote(row, place, known, annotator)
        if taken.setdefault(vote[:3], vote) is not vote:
            raise JuryProblem(f"{place}: {vote.judge} grades this pair a second time: keep one of the rows")
    return Imported(_store(folder, taken.values()), empty)


def _graded_rows(path: Path) -> tuple[list[tuple[str, Row]], int]:
    """The rows that have a grade, with their places, and how many have none."""
    graded: list[tuple[str, Row]] = []
    empty = 0
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if missing := {"query_id", "passage_id", "grade"} - set(rows.fieldnames or ()):
            raise JuryProblem(f"{path}: the column {min(missing)!r} is missing: take the CSV of `suwen jury sheet`")
        for row in rows:
            if (row["grade"] or "").strip():
                graded.append((f"{path}:{rows.line_num}", row))
            else:
                empty += 1
    return graded, empty


def _pair(row: Row) -> Pair:
    return (row["query_id"] or "").strip(), (row["passage_id"] or "").strip()


def _vote(row: Row, place: str, known: Mapping[Pair, tuple[str, str]], annotator: str | None) -> Vote:
    query_id, passage_id = _pair(row)
    if (query_id, passage_id) not in known:
        raise JuryProblem(
            f"{place}: query {query_id!r} and passage {passage_id!r} are not in the pool: of another one?"
        )
    query, passage = known[query_id, passage_id]
    for name, text in (("query", query), ("passage", passage)):
        if row.get(name) and _bare(row[name] or "") not in (_bare(text), _bare(as_cell(text))):
            raise JuryProblem(
                f"{place}: the {name} is not the text that is in the pool now: have this row graded again"
            )
    name = (row.get("annotator") or annotator or "").strip()
    if not name:
        raise JuryProblem(f"{place}: who graded this? Add a column annotator, or say so with --annotator")
    said = unicodedata.normalize("NFKC", row["grade"] or "").strip()
    grade = _NUMBERS.get(said, grade_of(said))
    unsure = said.lower() in _UNSURE
    if grade not in GRADES and not unsure:
        raise JuryProblem(
            f"{place}: {said!r} is no grade: write S, A, B, C or D, or 3 to 0, or ? where you cannot tell"
        )
    reason = (row.get("reason") or "").strip() or ("cannot tell" if unsure else "")
    said_so: tuple[Grade | None, str | None] = (None, "refused") if unsure else (grade, None)
    judge = Judge(name, _MODEL, "-", "annotator")
    about = (reason, _MODEL, _PROMPT, "1", "", 1, 1, False, text_digest(query, passage), time.time())
    return Vote(query_id, passage_id, judge.name, 0, *said_so, *about)  # type: ignore[arg-type]


def _bare(text: str) -> str:
    """A text as far as a spreadsheet keeps it: line ends change."""
    return "\n".join(text.split("\r\n")).strip()


def _store(folder: JuryFolder, cast: Iterable[Vote]) -> dict[str, int]:
    new: dict[str, int] = {}
    with Votes(folder.votes) as votes:
        for vote in cast:
            votes.enrol(Judge(vote.judge, _MODEL, "-", "annotator"), _MODEL, _PROMPT, "1")
            before = votes.of(vote.query_id, vote.judge).get(vote.passage_id)
            same = before is not None and before[4:7] == vote[4:7] and before.digest == vote.digest
            new[vote.judge] = new.get(vote.judge, 0) + (0 if same else votes.replace([vote]))
    return new
