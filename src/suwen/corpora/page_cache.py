"""Pages that were read off pictures, kept beside each other by file: half a minute each is not spent twice."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

#: Another number where pages would be read otherwise: nothing kept before is used then.
_VERSION = 2


def cache_folder() -> Path:
    """Where pages are kept: ``SUWEN_CACHE``, or ``suwen`` in the user's folder for such things."""
    named = os.environ.get("SUWEN_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else home / "suwen"


class PageCache:
    """The pages of one file, known by its content: a copy under another name is the same file."""

    def __init__(self, folder: Path, path: Path) -> None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._file = folder / "pages" / f"{digest[:32]}-{_VERSION}.jsonl"
        self._known: dict[int, dict[str, Any]] = {}
        for line in self._file.read_bytes().splitlines() if self._file.is_file() else []:
            try:
                record = json.loads(line)
                self._known[int(record["number"])] = record["content"]
            except (ValueError, KeyError, TypeError):
                continue  # a line that a kill left half written

    def get(self, number: int) -> dict[str, Any] | None:
        """A page that was read before."""
        return self._known.get(number)

    def put(self, number: int, content: dict[str, Any]) -> None:
        """Keep a page, on the disk before this returns; a disk that is full keeps none and stops nobody."""
        line = json.dumps({"number": number, "content": content}, ensure_ascii=False).encode() + b"\n"
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # In one piece: several processes write to the same file.
            with self._file.open("ab", buffering=0) as file:
                # Behind a half line of a kill, a new one begins on a line of its own.
                file.write(line if self._ends_well() else b"\n" + line)
                os.fsync(file.fileno())
        except OSError:
            return

    def _ends_well(self) -> bool:
        if not self._file.stat().st_size:
            return True
        with self._file.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
