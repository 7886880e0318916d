"""The one split, and the check that no evaluation text is trained on. Where the texts come from is for the caller.

Strings are compared after cleaning and folding, letters and digits alone. A training text leaks when it equals a
held-out text, or holds a whole held-out text that is long enough not to be there by chance. A paraphrase is not found.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from suwen.corpora.files import CorpusError
from suwen.corpora.tabular import records
from suwen.corpora.training_rows import TrainingRow
from suwen.errors import SuwenError
from suwen.text.clean import clean
from suwen.text.fold import fold

#: A held-out text this heavy is searched for inside longer texts too: ten Chinese characters, or 25 letters (so that
#: "breast cancer" as a query does not ban every text about it).
NEAR_WEIGHT = 10.0
_LETTER_WEIGHT = 0.4
_ANCHOR = 10
#: Texts longer than this are looked over as a whole first, and slots of the table for that, at least so many an anchor.
_LONG = 100
_SLOTS = 32
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHOWN = 5
_SHARE = 10
#: Texts of which it is known whether they leak: some 100 MB.
_REMEMBERED = 500_000
#: Texts whose comparable form is kept: one is often asked for again at once. They may be long, so no more.
_COMPARED = 256
_NOT_COMPARED = re.compile(r"[\W_]+")
_HAN = re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]")
_Item = TypeVar("_Item", TrainingRow, str)


class LeakageError(SuwenError):
    """Training data hold evaluation texts."""


def is_held_out(text: str) -> bool:
    """Whether a row with this first text is never trained on: one in ten, by the text's sha1.

    >>> [number for number in range(40) if is_held_out(f"question {number}")]
    [2, 5, 10, 18, 23]
    """
    return int(hashlib.sha1(text.encode()).hexdigest(), 16) % _SHARE == 0


@lru_cache(_COMPARED)
def comparable(text: str) -> str:
    """A text as it is compared: cleaned, folded, letters and digits only.

    >>> comparable("ＨｂＡ１ｃ 高，怎麼辦？")
    'hba1c高怎么办'
    """
    return _NOT_COMPARED.sub("", fold(clean(text)))


def weight(compared: str) -> float:
    """How much a comparable text says: a Chinese character counts 1, any other letter or digit 0.4.

    >>> weight("糖尿病怎么办"), weight("diabetes")
    (6.0, 3.2)
    """
    chinese = len(_HAN.findall(compared))
    return chinese + _LETTER_WEIGHT * (len(compared) - chinese)


class HeldOut:
    """Evaluation texts, ready to be looked up.

    >>> held_out = HeldOut(["孕妇感冒了可以吃什么药", "牙疼"])
    >>> [bool(held_out.hit(text)) for text in ("牙疼！", "牙疼怎么办", "你好，孕妇感冒了，可以吃什么药呢")]
    [True, False, True]
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Hold ``texts`` out; an empty one is passed over."""
        self._texts: dict[str, str] = {}
        # Lengths of texts by their last characters, not their first: questions begin alike (what are the symptoms of)
        # and end unlike.
        self._anchored: dict[str, set[int]] = {}
        # Which slots anchors fall in: of a long text hardly a place is left to look at. Made when it is first wanted.
        self._slots: NDArray[np.bool_] | None = None
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        """How many distinct texts are held out."""
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        """The held-out texts, as they were given."""
        return iter(self._texts.values())

    @classmethod
    def read(cls, path: Path | str) -> HeldOut:
        """Read ``{"text": …}`` lines, packed or not.

        Raises:
            CorpusError: The file cannot be read, or a line has no text.
        """
        held_out = cls()
        for place, record in records(Path(path), "jsonl"):
            if not isinstance(text := record.get("text"), str):
                raise CorpusError(f'{place}: not a held-out text; each line is like {{"text": "…"}}')
            held_out.add(text)
        return held_out

    def add(self, text: str) -> None:
        """Hold one more text out."""
        compared = comparable(text)
        if not compared or compared in self._texts:
            return
        self._texts[compared] = text
        if weight(compared) >= NEAR_WEIGHT:
            self._anchored.setdefault(compared[-_ANCHOR:], set()).add(len(compared))
            if self._slots is not None:
                enough = len(self._anchored) * _SLOTS <= len(self._slots)
                self._slots = self._marked(self._slots, (compared,)) if enough else None

    def hit(self, text: str) -> str | None:
        """The held-out text that ``text`` is or holds, as it was given; None when there is none."""
        return self.hit_compared(comparable(text))

    def hit_compared(self, compared: str) -> str | None:
        """The same for a text that is comparable already, so that who needs both folds once."""
        if compared in self._texts:
            return self._texts[compared]
        for end in self._ends(compared):
            for length in self._anchored.get(compared[end - _ANCHOR : end], ()):
                candidate = compared[max(0, end - length) : end]
                if candidate in self._texts and weight(candidate) >= NEAR_WEIGHT:
                    return self._texts[candidate]
        return None

    def _ends(self, compared: str) -> Iterable[int]:
        """Where an anchor may end in a text."""
        if len(compared) <= _LONG or not self._anchored:
            return range(_ANCHOR, len(compared) + 1) if self._anchored else ()
        if self._slots is None:
            size = 1 << (len(self._anchored) * 2 * _SLOTS).bit_length()
            self._slots = self._marked(np.zeros(size, np.bool_), self._anchored)
        places = np.flatnonzero(self._slots[_windows(compared) & np.uint64(len(self._slots) - 1)])
        return (places + _ANCHOR).tolist()

    @staticmethod
    def _marked(slots: NDArray[np.bool_], texts: Iterable[str]) -> NDArray[np.bool_]:
        """The table with the slot of each text's anchor marked."""
        last = np.concatenate([_windows(text[-_ANCHOR:]) for text in texts])
        slots[last & np.uint64(len(slots) - 1)] = True
        return slots

    def hits(self, texts: Iterable[str]) -> list[str]:
        """Those of ``texts`` that leak, in order."""
        return [text for text in texts if self.hit(text) is not None]


def _windows(text: str) -> NDArray[np.uint64]:
    """A number for every run of as many characters as an anchor has, in order."""
    letters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    count = max(0, len(letters) - _ANCHOR + 1)
    number = np.zeros(count, np.uint64)
    for place in range(_ANCHOR):
        number = number * _MIX + letters[place : place + count]
    # The lowest bits depend on the lowest bits of the letters alone.
    return number ^ (number >> np.uint64(32))


def refuse_leaks(items: Iterable[_Item], held_out: HeldOut, *, name: str = "the training data") -> Iterator[_Item]:
    """Pass training rows or plain texts on one by one, and after the last complain of all that leak.

    A generator, so that the data are read once: what it gives must not be used before it has ended.

    Args:
        items: Training rows or plain texts.
        held_out: What must not be among them.
        name: What to call the items in the error, say the file they come from.

    Raises:
        LeakageError: Some of them are or hold a held-out text. The first few are named with their row.
    """
    leaks: list[str] = []
    hit = lru_cache(_REMEMBERED)(held_out.hit)  # a document of many rows is looked at once
    for number, item in enumerate(items, 1):
        for place, text in _texts(item):
            if (held := hit(text)) is not None:
                leaks.append(f"row {number} ({place}): {_short(text)} has the held-out {_short(held)}")
        yield item
    if leaks:
        more = f"; and {len(leaks) - _SHOWN} more" if len(leaks) > _SHOWN else ""
        raise LeakageError(
            f"{name}: {len(leaks)} texts are evaluation texts, which nothing may be trained on: "
            f"{'; '.join(leaks[:_SHOWN])}{more}. Remove these rows, or make the data again with "
            "tools/make_training_data.py"
        )


def _texts(item: TrainingRow | str) -> Iterator[tuple[str, str]]:
    if isinstance(item, str):
        yield "text", item
        return
    yield "query", item.query
    yield from (("pos", text) for text in item.pos)
    yield from (("neg", text) for text in item.neg)
    yield from (("hypothetical", text) for text in item.hypothetical)


def _short(text: str, size: int = 40) -> str:
    return repr(text if len(text) <= size else text[: size - 1] + "…")
