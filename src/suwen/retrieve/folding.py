"""One of each on a page: near-duplicates folded into one hit, bare names after answers. Knows passages, no rankings.

Two passages are the same only where nothing but punctuation, width, case, script, filling words and what a site puts
around its texts differs. Any other word keeps them apart: no list has all numbers, drugs and words that deny.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

from suwen.index.engine import StoredPassage
from suwen.text.fold import fold
from suwen.text.question import subject
from suwen.text.segment import bigrams

#: Lengths and scores further apart than this are of different texts: looked at first, since it costs nothing.
_LENGTHS, _SCORES = 0.78, 0.03
#: Of so many stretches of the one, spread over it, at least one stands in the other: to break each, more must be
#: changed than near-duplicates differ by, at just these places. Three Chinese characters, or ten of English.
_STRETCHES, _STRETCH, _LATIN_STRETCH = 8, 3, 10
#: How much of their characters they share at least, and how much where one of them alone has some of the most usual
#: traditional ones: a text and its copy in them share about 0.5.
_CHARACTERS, _TWO_SCRIPTS = 0.6, 0.3
_TRADITIONAL = frozenset("個這後對會時過發經應當藥醫與為無質體現")
#: A passage up to this many characters and without a stop is a name and no answer: an entry of a code list, a heading.
#: Latin letters take three times as many, and lists put commas between a disease and its kind.
_NAME, _LATIN_NAME = 24, 80
_SENTENCE = re.compile(r"[。！？；，!?;]|[.,](?:\s|$)")
_LATIN_SENTENCE = re.compile(
    r"[!?;]|\.(?:\s|$)|\b(?:is|are|was|were|can|may|should|must|will|you|your|i|it|they|if)\b", re.I
)
#: The least share of what a query says that a name says which stands where it was found: below, the query says more.
_SAYS_AS_MUCH = 0.5

_DATE = r"(?:\d{4}\D\d{1,2}\D\d{1,2}日?|\d{1,2} [a-z]{3,9} \d{4}|[a-z]{3,9} \d{1,2}, \d{4})"
#: Whole clauses that say nothing of medicine. What they may hold is spelt out, with no gap but for a name.
_BOILERPLATE = (
    r"(?:您|你|大家)好|(?:非常)?(?:谢谢|感谢)[您你的大家进行咨询提问信任支持阅读对我们]*",
    r"(?:希望|期望)[我以上述的这些回答解释建议内容能可够对您你]*有?所?(?:帮助|帮到)[您你了的]*",
    r"祝[您你大家早日身体生活健康愉快幸福平安顺利一切康复]+",
    r"(?:以上|本文|上述)?[内容信息回答建议]*仅供[您你]?参考",
    r"本文[由来自转][\w ]{1,12}(?:网|报|社|平台|公众号)(?:整理|提供|发布|编辑)?",
    r"(?:文章|本文)?(?:来源|转自|摘自|出处): ?\w{1,16}(?:网|报|社|杂志|公众号|平台)",
    r"(?:责任编辑|责编|编辑|作者|审稿): ?[\u4e00-\u9fff]{2,4}",
    rf"(?:发布|更新|发表|审核)(?:时间|日期|于)?:? ?{_DATE}",
    rf"(?:last |page )?(?:updated|reviewed|modified|published|posted)(?: on)?:? {_DATE}",
    r"hello|thank(?:s| you)(?: very much)?(?: for (?:your|the|asking|writing|question|query|reading|trust|in|us| )+)?",
    r"(?:i )?hope this helps(?: you)?|all rights reserved|(?:©|copyright)[\w .©&-]*",
    r"this (?:information|content|article|page) is (?:intended )?for "
    r"(?:general|educational|informational|and|or| )+purposes only",
)
# Each pattern begins with characters it looks for: with a look behind it first, each took three times as long.
_AROUND = re.compile(rf"([。.!;,\n()]\s*)(?:{'|'.join(_BOILERPLATE)})(?=\s*(?:$|[。.!;,\n()]))")
#: Words that add nothing to a sentence, headings of answers among them. None may be a part of a name: "a" is not here
#: for the sake of hepatitis A.
_FILLING = (
    *("您好", "你好", "病情分析", "问题分析", "意见建议", "指导意见"),
    *("的", "请", "您", "你", "对于", "此外", "另外", "其实", "当然"),
)
_LATIN_FILLING = re.compile(
    r"[tpknamfio](?<!\w.)(?:he|lease|indly|ote that|lso|oreover|urthermore|dditionally|n addition|f course)\b"
)
#: A stop after a word that denies is a part of what is said: 过敏：无，高血压 is not 过敏：无高血压.
_DENIED = re.compile(r"([不没无否非未勿有]|[ny](?<!\w.)(?:ot?|one|ever|es))\s*[,.;:、。!\n]")
#: What may be between words without saying anything. A question mark is not in it (肺炎？ is a suspicion), nor is a
#: sign (T值-2.5), and a point, a comma, a colon, a dash or a prime beside a digit are a part of the number.
_PUNCTUATION = re.compile(r"[\s、。;!“”‘「」『』《》〈〉()\[\]{}【】〔〕•●■◆…|]+")
_BY_NUMBERS = re.compile(
    r"[.,:·\"'’–—-](?:(?<!\d.)(?<![–—-])|(?<=[.,:·])(?!\d)|(?<=[–—])(?!\s*\d)|(?<=[^\W\d]-)(?=[^\W\d])|(?<=[a-z]-)(?=\d))"
)
_HAN = "[\u3400-\u4dbf\u4e00-\u9fff]"
#: Spaces that part no two words: beside Chinese, and between a number and its unit.
_SPACE = re.compile(rf" (?:(?<={_HAN} )|(?={_HAN})|(?<=\d )(?=[a-zμ%°℃]))")
#: Mega and milli are told apart by case alone.
_MEGA = re.compile(r"M(?=(?:g|mol|I?U|Bq|Hz)\b)(?:(?<=\dM)|(?<=\d M))")
_NO_DIGITS = bytes(set(range(256)) - set(b"0123456789"))
#: Without any of these, a text has no digits but those that count: a date or a site is what else has some.
_LATIN_CUES = ("updated", "reviewed", "modified", "published", "posted", "copyright")
_CUE = re.compile(
    "[０-９©本来來转摘出发更审](?:(?<=[０-９©])|(?<=本)文|(?<=[来"
    "來])源[:：]|(?<=[转摘])自|(?<=出)处|(?<=[发更审])[布新表核])"
)


def said(text: str) -> str:
    """What a text says, in its order: two texts of which this is the same are one.

    >>> said("您好！每次服２００ 毫克。") == said("每次服200毫克"), said("每次服两片") == said("每次服四片")
    (True, False)
    """
    text = _AROUND.sub(r"\1", "\n" + fold(_MEGA.sub("mega", text)))
    for word in _FILLING:
        text = text.replace(word, " ")
    text = _DENIED.sub(r"\1/", _LATIN_FILLING.sub(" ", text))
    text = _BY_NUMBERS.sub(" ", _PUNCTUATION.sub(" ", text))
    return _SPACE.sub("", " ".join(text.split()))


class Content:
    """What a passage says, as far as telling two apart goes; worked out when it is asked for, the cheapest first."""

    def __init__(self, item: StoredPassage, score: float) -> None:
        self.item, self.score = item, score
        raw = item.passage.content
        self._ascii = raw.isascii()
        # Case is folded at once where that costs nothing.
        self._raw = raw.lower() if self._ascii else raw
        self.length = max(1, len(raw))
        # One pattern of all Latin words takes more than twice as long as looking for each.
        whole = any(word in self._raw for word in _LATIN_CUES) if self._ascii else _CUE.search(self._raw)
        #: The digits in it, which are soon had: where these differ, nothing else is looked at.
        self.digits = bytes(sorted((self.said if whole else raw).encode("ascii", "ignore").translate(None, _NO_DIGITS)))

    @cached_property
    def characters(self) -> frozenset[str]:
        """Its characters, before folding."""
        return frozenset(self._raw)

    @cached_property
    def traditional(self) -> bool:
        """Whether it has some of the most usual traditional characters."""
        return not _TRADITIONAL.isdisjoint(self.characters)

    @cached_property
    def said(self) -> str:
        """What it says, see :func:`said`."""
        return said(self.item.passage.content)

    def same_as(self, other: Content) -> bool:
        """Whether the other says the same in the same words."""
        if abs(self.score - other.score) > _SCORES or not _LENGTHS <= self.length / other.length <= 1 / _LENGTHS:
            return False
        # What is cheap comes first: looking at each pair by its words took longer than the search.
        if self.digits != other.digits or not self._touches(other):
            return False
        # English texts all share their letters: there a stretch of ten tells more.
        if not (self._ascii or other._ascii or self._shares(other)):
            return False
        return self.said == other.said

    def _shares(self, other: Content) -> bool:
        """Whether they share the characters that near-duplicates share."""
        both = len(self.characters & other.characters)
        every = len(self.characters) + len(other.characters) - both
        return both >= _CHARACTERS * every or (both >= _TWO_SCRIPTS * every and self.traditional != other.traditional)

    def _touches(self, other: Content) -> bool:
        """Whether any of a few stretches of this text stands in the other as well: of most pairs none does."""
        size = _LATIN_STRETCH if self._ascii else _STRETCH
        for start in range(0, self.length, self.length // _STRETCHES + 1):
            if self._raw[start : start + size] in other._raw:
                return True
        return False


def is_question(query: str) -> bool:
    """Whether a query asks something, rather than name or tell it.

    >>> is_question("哮喘"), is_question("哮喘怎么办"), is_question("N20.0"), is_question("哮喘发作喷几下")
    (False, True, False, False)
    """
    return subject(query).strip() != fold(query).strip()


def is_name(item: StoredPassage) -> bool:
    """Whether a passage is a name and nothing more: short, and no sentence."""
    if len(item.passage.text.strip()) > _LATIN_NAME:
        return False  # as of nearly all passages, which is soon seen
    content = item.passage.content.strip()
    if content.isascii():
        return len(content) <= _LATIN_NAME and not _LATIN_SENTENCE.search(content)
    return len(content) <= _NAME and not _SENTENCE.search(content)


def says_less(query: str) -> Callable[[StoredPassage], bool]:
    """Which passages say less than a query asks for: bare names, under a question all that are not its very words.

    Where no question is asked (高血压肾病) a similar name is looked for, and one word of it (哮喘发作喷几下) is not.
    """

    def less(item: StoredPassage) -> bool:
        if not is_name(item):
            return False
        asked, least = _asked(query)
        return len(asked.intersection(bigrams(item.passage.content))) < least

    return less


@lru_cache(maxsize=1)  # of one search at a time, and of most none: few pages have names
def _asked(query: str) -> tuple[frozenset[str], float]:
    """The terms of a query, and how many of them a name must have."""
    asked = frozenset(bigrams(query))
    return asked, len(asked) * (1.0 if is_question(query) else _SAYS_AS_MUCH)


def first_of_each(found: Sequence[Content]) -> list[list[Content]]:
    """Contents in their order, each with those that say the same."""
    kept: list[list[Content]] = []
    # Texts with other digits are never the same: each is held against those with its own alone.
    alike: dict[bytes, list[list[Content]]] = {}
    for content in found:
        groups = alike.setdefault(content.digits, [])
        twins = next((group for group in groups if group[0].same_as(content)), None) if groups else None
        if twins is None:
            twins = []
            kept.append(twins)
            groups.append(twins)
        twins.append(content)
    return kept
