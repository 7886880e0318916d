"""Files that are damaged, locked, endless or made to do harm: a clear report, nothing lost, no crash."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest

from suwen.corpora.book_pages import Limits
from suwen.corpora.books import read_book
from suwen.corpora.files import BadRecord, CorpusError
from suwen.corpora.pdf_pages import open_pdf, read_pdf_page
from suwen.corpora.readers import read_documents

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import CONTAINER, PACKAGE, epub, pdf, picture, raw_pdf, scanned_pdf, word, zipped

LINE = "The dose is raised every second week."


def shown(text):
    return zlib.compress(f"BT /F 12 Tf 60 700 Td ({text}) Tj ET".encode())


def test_an_encrypted_file_says_how_to_open_it(tmp_path):
    path = pdf(tmp_path / "a.pdf", [[(60, 100, LINE)]], password="secret")
    with pytest.raises(CorpusError, match=r"a\.pdf: the PDF is locked with a password; save it without one"):
        list(read_documents(path))


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.epub"])
def test_empty_and_truncated_files(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(CorpusError, match="the file is empty"):
        list(read_documents(path))
    whole = (
        pdf(tmp_path / "whole.pdf", [[(60, 100, LINE)]]).read_bytes()
        if name == "a.pdf"
        else word(path, LINE).read_bytes()
    )
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(CorpusError, match="not a whole"):
        list(read_documents(path))
    told = []
    assert list(read_documents(path, on_skip=told.append)) == [] and name in told[0]


def test_two_thousand_pages(tmp_path):
    path = raw_pdf(
        tmp_path / "a.pdf", [shown(f"Case {number} was seen by the ward in spring.") for number in range(2000)]
    )
    found = list(read_documents(path))
    assert len(found) == 2000
    assert found[1999].id == "a.pdf#page=2000" and found[1234].text == "Case 1234 was seen by the ward in spring."


def test_a_bomb_costs_its_page_and_no_other(tmp_path):
    bomb = zlib.compress(b"q 1 0 0 1 0 0 cm\n" * 15_000_000, 1)
    path = raw_pdf(tmp_path / "a.pdf", [shown(LINE), bomb, shown(LINE + " Twice.")])
    told = []
    limits = Limits(memory=450 * 2**20, seconds=60)
    found = list(read_book(path, tmp_path, "pdf", lambda page, why: told.append((page, why)), limits=limits))
    assert [page.metadata["page"] for page in found] == [1, 3]
    assert [page for page, _ in told] == [2] and "memory" in told[0][1]


def test_a_page_that_takes_too_long_is_left_out(tmp_path):
    path = raw_pdf(tmp_path / "a.pdf", [shown(LINE)])
    with pytest.raises(BadRecord, match=r"it took longer than 0\.001 seconds"):
        list(read_book(path, tmp_path, "pdf", limits=Limits(seconds=0.001)))


def test_a_file_that_claims_pages_it_does_not_have_is_given_up(tmp_path):
    path = raw_pdf(tmp_path / "a.pdf", [shown(LINE)])
    path.write_bytes(path.read_bytes().replace(b"/Count 1", b"/Count 9999"))
    told = []
    (page,) = read_documents(path, on_page=lambda path, page, why: told.append((page, why)))
    assert page.text == LINE
    assert [page for page, _ in told] == [*range(2, 52), 0]
    assert told[-1][1] == "pages 52 to 9999 are left out: 50 pages in a row could not be read"


def test_a_file_that_takes_too_long_is_given_up(tmp_path):
    path = raw_pdf(tmp_path / "a.pdf", [shown(LINE)] * 9)
    told = []
    limits = Limits(whole=0.0, page=0.0)
    (page,) = read_book(path, tmp_path, "pdf", lambda *one: told.append(one), limits=limits)
    ((number, why),) = told
    assert (page.metadata["page"], number) == (1, 0)
    assert why.startswith("pages 2 to 9 are left out: the pages before them took far longer than pages do")


def test_scans_that_are_not_to_be_read_give_no_file_up(tmp_path):
    path = scanned_pdf(tmp_path / "a.pdf", [picture([LINE], size=(80, 40))] * 3)
    told = []
    with pytest.raises(BadRecord, match="no text was found"):
        list(read_book(path, tmp_path, "pdf", lambda *one: told.append(one), limits=Limits(unreadable=1), ocr=False))
    assert [page for page, _ in told] == [1, 2, 3]


def test_a_page_without_words_is_not_told_to_be_a_scan(tmp_path):
    path = tmp_path / "a.html"
    path.write_text("<html><body><img src='a.png'></body></html>", encoding="utf-8")
    with pytest.raises(BadRecord, match=r"no text was found in it: it is empty, or holds pictures alone"):
        list(read_book(path, tmp_path, "html"))


def test_a_page_a_mile_wide_is_drawn_small(tmp_path):
    path = raw_pdf(tmp_path / "a.pdf", [shown(LINE)], box="0 0 60000 60000")
    (page,) = read_documents(path)
    assert page.text == LINE


def test_pictures_without_ocr_are_told_page_by_page(tmp_path):
    path = scanned_pdf(tmp_path / "a.pdf", [picture([LINE])] * 2)
    told = []
    found = read_documents(
        path, ocr=False, on_skip=told.append, on_page=lambda path, page, why: told.append((page, why))
    )
    assert list(found) == []
    assert [page for page, _ in told[:2]] == [1, 2] and "a scan" in told[0][1]
    assert "no text was found in it: its pages are empty, or scans, which are not read here (--no-ocr)" in told[2]


def test_right_to_left_text_is_kept(tmp_path):
    (page,) = read_documents(pdf(tmp_path / "a.pdf", [[(60, 100, "قلب"), (60, 130, LINE)]]))
    assert LINE in page.text and any("\u0600" <= sign <= "\u06ff" or "\ufb50" <= sign <= "\ufeff" for sign in page.text)


def test_right_to_left_lines_are_read_from_the_right(tmp_path):
    said = ["הלב", "הוא", "שריר", "השואב", "25", "פעמיים"]
    # As it stands on paper: the first word at the right, each with its letters from the right.
    words = [(400 - 50 * place, 100, word[::-1] if word != "25" else word) for place, word in enumerate(said)]
    (page,) = read_documents(pdf(tmp_path / "a.pdf", [[*words, (60, 130, LINE)]]))
    assert page.text.startswith(" ".join(said)) and page.text.endswith(LINE)


def test_macros_of_a_word_file_are_not_touched(tmp_path):
    path = word(tmp_path / "a.docm", "<w:p><w:r><w:t>Plain.</w:t></w:r></w:p>", **{"word/vbaProject.bin": b"\0" * 99})
    (found,) = read_documents(path)
    assert found.text == "Plain."


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = epub(tmp_path / "a.epub", [("A", "<p>x</p>"), ("B", "<p>y</p>")], **{"OEBPS/z.xhtml": b"0" * 50_000_000})
    with pytest.raises(CorpusError, match=r"a zip bomb\? its part OEBPS/z.xhtml unpacks .* to 50,000,000"):
        list(read_documents(path))


def test_a_bad_chapter_costs_no_other(tmp_path):
    path = epub(tmp_path / "a.epub", [("One", "<p>Four valves.</p>"), ("Two", f"<p>{LINE * 9}</p>")])
    data = path.read_bytes()
    at = data.index(b"OEBPS/two b.xhtml") + len("OEBPS/two b.xhtml")
    path.write_bytes(data[:at] + b"\xff\xff\xff" + data[at + 3 :])
    with pytest.raises(BadRecord, match=r"a\.epub: chapter 1: its part OEBPS/two b.xhtml cannot be read"):
        list(read_documents(path))
    told, unread = [], []
    (chapter,) = read_documents(path, on_skip=told.append, on_unread=unread.append)
    assert unread == ["a.epub#chapter=1"], "an index keeps what it has of that chapter"
    assert chapter.text == "Four valves." and len(told) == 1 and "a.epub: chapter 1: its part" in told[0]
    parts = {"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": PACKAGE, "OEBPS/two b.xhtml": f"<p>{LINE}</p>"}
    told.clear()
    (chapter,) = read_documents(
        zipped(path, parts), on_page=lambda path, number, why: told.append((path.name, number, why))
    )
    assert chapter.metadata["chapter"] == 1 and told[0][:2] == ("a.epub", 2) and str(tmp_path) not in told[0][2]


def test_a_chapter_in_another_encoding_than_it_says_is_told(tmp_path):
    said = '<?xml version="1.0" encoding="utf-8"?><p>心脏</p>'.encode("gb18030")
    path = epub(tmp_path / "a.epub", [("One", "<p>Four valves.</p>"), ("", "")], **{"OEBPS/two b.xhtml": said})
    told = []
    assert [one.text for one in read_documents(path, on_skip=told.append)] == ["Four valves."]
    assert "chapter 1: OEBPS/two b.xhtml: it is not written in utf-8 as it says" in told[0]


def test_entities_are_not_expanded(tmp_path):
    lol = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 9))
    bomb = f'<!DOCTYPE d [<!ENTITY a0 "ha">{lol}]><d><body>&a8;</body></d>'
    with pytest.raises(CorpusError, match="declares XML entities"):
        list(read_documents(zipped(tmp_path / "a.docx", {"word/document.xml": bomb})))
    (tmp_path / "b.cnxml").write_text(bomb)
    with pytest.raises(CorpusError, match="declares XML entities"):
        list(read_documents(tmp_path / "b.cnxml"))


def test_the_box_of_a_right_to_left_word_holds_its_full_stop(tmp_path):
    path = pdf(tmp_path / "a.pdf", [[(60, 100, ".יתימאמד")]])
    (word,) = read_pdf_page(open_pdf(path), 1).words
    assert (word.text, round(word.left)) == ("דמאמיתי.", 60)


def test_a_link_that_leads_nowhere_is_told_as_what_it_is(tmp_path):
    (tmp_path / "a.html").symlink_to(tmp_path / "gone.html")
    with pytest.raises(
        BadRecord, match=r"a\.html: it cannot be read \(No such file or directory\); check that it is there"
    ):
        list(read_book(tmp_path / "a.html", tmp_path, "html"))


def test_a_pdf_encrypted_for_a_certificate_is_told_as_that(tmp_path):
    whole = pdf(tmp_path / "a.pdf", [[(60, 100, "The dose is raised.")]], password="x").read_bytes()
    (tmp_path / "a.pdf").write_bytes(whole.replace(b"/Standard", b"/Adobe.Pk"))
    with pytest.raises(CorpusError, match=r"a\.pdf: the PDF is encrypted in a way that is not read here .*certificate"):
        list(read_documents(tmp_path / "a.pdf"))


def test_a_page_that_is_not_there_is_told_in_plain_words(tmp_path):
    whole = pdf(tmp_path / "a.pdf", [[(60, 100, "The dose is raised.")], [(60, 100, "It is lowered.")]]).read_bytes()
    (tmp_path / "a.pdf").write_bytes(whole.replace(b"/Count 2", b"/Count 3"))
    told = []
    found = read_documents(tmp_path / "a.pdf", on_page=lambda path, number, why: told.append((number, why)))
    assert [page.text for page in found] == ["The dose is raised.", "It is lowered."]
    assert told == [(3, "it cannot be read (Failed to load page); the file may be damaged here: get it again")]
