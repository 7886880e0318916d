"""Writing JSON lines and documents that are there whole or not at all. Reading is for whoever knows the records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write one record a line; gives their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished, count = path.with_name(f".{path.name}.unfinished"), 0
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def write_document(path: Path, value: Any) -> None:
    """Write one JSON document, for people to read as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    unfinished.write_text(text, encoding="utf-8", newline="\n")
    unfinished.replace(path)
