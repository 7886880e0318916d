"""Rules for Chinese names and addresses, on the folded text. The lists of surnames and places stand beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from suwen.text.mask_view import FILL, HAN, Place, View, apart, compiled

_NAMES = Path(__file__).with_name("names_zh.txt")
_LONGEST = 4  # a surname of two characters and a given name of two

# A field of a form: what stands there is a name, whatever it looks like.
_FORM = compiled(
    r"(?:姓\s{0,4}名|签名|签字|签章|联系人|监护人|记录者|记录人|陈述者|供史者)(?:\([^()\n]{1,8}\))?(?:\s{0,3}:\s{0,6}|\s{1,6})"
)
# A speaker in a dialogue looks the same: here the name must look like one.
_FIELD = compiled(r"(?:[者人师生士员助刀]|主任|教授|护士长|家属|患儿|经治)(?:\([^()\n]{1,8}\))?\s{0,2}:\s{0,6}")
_CALLED = compiled(r"(?:我叫|名叫|本名|我是|(?<=[爸妈父母儿女子夫妻哥姐弟妹友他她])叫)(?:做|作)?\s?")
_LISTED = compiled(rf"{FILL}[、/和及与]\s?")
_TITLE_BEFORE = compiled(
    rf"(?:患者|病人|患儿|产妇|孕妇|伤者|死者|逝者|家属|联系人|护士长?|护师|医师|医生|大夫|主任|教授|院长|{FILL}\s?床(?:患者|病人)?)\s{{0,3}}"
)
_TITLE_AFTER = compiled(
    r"\s?(?:(?:副?主任|主治|住院|执业|主管|经治|管床)?(?:医师|医生|护师|护士长|护士|药师|技师)|主任|教授|大夫|院长|先生|女士|小姐)"
    rf"|\s(?:记录|签名|签字)(?![{HAN}])"
)
_SPACED = re.compile(rf"([{HAN}])( {{1,3}})([{HAN}])(?= |$|[^{HAN}])")
_SEX = compiled(rf"[,\s]{{1,6}}(?:性别\s?:?\s?)?(?:男|女)性?(?![{HAN}])")
_KIN = compiled(
    r"\s?\((?:患者|病人)?之?(?:女儿|儿子|妻子|丈夫|父亲|母亲|妻|夫|子|女|父|母|配偶|家属|姐|妹|兄|弟|哥|爱人|监护人)[,):;\s]"
)
# What may come right after a name: it closes the name where no punctuation does.
_FOLLOWS = compiled(
    rf"$|[^{HAN}]|(?:因|诉|于|今|昨|系|自|主诉|认为|查房|执行|及|与|和|的|在|为|已|曾|来|入院|出院|转|突|反复|近|年|男|女|现|既往|"
    r"签|行|住|病|家属|先生|女士|主任|医|教授|护|同志|指示|建议|会诊|表示|要求|同意|陪|无|有|否认|拒|向|说|称|术|经|并|由|当|再|复|首|去|至)"
)
# Before a name that has its title behind it.
_LEADS = compiled(
    rf"(?:^|[^{HAN}]|今日|今晨|昨日|上午|下午|由|请|经|与|和|及|遵|嘱|找|邀|向|是|为|让|给|问|诉|据|报告|医院|[科站室的夫妻子女者随跟在听、])$"
)
_HAN_RUN = re.compile(f"[{HAN}]{{1,5}}")
_AGE = compiled(r",?\s?(?:男|女|\d{1,3}\s?岁)")
# Surnames that are everyday words before a title: 由医生, 和护士, 应主任.
_ADVERBS = frozenset("常应那和时于都能向全须尚曾易经从后却")
_NO_LONE_SURNAME = frozenset(
    "和于应时向从由都是经全公家单能相后那须须别却尚强高关原代位方成明安常平连通广师党农国母家双"
)

_PLACES = Path(__file__).with_name("places_zh.txt")
_ADDRESS_LABEL = re.compile(
    r"(?:住址|地址|现住址?|家住|居住地?(?:于|在)?|住在|居于|户籍(?:所在)?地?址?|户口(?:所在)?地?址?)\s{0,3}[:于在为是]?\s{0,3}"
)
_ADDRESS_RUN = re.compile(rf"[{HAN}0-9a-z#-]{{1,70}}")
_REGION = re.compile(r"省|自治区|市|自治州|州|盟|县|旗|区|镇|乡|街道|村|屯|社区")
_UNIT = re.compile(
    r"(?:省|自治区|市|州|盟|县|旗|区|镇|乡|街道|村|屯|庄|社区|小区|大道|路|街|巷|道|胡同|里|苑|园|花园|家园|城|新村|公寓)"
    r"|[0-9a-z]{1,5}-?[0-9]{0,5}(?:号楼|号院|号|栋|幢|座|单元|室|弄|组|楼|层|门)"
)
_DOOR = re.compile(r"[0-9]{1,5}(?:号楼|号院|号|栋|幢|座|单元|室|弄|组|楼)")
_VILLAGE = re.compile(r"[县区市][^县区市]{1,8}[镇乡][^镇乡]{1,8}村")
_WIDEST_GAP = 12


class _Lexicon(NamedTuple):
    surnames: frozenset[str]
    given: frozenset[str]
    words: frozenset[str]


@cache
def lexicon() -> _Lexicon:
    """Surnames, characters of given names, and the beginnings of words that only look like names."""
    single, double, given, words = _lines(_NAMES)
    return _Lexicon(frozenset(single) | frozenset(double.split()), frozenset(given), frozenset(words.split()))


@cache
def _place() -> re.Pattern[str]:
    """Where an address without a label may begin."""
    provinces, cities = ("|".join(line.split()) for line in _lines(_PLACES))
    return re.compile(f"(?:{provinces})(?:省|市|(?:壮族|回族|维吾尔)?自治区|特别行政区)?|(?:{cities})市")


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def name(view: View) -> Iterator[Place]:
    """Names in fields and signatures, after a title, before one, and beside a number that is masked."""
    text = view.folded
    places = [place for label in _FORM.finditer(text) if (place := _in_form(text, label.end()))]
    for label in (_FIELD, _CALLED, _TITLE_BEFORE, _LISTED):
        places += [place for match in label.finditer(text) if (place := _after(text, match.end()))]
    for title in (_TITLE_AFTER, _KIN):
        places += [place for match in title.finditer(text) if (place := _before(text, match.start()))]
    places += _alone(text)
    yield from apart(places)


def address(view: View) -> Iterator[Place]:
    """Addresses after a label, or from a known province or city down to a door or a village."""
    text = view.folded
    places = [_address_at(text, label.end(), labelled=True) for label in _ADDRESS_LABEL.finditer(text)]
    places += [_address_at(text, known.start(), labelled=False) for known in _place().finditer(text)]
    yield from apart(place for place in places if place)


def _in_form(text: str, start: int) -> Place | None:
    """The name in a form: all the Chinese characters up to the next sign, when they begin with a surname."""
    spaced = _SPACED.match(text, start)
    if spaced and spaced[1] in lexicon().surnames and _given(spaced[3]):
        return Place(start, spaced.end(3))
    run = _HAN_RUN.match(text, start)
    if run is None:
        return None
    surname = _surname(run[0])
    given = run[0][len(surname) :]
    if surname and 1 <= len(given) <= 2 and (_given(given) or run[0][:2] not in lexicon().words):
        return Place(start, start + len(run[0]))
    return _after(text, start)


def _after(text: str, start: int) -> Place | None:
    """The name that begins at ``start``, by its surname and by what follows it; the longer one if both will do."""
    surname = _surname(text[start : start + _LONGEST])
    if not surname:
        return None
    word = text[start : start + 2] in lexicon().words
    for length in (len(surname) + 2, len(surname) + 1):
        # 患者常先, 患儿应适: an adverb with half a word behind it, not a short name.
        if length == 2 and surname in _ADVERBS and _HAN_RUN.match(text, start + length):
            continue
        given = text[start + len(surname) : start + length]
        if len(given) + len(surname) != length or not _FOLLOWS.match(text, start + length):
            continue
        # The sex after it makes 高明 a name, and the age makes one of characters no list has.
        likely = _given(given) or (not word and _all_han(given) and _AGE.match(text, start + length))
        if likely and (not word or _SEX.match(text, start + length)):
            return Place(start, start + length)
    return None


def _before(text: str, end: int) -> Place | None:
    """The name that ends at ``end``, where its title or its kin stands."""
    for length in (4, 3, 2):
        start = end - length
        candidate = text[max(0, start) : end]
        surname = _surname(candidate)
        if start < 0 or not surname or not 1 <= length - len(surname) <= 2 or candidate[:2] in lexicon().words:
            continue
        if length == 2 and surname in _ADVERBS and _HAN_RUN.match(text[max(0, start - 1) : start]):  # 及时向医生
            continue
        edge = _LEADS.search(text[max(0, start - 3) : start])
        if _given(candidate[len(surname) :]) and edge:
            return Place(start, end)
    return _lone_surname(text, end)


def _lone_surname(text: str, end: int) -> Place | None:
    if text[end : end + 1] in "( ":  # kin and blanks are too little for one character
        return None
    for length in (2, 1):
        start = end - length
        if start < 0 or text[start:end] not in lexicon().surnames or text[start:end] in _NO_LONE_SURNAME:
            continue
        if _LEADS.search(text[max(0, start - 3) : start]):
            return Place(start, end)
    return None


_ALONE = compiled(rf"(?<![{HAN}])([{HAN}]{{2,4}})(?=[,;\s(]{{1,3}}{FILL}|[,\s]{{1,6}}(?:性别|男|女))")


def _alone(text: str) -> Iterator[Place]:
    """A name that stands between signs, just before something masked or the sex: 张三,[身份证1]; 张三,男."""
    for match in _ALONE.finditer(text):
        surname = _surname(match[1])
        given = match[1][len(surname) :]
        if not surname or not 1 <= len(given) <= 2 or not _given(given):
            continue
        if match[1][:2] not in lexicon().words or _SEX.match(text, match.end(1)):
            yield Place(*match.span(1))


def _surname(text: str) -> str:
    known = lexicon().surnames
    return text[:2] if len(text) > 2 and text[:2] in known else text[:1] if text[:1] in known else ""


def _given(characters: str) -> bool:
    return bool(characters) and lexicon().given.issuperset(characters)


def _all_han(characters: str) -> bool:
    # 李某某 is masked already, by whoever wrote it.
    return "某" not in characters and _HAN_RUN.fullmatch(characters) is not None


def _address_at(text: str, start: int, *, labelled: bool) -> Place | None:
    run = _ADDRESS_RUN.match(text, start)
    if run is None:
        return None
    end, units = 0, 0
    for unit in _UNIT.finditer(run[0]):
        if unit.start() - end > _WIDEST_GAP:
            break
        end, units = unit.end(), units + 1
    body = run[0][:end]
    if units < 2 or not _REGION.search(body):
        return None
    exact = _DOOR.search(body) or _VILLAGE.search(body)
    return Place(start, start + end) if labelled or exact else None
