"""What else a query could have said: other names of what it mentions, its misspelt words set right. Searches nothing.

Names come from the list of the package and from one of the index's own, :data:`FILE`; spelling from the names known and
from the index's own words. What is added is searched for beside what was typed, and told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from operator import ne
from typing import NamedTuple

from suwen.index.engine import Engine, Snapshot
from suwen.retrieve.naming import Name, names_of, pairs
from suwen.text.fold import fold
from suwen.text.homophones import sound_alike
from suwen.text.question import subject
from suwen.text.segment import bigrams, medical_words
from suwen.text.synonyms import Mention, Synonyms, shipped

#: The index's own list, kept beside its data; read again when it has changed.
FILE = "synonyms.txt"
#: A query longer than this many characters is a pasted text, which says all it has to say.
_LONGEST = 300
#: Latin words shorter than this are abbreviations as often as not, and never set right.
_SHORTEST = 5
#: From this length on, two letters may be wrong.
_LONG = 8
#: Names and phrases of Chinese that a slip is looked up among: shorter ones lie too close to others.
_HAN_LENGTHS = range(3, 8)
_HAN_RUN = re.compile("[\u4e00-\u9fff]+")
_LATIN = re.compile(r"(?<![a-z0-9])[a-z]+(?![a-z0-9])")


class Wording(NamedTuple):
    """A query as it is searched."""

    #: With misspelt words set right.
    text: str
    #: What the encoder reads: brand names and the like by their usual name, which it knows better.
    meant: str
    #: Names in the text, and what is searched for beside each.
    also: Mapping[str, Sequence[str]]
    #: Drugs, diseases, codes, genes and values in the text.
    names: tuple[Name, ...] = ()
    #: Whether the text is names and no more, but for what only makes it a question.
    bare: bool = False

    @property
    def told(self) -> tuple[str, ...]:
        """What was searched for beside what was typed."""
        return tuple(dict.fromkeys(name for names in self.also.values() for name in names))


class Wordings:
    """The lists of an index, and queries worded by them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own: tuple[int | None, Synonyms] = (None, Synonyms([]))

    def of(self, text: str, snapshot: Snapshot) -> Wording:
        """A query with its spelling set right and the other names of what it mentions, where the index has them."""
        if len(text) > _LONGEST:
            return Wording(text, text, {})
        own = self._own_list()
        wrong = corrections(text, snapshot, own)
        for typed, right in wrong.items():
            text = re.sub(re.escape(typed), right, text, flags=re.IGNORECASE)
        also: dict[str, tuple[str, ...]] = {right: (right,) for right in wrong.values()}
        meant, mentions = text, _mentions(text, own)

        def count(name: str) -> int:
            return min(snapshot.vocabulary(pairs(name)))

        for mention in mentions:
            there = tuple(name for name in mention.names if count(name))
            if there:
                also[mention.text] = (*also.get(mention.text, ()), *there)
            usual = next((name for name in mention.names if _same_script(name, mention.text)), None)
            if usual and not count(mention.text) and fold(usual) in _usual_names():
                meant = meant.replace(mention.text, usual)
        return Wording(text, meant, also, *names_of(text, mentions, count))

    def _own_list(self) -> Synonyms:
        version = self._engine.blob_version(FILE)
        if version != self._own[0]:
            kept = self._engine.get_blob(FILE) or b""
            self._own = (version, Synonyms.parse(kept.decode("utf-8"), FILE))
        return self._own[1]


def _mentions(text: str, own: Synonyms) -> list[Mention]:
    """What either list knows; where both do, the index's own."""
    first = own.mentions(text)
    if not first:
        return shipped().mentions(text)
    taken = {place for mention in first for place in range(mention.start, mention.end)}
    rest = [one for one in shipped().mentions(text) if not taken & set(range(one.start, one.end))]
    return first + rest


def _is_there(name: str, snapshot: Snapshot) -> bool:
    return all(snapshot.vocabulary(pairs(name)))


def _same_script(one: str, other: str) -> bool:
    return one.isascii() == other.isascii()


@cache
def _usual_names() -> frozenset[str]:
    return frozenset(fold(name) for group in shipped().groups for name in group[:2])


# -- spelling ---------------------------------------------------------------------------------------------------------


def corrections(text: str, snapshot: Snapshot, own: Synonyms) -> dict[str, str]:
    """Words of a query that no passage has, and the one word that each must have been meant for."""
    folded = subject(text)
    found = {}
    for match in _LATIN.finditer(folded):
        word = match[0]
        if len(word) >= _SHORTEST and (right := _nearest(word, snapshot, own)):
            found[word] = right
    for run in _HAN_RUN.finditer(folded):
        found |= _slips(run[0], snapshot, own)
    return found


def _known(word: str, own: Synonyms) -> bool:
    return bool(own.mentions(word) or shipped().mentions(word))


def _nearest(word: str, snapshot: Snapshot, own: Synonyms) -> str | None:
    """The word of the index that differs least, the more frequent of two; words keep their first two letters."""
    if any(snapshot.vocabulary(bigrams(word))) or _known(word, own):
        return None
    from rapidfuzz.distance import OSA

    reach = 2 if len(word) >= _LONG else 1
    terms = ((term, -count) for term, count in snapshot.terms(word[:2]) if term.isalpha())
    near = ((OSA.distance(word, term, score_cutoff=reach), count, term) for term, count in terms)
    best = min((one for one in near if one[0] <= reach), default=None)
    return best[2] if best else None


def _slips(run: str, snapshot: Snapshot, own: Synonyms) -> dict[str, str]:
    """Stretches of Chinese that differ in one character from one known name, and that no passage has."""
    found: dict[str, str] = {}
    # By far most runs are near to no name, and of most others passages have every pair; what costs most comes last.
    if not (near := _near(run)):
        return found
    there = snapshot.vocabulary([run[place : place + 2] for place in range(len(run) - 1)])
    taken: set[int] = set()
    for length, start in sorted(near, key=lambda one: (-one[0], one[1])):
        typed, places = run[start : start + length], range(start, start + length)
        if all(there[start : start + length - 1]) or not taken.isdisjoint(places):
            continue
        if (right := _meant(typed, near[length, start], snapshot)) and not _known(typed, own):
            found[typed] = right
            taken.update(places)
    return found


def _meant(typed: str, names: set[str], snapshot: Snapshot) -> str | None:
    """The one name that differs in one character: one that sounds alike, or else the only one there is.

    Two that are as near as each other (普伐他汀, 氟伐他汀) say nothing: a wrong drug is worse than none.
    """
    alike = {name for name in names if all(a == b or sound_alike(a, b) for a, b in zip(typed, name, strict=True))}
    likely = alike or names
    only = next(iter(likely)) if len(likely) == 1 else None
    return only if only is not None and _is_there(only, snapshot) else None


def _near(run: str) -> dict[tuple[int, int], set[str]]:
    """The known names that a stretch differs from in one character at the most, by its length and where it starts."""
    near: dict[tuple[int, int], set[str]] = {}
    for (size, step), known in _by_part().items():
        for place in range(len(run) - size + 1):
            for name, before in known.get(run[place : place + size : step], ()):
                start, length = place - before, len(name)
                typed = run[start : start + length] if start >= 0 else ""
                if len(typed) == length and sum(map(ne, typed, name)) <= 1:
                    near.setdefault((length, start), set()).add(name)
    return near


@cache
def _by_part() -> dict[tuple[int, int], dict[str, list[tuple[str, int]]]]:
    """Known Chinese names by parts of them, one of which stays when a character is changed, and what is before these.

    The parts are by their size and step: a name's halves; of three characters any two, so that few names share a part.
    """
    found: dict[tuple[int, int], dict[str, list[tuple[str, int]]]] = {}
    for name in {*shipped().names(), *medical_words()}:
        length = len(name)
        if length in _HAN_LENGTHS and _HAN_RUN.fullmatch(name):
            halves = ((0, length // 2, 1), (length // 2, length, 1))
            for start, end, step in ((0, 2, 1), (1, 3, 1), (0, 3, 2)) if length == 3 else halves:
                parts = found.setdefault((end - start, step), {})
                parts.setdefault(name[start:end:step], []).append((name, start))
    return found
