"""What else a query could have said: other names of what it mentions, its misspelt words set right. Searches nothing.

Names come from the list of the package and from one of the index's own, :data:`FILE`; spelling from these names and the
words of medicine. What is added is searched for beside what was typed, and told.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from suwen.index.copying import SYNONYMS
from suwen.index.engine import Engine, IndexProblem, Snapshot
from suwen.retrieve.elsewhere import is_elsewhere
from suwen.retrieve.naming import Name, names_of, pairs
from suwen.text.fold import fold
from suwen.text.homophones import sound_alike
from suwen.text.question import subject
from suwen.text.segment import bigrams, is_word, medical_words, pieces
from suwen.text.synonyms import BadSynonyms, Mention, Synonyms, shipped

log = logging.getLogger("suwen.retrieve")
#: Lines of a list that are told; all of one in another encoding are wrong.
_TOLD = 3
#: The index's own list, kept beside its data; read again when it has changed.
FILE = SYNONYMS
#: A query longer than this many characters is a pasted text, which says all it has to say.
_LONGEST = 300
#: Latin words shorter than this are abbreviations as often as not, and never set right.
_SHORTEST = 6
#: From this length on, two letters may be wrong.
_LONG = 12
#: English words that lie close to a name and are none: dioxin (digoxin), creatine (creatinine).
_REAL_WORDS = Path(__file__).with_name("real_words_en.txt")
#: What words of one stem may differ in.
_ENDING = re.compile(
    "(?:[acdilsy]|a[ln]|able|ally|ance|ant|e[ds]|ence|ent|er|ers|i[acs]|ias|ical|ics|ied|ies|ing|ings|ion|ions|ist|ity"
    "|ive|ly|ment|ness|or|ors|ous|sis|tic|u[ms])?"
)
#: Of two names that differ in one of these endings each is a substance.
_SUBSTANCES = ("ase", "ate", "ide", "ite", "ose")
#: Names and phrases of Chinese that a slip is looked up among are no longer than this.
_LONGEST_NAME = 8
#: Stands for a character of which it is open what it should be.
_OPEN = "?"
_HAN_RUN = re.compile("[\u4e00-\u9fff]+")
_LATIN = re.compile(r"(?<![a-z0-9])[a-z]+(?![a-z0-9])")


class Wording(NamedTuple):
    """A query as it is searched."""

    #: As typed: what was meant by a misspelt word is searched for beside it.
    text: str
    #: What the encoder reads: misspelt words set right, and brand names and the like by their usual name, which it
    #: knows better.
    meant: str
    #: Names in the text, and what is searched for beside each.
    also: Mapping[str, Sequence[str]]
    #: Drugs, diseases, codes, genes and values in the text.
    names: tuple[Name, ...] = ()
    #: Whether the text is names and no more, but for what only makes it a question.
    bare: bool = False
    #: Usual names that the encoder reads, whether the index has them or not.
    read: tuple[str, ...] = ()
    #: What the lists of names know in the text, misspelt words set right.
    mentions: tuple[Mention, ...] = ()
    #: Whether its words speak of another field than medicine, of which the index has nothing.
    elsewhere: bool = False

    @property
    def told(self) -> tuple[str, ...]:
        """What was searched for beside what was typed."""
        return tuple(dict.fromkeys((*(name for names in self.also.values() for name in names), *self.read)))


class Wordings:
    """The lists of an index, and queries worded by them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own: tuple[int | None, Synonyms, str] = (None, Synonyms([]), "")
        self._reading = threading.Lock()

    def of(self, text: str, snapshot: Snapshot) -> Wording:
        """A query, what its misspelt words were meant for, and other names that the index has of what it mentions."""
        if len(text) > _LONGEST:
            return Wording(text, text, {})
        own = self._own_list()[1]
        wrong = corrections(text, snapshot, own)
        right = _set_right(text, wrong)
        also: dict[str, tuple[str, ...]] = {typed: (meant,) for typed, meant in wrong.items()}
        meant, mentions, read = right, _mentions(right, own), []

        counts: dict[str, int] = {}  # most names are asked for twice

        def count(name: str) -> int:
            if name not in counts:
                counts[name] = min(snapshot.vocabulary(pairs(name)))
            return counts[name]

        for mention in sorted(mentions, key=lambda one: -one.start):
            if there := tuple(name for name in mention.names if count(name)):
                _stand_by(also, wrong, mention.text, there)
            usual = next((name for name in mention.names if _same_script(name, mention.text)), None)
            if usual and not count(mention.text) and fold(usual) in _usual_names():
                meant = meant[: mention.start] + usual + meant[mention.end :]
                read.append(usual)
        names, bare = names_of(right, mentions, count)
        elsewhere = not mentions and is_elsewhere(right, count, snapshot.last_row)
        return Wording(text, meant, also, names, bare, tuple(reversed(read)), tuple(mentions), elsewhere)

    def left_out(self) -> str:
        """Which lines of the index's own list are not read, and what to do about them."""
        return self._own_list()[2]

    def _own_list(self) -> tuple[int | None, Synonyms, str]:
        version = self._engine.blob_version(FILE)
        if version != self._own[0]:
            with self._reading:
                if version != self._own[0]:
                    self._own = self._read(version)
        return self._own

    def _read(self, version: int | None) -> tuple[int | None, Synonyms, str]:
        """The list as it is now, and, once for each time that it was written, what is wrong with it."""
        bad: list[str] = []
        names, told = own_list(self._engine, bad)[1], ""
        if bad:
            more = f" (and {len(bad) - _TOLD} more)" if len(bad) > _TOLD else ""
            told = f"{'; '.join(bad[:_TOLD])}{more}: left out of {self._engine.address}; {_mend(self._engine)}"
            log.warning("%s", told)
        return version, names, told


def own_list(engine: Engine, left_out: list[str] | None = None) -> tuple[str, Synonyms]:
    """An index's own list of names as it stands there, and read.

    Args:
        engine: The index's.
        left_out: Takes what is wrong with each line that cannot be read.

    Raises:
        IndexProblem: It is not UTF-8, or a line of it is wrong; nothing is to be left out.
    """
    # With the mark that some editors put before a text.
    text = (engine.get_blob(FILE) or b"").decode("utf-8-sig", "replace")
    try:
        return text, Synonyms.parse(text, FILE, left_out)
    except BadSynonyms as problem:
        raise IndexProblem(
            f"the list of names of {engine.address} cannot be read ({problem}): {_mend(engine)}"
        ) from problem


def _mend(engine: Engine) -> str:
    how = f"give it anew with 'suwen synonyms {engine.address} FILE', which reads other encodings too"
    return f"correct it, and {how}"


def _set_right(text: str, wrong: Mapping[str, str]) -> str:
    """A text with its misspelt words, which are folded, set right."""
    for typed, right in wrong.items():
        edge = r"\b" if typed.isascii() else ""
        places = [match.span() for match in re.finditer(f"{edge}{re.escape(typed)}{edge}", fold(text))]
        for start, end in reversed(places):
            text = text[:start] + right + text[end:]
    return text


def _stand_by(also: dict[str, tuple[str, ...]], wrong: Mapping[str, str], name: str, others: tuple[str, ...]) -> None:
    """Put the other names of a name beside what was typed for it, which may be misspelt or hold what is."""
    typed = fold(name)
    slips = [slip for slip, right in wrong.items() if right in typed]
    if not slips:
        also[name] = (*also.get(name, ()), *others)
        return
    for slip in slips:
        typed = typed.replace(wrong[slip], slip)
    for slip in set(slips) - {typed}:
        also.pop(slip, None)
    also[typed] = tuple(dict.fromkeys((name, *also.get(typed, ()), *others)))


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
    """Words of a query that are words to nobody, and the one name that each must have been meant for."""
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
    """The one word of a known name, in the index too, that differs by a letter (or two) and by no ending.

    Among all words of an index, as it was, 22 of 100 patients' questions had one that was near: colon, color.
    """
    names = _latin_words(shipped())
    near = [*names.get(word[:2], ()), *_latin_words(own).get(word[:2], ())]
    if word in near or word in _real_words() or any(snapshot.vocabulary(bigrams(word))):
        return None
    from rapidfuzz.distance import OSA

    reach = 2 if len(word) >= _LONG else 1
    far = {name: OSA.distance(word, name, score_cutoff=reach) for name in near if not _inflected(word, name)}
    best = [name for name in far if far[name] == min(far.values()) <= reach]
    return best[0] if len(best) == 1 and _is_there(best[0], snapshot) else None


@lru_cache(maxsize=4)
def _latin_words(names: Synonyms) -> dict[str, tuple[str, ...]]:
    """The words of names that are long enough to be told from others by a letter, by their first two letters."""
    words: dict[str, dict[str, None]] = {}
    for name in names.names():
        for match in _LATIN.finditer(name):
            if len(match[0]) >= _SHORTEST:
                words.setdefault(match[0][:2], {})[match[0]] = None
    return {start: tuple(found) for start, found in words.items()}


@cache
def _real_words() -> frozenset[str]:
    lines = _REAL_WORDS.read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def _inflected(one: str, other: str) -> bool:
    """Whether two words are forms of one, or two substances: diabetic and diabetes, sulfite and sulfate: no slip."""
    if one[-3:] != other[-3:] and one.endswith(_SUBSTANCES) and other.endswith(_SUBSTANCES):
        return True
    if {one[:4], other[:4]} == {"hype", "hypo"}:
        return True
    stem = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return bool(_ENDING.fullmatch(one[stem:]) and _ENDING.fullmatch(other[stem:]))


def _slips(run: str, snapshot: Snapshot, own: Synonyms) -> dict[str, str]:
    """Stretches of Chinese that no passage has, one of whose characters is no part of a word and sounds like a name's.

    A name that differs otherwise is another name: of 418 queries of patients that were changed when names did not have
    to sound alike, hardly one in twenty was misspelt (胆红素 became 促红素).
    """
    near = _near(run)
    if not near:
        return {}
    there = snapshot.vocabulary([run[place : place + 2] for place in range(len(run) - 1)])
    found: dict[str, str] = {}
    taken: set[int] = set()
    for (start, end), names in sorted(near.items(), key=lambda one: (one[0][0] - one[0][1], one[0])):
        typed, name, places = run[start:end], min(names), range(start, end)
        # Two that are as near as each other (普伐他汀, 氟伐他汀) say nothing: a wrong drug is worse than none.
        if len(names) > 1 or not taken.isdisjoint(places) or all(there[start : end - 1]):
            continue
        if not is_word(typed) and not _known(typed, own) and _is_there(name, snapshot):
            found[typed] = name
            taken.update(places)
    return found


def _near(run: str) -> dict[tuple[int, int], set[str]]:
    """Names that whole words of a run would be if one of them, of one character, were another that sounds alike."""
    known = _by_rest()
    near: dict[tuple[int, int], set[str]] = defaultdict(set)
    borders = [0, *accumulate(map(len, pieces(run)))]
    for word, (place, after) in enumerate(pairwise(borders), start=1):
        if after - place > 1:
            continue
        rest = run[:place] + _OPEN + run[after:]
        for start in borders[:word]:
            for end in borders[word:]:
                if end - start > _LONGEST_NAME:
                    break
                for name in known.get(rest[start:end], ()):
                    if sound_alike(name[place - start], run[place]) and name != run[start:end]:
                        near[start, end].add(name)
    return near


@cache
def _by_rest() -> dict[str, list[str]]:
    """Known Chinese names by what is left of them where one character is open."""
    found: dict[str, list[str]] = {}
    for name in {*shipped().names(), *medical_words()}:
        if 2 <= len(name) <= _LONGEST_NAME and _HAN_RUN.fullmatch(name):
            for place in range(len(name)):
                found.setdefault(name[:place] + _OPEN + name[place + 1 :], []).append(name)
    return found
