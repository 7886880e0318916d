"""Masking of personal data: finds it by rules and puts a mask of its kind there, the same for the same person.

The rules are in ``mask_numbers``, ``mask_places``, ``mask_zh`` and ``mask_en``. Nothing here asks a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

from suwen.errors import SuwenError
from suwen.text import mask_en, mask_numbers, mask_places, mask_zh
from suwen.text.mask_context import THING_AFTER
from suwen.text.mask_view import HAN, Found, Place, Rule, View, apart, compiled

#: The kinds of personal data, each with the word its masks carry in a Chinese and in an English text.
KINDS: dict[str, tuple[str, str]] = {
    "id_card": ("身份证", "IDCARD"),
    "passport": ("护照", "PASSPORT"),
    "bank_card": ("银行卡", "BANKCARD"),
    "email": ("邮箱", "EMAIL"),
    "ssn": ("社保号", "SSN"),
    "insurance": ("保险号", "INSURANCE"),
    "birth": ("出生日期", "BIRTH"),
    "phone": ("电话", "PHONE"),
    "account": ("账号", "ACCOUNT"),
    "record": ("病历号", "RECORD"),
    "bed": ("床号", "BED"),
    "plate": ("车牌", "PLATE"),
    "url": ("网址", "URL"),
    "ip": ("IP地址", "IP"),
    "address": ("地址", "ADDRESS"),
    "name": ("姓名", "NAME"),
}
# In the order they run: the surest first, since what one rule takes the next no longer sees.
_RULES: tuple[Rule, ...] = (
    mask_numbers.signed,
    mask_numbers.labelled,
    mask_numbers.shaped,
    mask_places.chinese,
    mask_places.american,
    mask_zh.names,
    mask_en.names,
)
#: A mask as it stands in a text.
MASK = re.compile(
    rf"\[(?P<word>{'|'.join(word for words in KINDS.values() for word in words)})(?P<number>[0-9]{{1,6}})\]"
)
_KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
_ANY_HAN = re.compile(f"[{HAN}]")
_SHORTEST_VALUE = 5  # a bed or a ward is too short to be looked for elsewhere
_THING_WITHIN = compiled(
    r"(?:病|综合[征症]|征|症|膏|丸|散|汤|颗粒|胶囊|口服液|试验|量表|评分)$"
    r"|(?i: (?:disease|syndrome|disorder|palsy|sign|test|nodule|score|scale|procedure|fracture|lymphoma)s?)$"
)
_SENTENCE_END = re.compile("[。！？!?]")
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
        self._values: dict[str, str] = {}

    @property
    def key(self) -> dict[str, str]:
        """What each mask stands for, for ``unmask``. Whoever holds it can undo the masking: keep it apart."""
        return dict(self._originals)

    def learn(self, text: str) -> None:
        """Take the names of ``text`` to mind without masking it, so that they are known in every passage."""
        self._find(text)

    def know(self, value: str, kind: str) -> None:
        """Take to mind that ``value`` is personal, so that it is masked wherever it stands in the document.

        >>> masker = Masker()
        >>> masker.know("AB-7731", "record")
        >>> masker.mask("Sample of AB-7731, 5 mg").text
        'Sample of [RECORD1], 5 mg'
        """
        if kind == "name":
            self._names.update(_forms(value))
        elif len(value) >= _SHORTEST_VALUE:
            self._values[View.of(value).folded] = kind

    def mask_of(self, value: str, kind: str, *, chinese: bool) -> str:
        """The mask of a whole value, as of the field of a record."""
        return self._mask_of(kind, value, 0 if chinese else 1)

    def mask(self, text: str) -> Masked:
        """Mask ``text``. Masks already there stay as they are, and their numbers are not given again."""
        for old in MASK.finditer(text):
            kind = _KIND_OF[old["word"]]
            if old[0] not in self._originals:
                self.counters[kind] = max(self.counters.get(kind, 0), int(old["number"]))
        language = 0 if _ANY_HAN.search(MASK.sub("", text)) else 1
        spans = []
        for start, end, kind in self._find(text):
            original = text[start:end]
            spans.append(Span(start, end, kind, self._mask_of(kind, original, language), original))
        return Masked(_replaced(text, spans), spans)

    def _find(self, text: str) -> list[Found]:
        """Everything the rules and the known names find, looked for until nothing new turns up.

        A mask can uncover the next find, as a closed bracket ends a name; going on until the view is still is what
        makes masking twice the same as masking once. After the first look only sentences with news are looked at:
        no rule reaches over the end of a Chinese sentence.
        """
        view = View.of(text, (Place(*old.span()) for old in MASK.finditer(text)))
        places: list[Found] = []
        regions = [Place(0, len(text))]
        while regions:
            fresh: list[Found] = []
            for region in regions:
                for rule in _RULES:
                    taken = self._taken(rule, view, region)
                    view = view.without(taken)
                    fresh += taken
            self._names.update(
                form for one in fresh if one.kind == "name" for form in _forms(text[one.start : one.end])
            )
            again = self._taken(self._known_names, view, Place(0, len(text)))
            view = view.without(again)
            places += (fresh := fresh + again)
            regions = _sentences_of(view.folded, fresh)
        return sorted(places)

    def _taken(self, rule: Rule, view: View, region: Place) -> list[Found]:
        start, end = region
        part = view if (start, end) == (0, len(view.plain)) else View(view.plain[start:end], view.folded[start:end])
        found = [one for one in rule(part) if one.kind in self.kinds]
        return [Found(one.start + start, one.end + start, one.kind) for one in apart(found)] if found else found

    def _known_names(self, view: View) -> Iterator[Found]:
        """Names and values met before, wherever they stand."""
        if self._values:
            known = "|".join(map(re.escape, sorted(self._values, key=len, reverse=True)))
            for match in re.finditer(rf"(?<![0-9a-z])(?:{known})(?![0-9a-z])", view.folded):
                yield Found(*match.span(), self._values[match[0]])
        if not self._names:
            return
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
        view = view.without(places)
        for kind, shape in _SHAPES:
            taken = apart(Found(*match.span(), kind) for match in shape.finditer(view.plain))
            view = view.without(taken)
            places += taken
    return [Span(start, end, kind, "", text[start:end]) for start, end, kind in sorted(places)]


def names_a_thing(name: str, text: str) -> bool:
    """Whether ``name`` is an illness, a sign or a preparation wherever it stands in ``text``, and nobody.

    >>> names_a_thing("帕金森", "患者有帕金森病。"), names_a_thing("王建国", "患者王建国有帕金森病。")
    (True, False)
    """
    view = View.of(text)
    plain = View.of(name).plain
    ends = [match.end() for match in re.finditer(re.escape(plain), view.plain)]
    own = _THING_WITHIN.search(plain)
    return bool(own) or (
        bool(ends) and all(THING_AFTER.match(view.folded, end) or mask_en.of_a_thing(view.plain, end) for end in ends)
    )


def kinds_in(text: str) -> list[str]:
    """The kinds of the masks that stand in a text, in order.

    >>> kinds_in("[姓名1]的电话是[电话1]")
    ['name', 'phone']
    """
    return [_KIND_OF[mask["word"]] for mask in MASK.finditer(text)]


def _sentences_of(text: str, found: Iterable[Found]) -> list[Place]:
    """The sentences in which something was found."""
    regions: list[Place] = []
    for one in sorted(found):
        if regions and one.start < regions[-1].end:
            continue
        end = _SENTENCE_END.search(text, one.end)
        start = max(text.rfind(mark, 0, one.start) for mark in "。！？!?") + 1
        regions.append(Place(start, end.end() if end else len(text)))
    return regions


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
    """The ways a name may stand in the text again: whole, the other way round, and a Latin one by either part."""
    if _ANY_HAN.search(name):
        if len(name) > 1:
            yield View.of(name).folded
        return
    plain = View.of(name).plain
    last, comma, first = plain.partition(", ")
    if comma:
        yield f"{first} {last}"
    yield plain
    words = plain.replace(",", "").split()
    yield from (word for word in words if len(word) > 2 and word[0].isupper() and not mask_en.is_common(word))


def _han_mentions(text: str, names: Collection[str]) -> Iterator[Found]:
    if not names:
        return
    for match in re.finditer("|".join(map(re.escape, sorted(names, key=len, reverse=True))), text):
        # Two characters may be part of a word (张力): they count only where the words of the text leave them whole.
        if THING_AFTER.match(text, match.end()):
            continue
        if len(match[0]) > 2 or mask_zh.stands_alone(text, *match.span()):
            yield Found(*match.span(), "name")


def _latin_mentions(text: str, names: Collection[str]) -> Iterator[Found]:
    if not names:
        return
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    for match in re.finditer(rf"(?<![\w'-])(?:{known})(?![\w-])", text):
        if len(match[0]) > 2 and not mask_en.of_a_thing(text, match.end()):
            yield Found(*match.span(), "name")
