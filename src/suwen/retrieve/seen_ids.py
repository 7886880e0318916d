"""The ids that one run over a source has met, and what is done with those that come twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

from suwen.choices import Duplicates
from suwen.corpora.record_fields import made_id
from suwen.corpora.records import Document
from suwen.errors import SuwenError

#: So many characters of a text name it.
_SHOWN = 40


class IngestError(SuwenError):
    """A source that cannot be taken in as it is. What was stored before stays."""


def _told(document: Document) -> str:
    if document.id != made_id(document.title, document.text):
        return f"document id {document.id!r} comes twice: make ids unique"
    text = document.text if len(document.text) <= _SHOWN else document.text[:_SHOWN] + "…"
    return f"two records without an id have the same text ({' '.join(text.split())}): give them ids"


class SeenIds:
    """The ids a run has met, kept on disk: a set of ten million would not fit a small machine."""

    def __enter__(self) -> SeenIds:
        # An empty name is SQLite's own temporary file, gone when the connection closes.
        self._ids = sqlite3.connect("", isolation_level=None)
        self._ids.execute("CREATE TABLE ids(id TEXT PRIMARY KEY) WITHOUT ROWID")
        self._ids.execute("BEGIN")
        return self

    def __exit__(self, *_: object) -> None:
        self._ids.close()

    def once(
        self, documents: Iterable[Document], duplicates: Duplicates, stored: str, repeated: Callable[[], None]
    ) -> Iterator[Document]:
        """The documents, without what is to be left out of those whose id comes twice.

        Args:
            documents: Streamed.
            duplicates: What to do with an id that comes twice.
            stored: What of the source is stored where that is an error.
            repeated: Called before such an error, and before a document that replaces an earlier one.
        """
        for document in documents:
            new = self._ids.execute("INSERT OR IGNORE INTO ids VALUES(?)", (document.id,)).rowcount == 1
            if not new and duplicates == "first":
                continue
            if not new:
                repeated()
            if not new and duplicates == "error":
                keep = "choose to keep the first or the last one (--duplicates first|last)"
                raise IngestError(f"{_told(document)}, or {keep}. {stored}")
            yield document

    def __contains__(self, id_: str) -> bool:
        return self._ids.execute("SELECT 1 FROM ids WHERE id = ?", (id_,)).fetchone() is not None
