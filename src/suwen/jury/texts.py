"""The texts of the pooled passages, in one SQLite file: what is judged, reviewed and shown. Reads no collection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from suwen.corpora.records import Document
from suwen.jury.records import JuryProblem

_AT_ONCE = 500


class Texts:
    """The file of texts. Memory does not grow with it."""

    def __init__(self, path: Path | str, *, create: bool = False) -> None:
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise JuryProblem(f"there is no {self.path}: pool again with `suwen jury pool`")
        self._base = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        if create:
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS passages (id TEXT PRIMARY KEY, title TEXT, text TEXT) WITHOUT ROWID"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def want(self, ids: Iterable[str]) -> None:
        """Name passages whose text is needed; ``fill`` brings it."""
        with self._writing():
            self._base.executemany("INSERT OR IGNORE INTO passages (id) VALUES (?)", ((id_,) for id_ in ids))

    def fill(self, documents: Iterable[Document]) -> None:
        """Take the texts that are wanted from a stream of documents; those without an owner are an error."""
        with self._writing():
            for document in documents:
                self._base.execute(
                    "UPDATE passages SET title = ?, text = ? WHERE id = ?", (document.title, document.text, document.id)
                )
        lost = self._base.execute("SELECT id FROM passages WHERE text IS NULL LIMIT 4").fetchall()
        if lost:
            named = ", ".join(id_ for (id_,) in lost[:3]) + (" and more" if len(lost) > 3 else "")
            raise JuryProblem(
                f"passages that were found are not in the collection: {named}. Is the index of another collection? "
                "Build it from this one"
            )

    def get(self, ids: Sequence[str]) -> dict[str, str]:
        """The contents of passages: the title, where there is one, on a line of its own, then the text."""
        found: dict[str, str] = {}
        for start in range(0, len(ids), _AT_ONCE):
            part = ids[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            for id_, title, text in self._base.execute(f"SELECT * FROM passages WHERE id IN ({marks})", part):
                found[id_] = f"{title}\n{text}" if title else str(text)
        if missing := [id_ for id_ in ids if id_ not in found]:
            raise JuryProblem(f"{self.path} lacks the text of {missing[0]}: pool again with `suwen jury pool`")
        return found

    def __len__(self) -> int:
        return int(self._base.execute("SELECT count(*) FROM passages").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")
