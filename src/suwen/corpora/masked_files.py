"""Documents of a file with their personal data masked, streamed, and a sample of them for a person to check.

What is personal data and what a mask looks like is for ``suwen.text.mask``.
"""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TextIO, TypeVar

from suwen.corpora.files import CorpusError, read_text
from suwen.corpora.tabular import format_of, records
from suwen.text.mask import Masker, kinds_in
from suwen.text.split import sentences

_T = TypeVar("_T")


class MaskedDocument(NamedTuple):
    """A document after masking: a text, or a record whose texts are masked."""

    place: str
    content: str | dict[str, Any]
    counts: Counter[str]
    key: dict[str, str]

    def line(self) -> str:
        """What to write: the text as it is, or the record as a line of JSON."""
        return self.content if isinstance(self.content, str) else json.dumps(self.content, ensure_ascii=False) + "\n"


class Checked(NamedTuple):
    """A sentence for a person to check, in its context; ``right`` is for the person to fill in."""

    document: str
    kinds: str
    before: str
    sentence: str
    after: str
    right: str = ""


def mask_documents(
    path: Path, *, kinds: Collection[str] | None = None, fields: Collection[str] = (), encoding: str = "utf-8"
) -> Iterator[MaskedDocument]:
    """Mask a text file, one document, or the records of a table or JSON file, a document each.

    Args:
        path: the file; its name says what it is.
        kinds: what to mask, names of ``suwen.text.mask.KINDS``; everything when None.
        fields: the fields of a record to mask; every text in it when there are none.
        encoding: the encoding of the file.

    Raises:
        CorpusError: the file cannot be read, a record is bad, or none of ``fields`` is in a record.
        MaskError: one of ``kinds`` is not known.
    """
    format = format_of(path)
    if format is None:
        raise CorpusError(f"{path}: the name does not say what it is; name it .txt, .md, .jsonl, .json or .csv")
    if format == "text":
        yield _masked(str(path), read_text(path, encoding), Masker(kinds), ())
        return
    for place, record in records(path, format, encoding):
        if fields and not set(fields) & set(record):
            raise CorpusError(f"{place}: has none of the fields {', '.join(fields)}; it has {', '.join(record)}")
        yield _masked(place, dict(record), Masker(kinds), fields)


@dataclass
class MaskCounts:
    """How many documents were read, and how many masks of each kind were put."""

    documents: int = 0
    masks: Counter[str] = field(default_factory=Counter)


def mask_file(
    path: Path, to: TextIO, *, key: TextIO | None = None, count: int = 0, seed: int = 0, **options: Any
) -> MaskCounts:
    """Write a file masked, or a sample of its sentences as CSV for a person to check.

    Args:
        path: the file.
        to: where the masked documents go, or the sample.
        key: where to write what the masks stand for, a line of JSON for each document that has some.
        count: so many sentences are sampled; 0 writes the documents.
        seed: draws the sample.
        options: as for :func:`mask_documents`.
    """
    counts = MaskCounts()

    def counted() -> Iterator[MaskedDocument]:
        for document in mask_documents(path, **options):
            counts.documents += 1
            counts.masks.update(document.counts)
            if key is not None and document.key:
                key.write(json.dumps({"document": document.place, "key": document.key}, ensure_ascii=False) + "\n")
            yield document

    if count:
        # Spreadsheets take a CSV for UTF-8 only when it says so.
        to.write("\ufeff")
        csv.writer(to).writerows([Checked._fields, *sample(counted(), count, seed)])
    else:
        to.writelines(document.line() for document in counted())
    return counts


def sample(documents: Iterable[MaskedDocument], count: int, seed: int = 0) -> list[Checked]:
    """Sentences to check: half with masks, where too much may be gone, half without, where something may be left."""
    chance = random.Random(seed)
    masked, bare = _Reservoir[Checked](count - count // 2, chance), _Reservoir[Checked](count // 2, chance)
    for document in documents:
        for text in _texts(document.content):
            for row in _rows(document.place, text):
                (masked if row.kinds else bare).offer(row)
    return [*masked.kept, *bare.kept]


def _masked(place: str, content: str | dict[str, Any], masker: Masker, fields: Collection[str]) -> MaskedDocument:
    counts: Counter[str] = Counter()
    if isinstance(content, str):
        return MaskedDocument(place, _mask(content, masker, counts), counts, masker.key)
    chosen = {name: value for name, value in content.items() if not fields or name in fields}
    # A name may stand bare in the title and with its title in the text.
    for text in _texts(chosen):
        masker.learn(text)
    done = content | {name: _mask(value, masker, counts) for name, value in chosen.items()}
    return MaskedDocument(place, done, counts, masker.key)


def _mask(value: Any, masker: Masker, counts: Counter[str]) -> Any:
    if isinstance(value, str):
        text, spans = masker.mask(value)
        counts.update(span.kind for span in spans)
        return text
    if isinstance(value, list):
        return [_mask(item, masker, counts) for item in value]
    if isinstance(value, Mapping):
        return {name: _mask(item, masker, counts) for name, item in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _rows(place: str, text: str) -> Iterator[Checked]:
    pieces = ["", *(text[start:end] for start, end in sentences(text)), ""]
    for before, sentence, after in zip(pieces, pieces[1:], pieces[2:], strict=False):
        yield Checked(place, " ".join(sorted(set(kinds_in(sentence)))), before, sentence, after)


class _Reservoir(Generic[_T]):
    """A fair sample of a stream whose length nobody knows."""

    def __init__(self, size: int, chance: random.Random) -> None:
        self.kept: list[_T] = []
        self._size, self._chance, self._seen = size, chance, 0

    def offer(self, item: _T) -> None:
        self._seen += 1
        if len(self.kept) < self._size:
            self.kept.append(item)
        elif self._size and (place := self._chance.randrange(self._seen)) < self._size:
            self.kept[place] = item
