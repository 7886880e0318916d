"""What a paraphrase must keep of a medical sentence, or it is refused: a changed dose must not become a positive.

The checks are rules over letters, in English and Chinese, and rather refuse a good paraphrase than pass a wrong one.
Whether the meaning is the same beside that, they cannot tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from suwen.curate.leakage import comparable, weight
from suwen.curate.near_duplicates import shingles, similarity
from suwen.text.fold import fold
from suwen.text.segment import language_of

#: From which similarity of letters a paraphrase is a copy, and how much shorter or longer than its sentence it may be.
COPY, SHORTEST, LONGEST = 0.9, 0.5, 2.0
_UNITS = {
    "kg": "kgs?|kilograms?|千克|公斤",
    "mg": "mgs?|milligrams?|毫克",
    "ug": "ug|μg|µg|mcg|micrograms?|微克",
    "g": "g|gm|grams?|克",
    "ml": "mls?|milliliters?|millilitres?|毫升",
    "dl": "dl|deciliters?",
    "l": "l|liters?|litres?|升",
    "mmhg": "mm ?hg|millimet(?:er|re)s? of mercury|毫米汞柱",
    "mmol": "mmol|millimoles?|毫摩尔",
    "mm": "mm|millimeters?|millimetres?|毫米",
    "cm": "cm|centimeters?|centimetres?|厘米|公分",
    "bpm": "bpm|beats per minute|beats/min|次/分钟?|次每分钟?",
    "iu": "iu|international units?|国际单位",
    "unit": "units?|单位",
    "%": "%|％|per ?cent|percent",
    "ms": "ms|msec|milliseconds?|毫秒",
    "s": "s|secs?|seconds?|秒钟?",
    "min": "mins?|minutes?|分钟",
    "h": "h|hrs?|hours?|小时",
    "day": "d|days?|天|日",
    "week": "wks?|weeks?|周|星期",
    "month": "months?|个月|月",
    "year": "yrs?|years?|年|岁",
    "degree": "°c|℃|degrees? celsius|摄氏度",
}
_UNIT = "|".join(f"(?P<u{number}>{said})" for number, said in enumerate(_UNITS.values()))
_NUMBER = re.compile(rf"(?<![a-z\d.])(\d+(?:[.,]\d+)*)[ -]?(?:(?:{_UNIT})(?![a-z]))?", re.I)
_SMALL = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WORDS = {word: str(value) for value, word in enumerate(_SMALL, 2)}
_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b", re.I)
#: How often, and how many times as much: "twice" is "two times", and "halved" is neither.
_TIMES = {
    "2": re.compile(r"\b(?:twice|doubl(?:ed?|es|ing)|twofold)\b|加倍|翻倍|翻番", re.I),
    "3": re.compile(r"\b(?:thrice|tripl(?:ed?|es|ing)|threefold)\b", re.I),
    "0.5": re.compile(r"\b(?:hal(?:f|ves?|ved|ving))\b|半(?=[片粒支瓶袋量天日小])|减半", re.I),
}
_HAN_DIGIT = re.compile(r"([二两三四五六七八九十])(?=[个种次级度型期天日周月年岁倍支根条层片粒分类步项])")
#: Without one, which is an article too (一种).
_HAN_DIGITS = {digit: str(value) for value, digit in enumerate("二三四五六七八九十", 2)} | {"两": "2"}

_NEGATED_EN = re.compile(
    r"\b(?:no|not|none|never|neither|nor|without|cannot|lacks?|lacking|absent|absence|fails?|failed|unable|free of"
    r"|unlikely|avoid(?:s|ed|ing)?|contraindicated|contraindications?|prevents?|except|negative)\b|n['’]t\b",
    re.I,
)
_NEGATED_ZH = re.compile("[不没無无未非否勿莫禁忌缺]|避免|除外|阴性")
#: Words with a negating character that negate nothing.
_NO_NEGATION = re.compile(
    "不同|不断|不仅|不但|不过|不管|不论|不良|不适|不全|不齐|不稳|不足|不少|不久|非常|无论|无菌|除非|未来|莫名|"
    "不规则|不典型|不随意"
)
_SIDES = {
    "left": re.compile(r"\bleft\b|左(?!右)", re.I),
    "right": re.compile(r"\bright\b|(?<!左)右", re.I),
    "both": re.compile(r"\bbilateral(?:ly)?\b|\bboth sides\b|双侧|两侧|双肺|双肾", re.I),
}
_DRUG_EN = re.compile(
    r"\b[a-z]{2,}(?:olol|pril|prilat|sartan|statin|dipine|mycin|micin|cillin|azole|oxacin|parin|xaban|gatran|grel|plase"
    r"|thiazide|semide|prazole|gliptin|gliflozin|glutide|formin|sone|solone|pam|caine|triptan|vir|mab|tinib|azepine"
    r"|fibrate|tidine|setron|phylline|terol|tropium|barbital|cycline|sulfa|dronate|lactone)\b"
    r"|\b(?:warfarin|heparin|aspirin|digoxin|amiodarone|nitroglycerin|insulin|morphine|dopamine|dobutamine|adenosine"
    r"|atropine|epinephrine|norepinephrine|lidocaine|verapamil|diltiazem|hydralazine|ivabradine|sacubitril|milrinone"
    r"|nitroprusside|ibuprofen|acetaminophen|paracetamol|clonidine|colchicine|ezetimibe|flecainide|quinidine)\b",
    re.I,
)
_DRUG_ZH = re.compile(
    "[^\\W\\d_a-zA-Z用服予给与和及或的了为以对、加联合]{1,4}(?:洛尔|普利|沙坦|他汀|地平|霉素|西林|沙星|硝唑|康唑|拉唑|噻嗪|塞米"
    "|列净|列汀|格雷|沙班|加群|肝素|双胍|米松|尼松|西泮|卡因|替丁|贝特|茶碱|特罗|环素)|"
    "华法林|阿司匹林|地高辛|胺碘酮|硝酸甘油|胰岛素|吗啡|多巴胺|腺苷|阿托品|肾上腺素|维拉帕米|地尔硫卓|布洛芬|螺内酯|"
    "异山梨酯|尿激酶|链激酶|普罗帕酮|利多卡因|头孢[^\\W\\d_a-zA-Z]{2}"
)


def refusal(sentence: str, paraphrase: str, names: Iterable[str] = ()) -> str | None:
    """Why a paraphrase is refused, in a word of the report; None where it passes.

    Args:
        sentence: What was to be said in other words.
        paraphrase: The other words.
        names: Names beside the known drugs that must stay, folded.

    >>> refusal("Give aspirin 75 mg daily.", "Aspirin is taken every day at 750 mg.")
    'numbers'
    >>> refusal("Give aspirin 75 mg daily.", "A daily dose of 75 mg of aspirin is given.")
    """
    own, other = fold(sentence), fold(paraphrase)
    compared, said = comparable(sentence), comparable(paraphrase)
    if not said:
        return "empty"
    if language_of(compared) != language_of(said):
        return "language"
    if similarity(shingles(sentence), shingles(paraphrase)) >= COPY:
        return "copy"
    if not SHORTEST <= weight(said) / weight(compared) <= LONGEST:
        return "length"
    for reason, of in _KEPT.items():
        if of(own) != of(other):
            return reason
    if any((name in own) != (name in other) for name in names):
        return "names"
    return None


def numbers(folded: str) -> Counter[str]:
    """The numbers of a text, in figures or as small words.

    >>> sorted(numbers("two doses of 1,000 mg, then 2.50 mg")), sorted(numbers("两次，每次1000毫克"))
    (['1000', '2', '2.5'], ['1000', '2'])
    """
    found = Counter(_plain(match[1]) for match in _NUMBER.finditer(folded))
    found.update(_WORDS[match[1].lower()] for match in _WORD.finditer(folded))
    found.update(_HAN_DIGITS[match[1]] for match in _HAN_DIGIT.finditer(folded))
    found.update(value for value, said in _TIMES.items() for _ in said.finditer(folded))
    return found


def measures(folded: str) -> Counter[tuple[str, str]]:
    """The numbers of a text that have a unit, with it.

    >>> measures("75 mg for 3 days") == measures("75毫克，3天") == measures("75-mg, 3-day")
    True
    """
    units = list(_UNITS)
    found: Counter[tuple[str, str]] = Counter()
    for match in _NUMBER.finditer(folded):
        unit = next((units[int(name[1:])] for name, said in match.groupdict().items() if said), None)
        if unit is not None:
            found[_plain(match[1]), unit] += 1
    return found


def negated(folded: str) -> bool:
    """Whether a text negates something.

    >>> negated("it is not common"), negated("心律不齐非常多见"), negated("未见异常")
    (True, False, True)
    """
    return bool(_NEGATED_EN.search(folded) or _NEGATED_ZH.search(_NO_NEGATION.sub("", folded)))


def sides(folded: str) -> set[str]:
    """Left, right, both: those a text speaks of; 左右 in the sense of "about" is none.

    >>> sorted(sides("the left ventricle, bilaterally")), sides("约5天左右")
    (['both', 'left'], set())
    """
    return {side for side, said in _SIDES.items() if said.search(folded)}


def drugs(folded: str) -> set[str]:
    """The drugs of a text, known by their endings or by name.

    >>> sorted(drugs("metoprolol with warfarin")), sorted(drugs("可服用美托洛尔和华法林"))
    (['metoprolol', 'warfarin'], ['华法林', '美托洛尔'])
    """
    return {match[0].lower() for pattern in (_DRUG_EN, _DRUG_ZH) for match in pattern.finditer(folded)}


_KEPT: dict[str, Callable[[str], object]] = {
    "numbers": numbers,
    "units": measures,
    "negation": negated,
    "drugs": drugs,
    "laterality": sides,
}


def _plain(number: str) -> str:
    """A number without what says nothing: separators of thousands, zeros at the end of a fraction."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number):
        number = number.replace(",", "")
    return number.rstrip("0").rstrip(".") if re.fullmatch(r"\d+\.\d+", number) else number
