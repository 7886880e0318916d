"""How a Word file shows its runs of text, by their own properties and their styles: crossed out, hidden, set higher."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree.ElementTree import Element

#: What runs are marked with that are not shown or are crossed out, and those set ``superscript`` or ``subscript``.
GONE, PLACE = "suwen-gone", "suwen-place"
_UNREAD = ("vanish", "strike", "dstrike")
_LOOKS = (*_UNREAD, "vertAlign", "position")
#: Styles are based on each other, in damaged files without end.
_DEEPEST = 20


def mark_runs(parts: Iterable[Element | None], styles: Mapping[str, Element]) -> None:
    """Mark the runs in these parts that are not read as they stand, with :data:`GONE` or :data:`PLACE`."""
    known: dict[str, dict[str, str]] = {}

    def style(node: Element, path: str) -> dict[str, str]:
        named = node.find(path)
        name = "" if named is None else named.get("val", "")
        if name not in known:
            known[name] = _of_style(name, styles)
        return known[name]

    for part in parts:
        for paragraph in part.iter("p") if part is not None else ():
            usual = style(paragraph, "pPr/pStyle")
            for run in paragraph.iter("r"):  # of a text box in it, too: those are marked anew behind it
                _mark(run, usual | style(run, "rPr/rStyle") | _own(run))


def _mark(run: Element, looks: Mapping[str, str]) -> None:
    run.attrib.pop(GONE, None)
    run.attrib.pop(PLACE, None)
    if any(looks.get(name, "0") not in ("0", "false", "off") for name in _UNREAD):
        run.set(GONE, "1")
    place = looks.get("vertAlign", "")
    if place in ("superscript", "subscript"):
        run.set(PLACE, place)
    elif looks.get("position", "").lstrip("+").isdecimal() and int(looks["position"]) > 0:
        run.set(PLACE, "superscript")


def _own(node: Element) -> dict[str, str]:
    properties = node.find("rPr")
    found = () if properties is None else (one for one in properties if one.tag in _LOOKS)
    return {one.tag: one.get("val", "1") for one in found}


def _of_style(name: str, styles: Mapping[str, Element]) -> dict[str, str]:
    """What a style says, and those that it is based on."""
    looks: dict[str, str] = {}
    for _ in range(_DEEPEST):
        if (style := styles.get(name)) is None:
            break
        looks = _own(style) | looks
        based = style.find("basedOn")
        name = "" if based is None else based.get("val", "")
    return looks
