"""What a vision model wrote about a page as lines: its marks of places, debug lines and Markdown gone. Asks no model.

The marks are those of DeepSeek-OCR, ``<|ref|>title<|/ref|><|det|>[[10, 20, 300, 40]]<|/det|>`` before each piece, and
the debug lines those that its published code prints; a model that writes plain Markdown is read as well.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from suwen.text.clean import clean
from suwen.text.page_layout import CELL, Line

#: What pieces are called; between the marks of any other reference stands text of the page.
_KINDS = re.compile(
    r"(?:sub_?)?title|text|list|table|image|equation|formula|figure|chart|code|(?:(?:image|table)_)?(?:caption|footnote)"
    r"|header|footer|page_number|reference|abstract"
)
#: Pieces that are no text of a page, and those that a book prints around it.
_NO_TEXT = frozenset({"image", "figure", "chart", "header", "footer", "page_number"})
_REF = re.compile(r"<\|ref\|>(.*?)<\|/ref\|>", re.DOTALL)
_PLACE = re.compile(r"<\|det\|>.*?<\|/det\|>|<\|[a-z_/]+\|>|<｜[^｜<>]{1,40}｜>", re.DOTALL)
_DEBUG = re.compile(
    r"^[ \t]*(?:={3,}|-{4,}|\*{4,}|NO PATCHES|(?:image size|valid image tokens|output texts tokens(?: \(valid\))?"
    r"|compression ratio):\s*[\d(][\d., ()x]*|(?:BASE|PATCHES)?.*torch\.Size\(.*|```(?:markdown|html|text)?)[ \t]*$\n?",
    re.MULTILINE | re.IGNORECASE,
)
_MARKDOWN = re.compile(
    r"\*\*|__(?=\w)|(?<=\w)__|</?(?:center|b|i|strong|em|sup|sub|p|div)\s*/?>|!\[[^\]]*\]\([^)]*\)|\\[()]",
    re.IGNORECASE,
)
_HEADING = re.compile(r" {0,3}#{1,6}\s+")
_ROW = re.compile(r"<tr.*?>(.*?)</tr>", re.DOTALL | re.IGNORECASE)
_CELLS = re.compile(r"<t[dh].*?>(.*?)</t[dh]>", re.DOTALL | re.IGNORECASE)
_TABLE = re.compile(r"<table.*?</table>", re.DOTALL | re.IGNORECASE)
_RULE = re.compile(r"\|?[\s:|-]+\|?")
#: Points: of a line, of a heading, from line to line, and over a blank one. Lengths are only compared with each other.
_SIZE, _LARGE, _STEP, _APART, _WIDE = 10.0, 14.0, 12.0, 36.0, 400.0


def lines_of(reply: str) -> tuple[float, list[Line]]:
    r"""The height of a page and its lines, from what a model wrote about it.

    >>> lines_of("<|ref|>title<|/ref|><|det|>[[9, 9, 99, 20]]<|/det|>\n# Gout\n\nUric **acid**.")[1][1].text
    'Uric acid.'
    """
    lines: list[Line] = []
    top = 0.0
    for paragraph in re.split(r"\n\s*\n", _without_marks(reply)):
        told = list(_lines(paragraph))
        longest = max((len(text) for text, _, _ in told), default=1)
        for text, size, is_row in told:
            right = _WIDE if len(told) == 1 or len(text) > 0.8 * longest else _WIDE * len(text) / longest
            lines.append(Line(text, 0.0, top, right, top + size, size, 0, is_row))
            top += _STEP
        top += _APART - _STEP if told else 0.0
    return max(top, _APART), lines


def _without_marks(reply: str) -> str:
    """The pieces of a page that are text, a blank line between them."""
    parts = _REF.split(_DEBUG.sub("", clean(reply)))
    kept = [parts[0]]
    for name, said in zip(parts[1::2], parts[2::2], strict=True):
        kind = name.strip().lower()
        if not _KINDS.fullmatch(kind):
            kept.append(f"{name}\n{said}")
        elif kind not in _NO_TEXT:
            kept.append(said)
    return _PLACE.sub("", "\n\n".join(kept))


def _lines(paragraph: str) -> Iterator[tuple[str, float, bool]]:
    """The lines of a paragraph: text, size, and whether it is a table's row."""
    if _TABLE.search(paragraph):
        before, after = _TABLE.split(paragraph, maxsplit=1)
        found = _TABLE.search(paragraph)
        assert found is not None
        yield from _lines(before)
        for row in _ROW.findall(found[0]):
            yield _cells(_CELLS.findall(row))
        yield from _lines(after)
        return
    for line in paragraph.split("\n"):
        bare = line.strip()
        if bare.startswith("|") and bare.endswith("|") and len(bare) > 1:
            if not _RULE.fullmatch(bare):
                yield _cells(bare.strip("|").split("|"))
        elif text := _plain(_HEADING.sub("", line)):
            yield text, _LARGE if _HEADING.match(line) else _SIZE, False


def _cells(cells: list[str]) -> tuple[str, float, bool]:
    return CELL.join(_plain(re.sub(r"<[^<>]*>", " ", cell)) for cell in cells), _SIZE, True


def _plain(text: str) -> str:
    return clean(html.unescape(_MARKDOWN.sub("", text.replace("<br>", " ").replace("<br/>", " "))))
