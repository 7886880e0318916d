"""Rules for personal data made of digits: cards, phones, records, beds, births, plates, accounts, machines.

Both languages; every rule reads the folded text, so patterns are in lower case and simplified characters. A number is
found by the word before it (``mask_labels``), or by its shape in a window around a run of digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from suwen.text.mask_labels import THINGS, WEAK, kind_of_stem, stem_pattern
from suwen.text.mask_view import FILL, HAN, Found, View, compiled

# What follows a number that is a quantity, and what stands before one that names a thing and not a person.
_QUANTITY = r"(?!\s?(?:元|万|亿|例|个|人次|%|‰|×|[munpk]?g\b|[munpk]?g/|[mdu]?l\b|iu|u/|mmol|单位))"
_THING = compiled(
    r"(?:批号|标本|样本|样品|试剂|条码|条形码|货号|产品|注册证|准字|编码|批准文号|文献|基因|"
    r"\b(?:lot|batch|catalog(?:ue)?|cat|specimen|accession|sample|barcode|upc|nct|pmid|pmc|isbn|issn|doi|rs|"
    r"model|serial"
    r"|grant|version|omim|orpha))"
    r"[a-z]?(?:编?号码?)?[\s:#.]*(?:为|是|no\.?|number|id)?[\s:#.]*$"
)
# 号, number, # and the like after the word that announces; then what links it to the number.
_NUMBERED = compiled(r"\s?(?:卡|证|单)?(?:编?号码?(?![码召])|id\b|no\b\.?|number\b|num\b\.?|#)|(?<=id)")
_LINKED = compiled(
    r"\s{0,3}(?:\((?:必填|本人|家属|手机|座机|住宅|no\.?)\))?(?:为|是|系|在|于|留的|有|is|was|on|at|in|me|on "
    r"file|us)?"
    r"(?:\s(?:on file|is|me at|at))*(?:[\s:=#.\[\"“]|\((?!\d{2,4}\))){0,5}"
)
_AGAIN = compiled(r"\s?(?:/|、|,|;|或者?|和|or\b|and\b)\s?")
_A_DATE = compiled(r"(?:19|20)\d\d[-./年]\d{1,2}")
_NUMERALS = "零〇一二三四五六七八九幺两"

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE = (
    r"(?:(?:19|20)\d\d\s?年\s?\d{1,2}\s?月(?:\s?\d{1,2}\s?[日号])?|(?:19|20)\d\d[-./]\d{1,2}(?:[-./]\d{1,2})?"
    r"|(?:19|20)\d{6}|\d{1,2}[-./]\d{1,2}[-./](?:(?:19|20)\d\d|\d\d)"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? (?:19|20)\d\d|\d{{1,2}} {_MONTH},? (?:19|20)\d\d|{_MONTH},? (?:19|"
    rf"20)\d\d)"
    r"(?![\da-z])"
)
_CODE = r"(?=[a-z-]{0,8}\d)([a-z]{0,5}-?\d[\da-z]{0,19}(?:-[\da-z]{1,12}){0,3})(?![\da-z]|\.\d)"
#: What may stand after the word of each kind.
_VALUES: dict[str, re.Pattern[str]] = {
    "id_card": compiled(r"(\d{6}[ -]?\d{8}[ -]?\d{3}[\dx]|\d{15})(?![\da-z])"),
    "passport": compiled(r"([a-z]{0,3}\d{1,2}[a-z]?\d{5,8})(?![\da-z])"),
    "bank_card": compiled(r"(\d{4}(?:[ -]?\d{4}){2,3}(?:[ -]?\d{1,3})?)(?![\da-z])"),
    "phone": compiled(
        rf"(\(?\+?\d[\d ().-]{{5,18}}\d(?:\s?(?:转|x|ext\.?)\s?\d{{1,6}})?|[{_NUMERALS}]{{7,12}})"
        rf"(?![\da-z{_NUMERALS}]){_QUANTITY}"
    ),
    "ssn": compiled(r"(\d{3}[ -]?\d\d[ -]?\d{4})(?!\d)"),
    "birth": compiled(f"({_DATE})"),
    "bed": compiled(r"([加+]?[a-z]?-?\d{1,4}(?:-\d{1,3})?)(?![\da-z.])"),
    "record": compiled(_CODE),
    "insurance": compiled(_CODE),
    "account": compiled(r"(?=[a-z_-]{0,18}\d|[a-z]{2,}[_-])([a-z0-9][a-z0-9_-]{4,24})(?![a-z0-9_-])"),
    "plate": compiled(rf"([{HAN}]?[a-z0-9](?:[· -]?[a-z0-9]){{4,8}})(?![a-z0-9])"),
    "ip": compiled(r"((?:\d{1,3}\.){3}\d{1,3})(?![\d.]*\d)"),
    "address": compiled(r"(\d{6}|\d{5}(?:-\d{4})?)(?!\d)"),
}
_LEAST_DIGITS = {"record": 4, "insurance": 4, "plate": 1, "phone": 7}
# Some numbers are kept apart by a word of their own that another kind's word contains.
_AFTER_STEM = {"account": compiled(r"\s?(?:群|支付|公众|小程序|视频|聊|运动|扫码|平台|用户)")}

_CODED = compiled(rf"号码?{_LINKED.pattern}{_CODE}")
_EMAIL = compiled(
    r"(?<![a-z0-9._%+-])([a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24})(?![a-z0-9-]|\.[a-z0-9])"
)
_URL = compiled(r"(?:https?://|www\.)(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24}[!-+\-./0-:<-~]{0,300}")
# Pages of institutions, journals and the press are sources, and no way to a person.
_PUBLIC_SITE = compiled(
    r"(?:https?://)?[a-z0-9.-]*(?:\.(?:gov|edu|org|int|mil|ac)(?:\.[a-z]{2})?(?=[/:?#]|$)|(?:clinic|hospital|"
    r"health|medical|med"
    r"|cochrane|bmj|lancet|nejm|jama|nature|springer|elsevier|science|wiley|medscape|webmd|uptodate|biomed|"
    r"trial|journal"
    r"|news|times|doi|pubmed|ncbi|wikipedia|syndrome|disease|cancer|pharma)[a-z-]*\.)"
)
_OWN_PAGE = compiled(r"/(?:u|user|users|profile|patient|patients|member|home|people)/|[?&]\w*id=|/~")
_IP = compiled(r"(?<![\da-z.-])((?:\d{1,3}\.){3}\d{1,3})(?![\d-]|\.\d)")
_PLATE = re.compile(
    r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][A-Z][·•・. "
    r"-]?(?=[A-Z0-9]{0,5}[0-9])[A-HJ-NP-Z0-9]{5,6}(?![A-Za-z0-9])"
)
_IN_NUMERALS = compiled(rf"[一幺][三四五六七八九][{_NUMERALS}]{{9}}(?![{_NUMERALS}])")

#: A run of digits that may be a card or a phone; shapes are looked for only around one.
_RUN = compiled(r"\d(?:[ .()/-]{0,3}\d){6}")
_WINDOW = (8, 26)
_ID_18 = compiled(r"(?<![\da-z._-])(\d{6}[ -]?\d{8}[ -]?\d{3}[\dx])(?![\da-z])")
_ID_15 = compiled(r"(?<![\da-z._-])(\d{15})(?![\da-z])")
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_PROVINCES = frozenset(re.findall("..", "1112131415212223313233343536374142434445465051525354616263646571818283"))
_CARD = compiled(r"(?<![\da-z._-])([3-6]\d{3}(?:[ -]?\d{4}){3}(?:[ -]?\d{1,3})?)(?![\da-z])")
_SSN = compiled(r"(?<![\da-z.-])((?!000|666)\d{3}-(?!00)\d\d-(?!0000)\d{4})(?![\da-z]|-\d)")
_MOBILE = compiled(
    rf"(?<![\da-z._%-])((?:\(?(?:\+|00)?86\)?[ -]?)?1[3-9]\d([ .·-]?)\d{{4}}\2\d{{4}})(?![\da-z]|[.-]\d){_QUANTITY}"
)
_LANDLINE = compiled(
    r"(?<![\da-z._%-])((?:(?:\+|00)86[ -]?)?"
    r"(?:\(0(?:10|2\d|[3-9]\d\d)\)\s?|0(?:10|2\d|[3-9]\d\d)(?:[-.](?=\d)|[ -]?(?=[2-9])))\d{3,4}[ .-]?\d{4}"
    rf"(?:(?:-|转|x)\d{{1,5}})?)(?![\da-z]|\.\d){_QUANTITY}"
)
_EXTENSION = r"(?: ?(?:x|ext\.?|#) ?\d{1,6})?"
_AMERICAN = compiled(
    r"(?<![\da-z._/%-])((?:(?:\+?1|001)[-. ]?)?(?:\([2-9]\d\d\)\s?|[2-9]\d\d[-. ])[2-9]\d\d[-. ]\d{4}"
    rf"{_EXTENSION})(?![\da-z]|[.-]\d)"
)
_BARE_AMERICAN = compiled(
    rf"(?<![\da-z._/%=-])(?!20[0-2]\d[01]\d)((?:\+?1)?[2-9]\d\d[2-9]\d{{6}}{_EXTENSION})(?![\da-z]|[.-]\d){_QUANTITY}"
)
_ABROAD = compiled(r"(?<![\w+])(\+\d{1,3}(?:[ -]?(?:\(\d{1,5}\)|\d{1,5})){2,5})(?![\da-z]|\.\d)")
# Lines of services belong to nobody; they are part of good advice and must survive.
_SERVICE = compiled(
    r"[48]00[ -]?\d{3,4}[ -]?\d{3,4}$|9[56]\d{3,6}$|1[012]\d{1,3}$"
    # The country code stands apart, or every mobile phone that begins with 1800 or 1888 would be free of charge.
    r"|(?:\+?1[-. ])?\(?8(?:00|33|44|55|66|77|88)\)?[-. ]?\d{3}[-. ]?\d{4}$"
)
_BED_AFTER = compiled(r"\s?床(?![位旁边上下单榻头前垫以])")
_BED_NUMBER = compiled(r"(?<![\da-z._/%+每共约有设张-])([加+]?[a-z]?-?\d{1,3}(?:-\d{1,2})?)$")
_BED_ENGLISH = compiled(
    r"bed(?: ?(?:no\.?|number|#))?[\s:#]{1,3}((?:[a-z]-?)?\d{1,3}[a-z]?)(?![\da-z/%]|\.\d|\s?-\s?\d)"
    r"(?!\s?(?:to|or|and|-|–)?\s?\d{0,3}\s?-?"
    r"(?:inch|cm|feet|foot|hour|min|night|time|day|week|month|year|h\b|or more|degree|mg|people|patient))"
)
_BORN_AFTER = compiled(r"(?<=[日号月\d])\s?(?:出生|生(?!存|活|效|产|长|病|化))")
_DATE_BEFORE = compiled(rf"(?<![\d./-])({_DATE})$")
_BESIDE = compiled(
    rf"{FILL}[\"”]?\s?[,;(]?\s?[#(]?(?!(?:19|20)\d\d[01]\d[0-3]\d)(\d{{6,12}})(?![\da-z]|\.\d){_QUANTITY}"
)


def labelled(view: View) -> Iterator[Found]:
    """Numbers after the word that announces them, several with a stroke between them too."""
    text = view.folded
    kinds = kind_of_stem()
    for label in stem_pattern().finditer(text):
        stem = label[0]
        kind = kinds[stem]
        if stem[0] < "\x80" and (
            _latin(text[label.start() - 1 : label.start()])
            or (text[label.end() : label.end() + 1].isalpha() and text[label.end()] < "\x80")
        ):
            continue
        end = _announced(text, label.end(), stem, kind)
        if end is not None:
            yield from _values(view, end, kind, label.start())
    yield from _coded(view)


def _announced(text: str, end: int, stem: str, kind: str) -> int | None:
    """Where the number may begin after the word and what links it; None where the word alone says too little."""
    apart = _AFTER_STEM.get(kind)
    if apart and apart.match(text, end):
        return None
    numbered = _NUMBERED.match(text, end)
    if numbered is None and stem in WEAK:
        return None
    link = _LINKED.match(text, numbered.end() if numbered else end)
    return link.end() if link else None


def _values(view: View, start: int, kind: str, label: int) -> Iterator[Found]:
    text = view.folded
    while value := _VALUES[kind].match(text, start):
        digits = sum(character.isdigit() or character in _NUMERALS for character in value[1])
        service = kind == "phone" and (_SERVICE.match(value[1]) or digits > 15)
        if digits < _LEAST_DIGITS.get(kind, 0) or service or (kind == "record" and _THING.search(view.before(label))):
            return
        if kind == "bank_card" and len(value[1]) == 18 and is_id_card(value[1]):
            kind = "id_card"
        yield Found(value.start(1), value.end(1), kind)
        again = _AGAIN.match(text, value.end(1)) if kind in ("phone", "account") else None
        if again is None or _A_DATE.match(text, again.end()):
            return
        start = again.end()


def _coded(view: View) -> Iterator[Found]:
    """Anything called a number of its own (取药号：A0231): a person's, unless it is the number of a thing."""
    for match in _CODED.finditer(view.folded):
        before = view.before(match.start())
        named = re.search(f"[{HAN}]{{1,8}}$", before)
        digits = sum(map(str.isdigit, match[1]))
        if _MOBILE.match(match[1]):
            continue  # a phone, by its shape
        if named and digits >= 5 and not THINGS.search(named[0]) and not _THING.search(before):
            yield Found(*match.span(1), "record")


def signed(view: View) -> Iterator[Found]:
    """What a sign gives away: mail, pages, plates, machines, and phones in Chinese numerals."""
    text = view.folded
    if "@" in text:
        yield from (Found(*match.span(1), "email") for match in _EMAIL.finditer(text))
    if "://" in text or "www." in text:
        for match in _URL.finditer(text):
            if not _PUBLIC_SITE.match(match[0]) or _OWN_PAGE.search(match[0]):
                yield Found(match.start(), match.start() + len(match[0].rstrip(".,;:!?)]'\"")), "url")
    yield from (Found(*match.span(), "plate") for match in _PLATE.finditer(view.plain))
    for match in _IN_NUMERALS.finditer(text):
        if not match.start() or text[match.start() - 1] not in _NUMERALS:
            yield Found(*match.span(), "phone")
    if text.count(".") > 2:
        yield from (Found(*match.span(1), "ip") for match in _IP.finditer(text) if _is_machine(match[1]))


def shaped(view: View) -> Iterator[Found]:
    """Cards and phones by their shape, in the windows around runs of digits; then beds and births."""
    text = view.folded
    windows: list[tuple[int, int]] = []
    for run in _RUN.finditer(text):
        start, end = max(0, run.start() - _WINDOW[0]), run.end() + _WINDOW[1]
        if windows and start <= windows[-1][1]:
            windows[-1] = windows[-1][0], end
        else:
            windows.append((start, end))
    for start, end in windows:
        for kind, pattern, right in _SHAPES:
            for match in pattern.finditer(text, start, end + 20):
                if match.start() < end and right(match, view):
                    yield Found(*match.span(1), kind)
    yield from _beds(view)
    yield from _births(view)
    yield from (Found(*match.span(1), "record") for match in _BESIDE.finditer(text) if not _of_a_thing(match, view))


def _beds(view: View) -> Iterator[Found]:
    """Beds, the number alone: before 床 or after bed, and never a count of beds."""
    if "床" in view.folded:
        for match in _BED_AFTER.finditer(view.folded):
            if number := _BED_NUMBER.search(view.folded, max(0, match.start() - 8), match.start()):
                yield Found(*number.span(1), "bed")
    if "bed" in view.folded:
        for match in _BED_ENGLISH.finditer(view.folded):
            if not _latin(view.folded[match.start() - 1 : match.start()]):
                yield Found(*match.span(1), "bed")


def _births(view: View) -> Iterator[Found]:
    """Dates before 出生 or 生, to the month or the day. A year alone points at nobody and stays."""
    for match in _BORN_AFTER.finditer(view.folded) if "生" in view.folded else ():
        if date := _DATE_BEFORE.search(view.folded, max(0, match.start() - 16), match.start()):
            yield Found(*date.span(1), "birth")


def is_id_card(number: str) -> bool:
    """Whether 15 or 18 characters can be an identity number: province, date and, of 18, the check digit.

    >>> is_id_card("11010519491231002X"), is_id_card("110105194912310021")
    (True, False)
    """
    number = re.sub("[ -]", "", number).upper()
    date = number[6:14] if len(number) == 18 else "19" + number[6:12]
    month, day = int(date[4:6]), int(date[6:])
    if number[:2] not in _PROVINCES or not 1 <= month <= 12 or not 1 <= day <= 31 or not "1880" < date[:4] < "2100":
        return False
    if len(number) == 15:
        return True
    total = sum(int(digit) * weight for digit, weight in zip(number, _ID_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == number[17]


def passes_luhn(number: str) -> bool:
    """Whether the last digit of a card number is the one the others ask for.

    >>> passes_luhn("4111 1111 1111 1111"), passes_luhn("4111 1111 1111 1112")
    (True, False)
    """
    digits = [int(digit) for digit in reversed(number) if digit.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _of_a_thing(match: re.Match[str], view: View) -> bool:
    return _THING.search(view.before(match.start(1))) is not None


def _of_a_person(match: re.Match[str], view: View) -> bool:
    long = 7 <= sum(map(str.isdigit, match[1])) <= 20
    return long and not _SERVICE.match(match[1]) and not _of_a_thing(match, view)


def _is_machine(number: str) -> bool:
    """Whether four numbers with points are a machine and not a chapter or a version."""
    parts = [int(part) for part in number.split(".")]
    return max(parts) <= 255 and sum(part >= 20 for part in parts) >= 2


def _latin(character: str) -> bool:
    return character.isascii() and character.isalpha()


#: Kind, shape, and what else must hold.
_SHAPES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str], View], bool]], ...] = (
    ("id_card", _ID_18, lambda match, view: is_id_card(match[1])),
    ("id_card", _ID_15, lambda match, view: is_id_card(match[1]) and not _of_a_thing(match, view)),
    ("bank_card", _CARD, lambda match, view: passes_luhn(match[1]) and not _of_a_thing(match, view)),
    ("ssn", _SSN, lambda match, view: True),
    *(("phone", shape, _of_a_person) for shape in (_MOBILE, _LANDLINE, _AMERICAN, _BARE_AMERICAN, _ABROAD)),
)
