"""Formulas as a line of text: what is divided, raised or lowered must not run together.

Half a milligram is "1/2 mg" and never "12 mg", and so many cells "10^9/l". Those of HTML and CNXML are elements; of
what is only set higher, as in Word, powers of ten are told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

#: What says the same again, or is not shown.
_UNSEEN = {"annotation", "annotation-xml", "mphantom"}
#: Signs that stand apart from what is on either side.
_APART = re.compile(r"[=+−±×÷<>≤≥≈≠→⟶∝·*-]+")
_WHOLE = re.compile(r"[\w.,%]*|\(.*\)", re.DOTALL)
#: Formulas may not be nested without end: what is deeper is left out.
_DEEPEST = 60
#: What a power of ten is raised to, and a ten at the end. Behind another number it is as often a citation.
POWER = r"[+−–-]?\d{1,2}"
_TEN = re.compile(r"(?<![\d.,])10$")
#: How parts of these are put together, by how many there are.
_JOINED: dict[tuple[str, int], Callable[..., str]] = {
    ("mfrac", 2): lambda above, below: f"{_one(above)}/{_one(below)}",
    ("msup", 2): lambda base, raised: f"{_one(base)}^{_one(raised)}",
    ("mover", 2): lambda base, _: base,
    ("msub", 2): lambda base, lowered: f"{_one(base)}_{_one(lowered)}",
    ("munder", 2): lambda base, lowered: f"{base}_{_one(lowered)}",
    ("msubsup", 3): lambda base, lowered, raised: f"{_one(base)}_{_one(lowered)}^{_one(raised)}",
    ("munderover", 3): lambda base, lowered, raised: f"{base}_{_one(lowered)}^{_one(raised)}",
    ("mroot", 2): lambda under, degree: f"{_one(under)}^(1/{_one(degree)})",
}


def in_a_line(formula: Element) -> str:
    """A formula as one line.

    >>> from xml.etree.ElementTree import fromstring
    >>> in_a_line(fromstring("<m><mfrac><mn>1</mn><mn>2</mn></mfrac><mo>=</mo><msup><mi>a</mi><mn>-1</mn></msup></m>"))
    '1/2 = a^(-1)'
    """
    return " ".join(_said(formula, 0).split())


def raised(text: str, before: str) -> str:
    """A text that is set higher than what stands before it, as it is put behind that.

    >>> raised("9", "12 x 10"), raised("-3", "10"), raised("12", "mortality."), raised("2", "kg/m"), raised("3", "110")
    ('^9', '^-3', '12', '2', '3')
    """
    return f"^{text.lstrip()}" if _TEN.search(before) and re.fullmatch(POWER, text.strip()) else text


def _said(node: Element, depth: int) -> str:
    if node.tag in _UNSEEN or depth > _DEEPEST:
        return ""
    text = node.text or ""
    if node.tag in ("mtext", "mspace") or (node.tag == "mo" and _APART.fullmatch(text.strip())):
        return f" {text} "
    parts = [_said(child, depth + 1) for child in node]
    if (join := _JOINED.get((node.tag, len(parts)))) is not None:
        return join(*(part.strip() for part in parts))
    # Text between elements belongs to no formula, and is not lost all the same.
    parts = [
        f"{part} {child.tail} " if (child.tail or "").strip() else part for part, child in zip(parts, node, strict=True)
    ]
    said = {"mtable": "; ", "mtr": ", "}.get(node.tag, "").join(filter(None, [text.strip(), *parts]))
    return f"√{_one(said.strip())}" if node.tag == "msqrt" else said


def _one(part: str) -> str:
    """A part in brackets unless it stands together anyhow."""
    return part if _WHOLE.fullmatch(part) else f"({part})"
