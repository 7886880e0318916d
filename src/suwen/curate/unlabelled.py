"""Drawing of unlabelled, mostly query-like texts: clauses, spans of clauses, names in question patterns, and their mix.

For alignment and masked modelling, where a text needs no label. Reading the sources is for the caller; everything drawn
at random comes from the generator that is passed in, so the same seed draws the same texts.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from suwen.curate.leakage import HeldOut, comparable
from suwen.text.clean import clean
from suwen.text.split import sentences

# A comma inside a number (1,000) or a point (7.5) ends no clause; the Chinese marks always do.
_CLAUSE = re.compile(r"[^，。？！；\n]+?(?:[，。？！；\n]|[,.;?!](?=\s|$|[^\x00-\x7f])|$)+")
_LETTERED = re.compile(r"\w")
_HAN = re.compile("[\u4e00-\u9fff]")
#: Kinds that are not put as a query would be.
_LONG = ("answer", "sentence")
#: So many offers without one taken, and there is nothing new to be had.
_PATIENCE = 10_000
#: A word with a letter in it; a hyphen or apostrophe inside belongs to it.
_WORD = re.compile(r"[^\W_]*[^\W\d_][^\W_]*(?:['-][^\W_]+)*")
_EDGES = " \t\n，。？！；、：,.;?!:"


def clauses(text: str) -> list[str]:
    """Cut a text at commas and sentence marks; each clause keeps its mark, and one without a letter is left out.

    >>> clauses("我咳嗽三天了，体温37.5度。怎么办？")
    ['我咳嗽三天了，', '体温37.5度。', '怎么办？']
    """
    return [match[0] for match in _CLAUSE.finditer(text) if _LETTERED.search(match[0])]


def spans(text: str, count: int, draw: random.Random, *, longest: int = 4) -> Iterator[str]:
    """Draw up to ``count`` runs of one to ``longest`` clauses that follow each other, without the marks at the ends.

    >>> sorted(spans("头疼，发烧。吃什么药", 20, random.Random(1), longest=2))
    ['发烧', '发烧。吃什么药', '吃什么药', '头疼', '头疼，发烧']
    """
    parts = clauses(text)
    runs = [(at, size) for size in range(1, longest + 1) for at in range(len(parts) - size + 1)]
    for at, size in draw.sample(runs, min(count, len(runs))):
        yield "".join(parts[at : at + size]).strip(_EDGES)


def sentence_texts(text: str) -> list[str]:
    """The sentences of a text.

    >>> sentence_texts("多喝水。注意休息！")
    ['多喝水。', '注意休息！']
    """
    return [text[start:end] for start, end in sentences(text)]


def first_and_rest(text: str, *, least: int = 4) -> tuple[str, str] | None:
    """The first sentence and what follows it; None when either is shorter than ``least`` characters.

    >>> first_and_rest("感冒多由病毒引起。一般一周自愈，注意休息。")
    ('感冒多由病毒引起。', '一般一周自愈，注意休息。')
    """
    spans_ = sentences(text)
    if len(spans_) < 2:
        return None
    first, rest = text[spans_[0].start : spans_[0].end], text[spans_[1].start :].strip()
    return (first, rest) if min(len(first), len(rest)) >= least else None


def halves(text: str, *, least: int = 8) -> tuple[str, str] | None:
    """Cut a text in two at the clause end nearest to its middle; None when a half is shorter than ``least``.

    >>> halves("高血压病人应当低盐饮食，并且每天测量两次血压。")
    ('高血压病人应当低盐饮食，', '并且每天测量两次血压。')
    """
    ends = [match.end() for match in _CLAUSE.finditer(text)]
    if not ends:
        return None
    middle = min(ends, key=lambda end: abs(end - len(text) / 2))
    left, right = text[:middle].strip(), text[middle:].strip()
    return (left, right) if min(len(left), len(right)) >= least else None


def windows(text: str, count: int, draw: random.Random, *, shortest: int = 3, longest: int = 12) -> Iterator[str]:
    """Draw ``count`` runs of words: for text without punctuation, where there are no clauses.

    >>> list(windows("statin breast cancer survival", 2, random.Random(0), longest=3))
    ['breast cancer survival', 'breast cancer survival']
    """
    words = text.split()
    if len(words) < shortest:
        return
    for _ in range(count):
        size = draw.randint(shortest, min(longest, len(words)))
        at = draw.randint(0, len(words) - size)
        yield " ".join(words[at : at + size])


def terms(texts: Iterable[str], *, least: int = 3, common: float = 0.15) -> Iterator[str]:
    """Words, and pairs of words that follow each other, of texts with spaces: what people search for by a name alone.

    In small letters, the most frequent first.

    Args:
        texts: Each counts once for each of its terms.
        least: Texts that a term must be in.
        common: A word in more than this share of the texts is no term, nor a part of one.

    >>> list(terms(["The statin helps.", "Does statin use harm?", "Stop statin use!", "No."], least=2, common=0.8))
    ['statin', 'statin use', 'use']
    """
    counted, count = Counter[tuple[str, ...]](), 0
    for count, text in enumerate(texts, 1):  # noqa: B007
        runs = [_WORD.findall(clause.lower()) for clause in clauses(text)]
        counted.update({(word,) for run in runs for word in run} | {pair for run in runs for pair in pairwise(run)})
    for words, number in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        if number >= least and all(counted[word,] <= common * count for word in words):
            yield " ".join(words)


def ask(names: Sequence[str], one: Sequence[str], two: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Put names into patterns without end: one name four times in five, else two that differ.

    >>> from itertools import islice
    >>> list(islice(ask(["感冒", "肺炎"], ["{x}怎么办"], ["{x}和{y}的区别"], random.Random(2)), 3))
    ['感冒和肺炎的区别', '肺炎怎么办', '感冒怎么办']
    """
    while names and one:
        if draw.random() < 0.8 or len(names) < 2 or not two:
            yield draw.choice(one).format(x=draw.choice(names))
        else:
            x, y = draw.sample(names, 2)
            yield draw.choice(two).format(x=x, y=y)


class Text(NamedTuple):
    """An unlabelled text: its kind (query, answer, title, sentence, span, name, pattern) and where it comes from."""

    text: str
    kind: str
    source: str


class Mix:
    """Unlabelled texts by language (zh with a Chinese character, else en) and kind; none twice, none held out."""

    def __init__(
        self,
        held_out: HeldOut,
        total: int,
        languages: Mapping[str, float],
        shares: Mapping[str, Mapping[str, float]],
        *,
        longest: int = 400,
    ) -> None:
        """Start with nothing.

        Args:
            held_out: What may not be taken, nor stand inside what is.
            total: How many texts are wanted in all.
            languages: The share of each language in the total, kept by :meth:`fill`.
            shares: By language, the share of the total that a kind may take.
            longest: Characters kept of a text.
        """
        self.taken: defaultdict[tuple[str, str], list[Text]] = defaultdict(list)
        self.left_out: Counter[str] = Counter()
        self._held_out, self._total, self._longest = held_out, total, longest
        self._languages, self._shares = languages, shares
        self._seen: set[str] = set()

    def take(self, texts: Iterable[Text]) -> None:
        """Take what is new, until its kind has its share."""
        for text in texts:
            language = "zh" if _HAN.search(text.text) else "en"
            if len(self.taken[language, text.kind]) < int(self._shares[language][text.kind] * self._total):
                self._offer(language, text)

    def fill(self, language: str, kind: str, texts: Iterable[Text]) -> None:
        """Take texts of one kind, which may be without end, until the language has its share or nothing new comes."""
        missing = int(self._languages[language] * self._total) - self._size(language)
        refused = 0
        for text in texts:
            if missing <= 0 or refused >= _PATIENCE:
                return
            taken = self._offer(language, text._replace(kind=kind))
            missing, refused = missing - taken, 0 if taken else refused + 1

    def counts(self) -> dict[str, Any]:
        """What the mix has become."""
        total = sum(map(len, self.taken.values()))
        asked = sum(len(texts) for (_, kind), texts in self.taken.items() if kind not in _LONG)
        sources = Counter(text.source for texts in self.taken.values() for text in texts)
        return {
            "total": total,
            "by language and kind": {" ".join(key): len(self.taken[key]) for key in sorted(self.taken)},
            "by source": dict(sorted(sources.items())),
            "share of Chinese": round(self._size("zh") / max(1, total), 3),
            "share of query-like kinds": round(asked / max(1, total), 3),
            "left out": dict(self.left_out),
        }

    def _size(self, language: str) -> int:
        return sum(len(texts) for (own, _), texts in self.taken.items() if own == language)

    def _offer(self, language: str, text: Text) -> bool:
        cut = clean(clean(text.text)[: self._longest])
        compared = comparable(cut)
        if len(compared) < 2:
            reason = "too short"
        elif compared in self._seen:
            reason = "repeated"
        elif self._held_out.hit_compared(compared) is not None:
            reason = "held out"
        else:
            self._seen.add(compared)
            self.taken[language, text.kind].append(text._replace(text=cut))
            return True
        self.left_out[reason] += 1
        return False
