"""Words of a page in reading order: columns that are hardly begun, and what only looks like columns."""

from __future__ import annotations

import pytest

from suwen.text.page_layout import Word, reading_order


def column(left, count, name, *, width=220, top=100):
    """So many full lines, the first with an indent."""
    return [
        Word(f"{name} {n} is here", left + (24 if not n else 0), top + 14 * n, left + width, top + 14 * n + 11, 11)
        for n in range(count)
    ]


def across(*words):
    return sorted(words, key=lambda word: (word.top, word.left))


def texts(words):
    return [line.text for line in reading_order(words)]


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
def test_a_column_that_is_hardly_begun_comes_after_the_first(lines):
    left = column(60, 30, "left")
    # Entries of a list of references: the first line of each stands out, the others hang.
    right = [
        Word(f"right {n}", 304 + 14 * (n % 2 == 0), 100 + 14 * n, 524 if n % 2 else 420, 111 + 14 * n, 11)
        for n in range(lines)
    ]
    assert texts(across(*left, *right)) == [word.text for word in [*left, *right]]


def test_lines_with_indents_of_every_kind_are_one_column():
    lines = [
        Word(f"line {n}", 60 + (0, 24, 14)[n % 3], 100 + 14 * n, 520 - 60 * (n % 4), 111 + 14 * n, 11)
        for n in range(30)
    ]
    assert texts(lines) == [word.text for word in lines]


def test_a_table_below_a_page_of_prose_keeps_its_rows():
    prose = column(60, 12, "prose", width=460)
    cells = [
        Word(f"{name} {n}", left, 300 + 14 * n, left + 60, 311 + 14 * n, 11)
        for n in range(5)
        for name, left in (("drug", 60), ("dose", 250), ("hours", 430))
    ]
    assert texts([*prose, *cells])[12:] == [f"drug {n} | dose {n} | hours {n}" for n in range(5)]


def test_three_columns_are_read_one_after_the_other():
    columns = [column(40 + 180 * at, 20, name, width=160) for at, name in enumerate(("first", "second", "third"))]
    assert texts(across(*(word for words in columns for word in words))) == [
        word.text for words in columns for word in words
    ]


def test_tables_that_fill_a_column_are_no_rows_with_the_prose_beside_them():
    cells = [
        Word(f"{name} {n}", left, 100 + 12 * n, left + 50, 109 + 12 * n, 9)
        for n in range(20)
        for name, left in (("drug", 60), ("dose", 130), ("hours", 210))
    ]
    prose = column(310, 18, "prose")
    assert texts(across(*cells, *prose)) == [f"drug {n} | dose {n} | hours {n}" for n in range(20)] + [
        word.text for word in prose
    ]


def test_a_note_in_the_margin_parts_no_page_of_one_column():
    prose = column(60, 20, "prose", width=400)
    note = Word("a note", 480, 170, 520, 181, 8)
    said = texts(across(*prose, note))
    assert [text for text in said if text != "a note"] == [word.text for word in prose]


def test_a_number_parts_no_line_that_is_read_from_the_right():
    lines = [["הלב", "הוא", "שריר", "12", "פעמים", "בדקה"], ["הוא", "פועם", "שריר", "70", "פעמים", "ביום"]] * 3
    words = []
    for row, said in enumerate(lines):
        right = 400.0
        for word in said:
            words.append(Word(word, right - 30, 100.0 + 30 * row, right, 110.0 + 30 * row, 10.0))
            right -= 36
    assert [line.text for line in reading_order(words)] == [" ".join(said) for said in lines]
