"""The files that books were read from, in the folder of the setting ``books``: found by metadata, kept by imports."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suwen.corpora.books import BOOKS, kind_of
from suwen.durable import replacing

#: Where imported books are kept, in the folder of ``books``: none of them replaces a file that was there.
_IMPORTED = "imported"


def original_of(metadata: Mapping[str, Any], folder: Path | None) -> Path | None:
    """The file that metadata name, if it is a book inside the folder; None for all others, links that lead out too."""
    named = metadata.get("path")
    if folder is None or not isinstance(named, str) or not named:
        return None
    for root in (folder / _IMPORTED, folder):
        try:
            home, file = root.resolve(), (root / named).resolve()
            if file.is_relative_to(home) and kind_of(file) in BOOKS and file.is_file():
                return file
        except (OSError, ValueError):  # a NUL in it, a name that is too long, a loop of links
            continue
    return None


def keep_original(sent: Path, name: str, folder: Path) -> None:
    """Keep the file of an import under its name, whole or not at all; one of before with this name is replaced."""
    (folder / _IMPORTED).mkdir(parents=True, exist_ok=True)
    with sent.open("rb") as source, replacing(folder / _IMPORTED / name) as target:
        shutil.copyfileobj(source, target)
