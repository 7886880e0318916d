"""Formulas as a line of text: what is divided, raised or lowered must not run together.

Half a milligram is "1/2 mg" and never "12 mg", and so many cells "10^9/l". Those of HTML and CNXML are MathML, Word has
elements of its own. Of what is only set higher, as in ``Written``, no digit joins the number beside it.
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
_SIGNED = re.compile(r"\s*[+−–-]?\d")
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


def raised(text: str, before: str, *, is_note: bool = False) -> str:
    """A text that is set higher than what stands before it, as it is put behind that: no digit joins a number.

    Powers and notes look alike: only of a note that is known to be one it is said.

    >>> raised("9", "12 x 10"), raised("-3", "10"), raised("12", "mortality."), raised("2", "kg/m"), raised("1", "30")
    ('^9', '^-3', '12', '2', '^1')
    >>> raised("1", "30", is_note=True)
    ' [1]'
    """
    if not (before[-1:].isdigit() and _SIGNED.match(text)):
        return text
    return f" [{text.strip()}]" if is_note else f"^{text.lstrip()}"


class Written:
    """A text as it comes, piece by piece: what is set higher or lower runs into no number beside it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._raised = self._number = -1  # the place of what is set higher last, and of a number behind another one

    def add(self, text: str) -> None:
        """What stands on the line."""
        if text:
            is_run_into = text[0].isdigit() and self._is_raised() and self._pieces[-1][-1].isdigit()
            self._pieces.append(f" {text}" if is_run_into else text)

    def add_raised(self, text: str, *, goes_on: bool = False, is_note: bool = False) -> None:
        """What is set higher than the piece before it, or goes on with one that is."""
        if goes_on and self._is_raised():
            self._pieces[-1] += text
        elif text:
            before = self.end()
            if text.strip().isdigit() and before.isdigit():
                self._number = len(self._pieces)
            self._pieces.append(raised(text, before, is_note=is_note))
            self._raised = len(self._pieces) - 1

    def begin_lowered(self) -> None:
        """What comes is set lower: behind a number, one that is higher and a stroke it is one and a half, not 11/2."""
        if self._number == len(self._pieces) - 2 and self._pieces[-1].strip() in ("/", "⁄"):
            self._pieces[-2] = f" {self._pieces[-2].strip().lstrip('^')}"

    def end(self) -> str:
        """The last sign; nothing where there is none."""
        return self._pieces[-1][-1] if self._pieces else ""

    def begins_line(self) -> bool:
        """Whether nothing but space stands before what comes on its line."""
        return "".join(self._pieces[-3:]).rstrip(" ")[-1:] in ("", "\n")

    def whole(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    def _is_raised(self) -> bool:
        return self._raised == len(self._pieces) - 1 >= 0


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
