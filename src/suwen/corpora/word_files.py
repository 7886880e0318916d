"""The text of Word's files, by our own reading of their XML: what a reader sees, once, and what styles say it is."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

from suwen.corpora.files import BadRecord
from suwen.corpora.formulas import Written, in_a_line
from suwen.corpora.hardened import SafeZip, parse_xml
from suwen.corpora.word_runs import GONE, PLACE, mark_runs
from suwen.text.clean import clean
from suwen.text.page_blocks import Kind
from suwen.text.page_layout import CELL

#: What is not shown: properties, what was deleted or moved away, the sounds over Chinese characters. Runs are marked.
_GONE = {"pPr", "rPr", "tblPr", "sectPr", "del", "moveFrom", "rt"}
#: What is text of its own inside another's.
_APART = {"p", "tbl", "tr", "tc", "txbxContent", "oMath"}
_SIGNS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
#: What places in fonts of symbols stand for: of micrograms the first letter may be one. Of Wingdings arrows and ticks.
_SYMBOLS = {
    "symbol": dict(
        zip(
            [*range(0x20, 0x7F), *range(0xA1, 0xBD)],
            " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
            "ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…",
            strict=True,
        )
    ),
    "wingdings": dict(zip(b"\x6f\xa8\xdf\xe0\xe1\xe2\xe7\xe8\xe9\xea\xfb\xfc\xfd\xfe", "□□←→↑↓←→↑↓✗✓☒☑", strict=True)),
}
#: How the names of styles begin.
_STYLES: dict[str, Kind] = {
    "title": "heading",
    "subtitle": "heading",
    "heading": "heading",
    "标题": "heading",
    "副标题": "heading",
    "caption": "caption",
    "题注": "caption",
    "bibliography": "reference",
    "书目": "reference",
    "references": "reference",
    "参考文献": "reference",
}


class _Notes(NamedTuple):
    """Foot- and endnotes by their numbers, and the names of styles."""

    foot: dict[str, Element]
    end: dict[str, Element]
    styles: dict[str, str]


def read_word(parts: SafeZip) -> tuple[str, list[tuple[Kind, str]]]:
    """The title and the blocks of text; macros, pictures and embedded files are other parts, which nobody opens.

    A text box and a footnote come behind their paragraph, endnotes at the end.

    Raises:
        BadRecord: It is no Word document, or damaged.
    """
    main = _related(parts, "").get("officeDocument", "word/document.xml")
    if main not in parts.names:
        raise BadRecord(f"{parts.path}: no Word document; where it is an older .doc, save it as .docx")
    body = _part(parts, main)
    body = body.find("body") if body is not None else None
    near = {name: f"word/{name}.xml" for name in ("styles", "footnotes", "endnotes")} | _related(parts, main)
    core = _part(parts, "docProps/core.xml")
    title = clean(core.findtext("title") or "") if core is not None else ""
    styles = {style.get("styleId", ""): style for style in _children(_part(parts, near["styles"]), "style")}
    feet, ends = _part(parts, near["footnotes"]), _part(parts, near["endnotes"])
    mark_runs((body, feet, ends), styles)
    notes = _Notes(
        {note.get("id", ""): note for note in _children(feet, "footnote")},
        {note.get("id", ""): note for note in _children(ends, "endnote")},
        {name: _value(style, "name") for name, style in styles.items()},
    )
    last: list[Element] = []
    blocks = list(_blocks(body, notes, last)) if body is not None else []
    blocks += [("reference", text) for note in last for _, text in _blocks(note, notes, [])]
    blocks = [(kind, text) for kind, text in ((kind, clean(text)) for kind, text in blocks) if text]
    return title or next((text for kind, text in blocks if kind == "heading"), ""), blocks


def _part(parts: SafeZip, name: str) -> Element | None:
    return parse_xml(parts.read(name), str(parts.path)) if name in parts.names else None


def _related(parts: SafeZip, of: str) -> dict[str, str]:
    """The parts that a part names, by what they are to it; "" is the whole file. Some programs number their names."""
    folder, name = posixpath.split(of)
    links = _part(parts, posixpath.join(folder, "_rels", f"{name}.rels"))
    return {
        link.get("Type", "").rpartition("/")[2]: posixpath.normpath(
            posixpath.join("/", folder, link.get("Target", ""))
        ).lstrip("/")
        for link in _children(links, "Relationship")
    }


def _children(node: Element | None, tag: str) -> Iterator[Element]:
    return iter(()) if node is None else (child for child in node if child.tag == tag)


def _value(node: Element, path: str) -> str:
    found = node.find(path)
    return "" if found is None else found.get("val") or ""


def _shown(node: Element) -> Iterator[Element]:
    """What is in a node and is shown, in order; what is apart comes whole, and nobody looks into it."""
    waiting = list(reversed(node))
    while waiting:
        child = waiting.pop()
        if child.tag in _GONE or child.get(GONE):
            continue
        if child.tag == "AlternateContent":
            # The same thing for newer and for older programs: one of them.
            waiting += [one for one in child if one.find(".//t") is not None][:1]
            continue
        yield child
        if child.tag not in _APART:
            waiting.extend(reversed(child))


def _blocks(node: Element, notes: _Notes, last: list[Element]) -> Iterator[tuple[Kind, str]]:
    """The paragraphs and tables of the body, a text box or a note; the endnotes that it names go to ``last``."""
    for child in _shown(node):
        behind: list[Element] = []
        if child.tag == "p":
            yield _kind(child, notes.styles), _text(child, behind)
        elif child.tag == "tbl":
            yield "text", "\n".join(CELL.join(_cells(row, behind)) for row in _shown(child) if row.tag == "tr")
        for one in behind:
            if one.tag == "txbxContent":
                yield from _blocks(one, notes, last)
            elif one.tag == "footnoteReference" and (note := notes.foot.pop(one.get("id", ""), None)) is not None:
                yield from _blocks(note, notes, last)
            elif one.tag == "endnoteReference" and (note := notes.end.pop(one.get("id", ""), None)) is not None:
                last.append(note)


def _text(paragraph: Element, behind: list[Element]) -> str:
    """A paragraph's own text; its text boxes and the notes that it names go to ``behind``."""
    written = Written()
    place = ""
    for node in _shown(paragraph):
        if node.tag in ("txbxContent", "footnoteReference", "endnoteReference"):
            behind.append(node)
        elif node.tag == "oMath":
            written.add(in_a_line(node))
        elif node.tag == "r":
            place = node.get(PLACE, "")
            if place == "subscript":
                written.begin_lowered()
        elif node.tag == "t" and place == "superscript":
            # One number may stand in several runs.
            written.add_raised(node.text or "", goes_on=True)
        elif node.tag == "t":
            written.add(node.text or "")
        else:
            written.add(_symbol(node) or _SIGNS.get(node.tag, ""))
    return written.whole().strip()


def _symbol(node: Element) -> str:
    """The sign of a ``sym``; nothing where it is a picture in a font of some other kind."""
    try:
        code = int(node.get("char", ""), 16) if node.tag == "sym" else 0
        place = code - 0xF000 if 0xF000 <= code <= 0xF0FF else code
        return _SYMBOLS.get(node.get("font", "").lower(), {}).get(place) or (
            "" if code != place else chr(code).strip("\0")
        )
    except ValueError:
        return ""


def _cells(row: Element, behind: list[Element]) -> Iterator[str]:
    for cell in _shown(row):
        if cell.tag == "tc":
            yield " ".join(_within(cell, behind))


def _within(cell: Element, behind: list[Element]) -> Iterator[str]:
    """The words of a cell, those of a table in it too."""
    for node in _shown(cell):
        if node.tag == "p":
            yield from _text(node, behind).split()
        elif node.tag == "tbl":
            for row in _shown(node):
                if row.tag == "tr":
                    yield from (word for text in _cells(row, behind) for word in text.split())


def _kind(paragraph: Element, styles: dict[str, str]) -> Kind:
    named = _value(paragraph, "pPr/pStyle")
    for name in (styles.get(named, ""), named):
        for beginning, kind in _STYLES.items():
            if name.lower().startswith(beginning):
                return kind
    return "heading" if _value(paragraph, "pPr/outlineLvl") in set("012345678") else "text"
