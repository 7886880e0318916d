"""The papers' printed numbers and the check that their averages add up. Our own results live in result files, not here.

The data are the CSV files of ``published/``: one per table, ``averages.csv`` (which cell is worked out from which),
``discrepancies.csv`` (the printed cells that do not follow from the cells they are said to summarise) and
``contradictions.csv`` (two numbers of one paper that cannot both be right).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import TypeAdapter

from suwen.errors import SuwenError

FOLDER = Path(__file__).parent / "published"
#: Short names of the papers, as the files and the suites use them.
PAPERS = {
    "care": "CARE and CMedTEB, arXiv 2604.10937",
    "automir": "AutoMIR: SL-HyDE and CMIRB, arXiv 2410.20050",
    "bmretriever": "BMRetriever, EMNLP 2024",
    "cardioembed": "CardioEmbed",
}
_Record = TypeVar("_Record", bound=tuple[object, ...])
_SUFFIXES = {"K": Decimal(10) ** 3, "M": Decimal(10) ** 6, "B": Decimal(10) ** 9}


class PublishedError(SuwenError):
    """A paper or table that is not among the transcribed ones."""


class Figure(NamedTuple):
    """One printed cell: where it stands, the text as printed (thousands commas left out) and what it measures."""

    paper: str
    table: int
    row: str
    column: str
    value: str
    kind: str
    note: str = ""

    @property
    def number(self) -> float | None:
        """The value as a number (``4.02B`` is 4.02e9), or None where the paper prints a word."""
        exact = _exact(self.value)
        return None if exact is None else float(exact)


class Rule(NamedTuple):
    """How one printed cell follows from others; a line of ``averages.csv``.

    ``mean``: each of ``columns`` is the mean of the columns ``over`` in table ``source`` (``x3`` weighs a column).
    ``rows``: the row is the mean of all other rows. ``change``: the row is the change in per cent between two rows.
    """

    paper: str
    table: int
    how: str
    rows: str
    columns: str
    over: str
    source: int


class Check(NamedTuple):
    """A printed cell beside its recomputed value; ``slack`` is what rounding of the parts alone can explain."""

    figure: Figure
    recomputed: Decimal
    slack: Decimal

    @property
    def unit(self) -> Decimal:
        """One in the last place of the printed cell."""
        return _unit(self.figure.value)

    @property
    def adds_up(self) -> bool:
        """Whether the recomputed value rounds to the printed one (a tie may go either way)."""
        return self._distance <= self.unit / 2

    @property
    def beyond_rounding(self) -> bool:
        """Whether no rounding of the parts explains the printed value."""
        return self._distance > self.unit / 2 + self.slack

    @property
    def _distance(self) -> Decimal:
        return abs(self.recomputed - _decimal(self.figure))


class Discrepancy(NamedTuple):
    """A printed cell that does not follow from its parts, as recorded in ``discrepancies.csv``."""

    paper: str
    table: int
    row: str
    column: str
    printed: str
    recomputed: str
    beyond_rounding: bool


def published(paper: str, table: int | None = None) -> list[Figure]:
    """Every printed cell of a paper, or of one of its tables, in the paper's order.

    >>> next(f for f in published("care", 2) if (f.row, f.column) == ("CARE-0.3B-8B", "Avg")).number
    78.94
    """
    numbers = [entry for entry in _files() if entry[0] == paper]
    if not numbers:
        raise PublishedError(f"No published tables of {paper!r}; choose one of: {', '.join(PAPERS)}.")
    if table is not None and (paper, table) not in _files():
        have = ", ".join(str(number) for _, number in numbers)
        raise PublishedError(f"Table {table} of {paper!r} is not transcribed; choose one of its tables {have}.")
    wanted = numbers if table is None else [(paper, table)]
    return [figure for name in wanted for figure in _figures(*name)]


def instructions(paper: str) -> dict[str, str]:
    """The instruction that a paper prints for each data set, word for word.

    >>> instructions("bmretriever")["MedNLI"]
    'Given a sentence, retrieve sentences with the same meaning'
    """
    return {figure.row: figure.value for figure in published(paper) if figure.column == "Instruction Format"}


def tables() -> list[tuple[str, int]]:
    """Every transcribed table: its paper and its number, in the order of the papers."""
    return list(_files())


def recompute() -> list[Check]:
    """Work every derived cell out again from the printed cells it summarises."""
    return [check for rule in _read(FOLDER / "averages.csv", Rule) for check in _HOW[rule.how](rule)]


def discrepancies() -> list[Discrepancy]:
    """The recorded cells that do not add up; a test holds this list equal to what ``recompute`` finds."""
    return _read(FOLDER / "discrepancies.csv", Discrepancy)


def mismatches() -> list[Discrepancy]:
    """The cells ``recompute`` finds not to add up, in the form in which they are recorded."""
    return [
        Discrepancy(*check.figure[:5], str(check.recomputed.quantize(check.unit / 100)), check.beyond_rounding)
        for check in recompute()
        if not check.adds_up
    ]


def _read(path: Path, kind: type[_Record]) -> list[_Record]:
    """The lines of a CSV file as records whose fields are its columns."""
    with path.open(encoding="utf-8", newline="") as lines:
        return TypeAdapter(list[kind]).validate_python(list(csv.DictReader(lines)))  # type: ignore[valid-type]


@cache
def _files() -> dict[tuple[str, int], Path]:
    names = {path: path.stem.split("-table-") for path in FOLDER.glob("*-table-*.csv")}
    files = {(paper, int(number)): path for path, (paper, number) in names.items()}
    return dict(sorted(files.items(), key=lambda item: (list(PAPERS).index(item[0][0]), item[0][1])))


@cache
def _figures(paper: str, table: int) -> tuple[Figure, ...]:
    return tuple(_read(_files()[paper, table], Figure))


@cache
def _cells(paper: str, table: int) -> dict[tuple[str, str], Figure]:
    return {(f.row, f.column): f for f in _figures(paper, table)}


def _exact(text: str) -> Decimal | None:
    # One paper prints 460k beside 577K.
    scale = _SUFFIXES.get(text[-1:].upper(), Decimal(1))
    digits = text[:-1] if scale != 1 else text
    return Decimal(digits) * scale if digits and (digits.lstrip("+-")[:1].isdigit()) else None


def _decimal(figure: Figure) -> Decimal:
    exact = _exact(figure.value)
    if exact is None:
        raise PublishedError(
            f"{figure.paper} Table {figure.table}, {figure.row} / {figure.column}: {figure.value!r} is not a number;"
            " averages.csv may name only numeric cells."
        )
    return exact


def _unit(text: str) -> Decimal:
    """One in the last printed place: ``0.01`` for ``67.81``."""
    return Decimal(1).scaleb(-len(text.partition(".")[2]))


def _targets(rule: Rule) -> Iterator[Figure]:
    columns = rule.columns.split(";")
    for figure in _figures(rule.paper, rule.table):
        named = columns == ["*"] or figure.column in columns
        if named and fnmatchcase(figure.row, rule.rows) and _exact(figure.value) is not None:
            yield figure


def _weighted(rule: Rule) -> list[tuple[str, int]]:
    parts = (part.rpartition(" x") for part in rule.over.split(";"))
    return [(name, int(weight)) if name and weight.isdigit() else (name or weight, 1) for name, _, weight in parts]


def _mean(rule: Rule) -> Iterator[Check]:
    cells, weighted = _cells(rule.paper, rule.source), _weighted(rule)
    for figure in _targets(rule):
        # A change in per cent and a mean over rows have rules of their own.
        if figure.kind.startswith(("%", "mean of the rows")):
            continue
        parts = [(cells[figure.row, name], weight) for name, weight in weighted]
        total = sum(weight for _, weight in parts)
        value = sum((_decimal(part) * weight for part, weight in parts), Decimal()) / total
        slack = sum((_unit(part.value) / 2 * weight for part, weight in parts), Decimal()) / total
        yield Check(figure, value, slack)


def _rows(rule: Rule) -> Iterator[Check]:
    for figure in _targets(rule):
        parts = [f for f in _figures(rule.paper, rule.source) if f.column == figure.column and f.row != figure.row]
        value = sum((_decimal(part) for part in parts), Decimal()) / len(parts)
        yield Check(figure, value, _unit(parts[0].value) / 2)


def _change(rule: Rule) -> Iterator[Check]:
    cells = _cells(rule.paper, rule.source)
    before, after = rule.over.split(";")
    for figure in _targets(rule):
        block = figure.row.rpartition(": ")
        first, second = (cells[block[0] + block[1] + name, figure.column] for name in (before, after))
        old, new, half = _decimal(first), _decimal(second), _unit(first.value) / 2
        yield Check(figure, (new / old - 1) * 100, 100 * ((new + half) / (old - half) - new / old))


_HOW: dict[str, Callable[[Rule], Iterator[Check]]] = {"mean": _mean, "rows": _rows, "change": _change}
