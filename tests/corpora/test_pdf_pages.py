"""Pages of a PDF as words with places: which way text runs, what is cut off, and signs that stand too high."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pypdfium2
import pytest
from fpdf import FPDF

from suwen.corpora.pdf_pages import open_pdf, read_pdf_page
from suwen.corpora.readers import read_documents

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import HAN, SANS, form_pdf, pdf

LINES = [
    "Heart failure begins slowly in most",
    "people, and the first sign of it is a loss",
    "of breath after climbing some stairs.",
]
#: TeX's font of signs: the box of each is more than one and a half times the size.
SIGNS = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "cmsy10.ttf")


def drawn(path, pages, turn=0):
    """A PDF of ``(left, top, text, angle)``, or with a fifth, the font."""
    made = FPDF(unit="pt", format=(595, 842))
    made.add_font("S", "", SANS)
    made.add_font("M", "", SIGNS)
    for texts in pages:
        made.add_page()
        for left, top, text, angle, *font in texts:
            made.set_font(*font or "S", size=10)
            with made.rotation(angle, left, top):
                made.text(left, top, text)
    made.output(str(path))
    if turn:
        document = pypdfium2.PdfDocument(path)
        document[0].set_rotation(turn)
        document.save(path.with_name("turned.pdf"))
        return path.with_name("turned.pdf")
    return path


def column(left, top, angle=0, lines=LINES):
    """Lines of text one below the other, seen as they run."""
    step = {0: (0, 14), 90: (14, 0), 180: (0, -14), 270: (-14, 0)}[angle]
    return [(left + step[0] * at, top + step[1] * at, line, angle) for at, line in enumerate(lines)]


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_a_page_reads_the_same_whichever_way_its_text_runs(tmp_path, angle, turn):
    path = drawn(tmp_path / "a.pdf", [column(300, 420, angle)], turn)
    (page,) = read_documents(path)
    assert page.text == " ".join(LINES)
    assert read_pdf_page(open_pdf(path), 1).height == (595 if angle % 180 else 842)


def test_what_runs_across_comes_last_and_not_from_the_edge(tmp_path):
    table = column(400, 500, 90, ["Drug and dose", "Digoxin 125 mg"])
    edge = [(20, 600, "Downloaded from a library", 90), (585, 600, "at night", 90)]
    pages = [[*edge, *table, *column(60, 440, lines=LINES[:2])], column(60, 440, lines=LINES[2:])]
    (page,) = read_documents(drawn(tmp_path / "a.pdf", pages))
    assert page.text == f"{' '.join(LINES)}\n\nDrug and dose\nDigoxin 125 mg"


def test_a_sign_with_a_high_box_joins_no_lines(tmp_path):
    sign = [(92, 212, "x", 0, "M")]
    lines = [(60, 200, "A table of these", 0), (60, 212, "has 2", 0), *sign, (104, 212, "2 fields.", 0)]
    (page,) = read_documents(drawn(tmp_path / "a.pdf", [[*lines, (58, 224, "Nothing else is in it.", 0)]]))
    assert page.text == "A table of these has 2 x 2 fields. Nothing else is in it."


def test_what_the_page_does_not_show_is_not_its_text(tmp_path):
    path = pdf(tmp_path / "a.pdf", [[(20, 20, "Heart_Ch1.indd 7"), (60, 100, LINES[0]), (560, 400, "TRIM")]])
    document = pypdfium2.PdfDocument(path)
    document[0].set_cropbox(50, 50, 545, 792)
    document.save(tmp_path / "b.pdf")
    words = read_pdf_page(open_pdf(tmp_path / "b.pdf"), 1).words
    assert [word.text for word in words] == LINES[0].split()
    assert round(words[0].left) == 10 and 40 < words[0].top < 50


def test_a_power_of_ten_is_no_other_number(tmp_path):
    made = FPDF(unit="pt", format=(595, 842))
    made.add_page()
    made.add_font("S", "", SANS)
    made.set_font("S", size=12)
    lines = [
        ("Of 90×10", "LINE"),
        ("9", "SUP"),
        ("/L, 10", "LINE"),
        ("4", "SUP"),
        ("–10", "LINE"),
        ("-3", "SUP"),
        (" or 109, 110", "LINE"),
    ]
    for text, place in [*lines, ("9", "SUP"), (" and 10", "LINE"), ("4", "SUB"), (" none.", "LINE")]:
        made.char_vpos = place
        made.write(14, text)
    made.output(tmp_path / "a.pdf")
    said = " ".join(word.text for word in read_pdf_page(open_pdf(tmp_path / "a.pdf"), 1).words)
    assert said.replace(" ", "") == "Of90×10^9/L,10^4–10^-3or109,110^9and104none."


def test_the_mark_of_a_note_is_no_digit_of_a_dose(tmp_path):
    made = FPDF(unit="pt", format=(595, 842))
    made.add_page()
    made.set_font("Times", size=11)
    for text, place in [("Give 30", "LINE"), ("1", "SUP"), (" mg, 1.5", "LINE"), ("2,3", "SUP"), (" g of H", "LINE")]:
        made.char_vpos = place
        made.write(14, text)
    for text, place in [
        ("2", "SUB"),
        ("O a m", "LINE"),
        ("2", "SUP"),
        (" in 1998.\n", "LINE"),
        ("1", "SUP"),
        ("30", "LINE"),
    ]:
        made.char_vpos = place
        made.write(14, text)
    made.output(tmp_path / "a.pdf")
    said = " ".join(word.text for word in read_pdf_page(open_pdf(tmp_path / "a.pdf"), 1).words)
    assert said == "Give 30^1 mg, 1.5^2,3 g of H2O a m2 in 1998. 1 30"


@pytest.mark.parametrize(
    ("rotate", "turn", "way"),
    [(0, "1 0 0 1", (1, 0)), (90, "0 1 -1 0", (0, 1)), (180, "-1 0 0 -1", (-1, 0)), (270, "0 -1 1 0", (0, -1))],
)
def test_a_power_of_ten_on_a_page_that_is_turned(tmp_path, rotate, turn, way):
    def shown(text, size, along, above):
        x, y = 300 + along * way[0] - above * way[1], 400 + along * way[1] + above * way[0]
        return f"BT /F {size} Tf {turn} {x} {y} Tm ({text}) Tj ET "

    said = shown("90 x 10", 11, 0, 0) + shown("9", 7, 36.5, 5) + shown("/L, 10", 11, 40.5, 0)
    said += shown("9 of them", 11, 80, 0) + shown("in 10", 11, 0, -20) + shown("9", 7, 32, -15)
    path = form_pdf(tmp_path / "a.pdf", [], [], rotate=rotate, stream=said.encode())
    words = " ".join(word.text for word in read_pdf_page(open_pdf(path), 1).words)
    assert words.replace(" /L", "/L") == "90 x 10^9/L, 10 9 of them in 10 9"


def test_a_cell_of_one_letter_is_no_part_of_the_cell_above_it(tmp_path):
    cells = [(60, 700, "Na"), (60, 680, "K"), (60, 660, "P"), (160, 700, "7"), (160, 680, "4.1"), (160, 660, "5")]
    more = [(60, 640, "Cl"), (160, 640, "6"), (260, 700, "1"), (260, 680, "2"), (260, 660, "3"), (260, 640, "4")]
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", [*cells, *more], []))
    assert page.text.splitlines() == ["Na | 7 | 1", "K | 4.1 | 2", "P | 5 | 3", "Cl | 6 | 4"]


def test_chinese_that_runs_downwards_stays_together(tmp_path):
    made = FPDF(unit="pt", format=(595, 842))
    made.add_page()
    made.add_font("S", "", HAN)
    made.set_font("S", size=12)
    for row, sign in enumerate("心力衰竭"):
        made.text(300, 100 + 13 * row, sign)
    made.output(tmp_path / "a.pdf")
    assert [word.text for word in read_pdf_page(open_pdf(tmp_path / "a.pdf"), 1).words] == ["心力衰竭"]
