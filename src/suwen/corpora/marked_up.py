"""Text out of HTML, EPUB, Word, CNXML, Markdown and text files, in reading order. PDF is in ``pdf_pages``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from suwen.corpora.files import BadRecord, encoding_of, read_text
from suwen.corpora.hardened import SafeZip, open_zip, parse_xml
from suwen.text.clean import clean
from suwen.text.page_layout import CELL

_SKIPPED = {"script", "style", "template", "noscript", "nav", "svg", "math", "head", "iframe", "object"}
_VOID = {"br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "track", "wbr", "param"}
_BREAKS = frozenset(
    "p div section article main header footer aside h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table thead tbody tr caption "  # noqa: SIM905
    "figure figcaption blockquote pre address form fieldset br hr title".split()
)
_CELLS = {"td", "th"}
_CNXML_BREAKS = {
    "para",
    "title",
    "item",
    "caption",
    "note",
    "section",
    "equation",
    "row",
    "problem",
    "solution",
    "list",
}
_MOST_BYTES = 64 * 2**20
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$", re.MULTILINE)


class Part(NamedTuple):
    """A chapter of a book, or a whole file that has none; counted from 1."""

    number: int
    title: str
    text: str


def read_parts(path: Path, kind: str) -> Iterator[Part]:
    """The parts of a file in reading order; an EPUB has several."""
    if kind in ("html", "cnxml", "text") and path.stat().st_size > _MOST_BYTES:
        raise BadRecord(f"{path}: over {_MOST_BYTES // 2**20} MiB of {kind.upper()}; split it")
    if kind == "html":
        yield Part(1, *html_text(read_text(path, encoding_of(path))))
    elif kind == "text":
        text = clean(read_text(path, encoding_of(path)))
        yield Part(1, heading_of(text), text)
    elif kind == "cnxml":
        yield Part(1, *_cnxml(parse_xml(path.read_bytes(), str(path))))
    elif kind == "docx":
        with open_zip(path) as parts:
            yield Part(1, *_docx(parts))
    else:
        with open_zip(path) as parts:
            yield from _epub(parts)


def heading_of(text: str) -> str:
    r"""The first heading of a Markdown text, or nothing.

    >>> heading_of("Draft.\n\n## Ward rules ##\n\nBisoprolol at eight.")
    'Ward rules'
    """
    heading = _HEADING.search(text)
    return heading[1] if heading else ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._skipped: list[str] = []
        self._in: str = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" or (tag == "h1" and not self.title):
            self._in = tag
        if tag in _SKIPPED and tag not in _VOID:
            self._skipped.append(tag)
        elif tag == "body":
            self._skipped.clear()  # a head that was never closed
        if tag in _BREAKS:
            self.pieces.append("\n" if tag in ("br", "tr", "li") else "\n\n")
        elif tag in _CELLS and self.pieces and not self.pieces[-1].endswith("\n"):
            self.pieces.append(CELL)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipped:
            del self._skipped[self._skipped.index(tag) :]
        if tag == self._in:
            self._in = ""
        if tag in _BREAKS:
            self.pieces.append("\n" if tag in ("br", "tr", "li") else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in:
            self.title.append(data)
        if self._in != "title" and not self._skipped:
            self.pieces.append(" ".join(_spaced(data)))


def html_text(page: str) -> tuple[str, str]:
    r"""The title and the text of an HTML page, scripts and menus left out.

    >>> html_text("<title>Rx</title><nav>menu</nav><p>Take <b>5 mg</b>.<table><tr><td>a<td>b</table>")
    ('Rx', 'Take 5 mg.\n\na | b')
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return " ".join("".join(reader.title).split()), _tidy("".join(reader.pieces))


def _tidy(text: str) -> str:
    lines = [line.strip(" |") if not line.strip(" |") else line.strip() for line in text.split("\n")]
    return clean("\n".join(lines))


def _epub(parts: SafeZip) -> Iterator[Part]:
    container = parse_xml(parts.read("META-INF/container.xml"), str(parts.path))
    root = next((node.get("full-path") for node in container.iter("rootfile")), None)
    if not root:
        raise BadRecord(f"{parts.path}: not a whole EPUB (it names no content); get it again")
    package = parse_xml(parts.read(root), f"{parts.path}: {root}")
    book = next((clean("".join(node.itertext())) for node in package.iter("title")), "")
    items = {node.get("id"): node for node in package.iter("item")}
    number = 0
    for reference in package.iter("itemref"):
        item = items.get(reference.get("idref"))
        if item is None or "html" not in item.get("media-type", ""):
            continue
        number += 1
        name = posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(item.get("href", ""))))
        chapter, text = html_text(parts.read(name).decode("utf-8", errors="replace"))
        if text and "nav" not in item.get("properties", ""):
            yield Part(
                number, book if not chapter or chapter == book else f"{book}: {chapter}" if book else chapter, text
            )


def _docx(parts: SafeZip) -> tuple[str, str]:
    """Word's text. Macros, pictures and embedded files are other parts, which nobody opens."""
    if "word/document.xml" not in parts.names:
        raise BadRecord(f"{parts.path}: no Word document; where it is an older .doc, save it as .docx")
    body = parse_xml(parts.read("word/document.xml"), str(parts.path)).find("body")
    title = ""
    if "docProps/core.xml" in parts.names:
        core = parse_xml(parts.read("docProps/core.xml"), str(parts.path))
        title = clean(core.findtext("title") or "")
    blocks: list[str] = []
    for node in [] if body is None else _word_blocks(body):
        if node.tag == "tbl":
            blocks.append("\n".join(_word_row(row) for row in node.iter("tr")))
            continue
        text = _word_text(node)
        style = node.find("pPr/pStyle")
        name = (style.get("val") or "").lower() if style is not None else ""
        if not title and text and name.startswith(("title", "heading", "标题")):
            title = clean(text)
        blocks.append(text)
    return title, clean("\n\n".join(blocks))


def _word_blocks(node: Element) -> Iterator[Element]:
    for child in node:
        if child.tag in ("p", "tbl"):
            yield child
        elif child.tag in ("sdt", "sdtContent", "customXml", "ins", "smartTag"):
            yield from _word_blocks(child)


def _word_row(row: Element) -> str:
    return CELL.join(" ".join(filter(None, (_word_text(p) for p in cell.iter("p")))) for cell in row.findall("tc"))


def _word_text(paragraph: Element) -> str:
    signs = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
    found = (node.text or "" if node.tag == "t" else signs.get(node.tag, "") for node in paragraph.iter())
    return "".join(found).strip()


def _cnxml(module: Element) -> tuple[str, str]:
    title = clean("".join(module.find("title").itertext())) if module.find("title") is not None else ""  # type: ignore[union-attr]
    content = module.find("content")
    if content is None:
        raise BadRecord("a CNXML module without <content>; get the file again")
    pieces: list[str] = []
    _walk_cnxml(content, pieces)
    return title, _tidy("".join(pieces))


def _walk_cnxml(node: Element, pieces: list[str]) -> None:
    if node.tag in _CNXML_BREAKS:
        pieces.append("\n" if node.tag in ("row", "item") else "\n\n")
    elif node.tag == "entry" and not "".join(pieces[-3:]).rstrip(" ").endswith("\n"):
        pieces.append(CELL)
    pieces.append(" ".join(_spaced(node.text)))
    for child in node:
        if child.tag not in ("math", "media", "iframe"):
            _walk_cnxml(child, pieces)
        pieces.append(" ".join(_spaced(child.tail)))
    if node.tag in _CNXML_BREAKS:
        pieces.append("\n" if node.tag in ("row", "item") else "\n\n")


def _spaced(text: str | None) -> list[str]:
    """The words of a text, with an empty one where it begins or ends with space, so that the space stays."""
    if not text or text.isspace():
        return ["", ""] if text else []
    words = text.split()
    return [*([""] if text[0].isspace() else []), *words, *([""] if text[-1].isspace() else [])]
