"""Real medical spans for the benchmarks: sentences of the public files in a folder, each once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suwen.text.clean import clean
from suwen.text.split import sentences

#: Fields that hold queries rather than documents, in the files' own words.
_QUERY_FIELDS = {"query", "question", "a", "mention"}


def texts(folder: Path, *, queries: bool) -> Iterator[str]:
    """Every text of the ``.jsonl.gz`` files below a folder: the query side of their rows, or the rest."""
    for file in sorted(folder.rglob("*.jsonl.gz")):
        if queries != ("dev" in file.name):
            continue
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from _strings(json.loads(line), "", queries)


def _strings(value: Any, field: str, queries: bool) -> Iterator[str]:
    if isinstance(value, str):
        if not field.endswith("id") and (not queries or field in _QUERY_FIELDS):
            yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, key, queries)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, field, queries)


def spans(folder: Path, most: int | None = None) -> list[str]:
    """Distinct sentences of 8 to 300 characters."""
    found: dict[str, None] = {}
    for text in texts(folder, queries=False):
        text = clean(text)
        for start, end in sentences(text):
            if 8 <= end - start <= 300:
                found.setdefault(text[start:end])
                if most is not None and len(found) >= most:
                    return list(found)
    return list(found)


def queries(folder: Path, most: int) -> list[str]:
    """Distinct queries of the development files."""
    found: dict[str, None] = {}
    for text in texts(folder, queries=True):
        if 4 <= len(text) <= 200:
            found.setdefault(clean(text))
            if len(found) >= most:
                break
    return list(found)
