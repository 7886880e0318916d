"""Sentences and passages as character offsets into the text. No tokenizer lives here: the caller brings the counter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from suwen.errors import SuwenError

#: Counts the tokens of each text of a batch.
TokenCounter = Callable[[Sequence[str]], list[int]]


class Span(NamedTuple):
    """A stretch of a text: ``text[start:end]``."""

    start: int
    end: int


class SplitError(SuwenError):
    """The sizes asked for cannot be met."""


_CLOSERS = "”’」』）】》〉\"')\\]"
_STOP = re.compile(rf"(?P<mark>[。！？｡；…!?.]+)[{_CLOSERS}]*|[\n\r\v\f\x85\u2028\u2029]+")
_CLAUSE = re.compile(rf"(?:[，、；：]|[,;:](?=\s|[^\x00-\x7f]))[{_CLOSERS}]*")
_HARD_MARKS = frozenset("。！？｡；…")
_VISIBLE = re.compile(r"\S")
_LAST_WORDS = re.compile(r"(?:([^\s().,;]+)\s+)?([^\s()\[\],;]+)$")
_ABBREVIATION = re.compile(
    # Prescriptions (b.i.d., p.o., q.d.) and titles too: what follows in capitals is still the same sentence.
    r"dr|pts?|ph\.d|mrs?|ms|prof|st|sr|jr|vs|e\.?g|i\.?e|cf|al|figs?|tab|eq|refs?|vol|pp|approx|ca|dept|spp?|subsp|var|resp|viz"
    r"|b\.i\.d|t\.i\.d|q\.i\.d|p\.o|i\.v|i\.m|s\.c|p\.r\.n|q\.d|inj|max|min|temp|vit|chap|sect|suppl|incl",
    re.IGNORECASE,
)
_BEFORE_NUMBER = re.compile("secs?|nos?|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec", re.IGNORECASE)
# After these a single letter is a name of its own (vitamin D. Hepatitis B.), not somebody's initial.
_LETTERED = re.compile("vitamins?|hepatitis|type|group|grade|class|stage|factor|phase|influenza|protein|arm")
# What begins a sentence behind "et al."; anything else may be a journal or a name.
_BEGINS = re.compile(
    r"(?:The|This|That|These|Those|There|It|In|A|An|We|They|He|She|However|But|Although|For|At|On|If|When|As|Of|Our)\s"
)
_INITIALS = re.compile(r"(?:[A-Z]\.)+[A-Z]")
# How far back an abbreviation can matter; also what keeps the look-back constant in time.
_LOOK_BACK = 40
# Characters that a pattern is looked for in at once: three milliseconds.
_WINDOW = 64 * 1024
# A tokenizer may call a megabyte of base64 one unknown word. No writing has words this long on average, so a text
# weighs at least its length over this.
_CHARACTERS_PER_TOKEN = 16
_BATCH_TEXTS = 1024
_BATCH_CHARACTERS = 1_000_000


def sentences(text: str) -> list[Span]:
    """Split ``text`` into sentences, Chinese or English; a new line always ends one.

    The spans come in order, do not overlap, neither start nor end with white space, and leave out white space only.

    >>> text = "空腹血糖7.5mmol/L。建议复查！See Fig. 2 (Dr. Wu). Rest."
    >>> [text[start:end] for start, end in sentences(text)]
    ['空腹血糖7.5mmol/L。', '建议复查！', 'See Fig. 2 (Dr. Wu).', 'Rest.']
    """
    return list(_trimmed(text, pairwise(_boundaries(text))))


def passages(text: str, size: int = 200, overlap: int = 40, *, count: TokenCounter) -> list[Span]:
    """Pack whole sentences of ``text`` into passages of at most ``size`` tokens.

    A passage repeats the last sentences of the one before it, as many as fit in ``overlap`` tokens. A sentence longer
    than ``size`` is cut at its commas, or where it has none after about ``size`` tokens, and its pieces are then
    treated as sentences. The size of a passage is the sum over its sentences, so ``count`` should leave special
    tokens out. A single character that ``count`` makes longer than ``size`` is the one thing that may exceed it.

    Raises:
        SplitError: ``size`` is below 1, or ``overlap`` is not between 0 and ``size - 1``.
    """
    if size < 1 or not 0 <= overlap < size:
        raise SplitError(
            f"cannot cut passages of {size} tokens with an overlap of {overlap}: "
            "size must be at least 1 and overlap at least 0 and smaller than size"
        )
    spans, weights = _units(text, size, count)
    return [Span(spans[first].start, spans[last].end) for first, last in _packed(weights, size, overlap)]


def _boundaries(text: str) -> Iterator[int]:
    start = 0
    yield start
    for match in _found(_STOP, text, 0, len(text)):
        mark = match["mark"]
        if mark is None or _ends_sentence(text, start, match, mark):
            start = match.end()
            yield start
    yield len(text)


def _found(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """What ``finditer`` finds, looked for a window at a time: no other thread runs while a pattern is looked for."""
    while start < end:
        # One character more than the window: a pattern may look at what comes next.
        edge = min(end, start + _WINDOW + 1)
        match = pattern.search(text, start, edge)
        if match is None:
            start = edge if edge == end else edge - 1
            continue
        if match.end() == edge < end:
            # It may go on behind the window, and begins where it does.
            match = pattern.match(text, match.start(), end) or match
        yield match
        start = match.end()


def _ends_sentence(text: str, start: int, match: re.Match[str], mark: str) -> bool:
    if not _HARD_MARKS.isdisjoint(mark):
        return True
    before = text[match.start() - 1] if match.start() > start else ""
    after = text[match.end()] if match.end() < len(text) else " "
    if not after.isspace():
        return _is_han(after) and (_is_han(before) or "." not in mark or _ends_latin(text, start, match.start()))
    if mark.strip("."):
        return True
    following = _VISIBLE.search(text, match.end())
    # "5 mg. daily", "et al. found": what goes on in lower case is the same sentence.
    if following and following[0].islower():
        return False
    return len(mark) > 1 or not _abbreviates(text[max(start, match.start() - _LOOK_BACK) : match.start()], following)


def _ends_latin(text: str, start: int, at: int) -> bool:
    """Whether a stop right before Chinese ends a sentence: behind a unit or word, not behind a list's 1. or A."""
    words = _LAST_WORDS.search(text[max(start, at - _LOOK_BACK) : at])
    return words is not None and words[2][-2:].isalpha() and words[2][-1].islower() and not _abbreviates(words[2], None)


def _abbreviates(before: str, following: re.Match[str] | None) -> bool:
    words = _LAST_WORDS.search(before)
    if words is None:
        return False
    previous, last = (words[1] or "").lower(), words[2]
    if last.isascii() and last.isdigit():
        return before.strip() == last and len(last) <= 3  # the number of a list item
    if _BEFORE_NUMBER.fullmatch(last):
        return following is not None and following[0].isdigit()
    if len(last) == 1 and last.isascii() and last.isupper():
        return _LETTERED.fullmatch(previous) is None
    if last == "al" and following is not None and _BEGINS.match(following.string, following.start()):
        return False
    return _ABBREVIATION.fullmatch(last) is not None or _INITIALS.fullmatch(last) is not None


def _is_han(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or character >= "\U00020000"


def _trimmed(text: str, edges: Iterable[tuple[int, int]]) -> Iterator[Span]:
    for start, end in edges:
        piece = text[start:end]
        left = len(piece) - len(piece.lstrip())
        if left < len(piece):
            yield Span(start + left, start + len(piece.rstrip()))


def _units(text: str, size: int, count: TokenCounter) -> tuple[list[Span], list[int]]:
    """The sentences, with those over ``size`` cut in pieces, and the weight of each in tokens.

    Each round at least halves what is still too long, so the rounds are few and the whole is linear.
    """
    spans = sentences(text)
    weights = _weigh(text, spans, size, count)
    while any(weight > size and span.end - span.start > 1 for span, weight in zip(spans, weights, strict=True)):
        pieces = [
            _cut(text, span, weight, size) if weight > size else [span]
            for span, weight in zip(spans, weights, strict=True)
        ]
        fresh = iter(_weigh(text, [piece for group in pieces if len(group) > 1 for piece in group], size, count))
        weights = [
            next(fresh) if len(group) > 1 else weight
            for group, weight in zip(pieces, weights, strict=True)
            for _ in group
        ]
        spans = [piece for group in pieces for piece in group]
    return spans, weights


def _cut(text: str, span: Span, weight: int, size: int) -> list[Span]:
    """Cut a span at its clauses, or into about equal pieces where it has none."""
    marks = [match.end() for match in _found(_CLAUSE, text, span.start, span.end)]
    clauses = list(_trimmed(text, pairwise([span.start, *marks, span.end])))
    if len(clauses) > 1 or span.end - span.start == 1:
        return clauses
    step = -(-(span.end - span.start) // -(-weight // size))
    edges = [span.start]
    while span.end - edges[-1] > step:
        ideal = edges[-1] + step
        space = text.rfind(" ", ideal - step // 2, ideal)
        edges.append(space if space > edges[-1] else ideal)
    return list(_trimmed(text, pairwise([*edges, span.end])))


def _weigh(text: str, spans: Sequence[Span], size: int, count: TokenCounter) -> list[int]:
    floors = [-(-(end - start) // _CHARACTERS_PER_TOKEN) for start, end in spans]
    # What is too long by its characters alone is cut before anybody counts it.
    counted = [index for index, floor in enumerate(floors) if floor <= size]
    for batch in _batches(counted, spans):
        tokens = count([text[spans[index].start : spans[index].end] for index in batch])
        for index, number in zip(batch, tokens, strict=True):
            floors[index] = max(floors[index], number)
    return floors


def _batches(indices: Iterable[int], spans: Sequence[Span]) -> Iterator[list[int]]:
    batch: list[int] = []
    characters = 0
    for index in indices:
        batch.append(index)
        characters += spans[index].end - spans[index].start
        if len(batch) >= _BATCH_TEXTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _packed(weights: Sequence[int], size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """First and last unit of each passage; every passage takes at least one unit no passage had before."""
    floor = new = 0
    while new < len(weights):
        first, total, repeated = new, weights[new], 0
        while first > floor and repeated + weights[first - 1] <= overlap and total + weights[first - 1] <= size:
            first -= 1
            repeated += weights[first]
            total += weights[first]
        last = new
        while last + 1 < len(weights) and total + weights[last + 1] <= size:
            last += 1
            total += weights[last]
        yield first, last
        # The next passage starts after this one did, or it would hold all of it.
        floor, new = first + 1, last + 1
