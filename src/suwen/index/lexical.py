"""The derived lexical index: tantivy over words and character bigrams. Knows rows and text, nothing of documents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import tantivy

from suwen.durable import sync
from suwen.index.engine import Alternatives, DamagedIndex, Ranking, Rows
from suwen.index.lexical_query import LexicalQuery
from suwen.index.read_only_folder import Linked, may_write
from suwen.index.vectors import among
from suwen.text.segment import bigrams, words

#: Up to this many admitted rows a filter becomes part of the tantivy query; past it, the ranking is widened.
_TERM_SET = 2000

#: Scores this near are equal: what differs is the order in which a segment adds up its terms.
_SAME = 1e-4
#: Ties are followed down to this depth; past it, which of the equal rows come first may change with a rebuild.
_MOST_TIES = 4096

_HEAP = 64_000_000
#: What tantivy writes anew under another name, with every commit and after every merge.
_REPLACED = ("meta.json", ".managed.json")


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    for field in ("words", "bigrams"):
        builder.add_text_field(field, tokenizer_name="spaces", index_option="freq")
    return builder.build()


def _may_lock(folder: Path) -> bool:
    return all(os.access(lock, os.W_OK) for lock in folder.glob(".*.lock"))


class Lexical:
    """One tantivy folder. A reader holds its own moment of it until :meth:`reload`."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        self._schema = _schema()
        self._writer: tantivy.IndexWriter | None = None
        self._linked: Linked | None = None
        if create:
            folder.mkdir()
        try:
            if not create and not tantivy.Index.exists(str(folder)):
                raise ValueError("no tantivy index there")
            # tantivy locks the folder to read it, too.
            self._linked = None if may_write(folder) and _may_lock(folder) else Linked(folder)
            self._index = tantivy.Index(self._schema, path=str((self._linked or self).folder), reuse=True)
            spaces = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
            self._index.register_tokenizer("spaces", spaces)
            self._index.config_reader("manual")
            self._index.reload()
        except (ValueError, OSError) as problem:
            raise self._unread("opened", problem) from problem

    def add(self, contents: Iterable[tuple[int, str]]) -> None:
        """Write rows and commit: on return they are durable."""

        def write(writer: tantivy.IndexWriter) -> None:
            for row, text in contents:
                document = tantivy.Document()
                document.add_unsigned("row", row)
                document.add_text("words", " ".join(words(text)))
                document.add_text("bigrams", " ".join(bigrams(text)))
                writer.add_document(document)

        self._commit(write)

    def forget(self, above: int) -> None:
        """Remove rows past a watermark, which a call that was cut off may have left; durable on return."""
        kind = tantivy.FieldType.Unsigned
        past = tantivy.Query.range_query(self._schema, "row", kind, lower_bound=above, include_lower=False)
        if self.reload().search(past, limit=1).hits:
            self._commit(lambda writer: writer.delete_documents_by_query(past))

    def _commit(self, write: Callable[[tantivy.IndexWriter], object]) -> None:
        # Taken out while it works: a writer that failed is dropped with what it had not committed.
        writer, self._writer = self._writer or self._index.writer(_HEAP, num_threads=1), None
        try:
            write(writer)
            writer.commit()
            self._share()
            # tantivy syncs the folder before it renames its meta.json, not after.
            sync(self.folder)
        except BaseException:
            # The traceback would keep the writer, and with it tantivy's lock.
            with contextlib.suppress(ValueError):
                writer.wait_merging_threads()
            raise
        self._writer = writer

    def _share(self) -> None:
        """Let who may read the folder read all of it: tantivy keeps what it replaces to its owner."""
        for name in _REPLACED:
            with contextlib.suppress(OSError):
                (self.folder / name).chmod(self.folder.stat().st_mode & 0o666)

    def reload(self) -> tantivy.Searcher:
        """The newest committed state."""
        try:
            if self._linked is not None:
                self._linked.renew()
            self._index.reload()
        except (ValueError, OSError) as problem:
            # Another process's rebuild takes the folder away: whoever asked looks again, and finds the new one.
            raise self._unread("read", problem) from problem
        return self._index.searcher()

    def _unread(self, how: str, problem: Exception) -> DamagedIndex:
        who = "" if self._linked is None else " as somebody who may write to it"
        return DamagedIndex(
            f"{self.folder} cannot be {how} ({problem}): run 'suwen rebuild {self.folder.parent.parent}'{who}"
        )

    def close(self) -> None:
        """Finish merges and give up the writer."""
        if self._writer is not None:
            with contextlib.suppress(ValueError):
                self._writer.wait_merging_threads()
            self._writer = None
            self._share()

    def search(
        self,
        searcher: tantivy.Searcher,
        frequency: Callable[[str, str], int],
        text: str,
        k: int,
        admitted: Rows | None,
        hidden: Rows,
        last: int,
        also: Alternatives | None = None,
    ) -> Ranking:
        """The best ``k`` rows by BM25.

        Args:
            searcher: The moment to search in.
            frequency: In how many passages a term of a field stands, at that moment.
            text: The query as typed; it is cut into terms, never parsed.
            k: How many.
            admitted: Ascending rows a filter lets through, or None for all.
            hidden: Ascending rows that must not come back: tombstones.
            last: The highest row of the caller's moment; tantivy may be a moment ahead.
            also: Other names for what the query says.
        """
        query, most = LexicalQuery(self._schema, frequency, searcher.num_docs).of(text, also or {})
        if query is None or (admitted is not None and len(admitted) == 0):
            return Ranking(np.empty(0, np.int64), np.empty(0, np.float32), most)
        if admitted is not None and len(admitted) <= _TERM_SET:
            listed = tantivy.Query.term_set_query(self._schema, "row", admitted.tolist())
            listed = tantivy.Query.boost_query(tantivy.Query.const_score_query(listed, 0.0), 1.0)
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, listed)])
        return self._widen(searcher, query, k, admitted, hidden, last)._replace(most=most)

    @staticmethod
    def _widen(
        searcher: tantivy.Searcher, query: tantivy.Query, k: int, admitted: Rows | None, hidden: Rows, last: int
    ) -> Ranking:
        """Ask for more until ``k`` visible rows came back or the ranking ends: as if only they were searched."""
        total = searcher.num_docs
        asked = k + 16
        if admitted is not None and len(admitted) > _TERM_SET:
            # Three standard deviations more than are expected to do: a second search costs what the first did.
            asked = int((asked + 3 * asked**0.5) * total / len(admitted))
        while True:
            hits = searcher.search(query, limit=max(1, min(asked, total)), count=False).hits
            rows = np.asarray(searcher.fast_field_values("row", [address for _, address in hits]), dtype=np.int64)
            scores = np.asarray([score for score, _ in hits], dtype=np.float32)
            lowest = hits[-1][0] if hits else 0.0
            seen = rows <= last
            if len(hidden):
                seen &= ~among(rows, hidden)
            if admitted is not None:
                seen &= among(rows, admitted)
            rows, scores = rows[seen], scores[seen]
            # tantivy breaks ties by where a row lies, which a rebuild changes; here they go by row, so all that tie
            # with the k-th are looked at, within reason.
            tied = asked < _MOST_TIES and len(rows) >= k and scores[k - 1] - lowest < _SAME
            if (len(rows) >= k and not tied) or len(hits) < asked:
                order = np.lexsort((rows, -scores.round(4)))[:k]
                return Ranking(rows[order], scores[order])
            asked *= 4
