"""Scans read for real: Chinese, English on its side, mixed with a page of text; and nothing read twice."""

from __future__ import annotations

import sys
from difflib import SequenceMatcher
from pathlib import Path

import pypdfium2
import pytest
from fpdf import FPDF
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.textpath import TextPath

from suwen.corpora.page_cache import PageCache
from suwen.corpora.pdf_pages import open_pdf, read_pdf_page
from suwen.corpora.readers import read_documents

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import HAN, SANS, pdf, picture, scanned_pdf, stamped_pdf

CHINESE = ["心力衰竭患者应当限制钠盐摄入，", "并且每日清晨测量体重。"]
ENGLISH = ["Digoxin is given once a day", "and stopped below 50 bpm."]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUWEN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_scans_are_read_beside_text_and_only_once(tmp_path, cache):
    pictures = [picture(CHINESE, font=HAN, size=(560, 200)), picture(ENGLISH, turn=90, size=(480, 200))]
    mixed = pypdfium2.PdfDocument.new()
    for part in (
        scanned_pdf(tmp_path / "scan.pdf", pictures),
        pdf(tmp_path / "text.pdf", [[(60, 100, "A page with a text layer of its own.")]]),
    ):
        mixed.import_pages(pypdfium2.PdfDocument(part))
    mixed.save(tmp_path / "a.pdf")
    chinese, english, text = read_documents(tmp_path / "a.pdf")
    assert SequenceMatcher(None, "".join(CHINESE), chinese.text).ratio() > 0.95
    assert SequenceMatcher(None, " ".join(ENGLISH), english.text).ratio() > 0.9
    assert text.text == "A page with a text layer of its own." and text.metadata["page"] == 3
    assert [page.text for page in read_documents(tmp_path / "a.pdf", ocr=False)] == [
        chinese.text,
        english.text,
        text.text,
    ]


def test_letters_that_are_drawn_as_lines_are_read_off_the_page(tmp_path, cache):
    figure = Figure(figsize=(6, 3))
    for row, line in enumerate(ENGLISH):
        figure.add_artist(PathPatch(TextPath((30, 150 - 40 * row), line, size=26), fc="black", lw=0, transform=None))
    figure.savefig(tmp_path / "a.pdf")
    told = []
    assert list(read_documents(tmp_path / "a.pdf", ocr=False, on_skip=told.append)) == []
    assert "page 1: this page is a scan" in told[0]
    (page,) = read_documents(tmp_path / "a.pdf")
    assert SequenceMatcher(None, " ".join(ENGLISH), page.text).ratio() > 0.9


STAMP = "Downloaded from library.example.org on 2024-05-01"


def test_a_scan_with_a_stamp_is_read_off_its_picture(tmp_path, cache):
    path = stamped_pdf(tmp_path / "a.pdf", picture(ENGLISH, size=(520, 260)), STAMP)
    (page,) = read_documents(path)
    assert all(line in page.text for line in ENGLISH)


def test_a_stamp_is_kept_and_its_scan_told_where_scans_are_not_read(tmp_path):
    path = stamped_pdf(tmp_path / "a.pdf", picture(ENGLISH, size=(520, 260)), STAMP)
    told = []
    (page,) = read_documents(path, ocr=False, on_page=lambda _, number, why: told.append((number, why)))
    assert page.text == STAMP
    assert [number for number, _ in told] == [1] and "a scan" in told[0][1]


@pytest.mark.parametrize("stamp", [STAMP, "7"])
def test_a_scan_that_somebody_has_read_is_not_read_again(tmp_path, stamp):
    path = stamped_pdf(tmp_path / "a.pdf", picture(ENGLISH, size=(520, 260)), stamp, hidden=ENGLISH)
    content = read_pdf_page(open_pdf(path), 1)
    assert content.picture is None and "Digoxin" in [word.text for word in content.words]


@pytest.mark.parametrize(("share", "lines"), [(0.6, 3), (1.0, 30)])
def test_a_page_of_text_with_a_picture_is_no_scan(tmp_path, share, lines):
    made = FPDF(unit="pt", format=(595, 842))
    made.add_font("S", "", SANS)
    made.add_page()
    made.image(picture(ENGLISH), 0, 0, 595, 842 * share)
    made.set_font("S", size=10)
    for number in range(lines):
        made.text(60, 820 - 16 * number, "The dose is raised every second week, and so on to the end.")
    made.output(str(tmp_path / "a.pdf"))
    assert read_pdf_page(open_pdf(tmp_path / "a.pdf"), 1).picture is None


def test_a_line_that_a_kill_left_half_written_costs_that_page_alone(tmp_path):
    book = tmp_path / "a.pdf"
    book.write_bytes(b"any")
    kept = PageCache(tmp_path, book)
    kept.put(1, {"lines": []})
    (file,) = (tmp_path / "pages").iterdir()
    with file.open("ab") as end:
        end.write(b'{"number": 2, "con')
    PageCache(tmp_path, book).put(3, {"lines": [1]})
    again = PageCache(tmp_path, book)
    assert (again.get(1), again.get(2), again.get(3)) == ({"lines": []}, None, {"lines": [1]})
