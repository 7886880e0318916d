"""The curves of a training run: a CSV that grows row by row, survives a kill, and can be drawn. No training here."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from suwen.durable import sync, write_bytes, write_text

#: Why there is no picture, when there is none.
NO_MATPLOTLIB = "curves.png was left out: matplotlib is not installed (pip install 'suwen[eval]')"


class Curves:
    """Rows of numbers by step; a number that was not measured is an empty cell.

    Attributes:
        columns: The heading, ``step`` first.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.columns, self._rows = _read(file)

    def rows(self) -> list[dict[str, float]]:
        """All rows, without their empty cells."""
        return [
            {name: float(cell) for name, cell in zip(self.columns, row, strict=False) if cell} for row in self._rows
        ]

    def append(self, row: Mapping[str, float | None]) -> None:
        """Add a row, which has to have a ``step``. A new name becomes a new column, empty in the rows before it."""
        names = ["step", *(name for name in row if name != "step")]
        fresh = [name for name in names if name not in self.columns]
        self.columns += fresh
        cells = ["" if (value := row.get(name)) is None else _cell(value) for name in self.columns]
        self._rows.append(cells)
        if fresh:
            self._rewrite()
            return
        with self.file.open("a", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerow(cells)

    def truncate(self, step: int) -> None:
        """Drop the rows past a step, and whatever a killed process left half-written."""
        self._rows = [row for row in self._rows if float(row[0]) <= step]
        if self.file.exists():
            self._rewrite()

    def sync(self) -> None:
        """Put the rows on the disk: a checkpoint must not outlive the rows before it."""
        if self.file.exists():
            sync(self.file)

    def plot(self) -> str | None:
        """Draw the curves to ``curves.png`` beside the CSV.

        Returns:
            None, or why there is no picture.
        """
        from suwen.bench.result_plots import curves_plot, has_matplotlib, render

        if not self._rows or len(self.columns) < 2:
            return "curves.png was left out: the stage has no curves"
        if not has_matplotlib():
            return NO_MATPLOTLIB
        write_bytes(self.file.with_suffix(".png"), render(curves_plot(self.file)))
        return None

    def _rewrite(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        # Rows from before a column was there are shorter.
        self._rows = [row + [""] * (len(self.columns) - len(row)) for row in self._rows]
        writer.writerows(self._rows)
        write_text(self.file, text.getvalue())


def _cell(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _read(file: Path) -> tuple[list[str], list[list[str]]]:
    if not file.exists():
        return [], []
    # A line without its end was cut short by a kill.
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    heading, *rows = list(csv.reader(io.StringIO(whole))) or [[]]
    return heading, [row for row in rows if row and len(row) == len(heading)]
