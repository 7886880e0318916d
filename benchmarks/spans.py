"""Real medical spans for the benchmarks: sentences of the public files in a folder, each once."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suwen.text.clean import clean
from suwen.text.split import sentences

#: Fields that hold queries rather than documents, in the files' own words.
_QUERY_FIELDS = {"query", "question", "a", "mention"}


#: Ids stand in fields of their own names, and some files call the id of a query "query".
_ID = re.compile(r"[A-Z]+[-:]\d+")


def texts(folder: Path, *, queries: bool) -> Iterator[str]:
    """Every text of the ``.jsonl.gz`` files below a folder: the queries of the development files, or all the others."""
    for file in sorted(folder.rglob("*.jsonl.gz")):
        if queries != ("dev" in file.name) or "qrels" in file.name:
            continue
        fields = {"text"} if file.name.startswith("queries") else _QUERY_FIELDS
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from _strings(json.loads(line), "", fields if queries else None)


def _strings(value: Any, field: str, wanted: set[str] | None) -> Iterator[str]:
    if isinstance(value, str):
        if not field.endswith("id") and not _ID.fullmatch(value) and (wanted is None or field in wanted):
            yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, key, wanted)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, field, wanted)


def spans(folder: Path, most: int | None = None) -> list[str]:
    """Distinct sentences of 8 to 300 characters, Chinese and English mixed in an order that is always the same."""
    found: dict[str, None] = {}
    for text in texts(folder, queries=False):
        text = clean(text)
        for start, end in sentences(text):
            if 8 <= end - start <= 300:
                found.setdefault(text[start:end])
    return _shuffled(found)[:most]


def queries(folder: Path, most: int) -> list[str]:
    """Distinct queries of the development files, likewise mixed."""
    return _shuffled({clean(text): None for text in texts(folder, queries=True) if 4 <= len(text) <= 200})[:most]


def _shuffled(found: dict[str, None]) -> list[str]:
    kept = list(found)
    random.Random(0).shuffle(kept)
    return kept
