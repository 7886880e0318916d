"""A table of character replacements in the one form that ``tokenizers`` applies in a single pass.

That form is SentencePiece's: the size of a double-array trie, the trie over the UTF-8 bytes of what is replaced, and
the replacements, each ended by a zero byte. SentencePiece makes it only as a part of training a model of its own.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import Any

_LEAF, _HAS_LEAF, _OFFSET = 1 << 31, 1 << 8, 10
#: A child lies at its parent's base XOR its byte: within one block, so whole blocks keep every lookup inside the array.
_BLOCK = 256


def charsmap(replacements: Mapping[str, str]) -> bytes:
    """The table for ``tokenizers.normalizers.Precompiled``.

    Args:
        replacements: What stands for each character.
    """
    trie: dict[int, Any] = {}
    texts = bytearray()
    for old, new in replacements.items():
        node = trie
        for byte in old.encode():
            node = node.setdefault(byte, {})
        node[0] = len(texts)  # a text's end; no text holds a zero byte
        texts += new.encode() + b"\0"
    units = _units(trie)
    packed = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(packed)) + packed + bytes(texts)


def _units(trie: dict[int, Any]) -> list[int]:
    """The nodes as 32-bit units: a byte, whether a text ends here, and the way to the children's base."""
    taken, bases = {0: 0}, {0}
    waiting: deque[tuple[int, dict[int, Any]]] = deque([(0, trie)])
    first = ending = 1
    while waiting:
        place, children = waiting.popleft()
        while first in taken:
            first += 1
        # Where a text ends its node's base is taken too. Most nodes are such: from `first` on it would take 11 seconds.
        while ending in taken or ending in bases:
            ending += 1
        base = ending if 0 in children else first
        # A base belongs to one node: a child does not say whose it is.
        while base in bases or any(base ^ byte in taken for byte in children):
            base += 1
        bases.add(base)
        taken[place] |= (place ^ base) << _OFFSET | (_HAS_LEAF if 0 in children else 0)
        for byte, child in children.items():
            taken[base ^ byte] = byte if byte else _LEAF | child
            if byte:
                waiting.append((base ^ byte, child))
    size = -(-(max(taken) + 1) // _BLOCK) * _BLOCK
    return [taken.get(place, 0) for place in range(size)]
