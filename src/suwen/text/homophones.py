"""Chinese characters that sound alike whatever their tone, for slips of the pinyin keyboard. No dictionary of sounds.

``homophones.txt`` has a line for each sound, with characters of medical names and those typed in their place.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

_LIST = Path(__file__).with_name("homophones.txt")


def sound_alike(one: str, other: str) -> bool:
    """Whether two characters are known to sound alike.

    >>> sound_alike("亚", "压"), sound_alike("亚", "糖")
    (True, False)
    """
    return bool(_sounds().get(one, frozenset()) & _sounds().get(other, frozenset()))


@cache
def _sounds() -> dict[str, frozenset[int]]:
    """The lines that each character stands in."""
    found = defaultdict(set)
    for number, line in enumerate(_LIST.read_text(encoding="utf-8").splitlines()):
        for character in line.strip():
            found[character].add(number)
    return {character: frozenset(lines) for character, lines in found.items()}
