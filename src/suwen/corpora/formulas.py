"""Formulas as a line of text: what is divided, raised or lowered must not run together.

Half a milligram is "1/2 mg" and never "12 mg", and so many cells "10^9/l". Those of HTML and CNXML are MathML, Word has
elements of its own; of what is only set higher powers of ten are told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

#: What says the same again, or is not shown.
_UNSEEN = {"annotation", "annotation-xml", "mphantom", "phant", "del", "moveFrom"}
#: Signs that stand apart from what is on either side.
_APART = re.compile(r"[=+−±×÷<>≤≥≈≠→⟶∝·*-]+")
_WHOLE = re.compile(r"[\w.,%]*|\(.*\)", re.DOTALL)
#: What stands between the rows of a table of numbers, and within one.
_BETWEEN = {"mtable": "; ", "mtr": ", ", "m": "; ", "mr": ", "}
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
    ("mroot", 2): lambda under, degree: _root(under, degree),
    # Word's: a fraction, what is higher or lower, a root, a limit.
    ("f", 2): lambda above, below: f"{_one(above)}/{_one(below)}",
    ("sSup", 2): lambda base, raised: f"{_one(base)}^{_one(raised)}",
    ("sSub", 2): lambda base, lowered: f"{_one(base)}_{_one(lowered)}",
    ("sSubSup", 3): lambda base, lowered, raised: f"{_one(base)}_{_one(lowered)}^{_one(raised)}",
    ("sPre", 3): lambda lowered, raised, base: f"_{_one(lowered)}^{_one(raised)} {base}",
    ("rad", 1): lambda under: f"√{_one(under)}",
    ("rad", 2): lambda degree, under: _root(under, degree) if degree else f"√{_one(under)}",
    ("limLow", 2): lambda base, lowered: f"{base}_{_one(lowered)}",
    ("limUpp", 2): lambda base, raised: f"{base}^{_one(raised)}",
}


def in_a_line(formula: Element) -> str:
    """A formula as one line.

    >>> from xml.etree.ElementTree import fromstring
    >>> in_a_line(fromstring("<x><mfrac><mn>1</mn><mn>2</mn></mfrac><mo>=</mo><msup><mi>a</mi><mn>-1</mn></msup></x>"))
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
    if node.tag in ("mtext", "mspace") or (node.tag in ("mo", "t") and _APART.fullmatch(text.strip())):
        return f" {text} "
    inner = [child for child in node if not child.tag.endswith("Pr")]  # properties say nothing
    parts = [_said(child, depth + 1) for child in inner]
    if (join := _JOINED.get((node.tag, len(parts)))) is not None:
        return join(*(part.strip() for part in parts))
    # Text between elements belongs to no formula, and is not lost all the same.
    parts = [
        f"{part} {child.tail} " if (child.tail or "").strip() else part
        for part, child in zip(parts, inner, strict=True)
    ]
    if node.tag == "t":
        return text
    if node.tag in ("d", "nary"):
        return _with_signs(node, [part.strip() for part in parts])
    said = _BETWEEN.get(node.tag, "").join(filter(None, [text.strip(), *parts]))
    return f"√{_one(said.strip())}" if node.tag == "msqrt" else said


def _with_signs(node: Element, parts: list[str]) -> str:
    """Word's brackets and sums, whose signs are properties."""

    def sign(name: str, usual: str) -> str:
        found = node.find(f"{node.tag}Pr/{name}")
        return usual if found is None else found.get("val", "")

    if node.tag == "d":
        return sign("begChr", "(") + sign("sepChr", "|").join(parts) + sign("endChr", ")")
    *limits, of = parts or [""]
    ends = (f"{mark}{_one(limit)}" for mark, limit in zip("_^", limits, strict=False) if limit)
    return f"{sign('chr', '∫')}{''.join(ends)} {of}"


def _root(under: str, degree: str) -> str:
    return f"{_one(under)}^(1/{_one(degree)})"


def _one(part: str) -> str:
    """A part in brackets unless it stands together anyhow."""
    return part if _WHOLE.fullmatch(part) else f"({part})"
