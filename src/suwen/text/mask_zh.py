"""Rules for names in Chinese characters, on the folded text. How much a sign weighs was learnt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import rjieba

from suwen.text.mask_context import (
    COLON,
    FIELD,
    FOLLOWED,
    FORM,
    HUMAN,
    KIN_AFTER,
    SEX,
    STRONG,
    SURE_AFTER,
    THING_AFTER,
    TITLE_AFTER,
    before_words,
)
from suwen.text.mask_view import FILL, HAN, Found, View, compiled

_NAMES = Path(__file__).with_name("names_zh.txt")
_WEIGHTS = Path(__file__).with_name("name_weights.json")
_HAN_RUN = re.compile(f"[{HAN}]{{2,}}")
_RUN_HERE = re.compile(f"[{HAN}]{{1,6}}")
_HAN_ONE = re.compile(f"[{HAN}]")
_REACH = 12
_SPACED = re.compile(rf"([{HAN}])( {{1,3}})([{HAN}])(?= |$|[^{HAN}])")
_COMMON = frozenset(
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩邓冯曹彭曾肖田董潘袁蔡蒋余于杜叶程魏苏吕丁任卢姚沈钟"
    "姜崔谭陆范汪廖石金韦"
    "贾夏付方邹熊白孟秦邱侯江尹薛闫段雷龙史陶贺毛郝顾龚邵万覃武钱戴严莫孔向常汤"
)
# Surnames that are everyday words before a title: 由医生, 和护士, 应主任.
_WORDLIKE = frozenset(
    "常应那和时于都能向全须尚曾易经从后却由是公家单相别强高关原代位方成明安平连通广师党农国母双有为对在将等"
)
_FOOD = frozenset("麦米姜")
_NO_LONE_TITLE = frozenset(("您好", "你好", "收", "之子", "之女", "之妻", "之夫", "之母", "之父"))
_LIKELY = frozenset("高方关安易曾")
_NO_LONE = _WORDLIKE | frozenset("须那")
_NICK = re.compile(
    rf"([小老阿])([{HAN}]{{1,2}}?)(?=[,:!?。、\s]|的|你|您|在|住|说|昨|今|明|前|上|这|那|去|来|和|又|也|一|自|"
    rf"得|腿|头|心|$)"
)
_OWN_SURNAME = compiled(rf"我姓([{HAN}]{{1,2}})(?=[,。;!\s]|$)")
_DOT = re.compile("[·•・‧∙]")


class _Lexicon(NamedTuple):
    surnames: frozenset[str]
    given: frozenset[str]
    words: frozenset[str]
    foreign: frozenset[str]


@cache
def lexicon() -> _Lexicon:
    """Surnames, characters of given names, beginnings of words that only look like names, and of foreign names."""
    lines = [line for line in _NAMES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    single, double, given, words, foreign = lines
    surnames = frozenset(single) | frozenset(double.split())
    return _Lexicon(surnames, frozenset(given), frozenset(words.split()), frozenset(foreign))


@cache
def _learnt() -> dict[str, Any]:
    return json.loads(_WEIGHTS.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def weights() -> Mapping[str, float]:
    """How much each sign of a name counts; ``bias`` is what they have to outweigh."""
    return _learnt()["weights"]  # type: ignore[no-any-return]


@cache
def things() -> frozenset[str]:
    """Words that look like names and recur in medical text (金樱子, 黄连素): names only where something says so."""
    return frozenset(_learnt()["things"].split())


class Candidate(NamedTuple):
    """What may be a name, and the signs for and against it."""

    start: int
    end: int
    signs: tuple[str, ...]


def names(view: View) -> Iterator[Found]:
    """Names in fields and signatures, with a role, a title or a relation beside them, and what reads like a name."""
    text = view.folded
    yield from (Found(start, end, "name") for start, end in _in_forms(text))
    yield from (Found(start, end, "name") for start, end in _dotted(text))
    yield from (Found(start, end, "name") for start, end in _foreign(text))
    yield from (Found(start, end, "name") for start, end in _lone(text))
    known = weights()
    scored = [
        # 患者高明，男: the role before and the sex behind leave no doubt.
        (1.0 if _SEXED.issubset(one.signs) else known["bias"] + sum(known.get(sign, 0.0) for sign in one.signs), one)
        for one in candidates(text)
    ]
    taken: list[Candidate] = []
    used = bytearray(len(text))
    for _, one in sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0]):
        if not any(used[one.start : one.end]):
            used[one.start : one.end] = b"\1" * (one.end - one.start)
            taken.append(one)
    things = {text[one.start : one.end] for one in taken if THING_AFTER.match(text, one.end)}
    yield from (Found(one.start, one.end, "name") for one in taken if text[one.start : one.end] not in things)


def candidates(text: str) -> Iterator[Candidate]:
    """Everything that begins with a surname and has a word or a sign around it that may belong to a name."""
    fields = {
        colon.end() for colon in COLON.finditer(text) if FIELD.search(text[max(0, colon.start() - 14) : colon.start()])
    }
    given, known = lexicon().given, lexicon().surnames
    for match in _surname().finditer(text):
        start = match.start()
        size = 2 if text[start : start + 2] in known else 1
        first = text[start + size : start + size + 1] in given
        left = "field" if start in fields else _left(text, start)
        strong = left in STRONG
        for length in (size + 1, size + 2):
            name = text[start : start + length]
            likely = first or (length > size + 1 and name[-1:] in given)
            if (title := TITLE_AFTER.match(text, start + size)) and len(title[0]) > 1:  # 王先生, 张医生
                break
            if (likely or strong) and len(name) == length and _HAN_RUN.fullmatch(name) and "某" not in name:
                right = _right(text, start + length)
                if left == "han" and right not in SURE_AFTER:
                    continue
                sure = strong or right in ("title", "sex", "kin")
                if not sure and name in things():
                    continue
                token = _token(text, start, length, size)
                if sure or (token != "inside" and (right != "han" or token in ("nr", "surname+nr"))):
                    yield Candidate(start, start + length, _signs(text, start, length, size, left, right, token))


@cache
def _surname() -> re.Pattern[str]:
    return re.compile(f"[{''.join({name[0] for name in lexicon().surnames})}](?=[{HAN}])")


def _signs(text: str, start: int, length: int, size: int, left: str, right: str, token: str) -> tuple[str, ...]:
    name = text[start : start + length]
    given = sum(character in lexicon().given for character in name[size:])
    shape = "double" if size == 2 else "common" if name[0] in _COMMON else "rare"
    said = "all" if given == length - size else "some" if given else "none"
    strong = "strong" if left in STRONG or right in SURE_AFTER else "weak"
    return (
        f"left {left}",
        f"right {right}",
        f"token {token} {strong}",
        f"given {said} {length - size}",
        f"given {said} {strong}",
        f"surname {shape}",
        f"{'word' if name[:2] in lexicon().words else 'free'} {strong}",
        f"wordlike{length}" if name[0] in _WORDLIKE else "plain",
        f"surname {name[:size]}",
        f"given {name[size]}",
        f"last {name[-1]}",
        f"{left} {right}",
        f"{token} {right}",
        f"{'known' if rjieba.has_word(name) else 'new'} {token} {strong}",
    )


def _left(text: str, start: int) -> str:
    """What stands before a candidate."""
    last = text[start - 1 : start]
    if _IN_BED.search(text, max(0, start - 4), start):
        return "role"
    if not last.isalpha():
        if last == FILL:
            return "fill"
        if last in _LISTING and text[start - 2 : start - 1] == FILL:
            return "list"
        # 患者，王小明，男: the role is named and then the person.
        kind = before_words(text, start - 1) if last and last in ", (" else ""
        if kind in ("role", "kin", "called", "title") and (last in " (" or kind == "role"):
            return kind
        return "enum" if last == "、" else "edge"
    return before_words(text, start) or ("edge" if last.isascii() else "han")


_IN_BED = re.compile(rf"{FILL}\s?床\s?$")
_SEXED = frozenset(("left role", "right sex", "given all strong"))
_LISTING = frozenset(",、/ 和及与")


def _right(text: str, end: int) -> str:
    """What stands after a candidate."""
    following = text[end : end + 1]
    if not following.isalpha():
        if SEX.match(text, end):
            return "sex"
        if following == "(" and KIN_AFTER.match(text, end):
            return "kin"
        if FILL in text[end : end + 3]:
            return "fill"
        return "enum" if following == "、" else "edge"
    if TITLE_AFTER.match(text, end):
        return "title"
    if HUMAN.match(text, end):
        return "human"
    return "verb" if FOLLOWED.match(text, end) else "edge" if following.isascii() else "han"


def _token(text: str, start: int, length: int, size: int) -> str:
    """How the words of the text lie to the candidate."""
    begin, tokens = _words_around(text, start)
    place = start - begin
    if place not in tokens:
        return "inside"
    end, tag = tokens[place]
    if end == place + length:
        return "nr" if tag.startswith("nr") else "word"
    if end > place + length:
        return "longer nr" if tag.startswith("nr") else "longer"
    if end == place + size and end in tokens and tokens[end][0] == place + length:
        return "surname+nr" if tokens[end][1].startswith("nr") else "surname+word"
    while end < place + length and end in tokens:
        end = tokens[end][0]
    return "pieces" if end == place + length else "cut"


def _words_around(text: str, start: int) -> tuple[int, Mapping[int, tuple[int, str]]]:
    """The words of the run of characters around a place, and where that run begins; a long run only in part."""
    left = start
    while left > 0 and start - left < _REACH and _HAN_ONE.match(text, left - 1):
        left -= 1
    run = _HAN_RUN.match(text, left, start + _REACH)
    return left, words_of(run[0]) if run else {}


@lru_cache(maxsize=2048)
def words_of(run: str) -> Mapping[int, tuple[int, str]]:
    """Where each word of a run of characters begins, with where it ends and what part of speech it is."""
    places, place = {}, 0
    for word, tag in rjieba.tag(run):
        places[place] = (place + len(word), tag)
        place += len(word)
    return places


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether no word of the text reaches over the ends of ``text[start:end]``: 张力 in 肌张力 does not stand alone."""
    if not _HAN_ONE.match(text[start - 1 : start]):
        return True
    begin, tokens = _words_around(text, start)
    whole = start - begin in tokens and any(stop == end - begin for stop, _ in tokens.values())
    return whole and (_left(text, start) != "han" or _right(text, end) in SURE_AFTER)


def _in_forms(text: str) -> Iterator[tuple[int, int]]:
    """What stands in the field of a name: all the Chinese characters up to the next sign, whatever they are."""
    for label in FORM.finditer(text):
        start = label.end()
        spaced = _SPACED.match(text, start)
        if spaced and spaced[1] in lexicon().surnames and spaced[3] in lexicon().given:
            yield start, spaced.end(3)
            continue
        run = _RUN_HERE.match(text, start)
        if run is None or len(run[0]) < 2:
            continue
        size = 2 if run[0][:2] in lexicon().surnames else 1 if run[0][0] in lexicon().surnames else 0
        following = text[run.end() : run.end() + 1]
        closed = not _HAN_ONE.match(following) and following not in ("·", ":")
        likely = (
            size
            and size < len(run[0]) <= size + 2
            and (run[0][:2] not in lexicon().words or SEX.match(text, run.end()))
        )
        other = len(run[0]) <= 6 and (lexicon().foreign.issuperset(run[0]) or not _common_word(run[0]))
        if closed and (likely or other):
            yield run.span()


def is_full_name(value: str) -> bool:
    """Whether a whole value is the name of a person, to the eye: a surname, two to four characters, and no word.

    >>> is_full_name("王建国"), is_full_name("高血压"), is_full_name("阿依古丽·买买提")
    (True, False, True)
    """
    if _DOT.search(value):
        return next(_dotted(value), None) == (0, len(value))
    size = 2 if value[:2] in lexicon().surnames else 1 if value[:1] in lexicon().surnames else 0
    return bool(size and size < len(value) <= size + 2 and _HAN_RUN.fullmatch(value) and not _common_word(value))


def _common_word(run: str) -> bool:
    """Whether what stands in a name's field is an ordinary word (不详, 同上, 本人签字) or several."""
    tags = rjieba.tag(run)
    if len(tags) == 1:
        return rjieba.has_word(run) and not tags[0][1].startswith("nr")
    return len(run) > 4 or all(len(word) > 1 for word, _ in tags)


def _dotted(text: str) -> Iterator[tuple[int, int]]:
    """Names with a point in them (阿依古丽·买买提), as far as characters of foreign names go on both sides."""
    for match in _pointed().finditer(text) if _DOT.search(text) else ():
        if not THING_AFTER.match(text, match.end()):
            yield match.span()


@cache
def _pointed() -> re.Pattern[str]:
    foreign = f"[{''.join(lexicon().foreign)}]"
    return re.compile(f"{foreign}{{1,8}}(?:[·•・‧∙]{foreign}{{1,9}}){{1,3}}")


def _foreign(text: str) -> Iterator[tuple[int, int]]:
    """A name of other letters without a point, right after a role or a relation: 患者扎西顿珠."""
    for match in _letters().finditer(text):
        end = match.end()
        following = text[end : end + 1]
        if following in ("·", "-") or (_HAN_ONE.match(following) and not HUMAN.match(text, end)):
            continue
        for start in range(match.start(), end - 2):
            if end - start < 8 and before_words(text, start) in STRONG and not _has_words(text[start:end]):
                yield start, end
                break


def _has_words(run: str) -> bool:
    return any(len(word) > 1 and tag[0] in "vadm" and rjieba.has_word(word) for word, tag in rjieba.tag(run))


@cache
def _letters() -> re.Pattern[str]:
    return re.compile(f"[{''.join(lexicon().foreign)}]{{3,9}}")


def _is_lone(text: str, start: int, surname: str, title: str) -> bool:
    """Whether a surname before a title is one: nothing but a word that leads to a person stands before it."""
    if len(title) == 1 and surname not in _COMMON:
        return False
    if surname not in _COMMON and rjieba.has_word(surname + title):  # 班主任
        return False
    if text[start - 1 : start].isdigit():  # 怀孕29周医生说
        return False
    left = _left(text, start)
    if surname in _NO_LONE:
        return surname in _LIKELY and (left in ("edge", "lead", "toward") or left in STRONG)
    return left != "han" or (surname in _COMMON and _own_word(text, start))


def _own_word(text: str, start: int) -> bool:
    """Whether a word of the text begins here that is the surname, or the surname with its title."""
    begin, tokens = _words_around(text, start)
    return start - begin in tokens


def _lone(text: str) -> Iterator[tuple[int, int]]:
    """A surname before a title, after 小 or 老, and after 我姓."""
    for title in TITLE_AFTER.finditer(text):
        if title[0] in _NO_LONE_TITLE or THING_AFTER.match(text, title.end()):  # 石大夫膏
            continue
        end = title.start() - (text[title.start() - 1 : title.start()] == " ")
        for size in (2, 1):
            surname = text[max(0, end - size) : end]
            if len(surname) == size and surname in lexicon().surnames and _is_lone(text, end - size, surname, title[0]):
                yield end - size, end
                break
    for nick in _NICK.finditer(text):
        if (
            nick[2] not in lexicon().surnames
            or nick[2] in _NO_LONE | _FOOD
            or (nick.start() and text[nick.start() - 1].isalnum())
        ):
            continue
        # 小米 and 老姜 are food, unless somebody is spoken to.
        opening = text[nick.start() - 1 : nick.start()] in ("", "。", "!", "?", "\n")
        if not opening and rjieba.has_word(nick[0]) and not rjieba.tag(nick[0])[0][1].startswith("nr"):
            continue
        # 小叶 and 小管 are parts of a leaf and of a kidney; who is spoken to, is a person.
        spoken = text[nick.end() : nick.end() + 1] in ("", ",", ":", "!", "?", "你", "您")
        if spoken or nick[1] == "老" or (nick[2] in _COMMON and not rjieba.has_word(nick[0])):
            yield nick.span(2)
    for own in _OWN_SURNAME.finditer(text):
        if own[1] in lexicon().surnames:
            yield own.span(1)
