"""What the tags and styles of an HTML page say of its text: what is crossed out, hidden, set higher. Reads no text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

#: How text may be marked: not read at all, not shown (but formulas are read there: what is shown of one is a picture),
#: of the head of a page, a decoration, set higher, leading somewhere.
Mark = Literal["unread", "hidden", "head", "ornament", "raised", "link"]
VOID = frozenset(
    "br hr img input link meta area base col embed source track wbr param".split()  # noqa: SIM905
)
BREAKS = frozenset(
    "p div section article main header footer aside h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table thead tbody tr caption "  # noqa: SIM905
    "figure figcaption blockquote pre address form fieldset details summary br hr title".split()
)
CELLS = frozenset({"td", "th"})
_UNREAD = frozenset("script style template noscript nav svg iframe object s del strike".split())  # noqa: SIM905
_BLOCKS = (BREAKS | CELLS | _UNREAD | {"head", "body", "tfoot", "details", "dialog"}) - {"s", "del", "strike"} - VOID
#: Tags and attributes that may mark text.
_MARKED = _UNREAD | {"head", "sup"}
_SAYING = frozenset({"style", "hidden", "aria-hidden", "href"})
_NOT_IN_P = BREAKS - VOID - {"title"}
#: What ends by the next of its kind, up to what: tags may be left out.
_LIST, _ROW = ("ul", "ol"), ("table",)
_ENDED: dict[str, tuple[Collection[str], Collection[str]]] = {
    "li": (("li",), _LIST),
    **dict.fromkeys(("dt", "dd"), (("dt", "dd"), ("dl",))),
    **dict.fromkeys(("td", "th"), (CELLS, ("tr", "table"))),
    "tr": (("tr",), _ROW),
    **dict.fromkeys(("thead", "tbody", "tfoot"), (("thead", "tbody", "tfoot"), _ROW)),
}
#: What ends within these ends nothing outside of them.
_SCOPE = frozenset({"table", "td", "th", "caption", "template", "object"})
_STRUCK = re.compile(r"text-decoration(?:-line)?\s*:[^;}]*line-through", re.IGNORECASE)
_GONE = re.compile(r"display\s*:\s*none|mso-hide\s*:\s*all", re.IGNORECASE)
_HIGHER = re.compile(r"vertical-align\s*:\s*super", re.IGNORECASE)
_SHEET = re.compile(r"<style[^>]*>(.*?)</style", re.IGNORECASE | re.DOTALL)
_RULE = re.compile(r"([^{}]*)\{([^{}]*)\}")
_CLASS = re.compile(r"\s*[a-z]*\.([\w-]+)\s*", re.IGNORECASE)
#: What a button of the page opens; tabs are opened, too.
_OPENED = re.compile(r"""aria-controls\s*=\s*["']?([^"'>]+)""", re.IGNORECASE)


class Styles(NamedTuple):
    """What style sheets say of classes: those that cross out, and those that set higher."""

    struck: frozenset[str] = frozenset()
    higher: frozenset[str] = frozenset()


def styles_of(sheets: Iterable[str]) -> Styles:
    """The classes of style sheets, where a rule is for a class alone.

    >>> styles_of([".gone, p.old {text-decoration: line-through} a:hover {color: red}"]).struck == {"gone", "old"}
    True
    """
    struck, higher = set[str](), set[str]()
    for sheet in sheets:
        for selectors, rule in _RULE.findall(re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)):
            names = {found[1] for one in selectors.split(",") if (found := _CLASS.fullmatch(one))}
            struck |= names if _STRUCK.search(rule) else set()
            higher |= names if _HIGHER.search(rule) else set()
    return Styles(frozenset(struck), frozenset(higher))


def sheets_in(page: str) -> list[str]:
    """The style sheets that a page holds itself."""
    return _SHEET.findall(page)


class OpenTags:
    """The tags that are open where a page is read, and how they mark the text in them; ``marked`` counts the marks."""

    def __init__(self, page: str, styles: Styles) -> None:
        own = styles_of(sheets_in(page))
        self._styles = Styles(styles.struck | own.struck, styles.higher | own.higher)
        self._saying = _SAYING | ({"class"} if any(self._styles) else set())
        self._opened = {name for names in _OPENED.findall(page) for name in names.split()}
        self._open: list[tuple[str, Sequence[Mark]]] = []
        self.marked = 0
        self._tags: dict[str, int] = {}
        self._marks: dict[Mark, int] = dict.fromkeys(get_args(Mark), 0)

    def is_marked(self, *marks: Mark) -> bool:
        """Whether what comes is marked so, in one of these ways."""
        return any(map(self._marks.__getitem__, marks))

    def begin(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> Sequence[Mark]:
        """Note a tag; its own marks."""
        if tag in VOID:
            return ()
        if tag == "body" or (self._open and self._open[-1][0] == "head" and tag in _NOT_IN_P):
            self._cut(0)  # a head that was never closed
        if tag in _NOT_IN_P:
            self._end(("p",), _SCOPE)
        if tag in _ENDED:
            self._end(*_ENDED[tag])
        # Most tags say nothing; a page has many.
        says = tag in _MARKED or any(name in self._saying for name, _ in attrs)
        marks = tuple(self._of(tag, {name: value or "" for name, value in attrs})) if says else ()
        self._open.append((tag, marks))
        self._tags[tag] = self._tags.get(tag, 0) + 1
        for mark in marks:
            self._marks[mark] += 1
        self.marked += len(marks)
        return marks

    def end(self, tag: str) -> None:
        """Note the end of a tag."""
        if tag in _BLOCKS:
            self._end((tag,), () if tag in _SCOPE or tag in _ENDED else _SCOPE)
        elif self._tags.get(tag):
            # What crosses out by letters goes on behind another such tag that ends within.
            place = next(at for at in reversed(range(len(self._open))) if self._open[at][0] == tag)
            self._forget(self._open.pop(place))

    def _of(self, tag: str, said: dict[str, str]) -> Iterable[Mark]:
        if tag in ("html", "body"):
            return  # some are hidden until their scripts run
        style, classes = said.get("style", ""), said.get("class", "").split()
        if tag in _UNREAD or _STRUCK.search(style) or not self._styles.struck.isdisjoint(classes):
            yield "unread"
        if tag == "head":
            yield "head"
        is_hidden = said.get("hidden", "until-found").lower() != "until-found" or _GONE.search(style)
        if is_hidden and said.get("role") != "tabpanel" and said.get("id") not in self._opened:
            yield "hidden"
        if said.get("aria-hidden") == "true":
            # Of a formula that KaTeX or MathJax has set this is what is seen, and the MathML beside it says the same.
            yield "unread" if tag == "nobr" or "katex-html" in classes else "ornament"
        if tag == "sup" or _HIGHER.search(style) or not self._styles.higher.isdisjoint(classes):
            yield "raised"
        if tag == "a" and "href" in said:
            yield "link"

    def _end(self, tags: Collection[str], outer: Collection[str]) -> None:
        """End the last of these tags, and what is in it, unless one of the outer ones is in between."""
        if not any(map(self._tags.get, tags)):
            return
        for place in reversed(range(len(self._open))):
            if self._open[place][0] in tags:
                self._cut(place)
            if place >= len(self._open) or self._open[place][0] in outer:
                return

    def _cut(self, place: int) -> None:
        for one in self._open[place:]:
            self._forget(one)
        del self._open[place:]

    def _forget(self, one: tuple[str, Sequence[Mark]]) -> None:
        self._tags[one[0]] -= 1
        for mark in one[1]:
            self._marks[mark] -= 1
        self.marked -= len(one[1])
