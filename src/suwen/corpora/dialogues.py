"""MedDialog's dialogues as it gave them out, in plain text. Its JSON and parquet forms are read by ``tabular``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suwen.corpora.files import CorpusError, open_text

_BEGIN = re.compile(r"id\s*=\s*(\S+)\s*", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S+\s*")
_PARTS = ("Description", "Dialogue")
_SPEAKER = re.compile(r"(?:patient|doctor)\s*:", re.IGNORECASE)


@dataclass
class _Block:
    """A dialogue that is being read: the lines of its description, and those of each turn."""

    id: str
    place: str
    address: str = ""
    part: str = ""
    described: list[str] = field(default_factory=list)
    turns: list[list[str]] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Take one more line."""
        # Once people speak, a line of one word is theirs.
        if line.strip() in _PARTS and self.part != "Dialogue":
            self.part = line.strip()
        elif not self.part and _ADDRESS.fullmatch(line):
            self.address = line.strip()
        elif self.part == "Description":
            self.described.append(line)
        elif self.part == "Dialogue" and _SPEAKER.match(line):
            self.turns.append([line])
        elif self.turns:
            self.turns[-1].append(line)

    def record(self) -> Mapping[str, Any]:
        """What was read, with the names that MedDialog's JSON has."""
        said = {"id": self.id, "dialogue_url": self.address, "description": "".join(self.described).strip()}
        return {**said, "utterances": ["".join(lines).strip() for lines in self.turns]}


def read_dialogues(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield ``(place, record)`` for every dialogue of a text file, one at a time.

    A dialogue begins with ``id=``, then come an address if there is one, ``Description``, ``Dialogue``, and each turn
    behind ``Patient:`` or ``Doctor:``. A record has id, dialogue_url, description and utterances, each with its speaker
    in front.

    Raises:
        CorpusError: The file cannot be read, or holds no dialogue.
    """
    block: _Block | None = None
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if begin := _BEGIN.fullmatch(line):
                if block is not None:
                    yield block.place, block.record()
                block = _Block(begin[1], f"{path}:{number}")
            elif block is not None:
                block.add(line)
    if block is None:
        raise CorpusError(
            f"{path}: no dialogues as MedDialog writes them (id=1, Description, Dialogue, Patient:, Doctor:, each on a "
            "line of its own); if it is a table, name it .jsonl, .json, .csv, .tsv or .parquet"
        )
    yield block.place, block.record()
