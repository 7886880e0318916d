"""What searches for a cluster index: the protocol, which pgvector inside the same PostgreSQL and Milvus fill.

A searcher is derived and disposable. It proposes rows, of passages and of questions; the truth decides which of them
are there, and their scores. One that is ``outside`` keeps its rows in another system, which has no part in the truth's
transactions: it is told of new rows before they are committed, and of those that are gone after that. What a crash
leaves is known to the truth, and is swept at the next chance. A row's number is never given to another row. Qdrant
would be another file with these methods.
"""

from __future__ import annotations

from typing import Protocol

from suwen.index.cluster.cut import Cut
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.engine import Alternatives, Ranking, Rows, Vectors


class Searcher(Protocol):
    """Finds rows it was given, by their vectors and by their words."""

    #: What the truth remembers it by.
    name: str
    #: Whether its rows are kept outside the truth's transactions.
    outside: bool

    def create(self, connection: Connection, meta: Meta, generation: int) -> None:
        """Make room for a generation of rows. What another attempt left of it is gone before."""

    def is_there(self, connection: Connection, meta: Meta) -> bool:
        """Whether there is room for the rows of the state's generation."""

    def insert(
        self, connection: Connection, meta: Meta, generation: int, rows: Rows, vectors: Vectors, cut: Cut
    ) -> None:
        """Take rows in, with their vectors and terms. Never called twice for a row of a generation."""

    def remove(self, connection: Connection, meta: Meta, rows: Rows) -> None:
        """Forget rows; some may not be there."""

    def ready(self, connection: Connection, meta: Meta) -> None:
        """Called in a write transaction after rows came, with the state as it will be: time to make an index."""

    def nearest(
        self, connection: Connection, meta: Meta, query: Vectors, count: int, among: Rows | None, every: bool = False
    ) -> Rows:
        """About the ``count`` nearest rows, of ``among`` or of all; ``every`` one is compared where that is asked."""

    def matching(
        self, connection: Connection, meta: Meta, text: str, also: Alternatives, count: int, among: Rows | None
    ) -> Ranking:
        """The ``count`` rows, of ``among`` or of all, that match a text best. Fewer only where there are no more."""

    def rows(self, connection: Connection, meta: Meta) -> Rows:
        """Every row it holds, ascending."""

    def is_whole(self, connection: Connection, meta: Meta) -> bool:
        """Whether it holds as many rows as there are vectors: quick, and no more than a hint that all is well."""

    def drop(self, connection: Connection, meta: Meta, generation: int) -> None:
        """Forget a generation; it may not be there."""

    def generations(self, connection: Connection, meta: Meta) -> set[int]:
        """The generations of which there is anything."""

    def switched(self, meta: Meta) -> None:
        """Called before older generations are dropped, and more than once: which generation is in use."""

    def close(self) -> None:
        """Let go of connections of its own."""
