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

from suwen.corpora.files import BadRecord, CorpusError, not_there, read_text
from suwen.corpora.masked_records import mask_record
from suwen.corpora.tabular import format_of, rows
from suwen.text.mask import Masker, kinds_in, validate
from suwen.text.split import sentences

_T = TypeVar("_T")


class MaskedDocument(NamedTuple):
    """A document after masking: a text, or a record whose texts are masked."""

    place: str
    content: str | dict[str, Any]
    counts: Counter[str]
    key: dict[str, str]
    problems: tuple[str, ...] = ()

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
        CorpusError: the file cannot be read, or none of ``fields`` is in a record. A record that cannot be parsed, or
            that still looks personal, comes with its ``problems``: whoever publishes looks at them first.
        MaskError: one of ``kinds`` is not known.
    """
    format = format_of(path)
    if not path.exists():
        raise CorpusError(not_there(path))
    if format is None:
        raise CorpusError(f"{path}: the name does not say what it is; name it .txt, .md, .jsonl, .json or .csv")
    if format == "text":
        yield _masked_text(str(path), read_text(path, encoding), Masker(kinds))
        return
    for place, record in rows(path, format, encoding):
        if isinstance(record, BadRecord):
            yield MaskedDocument(place, {}, Counter(), {}, (str(record).removeprefix(f"{place}: "),))
            continue
        if fields and not set(fields) & set(record):
            raise CorpusError(f"{place}: has none of the fields {', '.join(fields)}; it has {', '.join(record)}")
        masker = Masker(kinds)
        done = mask_record(record, masker, fields)
        yield MaskedDocument(place, done.record, done.counts, masker.key, tuple(done.problems))


@dataclass
class MaskCounts:
    """How many documents were masked, how many masks of each kind were put, and how many documents were left out."""

    documents: int = 0
    masks: Counter[str] = field(default_factory=Counter)
    bad: int = 0


def mask_file(
    path: Path,
    to: TextIO,
    *,
    key: TextIO | None = None,
    count: int = 0,
    seed: int = 0,
    skip_bad: bool = False,
    **options: Any,
) -> MaskCounts:
    """Write a file masked, or a sample of its sentences as CSV for a person to check.

    Args:
        path: the file.
        to: where the masked documents go, or the sample.
        key: where to write what the masks stand for, a line of JSON for each document that has some.
        count: so many sentences are sampled; 0 writes the documents.
        seed: draws the sample.
        skip_bad: leave out and count a document that cannot be read or still looks personal after masking.
        options: as for :func:`mask_documents`.

    Raises:
        CorpusError: also for the first such document, unless they are skipped; what is written by then is for nobody.
    """
    counts = MaskCounts()

    def counted() -> Iterator[MaskedDocument]:
        for document in mask_documents(path, **options):
            if document.problems and not skip_bad:
                raise CorpusError(
                    f"{document.place}: {document.problems[0]}; nothing was published: correct the record, or "
                    f"leave such "
                    "records out with --skip-bad"
                )
            if document.problems:
                counts.bad += 1
                continue
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
            for row in _to_check(document.place, text):
                (masked if row.kinds else bare).offer(row)
    return [*masked.kept, *bare.kept]


def _masked_text(place: str, text: str, masker: Masker) -> MaskedDocument:
    done = masker.mask(text)
    left = sorted({span.kind for span in validate(done.text) if span.kind in masker.kinds})
    problems = tuple(f"the text still has what looks like {kind}" for kind in left)
    return MaskedDocument(place, done.text, Counter(span.kind for span in done.spans), masker.key, problems)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _to_check(place: str, text: str) -> Iterator[Checked]:
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
