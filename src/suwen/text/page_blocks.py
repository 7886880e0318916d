"""From lines in reading order to blocks: paragraphs made whole, and what each is. Furniture is gone before.

A paragraph that goes on over a figure, a column or a page is put together, and belongs to the page it begins on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from suwen.text.page_furniture import PageLines, without_furniture
from suwen.text.page_layout import BULLETS, CELL, Line
from suwen.text.page_repair import join_lines, repair, repair_scan
from suwen.text.split import sentences

Kind = Literal["text", "heading", "caption", "table", "reference", "note"]


#: The left and right end of each column.
Edges = dict[int, tuple[float, float]]


class Block(NamedTuple):
    """A stretch of a page that belongs together."""

    page: int
    kind: Kind
    text: str


#: Of the usual distance between lines: what is further apart are two paragraphs. Of the size: what is another one.
_APART, _OTHER_SIZE, _LARGER = 1.35, 0.12, 1.12
#: The same where sizes are guessed from a picture.
_OTHER_SCAN, _LARGER_SCAN = 0.35, 1.22
#: Characters of a sentence's second half: a page without a full stop is no sentence.
_LONGEST = 600
_INDENT = (0.8, 4.0)
#: The number or bullet that an item of a list begins with.
ITEM = re.compile(
    r"(?:[(（]\s?(?:\d{1,2}|[a-z]|[ivx]{1,4}|[一二三四五六七八九十]{1,3})\s?[)）]|\d{1,2}[.)、．](?!\d)|[①-⑳]"
    rf"|[{BULLETS.replace('·', '')}]|[-–—*] |[a-z][.)] |[一二三四五六七八九十]{1, 3}、)"
)
_CAPTION = re.compile(
    r"(?:(?:supplementary )?(?:figure|fig\.|table|box|chart|plate)\s?\d+(?:[.-]\d+)*[A-Za-z]?(?:[.:|]|\s+(?=[A-Z]))"
    r"|[图表]\s?\d+(?:[.\-－–]\d+)*(?:[.:：]|\s))",
    re.IGNORECASE,
)
_CAPTION_VERB = re.compile(r"\S+\s?\d+(?:[.-]\d+)*[a-z]?\s+[a-z]")
#: What a note at the foot of a page begins with, and how small it is beside the text.
_NOTED = re.compile(r"(?:\d{1,3}|[*＊†‡§¶#]+|[①-⑳]|注\s?\d*\s?[:：])\s*(?=\S)")
_SMALL, _LOW = 0.93, 0.5
_REFERENCES = re.compile(
    r"(?:\d+(?:\.\d+)*\.?\s+)?(?:references|bibliography|literature cited|further reading"
    r"|参考文献|参考资料|引用文献)[:：]?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"(?:\d+(?:\.\d+)*\.?\s+[A-Z\u4e00-\u9fff]|第[一二三四五六七八九十百\d]+[章节篇部]|(?:chapter|section|part)\s+\d)",
    re.I,
)
_CHAPTER = re.compile(
    r"(?:第[一二三四五六七八九十百\d]+[章节篇部]|(?:chapter|section|part)\s+\d).{0,80}$", re.IGNORECASE
)
#: A reader of pictures loses the space behind a number.
_HAN_HEADING = re.compile(r"(?:\d+(?:\.\d+)*\.?\s?)?[\u4e00-\u9fff]")
_ENDS = re.compile(r"[.!?。！？；;:：…][\"'”’」』）)\]】]*(?:\s?\[[\d,\s–-]+\]|[\d,–-]{1,12})?$")
#: A full stop that ends no sentence, at the end of a line.
_SHORT_FORM = re.compile(r"(?:^|[\s(])(?:Dr|Prof|Mrs?|Ms|St|vs|approx|Figs?|No|cf|e\.g|i\.e|et al|ca|Vol|pp?)\.$")
_GOES_ON = re.compile(r"[a-z0-9(（,，、\u4e00-\u9fff%<>≥≤~～+]|[A-Z][A-Za-z]*\d|[A-Z]{2,}")


def _ended(text: str) -> bool:
    """Whether a line or block ends as a sentence does."""
    return _ENDS.search(text) is not None and not _SHORT_FORM.search(text)


def blocks_of(pages: Iterable[PageLines]) -> Iterator[Block]:
    """The blocks of a book in reading order, streamed: some pages are held, never all."""
    references = False
    held: list[Block] = []
    for page in without_furniture(pages):
        for block in _page_blocks(page):
            if block.kind == "heading":
                references = _REFERENCES.fullmatch(block.text) is not None
            elif references and block.kind in ("text", "note"):
                block = block._replace(kind="reference")
            yield from _continued(held, block)
    yield from held


def marked_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """The lines of a text that has markup and no layout, by the same rules where the markup says nothing."""
    references = False
    for block in blocks:
        for line in filter(None, map(str.strip, block.text.splitlines())):
            kind = _kind_of_line(line) if block.kind == "text" else block.kind
            if kind == "heading":
                references = _REFERENCES.fullmatch(line) is not None
            elif references and kind == "text":
                kind = "reference"
            yield Block(block.page, kind, line)


def _kind_of_line(line: str) -> Kind:
    if CELL in line:
        return "table"
    if _CAPTION.match(line) and not _CAPTION_VERB.match(line):
        return "caption"
    # A number alone makes no heading here: the works that are cited have one too.
    return "heading" if _REFERENCES.fullmatch(line) or (_CHAPTER.match(line) and not _ended(line)) else "text"


def _continued(held: list[Block], block: Block) -> Iterator[Block]:
    """Put a block behind those that wait, or make the unfinished paragraph among them longer; what is whole leaves."""
    waiting = held and held[0].kind in ("text", "reference") and not _ended(held[0].text)
    if not waiting or block.kind == "heading" or block.page > held[0].page + 1:
        yield from held
        held[:] = [block]
    elif block.kind == held[0].kind and not ITEM.match(block.text) and _GOES_ON.match(block.text):
        text, rest = _over_the_page(held[0], block)
        held[0] = held[0]._replace(text=text)
        if rest or _ended(text):
            yield from held
            held[:] = [block._replace(text=rest)] if rest else []
    elif block.kind == held[0].kind:
        yield from held
        held[:] = [block]
    else:
        held.append(block)


def _over_the_page(begun: Block, block: Block) -> tuple[str, str]:
    """An unfinished paragraph with what finishes it, and the rest: of the next page its first sentence, no more."""
    joined = join_lines([begun.text, block.text])
    if begun.page == block.page:
        return joined, ""
    end = next((span.end for span in sentences(joined) if span.end > len(begun.text)), len(joined))
    if end - len(begun.text) > _LONGEST:
        return begun.text, block.text
    return joined[:end], joined[end:].strip()


def _page_blocks(page: PageLines) -> Iterator[Block]:
    prose = [line for line in page.lines if not line.is_row]
    weights = sorted((line.size, len(line.text)) for line in prose)
    body, edges = _middle(weights), _edges(prose)
    groups = list(_groups(page.lines, edges, _OTHER_SCAN if page.is_scan else _OTHER_SIZE))
    notes = set() if page.is_scan else _notes(groups, page.height, body)
    for number, group in enumerate(groups):
        text = "\n".join(line.text for line in group) if group[0].is_row else join_lines([line.text for line in group])
        text = repair_scan(text) if page.is_scan else repair(text)
        if text:
            larger = body * (_LARGER_SCAN if page.is_scan else _LARGER)
            yield Block(page.number, "note" if number in notes else _kind(group, text, larger, edges), text)


def without_mark(note: str) -> str:
    """A note without the sign by which the text names it."""
    return _NOTED.sub("", note, count=1)


def _notes(groups: Sequence[Sequence[Line]], height: float, body: float) -> set[int]:
    """Which groups are notes at the foot of their column: small print to its end, of which the first has a mark."""
    found: set[int] = set()
    last = {group[0].column: number for number, group in enumerate(groups)}
    for end in last.values():
        begin = end + 1
        while begin > 0 and _is_small(groups[begin - 1], groups[end][0].column, _LOW * height, _SMALL * body):
            begin -= 1
        begin = next((at for at in range(begin, end + 1) if _NOTED.match(groups[at][0].text)), end + 1)
        found.update(range(begin, end + 1))
    return found


def _is_small(group: Sequence[Line], column: int, top: float, size: float) -> bool:
    first = group[0]
    return first.column == column and first.top > top and not first.is_row and all(line.size < size for line in group)


def _middle(weights: Sequence[tuple[float, int]]) -> float:
    """The size of most of the text."""
    half, passed = sum(weight for _, weight in weights) / 2, 0
    for size, weight in weights:
        passed += weight
        if passed >= half:
            return size
    return 0.0


def _edges(prose: Iterable[Line]) -> Edges:
    """Where the lines of each column begin and end."""
    edges: Edges = {}
    for line in prose:
        left, right = edges.get(line.column, (line.left, line.right))
        edges[line.column] = (min(left, line.left), max(right, line.right))
    return edges


def _groups(lines: Sequence[Line], edges: Edges, other: float) -> Iterator[list[Line]]:
    """Lines that make one paragraph, heading or table."""
    pitch = _pitch(lines, other)
    group: list[Line] = []
    for line in lines:
        if group and _begins(group, line, pitch, edges, other):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _pitch(lines: Sequence[Line], share: float) -> float:
    steps = [
        other.top - one.top
        for one, other in pairwise(lines)
        if one.column == other.column and other.top > one.top and abs(other.size - one.size) < share * one.size
    ]
    # The smaller half: the larger ones have space between paragraphs in them.
    return median(sorted(steps)[: max(1, (len(steps) + 1) // 2)]) if steps else 0.0


def _begins(group: Sequence[Line], line: Line, pitch: float, edges: Edges, other: float) -> bool:
    last = group[-1]
    if line.is_row or last.is_row:
        return line.is_row != last.is_row or line.column != last.column
    if line.column != last.column:
        return True
    usual = max(pitch, 0.95 * min(line.size, last.size)) if pitch < 2.5 * line.size else line.size
    if line.top - last.top > _APART * usual or abs(line.size - last.size) > other * last.size:
        return True
    if ITEM.match(line.text) and (_ended(last.text) or ITEM.match(group[0].text) or _is_short(last, edges)):
        return True
    if _CAPTION.match(line.text) and not _CAPTION_VERB.match(line.text) and _is_short(last, edges):
        return True
    indent = (line.left - last.left) / line.size
    if _INDENT[0] < indent < _INDENT[1] and not ITEM.match(group[0].text):
        return len(group) > 1 or _is_short(last, edges) or _ended(last.text)
    return _is_short(last, edges) and (_ended(last.text) or _stands_alone(group, line, edges))


def _is_short(line: Line, edges: Edges, share: float = 0.88) -> bool:
    left, right = edges[line.column]
    return line.right + line.size < left + share * (right - left)


def _stands_alone(group: Sequence[Line], line: Line, edges: Edges) -> bool:
    """A single short line above one that begins anew: a heading without space below it."""
    return len(group) == 1 and _is_short(group[0], edges, 0.6) and not line.text[:1].islower()


def _kind(group: Sequence[Line], text: str, large: float, edges: Edges) -> Kind:
    if group[0].is_row:
        return "table"
    if _CAPTION.match(text) and not _CAPTION_VERB.match(text):
        return "caption"
    if len(group) <= 3 and not _ended(text) and len(text) < 160:
        larger = group[0].size > large
        alone = len(group) == 1 and _is_short(group[0], edges) and not ITEM.match(text) and text[:1].isupper()
        alone = alone or (
            len(group) == 1 and _is_short(group[0], edges) and len(text) < 25 and bool(_HAN_HEADING.match(text))
        )
        if larger or _REFERENCES.fullmatch(text) or (_NUMBERED.match(text) and len(text) < 80) or alone:
            return "heading"
    return "text"
