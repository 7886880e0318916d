"""The texts of the pooled passages, in one SQLite file: what is judged, reviewed and shown. Reads no collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from suwen.corpora.records import Document
from suwen.jury.verdicts import JuryProblem
from suwen.sqlite_file import SqliteFile

_AT_ONCE = 500


class Texts(SqliteFile):
    """The file of texts. Memory does not grow with it."""

    holds = "texts"
    made_by = "pool again with `suwen jury pool`"
    problem = JuryProblem
    tables = ("CREATE TABLE IF NOT EXISTS passages (id TEXT PRIMARY KEY, title TEXT, text TEXT) WITHOUT ROWID",)
    # It is written once and then only read, perhaps from a folder that cannot be written to.
    wal = False

    def __init__(self, path: Path | str, *, create: bool = False) -> None:
        super().__init__(path, create=create)

    def want(self, ids: Iterable[str]) -> None:
        """Name passages whose text is needed; ``fill`` brings it."""
        with self.writing() as base:
            base.executemany("INSERT OR IGNORE INTO passages (id) VALUES (?)", ((id_,) for id_ in ids))

    def fill(self, documents: Iterable[Document]) -> None:
        """Take the texts that are wanted from a stream of documents; those without an owner are an error."""
        with self.writing() as base:
            for document in documents:
                base.execute(
                    "UPDATE passages SET title = ?, text = ? WHERE id = ?", (document.title, document.text, document.id)
                )
        lost = self.rows("SELECT id FROM passages WHERE text IS NULL LIMIT 4")
        if lost:
            named = ", ".join(id_ for (id_,) in lost[:3]) + (" and more" if len(lost) > 3 else "")
            raise JuryProblem(
                f"passages that were found are not in the collection: {named}. Is the index, or the run, of another "
                "collection? Make it from this one"
            )

    def get(self, ids: Sequence[str]) -> dict[str, str]:
        """The contents of passages: the title, where there is one, on a line of its own, then the text."""
        contents: dict[str, str] = {}
        for start in range(0, len(ids), _AT_ONCE):
            part = ids[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            for id_, title, text in self.rows(f"SELECT * FROM passages WHERE id IN ({marks})", part):
                contents[id_] = f"{title}\n{text}" if title else str(text)
        if missing := [id_ for id_ in ids if id_ not in contents]:
            raise JuryProblem(f"{self.path} lacks the text of {missing[0]}: {self.made_by}")
        return contents

    def __len__(self) -> int:
        return int(self.rows("SELECT count(*) FROM passages")[0][0])
