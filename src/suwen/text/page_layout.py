"""From words with their places on a page to lines in reading order: columns, tables, rows. Joins no sentences.

Lengths are in points and ``top`` grows downwards, whatever the page came from: a PDF's text layer or a scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Word(NamedTuple):
    """Text that stands together on a page; ``size`` is the height of its line."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float


class Line(NamedTuple):
    """A line of a page in reading order.

    ``column`` counts the columns of a page as they are read. A row of a table has its cells parted by ``CELL`` and is
    marked.
    """

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    column: int
    is_row: bool = False


#: Stands between the cells of a table's row.
CELL = " | "
#: Of a word's size: the gap at which a line may be two, the least width of a gutter and of a column of prose.
_GAP, _GUTTER, _PROSE = 0.95, 0.6, 9.0
#: Of a word's size: what is left of a gutter beside a line that hangs into it.
_HANGING = 0.1
#: Of a word's size: beginnings of lines so near to each other are one.
_NEAR = 0.6
#: Columns of prose are filled to this share by so many of their lines; cells of a table seldom are.
_FILLED, _MOST, _SURELY = 0.75, 0.35, 0.5
#: Sides so nearly as wide as each other were made so.
_EQUAL = 0.95
_LEAST_ROWS = 3
#: Three columns are about as wide as each other; and what is beside them is known where so little reaches across.
_ALIKE, _CROSSED = 0.8, 0.1
#: Of a word's size: lines so nearly level are a row.
_LEVEL = 0.15
#: Lines of a column beside which one or two others are a column, too; and how near they stand, of a word's size.
_LONG, _BESIDE = 8, 4.0
#: What stands before an item of a list; those of Word's fonts of symbols have no character of their own.
BULLETS = "•·●○◦▪▫■□◆◇◊❖‣▶►➢➤✓✔★※\uf020-\uf0ff"
_MARKER = re.compile(
    r"(?:[(（]?(?:\d{1,2}|[a-zA-Z]|[ivxIVX]{1,4}|[一二三四五六七八九十]{1,3})[.)）、．]"
    rf"|[{BULLETS}–—*-]|[①-⑳])"
)
_HAN = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f"
#: Hebrew and Arabic, with the forms that fonts have for them.
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_BETWEEN_HAN = re.compile(rf"(?<=[{_HAN}]) (?=[{_HAN}])")


def reading_order(words: Sequence[Word]) -> list[Line]:
    """The lines of a page in the order in which they are read, left column before right, table rows whole."""
    pieces = list(_pieces(words))
    if not pieces:
        return []
    lines: list[Line] = []
    for number, (column, is_table) in enumerate(_columns(pieces)):
        lines += [_line(row, number, is_row) for row, is_row in _rows_of(column, is_table)]
    return lines


def _pieces(words: Sequence[Word]) -> Iterator[Word]:
    """Words that follow each other on one line without a gap, joined."""
    run: list[Word] = []
    for word in words:
        if run and not _continues(run[-1], word):
            yield _joined(run)
            run = []
        run.append(word)
    if run:
        yield _joined(run)


def _continues(one: Word, other: Word) -> bool:
    overlap = min(one.bottom, other.bottom) - max(one.top, other.top)
    low = min(one.bottom - one.top, other.bottom - other.top)
    # A number among them is read on to the left as well.
    leftwards = other.left < one.left and (RIGHT_TO_LEFT.search(one.text) or RIGHT_TO_LEFT.search(other.text))
    gap = one.left - other.right if leftwards else other.left - one.right
    return overlap > 0.5 * low and -0.5 * one.size <= gap < _GAP * min(one.size, other.size)


def _joined(run: Sequence[Word], between: str = " ") -> Word:
    text = between.join(word.text for word in run)
    return Word(
        text if between != " " else _BETWEEN_HAN.sub("", text),
        min(word.left for word in run),
        min(word.top for word in run),
        max(word.right for word in run),
        max(word.bottom for word in run),
        max(run, key=lambda word: len(word.text)).size,
    )


def _line(row: Sequence[Word], column: int, is_row: bool) -> Line:
    leftwards = sum(len(piece.text) for piece in row if RIGHT_TO_LEFT.search(piece.text))
    cells = sorted(row, key=lambda piece: piece.left, reverse=2 * leftwards > sum(len(piece.text) for piece in row))
    return Line(*_joined(cells, CELL if is_row else " "), column, is_row)


def _columns(pieces: list[Word], depth: int = 0) -> Iterator[tuple[list[Word], bool]]:
    """The parts of a page in reading order, and whether a part is a table."""
    size = median(piece.size for piece in pieces)
    gutter = _gutter(pieces, size) if depth < 3 and len(pieces) >= 2 * _LEAST_ROWS else None
    if gutter is None:
        yield pieces, False
        return
    for band, parted in _bands(pieces, gutter):
        if not parted:
            yield from _columns(band, depth + 1) if len(band) < len(pieces) else [(band, False)]
            continue
        for side in filter(None, _sides(band, gutter)):
            yield from _columns(side, depth + 1)


def _gutter(pieces: Sequence[Word], size: float) -> tuple[float, float] | None:
    """The white stretch between two columns of prose, or None where there is none."""
    best: tuple[float, tuple[float, float]] | None = None
    for start in _starts(pieces, size):
        left, right = _sides(pieces, (start - _GUTTER * size, start))
        # What reaches across costs little: a page may be half one column and half two.
        across = len(pieces) - len(left) - len(right)
        score = min(len(left), len(right)) - 0.25 * across
        if score > (best[0] if best else 0) and (
            _are_columns(left, right, size)
            or (across < _CROSSED * len(pieces) and _are_beside_other(left, right, size))
        ):
            # A mark at the end of a line may hang into it.
            best = (score, (start - _HANGING * size, start))
    return best[1] if best else None


def _starts(pieces: Sequence[Word], size: float) -> Iterator[float]:
    """Where lines begin, but for the first such place: a column may begin at each of them.

    Also where only one line does: of a column of three, one may be indented and two hang.
    """
    last = min(piece.left for piece in pieces)
    for left in sorted(piece.left for piece in pieces):
        if left - last > _NEAR * size:
            yield left
            last = left


def _sides(pieces: Iterable[Word], gutter: tuple[float, float]) -> tuple[list[Word], list[Word]]:
    left, right = [], []
    for piece in pieces:
        if piece.right <= gutter[0] + 0.1:
            left.append(piece)
        elif piece.left >= gutter[1] - 0.1:
            right.append(piece)
    return left, right


def _are_columns(left: Sequence[Word], right: Sequence[Word], size: float) -> bool:
    """Whether these could be two columns of prose: enough lines, wide, and many of them filling their column.

    Where one side surely is, few full lines are enough for the other: the last page of a chapter ends anywhere, and may
    have a line or two beside a whole column.
    """
    (wide, full), (other_wide, other_full) = _fill(left), _fill(right)
    if full >= _SURELY and wide >= _PROSE * size and _is_rest(left, right, wide, size):
        return True
    if min(wide, other_wide) < _PROSE * size:
        return False
    if max(full, other_full) >= _SURELY and min(wide, other_wide) >= 0.6 * max(wide, other_wide):
        return min(full, other_full) > 0
    if max(full, other_full) >= _MOST and min(wide, other_wide) >= _EQUAL * max(wide, other_wide):
        return min(full, other_full) > 0
    return min(full, other_full) >= _MOST


def _are_beside_other(left: Sequence[Word], right: Sequence[Word], size: float) -> bool:
    """Whether one is a column of prose, and the other two more, or a column that holds mostly tables."""
    (wide, full), (other_wide, other_full) = _fill(left), _fill(right)
    if (wide and other_wide) or max(wide, other_wide) < _PROSE * size or max(full, other_full) < _MOST:
        return False
    prose, other = (left, right) if wide else (right, left)
    return _out_of_step(prose, other, size) or (wide > 0.0 and _are_two_more(other, wide, size))


def _are_two_more(right: Sequence[Word], wide: float, size: float) -> bool:
    """Whether what is beside a column are two columns as wide as it is: three on a page."""
    gutter = _gutter(right, size)
    return gutter is not None and all(_fill(side)[0] >= _ALIKE * wide for side in _sides(right, gutter))


def _out_of_step(prose: Sequence[Word], other: Sequence[Word], size: float) -> bool:
    """Whether lines of prose keep no step with the rows of a table beside them: the table is another column's."""
    lines = [row[0] for row in _same_height(prose)]
    rows = [row[0] for row in _same_height(other)]
    if min(len(lines), len(rows)) < _LONG:
        return False
    near = [line for line in lines if rows[0].top <= line.top <= rows[-1].top]
    level = sum(min(abs(line.bottom - row.bottom) for row in rows) < _LEVEL * size for line in near)
    return level < 0.5 * len(near)


def _is_rest(left: Sequence[Word], right: Sequence[Word], wide: float, size: float) -> bool:
    """Whether the right side is the last lines of a text in columns: a line or two just beside a long column."""
    edge = max(piece.right for piece in left)
    begin, end = min(piece.left for piece in right), max(piece.right for piece in right)
    few = len(right) < _LEAST_ROWS and len(left) >= _LONG
    return few and begin - edge < _BESIDE * size and end - begin < 1.1 * wide


def _fill(side: Sequence[Word]) -> tuple[float, float]:
    """The width of a side, and the share of its lines that fill it; none where it is no prose."""
    rows = list(_same_height(side))
    if len(rows) < _LEAST_ROWS or sum(len(row) > 1 for row in rows) > 0.5 * len(rows):
        return 0.0, 0.0
    widths = [max(piece.right for piece in row) - min(piece.left for piece in row) for row in rows]
    lines = [width for width, row in zip(widths, rows, strict=True) if len(row) == 1]  # the others are a table's
    return max(widths), sum(width >= _FILLED * max(widths) for width in lines) / len(lines)


def _bands(pieces: Sequence[Word], gutter: tuple[float, float]) -> Iterator[tuple[list[Word], bool]]:
    """The page from top to bottom in bands: those that the gutter parts, and those that reach across it."""
    band: list[Word] = []
    parted: bool | None = None
    for row in _same_height(pieces):
        left, right = _sides(row, gutter)
        here = len(left) + len(right) == len(row)
        if here and parted is False and not _both_sides(row, pieces, gutter):
            here = False  # a heading above the columns stands on one side and goes with what spans them
        if band and here is not parted:
            yield band, bool(parted)
            band = []
        band, parted = [*band, *row], here
    if band:
        yield band, bool(parted)


def _both_sides(row: Sequence[Word], pieces: Sequence[Word], gutter: tuple[float, float]) -> bool:
    """Whether prose stands on both sides just below the beginning of a row."""
    top = min(piece.top for piece in row)
    near = [piece for piece in pieces if top - 1 <= piece.top <= top + 3 * row[0].size]
    left, right = _sides(near, gutter)
    return bool(left) and bool(right)


def _same_height(pieces: Iterable[Word]) -> Iterator[list[Word]]:
    """Pieces in rows from top to bottom: those whose heights overlap by half."""
    row: list[Word] = []
    for piece in sorted(pieces, key=lambda one: one.top + one.bottom):
        if row:
            low = min(row[-1].bottom - row[-1].top, piece.bottom - piece.top)
            if min(row[-1].bottom, piece.bottom) - max(row[-1].top, piece.top) < 0.5 * low:
                yield row
                row = []
        row.append(piece)
    if row:
        yield row


def _rows_of(column: Sequence[Word], is_table: bool) -> Iterator[tuple[list[Word], bool]]:
    """The rows of a column, and which of them are a table's: several in a row that share a white stretch."""
    rows = list(_same_height(column))
    in_table = [is_table or is_row for is_row in _table_rows(rows)]
    yield from zip(rows, in_table, strict=True)


def _table_rows(rows: Sequence[Sequence[Word]]) -> list[bool]:
    marks = [False] * len(rows)
    start = 0
    while start < len(rows):
        end, shared = start, _gaps(rows[start])
        while shared and end + 1 < len(rows) and (less := _shared(shared, _gaps(rows[end + 1]), rows[end][0].size)):
            end, shared = end + 1, less
        if shared and end - start + 1 >= (2 if len(shared) > 1 else _LEAST_ROWS):
            marks[start : end + 1] = [True] * (end - start + 1)
        start = max(end, start) + 1
    return marks


def _gaps(row: Sequence[Word]) -> list[tuple[float, float]]:
    cells = sorted(row, key=lambda piece: piece.left)
    if len(cells) > 1 and _MARKER.fullmatch(cells[0].text):
        return []  # the number of a list's item stands apart from its text
    return [(one.right, other.left) for one, other in pairwise(cells)]


def _shared(
    ones: Iterable[tuple[float, float]], others: Sequence[tuple[float, float]], size: float
) -> list[tuple[float, float]]:
    both = ((max(a[0], b[0]), min(a[1], b[1])) for a in ones for b in others)
    return [stretch for stretch in both if stretch[1] - stretch[0] > 0.5 * size]
