"""Text out of HTML, EPUB, CNXML, Markdown and text files, in reading order, and what the tags say it is.

Word is in ``word_files``, PDF in ``pdf_pages``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from suwen.corpora.files import BadRecord, CorpusError, encoding_of, read_text
from suwen.corpora.formulas import Written, in_a_line
from suwen.corpora.hardened import SafeZip, decoded, open_zip, parse_xml
from suwen.corpora.html_shown import BREAKS, CELLS, VOID, OpenTags, Styles, styles_of
from suwen.corpora.word_files import read_word
from suwen.text.clean import clean
from suwen.text.page_blocks import Kind
from suwen.text.page_layout import CELL

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
_HTML_KINDS: dict[str, Kind] = {
    "figcaption": "caption",
    "caption": "caption",
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
}
_CNXML_KINDS: dict[str, Kind] = {"title": "heading", "caption": "caption"}
#: What holds no other block.
_LEAVES = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}
#: What classes and roles are called.
_CAPTIONED = re.compile(r"(?:^|[\s_-])(?:fig|figure|table|img|image)?[_-]?(?:fig)?caption(?:$|[\s_-])", re.IGNORECASE)
_CITED = re.compile(r"(?:^|[\s_-])(?:bibliography|references|reflist|ref-list)(?:$|[\s_-])", re.IGNORECASE)
#: Where a page names its encoding, and what browsers read for what is named.
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_HEAD = 4096
_MEANT = {"iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "big5": "big5hkscs", "shift_jis": "cp932"}
#: What is no text of a page: how links to its own headings are shown, and signs that only adorn.
_HERE, _ORNAMENT = re.compile(r"[¶#🔗\s]+"), re.compile(r"[¶#•·|›»«‹▲▼►▶◀▾▸★☆❱⧉🔗\s]+")
#: What an EPUB calls its chapters: older books and some programs say no HTML. Others in its order are pictures.
_TEXT = re.compile(r"html|x-oeb1-document|^(?:(?:application|text)/xml)?$")
_MOST_BYTES = 64 * 2**20
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$", re.MULTILINE)


class Part(NamedTuple):
    """A chapter of a book, or a whole file that has none; counted from 1.

    ``book`` is the title of the whole; ``bad`` says why a chapter has no text.
    """

    number: int
    title: str
    book: str
    blocks: list[tuple[Kind, str]]
    bad: str = ""


def read_parts(path: Path, kind: str) -> Iterator[Part]:
    """The parts of a file in reading order; an EPUB has several."""
    if kind in ("html", "cnxml", "text") and path.stat().st_size > _MOST_BYTES:
        raise BadRecord(f"{path}: over {_MOST_BYTES // 2**20} MiB of {kind.upper()}; split it")
    if kind == "html":
        yield _whole(*html_blocks(_page(path)))
    elif kind == "text":
        text = clean(read_text(path, encoding_of(path)))
        yield Part(1, heading_of(text), "", [("text", text)])
    elif kind == "cnxml":
        yield _whole(*_cnxml(parse_xml(path.read_bytes(), str(path))))
    elif kind == "docx":
        with open_zip(path) as parts:
            yield _whole(*read_word(parts))
    else:
        with open_zip(path) as parts:
            yield from _epub(parts)


def _page(path: Path) -> str:
    """An HTML page by its bytes; where they are in no encoding that shows by itself, by the one that it names."""
    try:
        return read_text(path, encoding_of(path))
    except CorpusError:
        data = path.read_bytes()
        if (named := _CHARSET.search(data[:_HEAD])) is None:
            raise
        name = named[1].decode("ascii").lower()
        try:
            return data.decode(_MEANT.get(name, name))
        except (LookupError, UnicodeError):
            pass  # the first problem says more
        raise


def _whole(title: str, blocks: list[tuple[Kind, str]]) -> Part:
    return Part(1, title, title, blocks)


def heading_of(text: str) -> str:
    r"""The first heading of a Markdown text, or nothing.

    >>> heading_of("Draft.\n\n## Ward rules ##\n\nBisoprolol at eight.")
    'Ward rules'
    """
    heading = _HEADING.search(text)
    return heading[1] if heading else ""


class _Blocks:
    """Text as it comes, in stretches of one kind."""

    def __init__(self) -> None:
        self.kind: Kind = "text"
        self._stretches: list[tuple[Kind, Written]] = [("text", Written())]

    def text(self) -> Written:
        """Where what comes is put."""
        if self._stretches[-1][0] != self.kind:
            self._stretches.append((self.kind, Written()))
        return self._stretches[-1][1]

    def add(self, piece: str) -> None:
        self.text().add(piece)

    def add_cell(self) -> None:
        """A border between two cells: none before the first of a row."""
        kind, written = self._stretches[-1]
        if kind == self.kind and not written.begins_line():
            self.add(CELL)

    def whole(self) -> list[tuple[Kind, str]]:
        tidied = [(kind, _tidy(written.whole())) for kind, written in self._stretches]
        return [(kind, text) for kind, text in tidied if text]


class _Reader(HTMLParser):
    def __init__(self, page: str, styles: Styles) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks = _Blocks()
        self.title: list[str] = []
        self._tags = OpenTags(page, styles)
        self._in: str = ""
        self._open: list[tuple[str, Kind]] = []
        self._formula: list[Element] = []
        self._goes_on = self._is_note = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._formula and tag in BREAKS:
            self._end_formula(tag)
        if self._formula or tag == "math":
            self._begin_formula(Element(tag))
            return
        if "raised" in self._tags.begin(tag, attrs):
            self._goes_on = False
        is_title = tag == "title" or (tag == "h1" and not self.title)
        if is_title and not self._tags.is_marked("unread", "hidden"):
            self._in = tag
        if tag in BREAKS:
            self._enter(tag, attrs)
            self.blocks.add("\n" if tag in ("br", "tr", "li") else "\n\n")
        elif tag in CELLS:
            self.blocks.add_cell()
        if tag == "sub":
            self.blocks.text().begin_lowered()
        if tag == "a":
            self._is_note = True

    def _begin_formula(self, node: Element) -> None:
        if self._formula:
            self._formula[-1].append(node)
        self._formula.append(node)

    def _end_formula(self, tag: str) -> None:
        """Leave what has ended of a formula, which is all of it where a paragraph begins or ends in it."""
        if tag in BREAKS:
            tag = "math"
        last = next((at for at in reversed(range(len(self._formula))) if self._formula[at].tag == tag), None)
        if last == 0 and not self._tags.is_marked("unread", "head"):
            self.blocks.add(in_a_line(self._formula[0]))
        del self._formula[len(self._formula) if last is None else last :]

    def handle_endtag(self, tag: str) -> None:
        if self._formula:
            self._end_formula(tag)
            return
        self._tags.end(tag)
        if tag == "a":
            self._is_note = False
        if tag == self._in:
            self._in = ""
        if tag in BREAKS:
            self.blocks.add("\n" if tag in ("br", "tr", "li") else "\n\n")
            last = next((at for at in reversed(range(len(self._open))) if self._open[at][0] == tag), None)
            self._leave(len(self._open) if last is None else last)

    def handle_data(self, data: str) -> None:
        if self._formula:
            within = self._formula[-1]
            if len(within):
                within[-1].tail = (within[-1].tail or "") + data
            else:
                within.text = (within.text or "") + data
            return
        if self._tags.marked and self._tags.is_marked("unread", "hidden"):
            return
        if self._in:
            self.title.append(data)
        if self._in != "title":
            (self._add_marked if self._tags.marked else self._add)(data)

    def _add(self, data: str) -> None:
        self._is_note = self._is_note and data.isspace()
        self.blocks.add(" ".join(_spaced(data)))

    def _add_marked(self, data: str) -> None:
        marked = self._tags.is_marked
        if marked("head") or (marked("link") and _HERE.fullmatch(data.strip())):
            return
        if marked("ornament") and _ORNAMENT.fullmatch(data.strip()):
            return
        if marked("raised"):
            # A number that leads somewhere by itself is a work that is cited, or a note.
            text = " ".join(_spaced(data))
            self.blocks.text().add_raised(text, goes_on=self._goes_on, is_note=self._is_note)
            self._goes_on = True
        else:
            self._add(data)

    def _enter(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag says of the text in it."""
        if tag in VOID:
            return
        while self._open and self._open[-1][0] in _LEAVES:
            self._leave(len(self._open) - 1)  # one that was never closed: it holds no other block
        said = " ".join(value or "" for name, value in attrs if name in ("class", "role", "epub:type"))
        cited = "reference" if _CITED.search(said) else self.blocks.kind
        kind: Kind = _HTML_KINDS.get(tag) or ("caption" if _CAPTIONED.search(said) else cited)
        self._open.append((tag, kind))
        self.blocks.kind = kind

    def _leave(self, depth: int) -> None:
        del self._open[depth:]
        self.blocks.kind = self._open[-1][1] if self._open else "text"


def html_blocks(page: str, styles: Styles = Styles()) -> tuple[str, list[tuple[Kind, str]]]:  # noqa: B008 - immutable
    r"""The title of an HTML page and its text by what the tags say it is.

    Scripts, menus and what is crossed out or not shown are left out; ``styles`` are those of sheets beside the page.

    >>> html_blocks("<title>Rx</title><nav>menu</nav><h2>Dose</h2><p>Take <b>5 mg</b>.<table><tr><td>a<td>b</table>")
    ('Rx', [('heading', 'Dose'), ('text', 'Take 5 mg.\n\na | b')])
    """
    reader = _Reader(page, styles)
    reader.feed(f"{page}</p>")  # a formula that was never closed ends here
    reader.close()
    return " ".join("".join(reader.title).split()), reader.blocks.whole()


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
    styles = _styles(parts, root, items.values())
    number = 0
    for reference in package.iter("itemref"):
        item = items.get(reference.get("idref"))
        if item is None or not _TEXT.search(item.get("media-type", "")):
            continue
        number += 1
        name = _name(root, item)
        try:
            chapter, blocks = html_blocks(decoded(parts.read(name), name), styles)
        except BadRecord as problem:
            yield Part(number, "", book, [], str(problem).removeprefix(f"{parts.path}: "))
            continue
        if blocks and "nav" not in item.get("properties", ""):
            title = book if not chapter or chapter == book else f"{book}: {chapter}" if book else chapter
            yield Part(number, title, book, blocks)


def _name(root: str, item: Element) -> str:
    """What a part that the package names is called in the file."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(root), unquote(item.get("href", ""))))


def _styles(parts: SafeZip, root: str, items: Iterable[Element]) -> Styles:
    """What the style sheets of a book say; one that cannot be read says nothing."""
    sheets = []
    for item in items:
        if item.get("media-type") == "text/css":
            with suppress(BadRecord):
                sheets.append(parts.read(_name(root, item)).decode(errors="replace"))
    return styles_of(sheets)


def _cnxml(module: Element) -> tuple[str, list[tuple[Kind, str]]]:
    title = clean("".join(module.find("title").itertext())) if module.find("title") is not None else ""  # type: ignore[union-attr]
    content = module.find("content")
    if content is None:
        raise BadRecord("a CNXML module without <content>; get the file again")
    blocks = _Blocks()
    _walk_cnxml(content, blocks)
    return title, blocks.whole()


def _walk_cnxml(node: Element, blocks: _Blocks) -> None:
    outside = blocks.kind
    blocks.kind = _CNXML_KINDS.get(node.tag) or ("reference" if _CITED.search(node.get("class", "")) else outside)
    if node.tag in _CNXML_BREAKS:
        blocks.add("\n" if node.tag in ("row", "item") else "\n\n")
    elif node.tag == "entry":
        blocks.add_cell()
    blocks.add(" ".join(_spaced(node.text)))
    for child in node:
        if child.tag == "math":
            blocks.add(in_a_line(child))
        elif child.tag == "sup" and child.find(".//math") is None:
            is_note = child.find(".//link") is not None
            blocks.text().add_raised(" ".join(_spaced("".join(child.itertext()))), is_note=is_note)
        elif child.tag not in ("media", "iframe"):
            _walk_cnxml(child, blocks)
        blocks.add(" ".join(_spaced(child.tail)))
    if node.tag in _CNXML_BREAKS:
        blocks.add("\n" if node.tag in ("row", "item") else "\n\n")
    blocks.kind = outside


def _spaced(text: str | None) -> list[str]:
    """The words of a text, with an empty one where it begins or ends with space, so that the space stays."""
    if not text or text.isspace():
        return ["", ""] if text else []
    words = text.split()
    return [*([""] if text[0].isspace() else []), *words, *([""] if text[-1].isspace() else [])]
