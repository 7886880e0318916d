"""Books of every format as documents: pages in reading order, with their places."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from suwen.corpora.files import CorpusError
from suwen.corpora.readers import read_documents

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import PACKAGE, epub, pdf, word, zipped

LEFT = [
    "Heart failure begins slowly in most",
    "people, and the first sign of it is a loss",
    "of breath after climbing some stairs.",
]
RIGHT = [
    "Treatment starts with one tablet a day",
    "and is raised every second week until",
    "the dose of 10 mg is well tolerated.",
]


def column(left, lines, top=200):
    return [(left, top + 14 * number, line) for number, line in enumerate(lines)]


def test_two_columns_are_read_one_after_the_other(tmp_path):
    across = [line for pair in zip(column(60, LEFT), column(320, RIGHT), strict=True) for line in pair]
    (page,) = read_documents(pdf(tmp_path / "a.pdf", [across], title="Cardiology"))
    assert page.text == f"{' '.join(LEFT)}\n\n{' '.join(RIGHT)}"
    assert page.id == "a.pdf#page=1" and page.title == "Cardiology"
    assert page.metadata == {"path": "a.pdf", "book": "Cardiology", "page": 1}


def test_running_heads_and_numbers_go_and_a_sentence_stays_whole(tmp_path):
    words = ["heart", "valve", "aorta", "vein", "nerve"]
    pages = [
        [
            (60, 40, "Manual of the Heart"),
            (300, 40, f"Chapter {1 + number // 3}"),
            *column(60, [f"The {name} is examined first of all.", f"Then the {name} is shown to be"]),
            (300, 810, str(number + 7)),
        ]
        for number, name in enumerate(words)
    ]
    for page, name in zip(pages[1:], words, strict=False):
        page.insert(2, (60, 150, f"healthy by a second {name}."))
    found = list(read_documents(pdf(tmp_path / "a.pdf", pages)))
    assert [page.metadata["page"] for page in found] == [1, 2, 3, 4, 5]
    assert "Manual" not in "".join(page.text for page in found)
    assert found[1].text.startswith(
        "The valve is examined first of all. Then the valve is shown to be healthy by a second"
    )
    assert found[1].text.endswith("by a second valve.") and "7" not in found[0].text


def test_rows_of_a_table_stay_rows(tmp_path):
    rows = [("Drug", "Dose", "Interval"), ("Metoprolol", "25 mg", "12 h"), ("Ramipril", "5 mg", "24 h")]
    cells = [(60 + 150 * at, 100 + 16 * number, cell) for number, row in enumerate(rows) for at, cell in enumerate(row)]
    prose = column(
        60, ["The table above lists the usual doses of the drugs that this chapter speaks about in full."], 250
    )
    (page,) = read_documents(pdf(tmp_path / "a.pdf", [cells + prose]))
    assert page.text.startswith("Drug | Dose | Interval\nMetoprolol | 25 mg | 12 h\nRamipril | 5 mg | 24 h\n\n")


def test_a_word_file_with_a_table(tmp_path):
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Angina</w:t></w:r></w:p>'
        "<w:p><w:r><w:t>Pain in </w:t></w:r><w:r><w:t>the chest.</w:t></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    )
    (found,) = read_documents(word(tmp_path / "a.docx", body))
    assert (found.id, found.title, found.text) == ("a.docx", "Angina", "Angina\n\nPain in the chest.\n\na | b")


def run(text):
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def words(path):
    (found,) = read_documents(path)
    return found.text


def test_what_a_word_file_holds_twice_comes_once(tmp_path):
    def box(within):
        return f"<wps:txbx><w:txbxContent>{within}</w:txbxContent></wps:txbx>"

    body = (
        '<w:p xmlns:mc="urn:mc" xmlns:wps="urn:wps"><w:r><w:t>Before.</w:t></w:r><w:r><mc:AlternateContent>'
        f'<mc:Choice Requires="wps">{box(run("In a box."))}</mc:Choice>'
        f"<mc:Fallback><w:pict>{box(run('In a box.'))}</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>Moved.</w:t></w:r></w:moveFrom></w:p>"
        "<w:p><w:moveTo><w:r><w:t>Moved.</w:t></w:r></w:moveTo></w:p>"
        "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>"
    )
    assert words(word(tmp_path / "a.docx", body)) == "Before.\n\nIn a box.\n\nMoved.\n\na\tb"


def test_tables_in_tables_and_cells_in_content_controls(tmp_path):
    inner = f"<w:tbl><w:tr><w:tc>{run('inner')}</w:tc><w:tc>{run('cell')}</w:tc></w:tr></w:tbl>"
    body = (
        f"<w:tbl><w:tr><w:tc>{run('outer')}{inner}</w:tc><w:tc>{run('B')}</w:tc></w:tr>"
        f"<w:tr><w:sdt><w:sdtContent><w:tc>{run('controlled')}</w:tc></w:sdtContent></w:sdt><w:tc>{run('C')}</w:tc></w:tr>"
        f"<w:sdt><w:sdtContent><w:tr><w:tc>{run('D')}</w:tc><w:tc>{run('E')}</w:tc></w:tr></w:sdtContent></w:sdt></w:tbl>"
    )
    assert words(word(tmp_path / "a.docx", body)) == "outer inner cell | B\ncontrolled | C\nD | E"


def test_notes_of_a_word_file_stand_behind_what_names_them(tmp_path):
    def notes(kind):
        return (
            f'<w:{kind}s xmlns:w="urn:w"><w:{kind} w:id="-1" w:type="separator">{run("")}</w:{kind}>'
            f'<w:{kind} w:id="2">{run(f"A {kind}.")}</w:{kind}></w:{kind}s>'
        )

    body = (
        '<w:p><w:r><w:t>Noted</w:t></w:r><w:r><w:footnoteReference w:id="2"/><w:endnoteReference w:id="2"/></w:r>'
        f"<w:r><w:t>.</w:t></w:r></w:p>{run('Next.')}"
    )
    more = {"word/footnotes.xml": notes("footnote"), "word/endnotes.xml": notes("endnote")}
    assert words(word(tmp_path / "a.docx", body, **more)) == "Noted.\n\nA footnote.\n\nNext.\n\nA endnote."


def test_signs_from_fonts_of_symbols_are_read(tmp_path):
    def sign(font, code):
        return f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'

    signs = {"a": sign("Symbol", "F06D"), "b": sign("Symbol", "F0B3"), "c": sign("Wingdings", "F0EA")}
    signs |= {"d": sign("Webdings", "F04A"), "e": sign("Calibri", "2020"), "f": sign("Symbol", "none")}
    said = "125 {a}g if the rate is {b}110 or the pressure {c}{d}{e}{f}"
    body = "".join(signs.get(piece) or f"<w:r><w:t>{piece}</w:t></w:r>" for piece in re.split(r"{(\w)}", said))
    body = f"<w:p>{body}</w:p>".replace("<w:t>", '<w:t xml:space="preserve">')
    assert words(word(tmp_path / "a.docx", body)) == "125 μg if the rate is ≥110 or the pressure ↓†"


def test_what_a_word_file_hides_is_not_read(tmp_path):
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>answer: 5 mg</w:t></w:r>"
    shown = "<w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t>Which dose?</w:t></w:r>"
    (found,) = read_documents(word(tmp_path / "a.docx", f"<w:p>{shown}{hidden}</w:p>"))
    assert found.text == "Which dose?"


def test_a_power_of_ten_in_a_word_file_is_no_other_number(tmp_path):
    def piece(text, place=""):
        return f'<w:r><w:rPr><w:vertAlign w:val="{place}"/></w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'

    higher = "superscript"
    body = (
        piece("90 x 10") + piece("9", higher) + piece("/l in 110") + piece("12", higher) + piece(" of 10") + piece("4")
    )
    assert words(word(tmp_path / "a.docx", f"<w:p>{body}</w:p>")) == "90 x 10^9/l in 110^12 of 104"


def test_what_a_word_file_crosses_out_is_not_read(tmp_path):
    def piece(text, looks=""):
        return f'<w:r><w:rPr>{looks}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'

    styles = (
        '<w:styles xmlns:w="urn:w"><w:style w:styleId="Old"><w:rPr><w:strike/></w:rPr></w:style>'
        '<w:style w:styleId="Older"><w:basedOn w:val="Old"/></w:style>'
        '<w:style w:styleId="Up"><w:basedOn w:val="Up"/><w:rPr><w:vertAlign w:val="superscript"/></w:rPr></w:style>'
        "</w:styles>"
    )
    body = (
        "<w:p>"
        + piece("Give ")
        + piece("50 ", "<w:strike/>")
        + piece("40 ", "<w:dstrike w:val='true'/>")
        + piece("30 ", '<w:rStyle w:val="Older"/>')
        + piece("10", "<w:strike w:val='false'/>")
        + piece("3", '<w:rStyle w:val="Up"/>')
        + piece(" IU, 30")
        + piece("1", '<w:position w:val="6"/>')
        + piece(" mg, 10")
        + 2 * piece("1", "<w:vertAlign w:val='superscript'/>")
        + piece("5 or 2")
        + piece("1", "<w:vertAlign w:val='superscript'/>")
        + piece("/")
        + piece("2", "<w:vertAlign w:val='subscript'/>")
        + '</w:p><w:p><w:pPr><w:pStyle w:val="Old"/></w:pPr>'
        + piece("Not this, ")
        + piece("but this.", '<w:strike w:val="0"/>')
        + "</w:p>"
    )
    made = word(tmp_path / "a.docx", body, **{"word/styles.xml": styles})
    assert words(made) == "Give 10^3 IU, 30^1 mg, 10^11 5 or 2 1/2\n\nbut this."


def test_a_word_file_names_its_parts_itself(tmp_path):
    def links(**parts):
        named = (f'<Relationship Type="http://x/{what}" Target="{target}"/>' for what, target in parts.items())
        return f"<Relationships>{''.join(named)}</Relationships>"

    note = f'<w:footnotes xmlns:w="urn:w"><w:footnote w:id="2">{run("A note.")}</w:footnote></w:footnotes>'
    body = '<w:p><w:r><w:t>Noted.</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
    made = zipped(
        tmp_path / "a.docx",
        {
            "_rels/.rels": links(officeDocument="/word/document2.xml"),
            "word/document2.xml": f'<w:document xmlns:w="urn:w"><w:body>{body}</w:body></w:document>',
            "word/_rels/document2.xml.rels": links(footnotes="footnotes2.xml"),
            "word/footnotes2.xml": note,
        },
    )
    assert words(made) == "Noted.\n\nA note."


def test_every_book_has_a_name_of_its_own(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.html").write_text("<p>Uric acid is high.</p>", "utf-8")
        package = PACKAGE.replace("The Heart", "")
        epub(tmp_path / folder / "d.epub", [("A", "<p>x</p>"), ("B", "<p>y</p>")], **{"OEBPS/book.opf": package})
    pdf(tmp_path / "two" / "b.pdf", [column(60, LEFT)])
    word(tmp_path / "two" / "c.docx", run("Pain in the chest."))
    epub(tmp_path / "e.epub", [("A", "<p>x</p>"), ("B", "<p>y</p>")])
    (tmp_path / "f.html").write_text("<title>Gout</title><p>Uric acid is high.</p>", "utf-8")
    found = list(read_documents(tmp_path))
    assert list(dict.fromkeys(one.metadata["book"] for one in found)) == [
        *("The Heart", "Gout"),
        *("one/a", "one/d"),
        *("two/a", "two/b", "two/c", "two/d"),
    ]
    assert [one.title for one in found if one.id == "two/b.pdf#page=1"] == ["b"]


def test_an_epub_gives_its_chapters_in_the_order_of_the_spine(tmp_path):
    path = epub(
        tmp_path / "a.epub",
        [("Valves", "<p>Four valves.</p>"), ("Walls", "<script>x()</script><p>Two&nbsp;walls.</p>")],
    )
    first, second = read_documents(path)
    assert (first.id, first.title, first.text) == ("a.epub#chapter=1", "The Heart: Walls", "Two walls.")
    assert (second.text, second.metadata["chapter"]) == ("Four valves.", 2)


@pytest.mark.parametrize("kind", ["text/x-oeb1-document", "application/xml", "text/html", ""])
def test_chapters_of_an_epub_may_be_called_otherwise(tmp_path, kind):
    package = PACKAGE.replace("application/xhtml+xml", kind)
    chapters = [("Valves", "<p>Four valves.</p>"), ("Walls", "<p>Two walls.</p>")]
    found = read_documents(epub(tmp_path / "a.epub", chapters, **{"OEBPS/book.opf": package}))
    assert [one.text for one in found] == ["Two walls.", "Four valves."]


def test_a_book_without_text_is_told_and_no_scan_is_blamed(tmp_path):
    with pytest.raises(CorpusError, match="no text was found in it: it is empty, or holds pictures alone"):
        words(word(tmp_path / "a.docx", "<w:p/>"))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("utf-16", "utf-16"),
        ("utf-16-le", "UTF-16"),
        ("gb18030", "GBK"),
        ("gb2312", "gb2312"),
        ("utf-8-sig", ""),
        ("utf-8", "nosuch"),
    ],
)
def test_an_epub_is_read_in_the_encoding_it_is_written_in(tmp_path, written, said):
    declared = f'<?xml version="1.0" encoding="{said}"?>' if said else ""
    page = f"{declared}<html><head><title>心</title></head><body><p>心脏有四个腔。</p></body></html>"
    package = (declared + PACKAGE.replace("The Heart", "心脏")).encode(written)
    path = epub(
        tmp_path / "a.epub",
        [("", ""), ("", "")],
        **{"OEBPS/two b.xhtml": page.encode(written), "OEBPS/book.opf": package},
    )
    (chapter,) = read_documents(path)
    assert (chapter.title, chapter.text) == ("心脏: 心", "心脏有四个腔。")


def test_html_and_cnxml(tmp_path):
    (tmp_path / "a.html").write_text("<title>Gout</title><nav>Home</nav><p>Uric acid&lt;7.<p>Rest", "utf-8")
    (tmp_path / "b.cnxml").write_text(
        '<document xmlns="http://cnx.rice.edu/cnxml"><title>Heart</title><content><para id="p">The <term>atria</term> '
        "contract.</para><table><row><entry>a</entry><entry>b</entry></row></table></content></document>",
        "utf-8",
    )
    page, module = read_documents(tmp_path)
    assert (page.id, page.title, page.text) == ("a.html", "Gout", "Uric acid<7.\n\nRest")
    assert (module.title, module.text) == ("Heart", "The atria contract.\n\na | b")


@pytest.mark.parametrize(
    ("said", "written"),
    [("iso-8859-1", "cp1252"), ("Windows-1252", "cp1252"), ("big5", "big5"), ("Shift_JIS", "cp932")],
)
def test_an_html_page_is_read_in_the_encoding_that_it_names(tmp_path, said, written):
    text = {"big5": "高血壓患者應限制鈉鹽攝取。", "cp932": "塩分を控える。"}.get(written, "Ménière’s: 5 µg at 37 °C.")
    page = f'<meta http-equiv="Content-Type" content="text/html; charset={said}"><title>x</title><p>{text}</p>'
    (tmp_path / "a.html").write_bytes(page.encode(written))
    assert words(tmp_path / "a.html") == text


@pytest.mark.parametrize("said", ["rot13", "nosuch", "utf-8"])
def test_an_html_page_that_names_a_wrong_encoding_is_told(tmp_path, said):
    (tmp_path / "a.html").write_bytes(f"<meta charset='{said}'><p>37 °C.</p>".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a\.html:1: not utf-8 text"):
        words(tmp_path / "a.html")
