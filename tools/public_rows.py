"""Rows of the public files that the tools beside this module read, and the one split of them that all share.

Held out are the rows whose first text has a sha1 divisible by ten, and those that share a document with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from suwen.corpora.files import open_text
from suwen.curate.leakage import HeldOut, comparable, is_held_out
from suwen.text.clean import clean

Row = Mapping[str, Any]
#: Characters of a text that is compared with what is held out.
COMPARED = 1000


def rows_of(folder: Path, name: str) -> Iterator[Row]:
    """Read one gzipped file of JSON lines."""
    file = folder / f"{name}.jsonl.gz"
    if not file.is_file():
        raise SystemExit(f"{file} is missing; the tool's first lines say where each file comes from")
    with open_text(file) as stream:
        yield from map(json.loads, stream)


def cut(text: str, size: int = COMPARED) -> str:
    """A clean text of at most ``size`` characters."""
    return clean(clean(text)[:size])


def hold(held_out: HeldOut, row: Row, fields: Iterable[str]) -> None:
    """Hold the texts of a row out."""
    for field in fields:
        held_out.add(cut(row[field]))


def split(
    held_out: HeldOut, rows: Iterable[Row], fields: tuple[str, ...], out: Callable[[Row], bool] = lambda _: False
) -> list[Row]:
    """The rows that may be trained on; the others are held out.

    Args:
        held_out: Gets the texts of the others.
        rows: All rows of a file.
        fields: Their texts: the first decides, the last is the one that rows may share.
        out: Rows that are held out whatever their first text.
    """
    rows = list(rows)
    kept_out = [out(row) or is_held_out(row[fields[0]]) for row in rows]
    documents = {comparable(row[fields[-1]]) for row, gone in zip(rows, kept_out, strict=True) if gone}
    kept: list[Row] = []
    for row, gone in zip(rows, kept_out, strict=True):
        if gone or comparable(row[fields[-1]]) in documents:
            hold(held_out, row, fields)
        else:
            kept.append(row)
    return kept
