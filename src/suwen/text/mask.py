"""Masking of personal data: finds it by rules and puts a mask of its kind there, the same for the same person.

The rules are in ``mask_numbers``, ``mask_zh`` and ``mask_en``. Nothing here asks a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

from suwen.errors import SuwenError
from suwen.text import mask_en, mask_numbers, mask_zh
from suwen.text.mask_view import HAN, Place, Rule, View, apart, compiled

#: The kinds of personal data, each with the word its masks carry in a Chinese and in an English text.
KINDS: dict[str, tuple[str, str]] = {
    "id_card": ("身份证", "IDCARD"),
    "bank_card": ("银行卡", "BANKCARD"),
    "email": ("邮箱", "EMAIL"),
    "ssn": ("社保号", "SSN"),
    "birth": ("出生日期", "BIRTH"),
    "phone": ("电话", "PHONE"),
    "record": ("病历号", "RECORD"),
    "bed": ("床号", "BED"),
    "address": ("地址", "ADDRESS"),
    "name": ("姓名", "NAME"),
}
# In the order they run: the surest first, since what one rule takes the next no longer sees.
_RULES: tuple[tuple[str, Rule], ...] = (
    ("email", mask_numbers.email),
    ("id_card", mask_numbers.id_card),
    ("record", mask_numbers.record),
    ("bank_card", mask_numbers.bank_card),
    ("ssn", mask_numbers.ssn),
    ("birth", mask_numbers.birth),
    ("phone", mask_numbers.phone),
    ("bed", mask_numbers.bed),
    ("address", mask_zh.address),
    ("address", mask_en.address),
    ("name", mask_zh.name),
    ("name", mask_en.name),
)
#: A mask as it stands in a text.
MASK = re.compile(
    rf"\[(?P<word>{'|'.join(word for words in KINDS.values() for word in words)})(?P<number>[0-9]{{1,6}})\]"
)
_KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
_ANY_HAN = re.compile(f"[{HAN}]")
_LATIN_WORD = compiled(r"[A-Z]\.|[A-Za-z]+(?:['-][A-Za-z]+)*")
_LONGEST_LATIN_NAME = 5  # words
# Shapes alone, whatever stands before them and whether or not their check digits are right.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("email", re.compile(r"[^\s@]{1,64}@[a-zA-Z0-9-]{1,63}\.[a-zA-Z]{2,}")),
    ("id_card", compiled(r"(?<!\d)\d{17}[\dXx](?!\d)")),
    ("bank_card", compiled(r"(?<!\d)[3-6]\d{3}(?:[ -]?\d{4}){3}(?:[ -]?\d{1,3})?(?!\d)")),
    ("phone", compiled(r"(?<!\d)1[3-9]\d[ -]?\d{4}[ -]?\d{4}(?!\d)")),
)


class MaskError(SuwenError):
    """Masking was asked for something it does not know."""


class Span(NamedTuple):
    """Personal data at ``text[start:end]`` of the text that was given, and the mask put there."""

    start: int
    end: int
    kind: str
    replacement: str
    original: str


class Masked(NamedTuple):
    """A text with its personal data masked, and what was masked, in order."""

    text: str
    spans: list[Span]


class Masker:
    """Masks the passages of one document: who is [姓名1] in one is [姓名1] in all.

    ``kinds`` limits the masking; ``counters`` is the last number used of each kind and goes on where it stands. A
    masker belongs to one document: with one masker for many, the masks would tell who is in several of them.

    >>> masker = Masker()
    >>> masker.mask("患者王小明，男，电话13912345678。").text
    '患者[姓名1]，男，电话[电话1]。'
    >>> masker.mask("王小明今日出院。").text
    '[姓名1]今日出院。'
    """

    def __init__(self, kinds: Collection[str] | None = None, counters: MutableMapping[str, int] | None = None) -> None:
        self.kinds = _known(kinds)
        self.counters = {} if counters is None else counters
        self._masks: dict[tuple[str, str], str] = {}
        self._originals: dict[str, str] = {}
        self._names: set[str] = set()

    @property
    def key(self) -> dict[str, str]:
        """What each mask stands for, for ``unmask``. Whoever holds it can undo the masking: keep it apart."""
        return dict(self._originals)

    def learn(self, text: str) -> None:
        """Take the names of ``text`` to mind without masking it, so that they are known in every passage."""
        self._find(text)

    def mask(self, text: str) -> Masked:
        """Mask ``text``. Masks already there stay as they are, and their numbers are not given again."""
        for old in MASK.finditer(text):
            kind = _KIND_OF[old["word"]]
            if old[0] not in self._originals:
                self.counters[kind] = max(self.counters.get(kind, 0), int(old["number"]))
        language = 0 if _ANY_HAN.search(MASK.sub("", text)) else 1
        spans = []
        for (start, end), kind in self._find(text):
            original = text[start:end]
            spans.append(Span(start, end, kind, self._mask_of(kind, original, language), original))
        return Masked(_replaced(text, spans), spans)

    def _find(self, text: str) -> list[tuple[Place, str]]:
        """Everything the rules and the known names find, looked for until nothing new turns up.

        A mask can uncover the next find, as a closed bracket ends a name; going on until the view is still is what
        makes masking twice the same as masking once.
        """
        view = View.of(text, (Place(*old.span()) for old in MASK.finditer(text)))
        places: list[tuple[Place, str]] = []
        while True:
            fresh = []
            for kind, rule in self._rules():
                taken = apart(rule(view))
                view = view.without(taken)
                fresh += [(place, kind) for place in taken]
                if kind == "name":
                    self._names.update(form for place in taken for form in _forms(text[place.start : place.end]))
            if not fresh:
                return sorted(places)
            places += fresh

    def _rules(self) -> Iterator[tuple[str, Rule]]:
        yield from ((kind, rule) for kind, rule in _RULES if kind in self.kinds)
        if "name" in self.kinds:
            yield "name", self._known_names

    def _known_names(self, view: View) -> Iterator[Place]:
        """Names met before, wherever they stand."""
        han = {name for name in self._names if _ANY_HAN.search(name)}
        yield from _han_mentions(view.folded, han)
        yield from _latin_mentions(view.plain, self._names - han)

    def _mask_of(self, kind: str, original: str, language: int) -> str:
        same = (kind, _canonical(kind, original))
        if same not in self._masks:
            self.counters[kind] = self.counters.get(kind, 0) + 1
            self._masks[same] = f"[{KINDS[kind][language]}{self.counters[kind]}]"
            self._originals[self._masks[same]] = original
        return self._masks[same]


def mask(
    text: str, *, kinds: Collection[str] | None = None, counters: MutableMapping[str, int] | None = None
) -> Masked:
    """Mask the personal data of a text that stands alone; ``Masker`` does it for the passages of a document.

    Masking what is masked changes nothing. ``kinds`` are names of ``KINDS``; only their rules run.

    >>> mask("患者李建国，男，身份证11010519491231002X，患帕金森病。").text
    '患者[姓名1]，男，身份证[身份证1]，患帕金森病。'
    >>> mask("Dr. Smith called 212-555-0187 about vitamin B12 500 mg.").text
    'Dr. [NAME1] called [PHONE1] about vitamin B12 500 mg.'

    Raises:
        MaskError: one of ``kinds`` is not known.
    """
    return Masker(kinds, counters).mask(text)


def unmask(text: str, key: Mapping[str, str]) -> str:
    """Put back what the masks of ``text`` stand for, as far as ``key`` (a masker's) knows them.

    >>> masker = Masker()
    >>> unmask(masker.mask("患者李建国，男。").text, masker.key)
    '患者李建国，男。'
    """
    return MASK.sub(lambda mask: key.get(mask[0], mask[0]), text)


def validate(text: str, *, strict: bool = False) -> list[Span]:
    """What still looks like personal data in a text that should be masked; nothing in what ``mask`` returned.

    ``strict`` asks for shapes alone: any eleven digits of a mobile phone, cards and identity numbers with wrong check
    digits. It raises false alarms on specimen numbers and bar codes, for a person to look at.

    >>> [(span.kind, span.original) for span in validate("[姓名1]，电话13912345678")]
    [('phone', '13912345678')]
    """
    places = Masker()._find(text)
    if strict:
        view = View.of(text, [*(Place(*old.span()) for old in MASK.finditer(text))])
        view = view.without(place for place, _ in places)
        for kind, shape in _SHAPES:
            taken = apart(Place(*match.span()) for match in shape.finditer(view.plain))
            view = view.without(taken)
            places += [(place, kind) for place in taken]
    return [Span(start, end, kind, "", text[start:end]) for (start, end), kind in sorted(places)]


def kinds_in(text: str) -> list[str]:
    """The kinds of the masks that stand in a text, in order.

    >>> kinds_in("[姓名1]的电话是[电话1]")
    ['name', 'phone']
    """
    return [_KIND_OF[mask["word"]] for mask in MASK.finditer(text)]


def _known(kinds: Collection[str] | None) -> frozenset[str]:
    if kinds is None:
        return frozenset(KINDS)
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise MaskError(f"{', '.join(unknown)} cannot be masked: choose from {', '.join(KINDS)}")
    return frozenset(kinds)


def _replaced(text: str, spans: Iterable[Span]) -> str:
    pieces, last = [], 0
    for span in spans:
        pieces += [text[last : span.start], span.replacement]
        last = span.end
    return "".join([*pieces, text[last:]])


def _canonical(kind: str, original: str) -> str:
    """One spelling for all those of the same thing: 139-1234-5678 is 13912345678, and Smith, John is John Smith."""
    plain = " ".join(View.of(original).folded.split())
    if kind == "name":
        last, comma, first = plain.partition(", ")
        return f"{first} {last}" if comma else plain
    if kind == "birth":
        return "-".join(number.lstrip("0") for number in re.findall("[0-9]+|[a-z]+", plain))
    if kind == "phone":
        return re.sub("[^0-9]", "", re.sub(r"^(?:\+|00)86", "", plain))
    return plain if kind == "address" else re.sub(r"[\s-]", "", plain)


def _forms(name: str) -> Iterator[str]:
    """The ways a name may stand in the text again. A surname alone is no proof of the same person."""
    if _ANY_HAN.search(name):
        if len(name) > 1:
            yield View.of(name).folded
        return
    last, comma, first = View.of(name).plain.partition(", ")
    if comma:
        yield f"{first} {last}"
    if comma or " " in name:
        yield f"{last}{comma}{first}"


def _han_mentions(text: str, names: Collection[str]) -> Iterator[Place]:
    firsts = {name[0] for name in names}
    for start, character in enumerate(text if names else ""):
        if character not in firsts:
            continue
        for length in (4, 3, 2):
            if text[start : start + length] not in names:
                continue
            # Two characters may be part of a word (张力): they count only where something ends before them.
            if length > 2 or not _ANY_HAN.match(text[start - 1 : start]):
                yield Place(start, start + length)
                break


def _latin_mentions(text: str, names: Collection[str]) -> Iterator[Place]:
    words = [match.span() for match in _LATIN_WORD.finditer(text)] if names else []
    for number, (start, _) in enumerate(words):
        for _, end in reversed(words[number + 1 : number + _LONGEST_LATIN_NAME]):
            if text[start:end] in names:
                yield Place(start, end)
                break
