"""The numbers of a medical text, their units and what they are per, English and Chinese: for comparing two texts.

Everything here takes folded text (``fold``). Words and signs for a number are written as figures first, so that what is
read is one form: "fifteen", 十五 and 15, "b.i.d." and "twice a day", "class II" and "class 2".
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

_UNITS = {
    "kg": "kgs?|kilograms?|kilos?|千克|公斤",
    "mg": "mgs?|milligrams?|毫克",
    "ug": "ug|μg|µg|mcg|micrograms?|微克",
    "ng": "ng|nanograms?|纳克",
    "g": "g|gm|grams?|克",
    "ml": "mls?|milliliters?|millilitres?|cc|毫升",
    "dl": "dl|deciliters?|decilitres?|分升",
    "l": "l|liters?|litres?|升",
    "mmhg": "mm ?hg|millimet(?:er|re)s? of mercury|毫米汞柱",
    "mmol": "mmol|millimoles?|毫摩尔?",
    "umol": "[uμµ]mol|micromoles?|微摩尔?",
    "meq": "meq|milliequivalents?|毫当量",
    "m2": "m2|m²|square met(?:er|re)s?|平方米",
    "mm": "mm|millimeters?|millimetres?|毫米",
    "cm": "cm|centimeters?|centimetres?|厘米|公分",
    "iu": "iu|international units?|国际单位",
    "unit": "units?|单位",
    "%": "%|per ?cent",
    "ms": "ms|msec|milliseconds?|毫秒",
    "s": "s|secs?|seconds?|秒钟?",
    "min": "mins?|minutes?|分钟",
    "h": "h|hrs?|hours?|个?小时",
    "day": "d|days?|天|日",
    "week": "wks?|weeks?|个?星期|周",
    "month": "mos?|months?|个月|月",
    "year": "yrs?|years?|年|岁",
    "degree": "°c|℃|degrees? celsius|摄氏度",
}
_UNIT = "|".join(f"(?P<u{number}>{said})" for number, said in enumerate(_UNITS.values()))
_NUMBER = re.compile(rf"(?<![a-z\d.])(\d+(?:[.,]\d+)*|\.\d+)[ -]?(?:(?:{_UNIT})(?![a-z]))?", re.I)
#: Between two numbers of one unit: "2 to 4 mg".
_SPAN = re.compile(r" ?(?:to|and|or|[-–—~～至到或和]) ?")

_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("ten", "eleven", "twelve", *(f"{one}teen" for one in ["thir", "four", "fif", "six", "seven", "eigh", "nine"]))
_TENS = tuple(f"{one}ty" for one in ["twen", "thir", "for", "fif", "six", "seven", "eigh", "nine"])
_VALUE = {word: value for value, word in enumerate((*_ONES, *_TEENS), 1)}
_VALUE |= {word: 10 * value for value, word in enumerate(_TENS, 2)} | {"zero": 0, "a": 1}
_BELOW = (
    rf"(?:(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_ONES)}))?|zero|{'|'.join(reversed([*_ONES, *_TEENS]))})(?![a-z])"
)
_HUNDREDS = rf"(?:(?:{_BELOW}|a) hundred(?:(?: and)? {_BELOW})?|{_BELOW})"
_WORDS = re.compile(rf"\b(?:(?:{_HUNDREDS}|a) thousand(?:(?: and)? {_HUNDREDS})?|{_HUNDREDS})(?![a-z])")
_HAN_VALUE = {digit: value for value, digit in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2}
_HAN_POWER = {"十": 10, "百": 100, "千": 1000, "万": 10000}
#: A numeral before a unit or what is counted; or of two characters and more, but 十二指肠. 十分 is "very".
_HAN_UNITS = "|".join(said for units in _UNITS.values() for said in units.split("|") if not said.isascii())
_DIGITS = "〇零一二两三四五六七八九"
_HAN = re.compile(
    rf"(?!十分(?!钟))(?:[{_DIGITS}十百万]|千(?!克))+(?= ?(?:[个种次级度型期天日周月年岁倍支根条层"
    rf"片粒丸滴瓶袋包剂例名人位分步项类]|{_HAN_UNITS}|[mk]?g\b|ml\b))|(?:[{_DIGITS}][十百千](?!克)[{_DIGITS}十百]*|十[{_DIGITS}])(?!指)"
)
_PERCENT = re.compile(rf"百分之([{_DIGITS}十百]+|[\d.]+)")
_FRACTION = re.compile(rf"([{_DIGITS}十百]+|\d+)分之([{_DIGITS}十百]+|\d+)")
_ROMAN = {"i": 1, "v": 5, "x": 10}
_ROMAN_SIGNS = str.maketrans({chr(0x2170 + at): str(at + 1) for at in range(12)})
_RANK = r"class(?:es)?|stages?|grades?|types?|phases?|degrees?|groups?|factors?|levels?|nyha|killip|ccs"
_ROMANS = re.compile(
    rf"\b(?:{_RANK}) ?[ivx]+(?:(?: ?[,/–-] ?| to | and | or )[ivx]+)*\b"
    r"|(?<![a-z])[ivx]+(?:[-–~至到、/][ivx]+)*(?= ?[级期型度类])"
)

_TIMED = "min|h|day|week|month|year"
_PERIODS = {key: _UNITS[key] for key in _TIMED.split("|")}
_PERIOD = "|".join(_PERIODS.values())
_OFTEN = r"once|twice|thrice|times?|doses?|tablets?|capsules?|pills?|drops?|puffs?|beats?|" + "|".join(
    _UNITS[key] for key in ("mg", "ug", "g", "ml", "mmol", "unit", "iu")
)
#: What is written otherwise before figures are read; in this order.
_REWRITTEN: tuple[tuple[str, str], ...] = (
    (r"\b(?:b\.i\.d\.?|bid|b\.d\.|bds)(?![a-z])", " 2 times per day "),
    (r"\b(?:t\.i\.d\.?|tid|t\.d\.s\.?|tds)(?![a-z])", " 3 times per day "),
    (r"\b(?:q\.i\.d\.?|qid|q\.d\.s\.?|qds)(?![a-z])", " 4 times per day "),
    (r"\b(?:q\.o\.d\.?|qod)(?![a-z])|\bevery other day\b|隔[日天](?=[一1口服用给])", " every 2 days "),
    (r"\b(?:q\.d\.?|qd|q\.h\.s\.?|qhs|q\.n\.|qn)(?![a-z])", " per day "),
    (r"\b(?:q\.w\.?|qw)(?![a-z])", " per week "),
    (r"\bq\.?(\d+)\.?h\b", r" every \1 h "),
    (r"\bbpm\b|次/分钟?", " per min "),
    (r"\btwice\b", "2 times"),
    (r"\bthrice\b", "3 times"),
    (r"\b(?:doubl(?:ed?|es|ing)|twofold)\b|加倍|翻倍|翻番", " 2 "),
    (r"\b(?:tripl(?:ed?|es|ing)|threefold)\b", " 3 "),
    (r"\b(\d+|an?) (?:and a half ([a-z]+)|([a-z]+) and a half)\b", r" \1.5 \2\3 "),
    (r"(\d+)½", r"\1.5"),
    (r"(\d+)(个|[片粒支瓶袋年天日])半", r"\1.5\2"),
    (r"½|\bhalf(?: an?)?\b|\bhal(?:ves?|ved|ving)\b|减半|半数|半(?=[片粒支瓶袋量天日小年个])", " 0.5 "),
    (r"\b(?:daily|nightly|everyday)\b(?! (?:life|lives|living|activ|practi|routin|use\b))", " per day "),
    (r"\bweekly\b", " per week "),
    (r"\bmonthly\b", " per month "),
    (r"\b(?:yearly|annual(?:ly)?)\b", " per year "),
    (r"\bhourly\b", " per h "),
    (r"\b(?:every|each|per) (?:night|morning|evening)\b|每[早晚]上?", " per day "),
    (rf"\b(?:every|each) (?=(?:{_PERIOD})(?![a-z]))", " per "),
    (rf"(?<=\w)(?<!per) an? (?=(?:{_PERIOD})(?![a-z]))", " per ?"),
    (r"(?<![\d.])1([天日周月年]|小时)(?=[^,.;。;]{0,3}?\d次)", r" per \1 "),
)
_PATTERNS = tuple((re.compile(said), written) for said, written in _REWRITTEN)
#: "a week" is a rate behind what may be repeated, else a duration: it was marked, and is decided here.
_RATE = re.compile(rf"((?:\b|\d)(?:{_OFTEN})) per \?")
_PER = re.compile(rf"(?:/|·|\bper |每)\s?\(?(?:{_UNIT}|(?P<minute>分))(?![a-z])")


def numbers(folded: str) -> Counter[str]:
    """The numbers of a text, in figures or words, without 1: "one" is a pronoun and "a" an article.

    >>> sorted(numbers("two doses of 1,000 mg, then 2.50 mg")), sorted(numbers("两次，每次1000毫克"))
    (['1000', '2', '2.5'], ['1000', '2'])
    >>> numbers("fifteen tablets b.i.d.") == numbers("每天两次，每次十五片")
    True
    """
    found = Counter(_plain(match[1]) for match in _NUMBER.finditer(figures(folded)))
    del found["1"]
    return found


def measures(folded: str) -> Counter[tuple[str, str]]:
    """The numbers of a text that have a unit, with it.

    >>> measures("75 mg for 3 days") == measures("75毫克，3天") == measures("75-mg, three-day")
    True
    >>> measures("thirty percent") == measures("30%") == measures("百分之三十")
    True
    """
    return Counter(_measured(folded))


def order(folded: str) -> set[tuple[str, ...]]:
    """The numbers of each unit, as they follow each other, where it has more than one: first 300 mg, then 75 mg.

    >>> order("第一天300毫克，以后75毫克")
    {('mg', '300', '75')}
    """
    by_unit: dict[str, dict[str, None]] = {}
    for number, unit in _measured(folded):
        by_unit.setdefault(unit, {})[number] = None
    return {(unit, *own) for unit, own in by_unit.items() if len(own) > 1}


def rates(folded: str) -> set[str]:
    """What is per what: a dose per kilogram, a rate per hour, once per day.

    >>> sorted(rates("5 mg/kg twice a day")), sorted(rates("每公斤5毫克，一日2次")), rates("for a day")
    (['day', 'kg'], ['day', 'kg'], set())
    """
    return {"min" if match["minute"] else _unit(match) or "" for match in _PER.finditer(figures(folded))}


@lru_cache(maxsize=64)  # a text is asked for its numbers, measures and rates, one after the other
def figures(folded: str) -> str:
    """A text with its numbers in figures, and how often in the form "2 times per day".

    >>> figures("one hundred and twenty patients of class ii")
    '120 patients of class 2'
    """
    text = folded.translate(_ROMAN_SIGNS)
    text = _ROMANS.sub(_figured, text)
    text = _PERCENT.sub(lambda found: f" {found[1] if found[1].isascii() else _han(found[1])}% ", text)
    text = _FRACTION.sub(lambda found: f" {_han(found[2])}/{_han(found[1])} ", text)
    text = _HAN.sub(lambda found: str(_han(found[0])), text.replace("一半", " 0.5 "))
    text = _WORDS.sub(lambda found: str(_counted(found[0])), text)
    for said, written in _PATTERNS:
        text = said.sub(written, text)
    text = _RATE.sub(r"\1 per ", text).replace(" per ?", " 1 ")
    return re.sub(r"\ban?\.5\b", "1.5", text)


def _measured(folded: str) -> list[tuple[str, str]]:
    text, found, unit, end = figures(folded), [], None, 0
    for match in reversed(list(_NUMBER.finditer(text))):
        spans = unit is not None and _SPAN.fullmatch(text, match.end(1), end)
        unit, end = _unit(match) or (unit if spans else None), match.start()
        if unit is not None:
            found.append((_plain(match[1]), unit))
    return found[::-1]


def _unit(match: re.Match[str]) -> str | None:
    named = (int(name[1:]) for name, said in match.groupdict().items() if said and name != "minute")
    return next((tuple(_UNITS)[at] for at in named), None)


def _figured(match: re.Match[str]) -> str:
    """The Roman numbers behind or before the name of a rank, as figures."""
    ranked = re.match(rf"(?:{_RANK}) ?", match[0])
    start = ranked.end() if ranked else 0
    return match[0][:start] + re.sub(r"(?<![a-z])[ivx]+(?![a-z])", lambda one: str(_roman(one[0])), match[0][start:])


def _roman(said: str) -> int:
    values = [_ROMAN[one] for one in said]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _counted(said: str) -> int:
    """The value of English words: "one hundred and twenty"."""
    whole, below = 0, 0
    for word in re.split("[ -]", said):
        if word == "thousand":
            whole, below = (whole + below) * 1000, 0
        elif word == "hundred":
            below *= 100
        elif word != "and":
            below += _VALUE[word]
    return whole + below


def _han(said: str) -> int:
    """The value of Chinese numerals: 二百零五, 三万; of figures, themselves."""
    if said.isdigit() and said.isascii():
        return int(said)
    whole, below, digit = 0, 0, 0
    for one in said:
        power = _HAN_POWER.get(one)
        if power is None:
            digit = 10 * digit + _HAN_VALUE[one]
        elif power == 10000:
            whole, below, digit = (whole + below + digit) * power, 0, 0
        else:
            below, digit = below + (digit or 1) * power, 0
    return whole + below + digit


def _plain(number: str) -> str:
    """A number without what says nothing: separators of thousands, zeros at the end of a fraction, and with its 0."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number):
        number = number.replace(",", "")
    number = f"0{number}" if number.startswith(".") else number
    return number.rstrip("0").rstrip(".") if re.fullmatch(r"\d+\.\d+", number) else number
