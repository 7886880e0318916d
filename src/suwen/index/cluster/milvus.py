"""Milvus as the searcher: dense vectors and terms as sparse ones, in a collection for each generation. Never the truth.

Milvus has no transactions, so what it holds may be more than what is there (a write under way, deletions under way),
never less: rows come before their commit, and go once no reader's moment has them. Everything asked is asked with
strong consistency. Where it answers less than there is, or not at all, the caller hears of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
from pymilvus import DataType, MilvusClient, MilvusException

from suwen.index.cluster import words
from suwen.index.cluster.cut import Cut, key_of, length_of, number_of, strength, weight_of
from suwen.index.cluster.place import Unreachable
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.engine import Alternatives, DamagedIndex, Ranking, Rows, Vectors
from suwen.index.lexical_terms import Wanted
from suwen.index.vectors import among as is_among

#: Milvus answers no more hits than these at once.
MOST = 16_384
#: Rows that are named in one expression; 65,000 worked.
LISTED = 50_000
#: Where a filter admits no more rows than this, the truth compares them all.
COMPARED = 1_000
#: A filter that admits one in so many rows, or more, is applied to a longer list of hits instead of being sent.
_SPARSE = 16
#: Rows sent at once: Milvus takes 64 MB a call.
_BATCH = 2_000
#: Seconds that a connection, a question and a long one may take.
_GREETING, _PATIENCE, _LONG = 5.0, 10.0, 120.0
#: An insert goes out once: asked again after its answer was lost, Milvus would hold its rows twice. So no time is given
#: with it, within which its client would try again, but by the channel, to all that have no limit of their own.
_ONCE = {"retry_times": 0, "timeout": None}
#: A server that comes back is found again at once: no attempt waits for what other clients of the process have seen. A
#: connection that answers no ping (the client sends them every 10 seconds, and waits for 5) is given up; but only while
#: a call is under way: servers hang up on who pings for nothing.
_CHANNEL = {
    "grpc.keepalive_permit_without_calls": 0,
    "grpc.use_local_subchannel_pool": 1,
    "grpc.max_reconnect_backoff_ms": 1000,
    "grpc.min_reconnect_backoff_ms": int(1000 * _GREETING),
    "grpc.service_config": json.dumps({"methodConfig": [{"name": [{}], "timeout": f"{_LONG:.0f}s"}]}),
}
LACKING = (
    "the searcher lacks rows of the index: open it for writing, which brings the searcher up to date, or run 'suwen "
    "rebuild'; neither needs an encoder"
)

# It logs every error with its stack before it raises it, and retries with a warning each.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


class Milvus:
    """A Milvus, of which this index uses a few collections. See :class:`Searcher`.

    Args:
        address: Such as ``http://milvus:19530``. ``MILVUS_TOKEN`` holds a token or ``user:password`` where one is
            needed, ``MILVUS_DB`` the name of a database other than the first.
        schema: The index's name in its database, which the collections' names begin with.
    """

    name, outside = "milvus", True

    def __init__(self, address: str, schema: str) -> None:
        self._address, self._schema = address, schema
        self._client: MilvusClient | None = None
        self._guard = threading.Lock()

    # -- the way there ------------------------------------------------------------------------------------------

    def _connected(self) -> MilvusClient:
        with self._guard:
            if self._client is None:
                given = {"token": os.environ.get("MILVUS_TOKEN", ""), "db_name": os.environ.get("MILVUS_DB", "")}
                self._client = MilvusClient(
                    uri=self._address, timeout=_GREETING, dedicated=True, grpc_options=_CHANNEL, **given
                )
            return self._client

    def _call(self, method: str, *given: Any, missing: Any = None, **named: Any) -> Any:
        """Ask something; what goes wrong is told in words. ``missing`` answers for a collection that is not there."""
        try:
            return getattr(self._connected(), method)(*given, **{"timeout": _PATIENCE} | named)
        except (MilvusException, grpc.RpcError) as problem:
            said = " ".join(str(problem).split())[:300]
            if isinstance(problem, MilvusException) and problem.code == 100:
                if missing is not None:
                    return missing
                raise DamagedIndex(f"Milvus at {self._address} has lost the index ({said}): {LACKING}") from problem
            # The connection is kept, for other threads use it: it finds a server that comes back by itself.
            raise Unreachable(
                f"Milvus at {self._address} does not answer as it should ({said}): check the address, that it runs and "
                "MILVUS_TOKEN. What is stored is safe in the database"
            ) from problem

    def _named(self, meta: Meta, generation: int | None = None) -> str:
        """The collection of a generation; without one the alias, which names the one in use to other tools."""
        base = f"suwen_{self._schema}_{meta.uuid[:8]}"
        return base if generation is None else f"{base}_{generation}"

    # -- collections --------------------------------------------------------------------------------------------

    def create(self, connection: Connection, meta: Meta, generation: int) -> None:
        """See :class:`Searcher`."""
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        schema.add_field("dense", DataType.FLOAT_VECTOR, dim=meta.dimension)
        schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index("dense", index_type="AUTOINDEX", metric_type="IP")
        indexes.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        given = {"schema": schema, "index_params": indexes, "consistency_level": "Strong", "timeout": _LONG}
        self._call("create_collection", self._named(meta, generation), **given)

    def is_there(self, connection: Connection, meta: Meta) -> bool:
        """See :class:`Searcher`."""
        return bool(self._call("has_collection", self._named(meta, meta.generation)))

    def drop(self, connection: Connection, meta: Meta, generation: int) -> None:
        """See :class:`Searcher`."""
        name = self._named(meta, generation)
        if self._call("has_collection", name):
            # A collection with a name beside its own cannot be dropped.
            with contextlib.suppress(Unreachable):
                for alias in self._call("list_aliases", name)["aliases"]:
                    self._call("drop_alias", alias)
            self._call("drop_collection", name, timeout=_LONG)

    def generations(self, connection: Connection, meta: Meta) -> set[int]:
        """See :class:`Searcher`."""
        ours = re.compile(re.escape(self._named(meta)) + r"_([0-9]+)")
        found = (ours.fullmatch(name) for name in self._call("list_collections"))
        return {int(match[1]) for match in found if match}

    def switched(self, meta: Meta) -> None:
        """See :class:`Searcher`. The alias is for other tools: a search asks for the generation of its moment."""
        alias, name = self._named(meta), self._named(meta, meta.generation)
        # One form of milvus-lite knows no aliases.
        with contextlib.suppress(Unreachable, DamagedIndex):
            self._call("alter_alias", name, alias)
            return
        with contextlib.suppress(Unreachable, DamagedIndex):
            self._call("create_alias", name, alias)

    def close(self) -> None:
        """See :class:`Searcher`."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(MilvusException, grpc.RpcError):
                client.close()

    # -- rows ---------------------------------------------------------------------------------------------------

    def insert(
        self, connection: Connection, meta: Meta, generation: int, rows: Rows, vectors: Vectors, cut: Cut
    ) -> None:
        """See :class:`Searcher`."""
        name, numbers = self._named(meta, generation), rows.tolist()
        # Asked until it answers, where a server has come back just now: what goes out once would fail at once.
        self._call("has_collection", name)
        dense = np.ascontiguousarray(vectors, dtype=np.float32)
        sparse = _weighted(cut, meta)
        for start in range(0, len(numbers), _BATCH):
            part = range(start, min(start + _BATCH, len(numbers)))
            records = [{"row": numbers[place], "dense": dense[place], "words": next(sparse)} for place in part]
            self._call("insert", name, records, **_ONCE)

    def remove(self, connection: Connection, meta: Meta, rows: Rows) -> None:
        """See :class:`Searcher`."""
        for part in _parts(rows):
            named = {"filter": f"row in {part.tolist()}", "timeout": 3 * _PATIENCE}
            self._call("delete", self._named(meta, meta.generation), missing=(), **named)

    def ready(self, connection: Connection, meta: Meta) -> None:
        """See :class:`Searcher`. Milvus makes its indexes by itself."""

    def rows(self, connection: Connection, meta: Meta) -> Rows:
        """See :class:`Searcher`."""
        found: list[Rows] = [np.empty(0, np.int64)]
        for first in range(1, meta.last_row + 1, MOST):
            clause = f"row >= {first} and row < {first + MOST}"
            given = {"filter": clause, "output_fields": ["row"], "limit": MOST, "consistency_level": "Strong"}
            records = self._call("query", self._named(meta, meta.generation), **given, timeout=_LONG)
            found.append(np.sort(np.fromiter((int(one["row"]) for one in records), dtype=np.int64)))
        return np.concatenate(found)

    def is_whole(self, connection: Connection, meta: Meta) -> bool:
        """See :class:`Searcher`."""
        return self._count(meta) == meta.vectors

    def _count(self, meta: Meta) -> int:
        given = {"filter": "", "output_fields": ["count(*)"], "timeout": _PATIENCE, "consistency_level": "Strong"}
        found = self._call("query", self._named(meta, meta.generation), **given)
        return int(found[0]["count(*)"])

    # -- searching ----------------------------------------------------------------------------------------------

    def nearest(
        self, connection: Connection, meta: Meta, query: Vectors, count: int, among: Rows | None, every: bool = False
    ) -> Rows:
        """See :class:`Searcher`."""
        if among is not None and len(among) <= max(count, COMPARED):
            return among
        largest = float(np.abs(query).max(initial=0.0))
        scaled = (query / largest if largest > 1 else query).astype(np.float32)
        return self._hits(meta, "dense", scaled, count, among, every)

    def matching(
        self, connection: Connection, meta: Meta, text: str, also: Alternatives, count: int, among: Rows | None
    ) -> Ranking:
        """See :class:`Searcher`. Milvus proposes by lengths as they were, the truth's terms give the exact scores."""
        terms = words.asked(text, also)
        held = words.frequencies(connection, meta.generation, terms)
        wanted = words.wanting(connection, meta, held).of(text, also)
        query = _query(wanted, held, meta)
        if not query:
            return Ranking(np.empty(0, np.int64), np.empty(0, np.float32), wanted.most)
        # Of several names the best counts, which no sparse vector can say: all of them together propose more rows.
        asked = 4 * count if wanted.choices else count
        while True:
            hits = self._hits(meta, "words", query, asked, among, asked > MOST)
            found, known = words.held_by(connection, meta.generation, hits, list(held))
            if len(known) >= count or len(hits) < asked:
                break
            asked *= 4
        self._check(connection, meta, hits, known, asked, among)
        ranked = found.ranked(wanted, meta, held)
        return Ranking(ranked.rows[:count], ranked.scores[:count], wanted.most)

    def _check(
        self, connection: Connection, meta: Meta, hits: Rows, known: Rows, asked: int, among: Rows | None
    ) -> None:
        """Refuse to answer from less than there is: rows whose terms are not known here, or rows Milvus does not have.

        Rows that are not in the truth either belong to a write that has not committed.
        """
        if len(unknown := hits[~is_among(hits, np.sort(known))]):
            query = "SELECT EXISTS(SELECT 1 FROM passages WHERE row = ANY(%s))"
            if (connection.execute(query, (unknown.tolist(),)).fetchone() or (False,))[0]:
                raise DamagedIndex(words.GONE)
        if len(hits) < asked and (among is None or len(hits) < len(among)) and self._count(meta) < meta.vectors:
            raise DamagedIndex(LACKING)

    def _hits(self, meta: Meta, field: str, query: Any, count: int, among: Rows | None, every: bool) -> Rows:
        """The rows of the best hits, best first: of some rows, of all, or of every row whatever an index would miss."""
        if every and among is None:
            ends = range(1, meta.last_row + 1, MOST)
            return self._merged(meta, field, query, count, [f"row >= {at} and row < {at + MOST}" for at in ends])
        listed = among is not None and (every or (len(among) <= LISTED and len(among) * _SPARSE < meta.vectors))
        if not listed:
            asked = min(MOST, count if among is None else _SPARSE * count)
            found = self._merged(meta, field, query, asked, [""])
            if among is None:
                return found
            seen = found[is_among(found, among)]
            if len(seen) >= count or len(found) < asked:
                return seen[:count]
        assert among is not None
        return self._merged(meta, field, query, count, [f"row in {part.tolist()}" for part in _parts(among)])

    def _merged(self, meta: Meta, field: str, query: Any, count: int, clauses: Sequence[str]) -> Rows:
        """The best hits of several searches, each within one expression."""
        best: list[tuple[float, int]] = []
        for clause in clauses:
            given = {"anns_field": field, "limit": min(MOST, count), "filter": clause, "output_fields": ["row"]}
            given |= {"search_params": {"metric_type": "IP"}, "consistency_level": "Strong", "timeout": _PATIENCE}
            (hits,) = self._call("search", self._named(meta, meta.generation), [query], **given)
            best += [(-float(hit["distance"]), int(hit["entity"]["row"])) for hit in hits]
        if len(clauses) > 1:
            best = sorted(best)[:count]
        return np.fromiter((row for _, row in best), dtype=np.int64, count=len(best))


def _parts(rows: Rows) -> Iterator[Rows]:
    for start in range(0, len(rows), LISTED):
        yield rows[start : start + LISTED]


def _weighted(cut: Cut, meta: Meta) -> Iterator[dict[int, float]]:
    """Of each text its terms as a sparse vector: what share of its weight each would have at the frozen mean length."""
    numbers = np.array([number_of(name) for name in cut.keys], dtype=np.int64)
    field = np.array([name[0] == "b" for name in cut.keys], dtype=np.int64)[cut.terms]
    means = np.array([meta.mean_words, meta.mean_bigrams])[field]
    shares = strength(cut.counts.astype(np.float64), length_of(cut.steps()), means)
    order, begin = cut.by_text()
    places, values = numbers[cut.terms[order]].tolist(), shares[order].tolist()
    for start, end in zip(begin.tolist(), begin.tolist()[1:], strict=False):
        # A sparse vector may not be empty; nothing asks for the place 0.
        yield dict(zip(places[start:end], values[start:end], strict=True)) or {0: 1.0}


def _query(wanted: Wanted, held: dict[str, int], meta: Meta) -> dict[int, float]:
    """The other side of the product: no row's score is above what it gives."""
    query: dict[int, float] = {}
    for term in wanted.terms:
        if key_of(term) in held:
            place = number_of(key_of(term))
            query[place] = query.get(place, 0.0) + weight_of(term, held[key_of(term)], meta)
    for choice in wanted.choices:
        most: dict[int, float] = {}
        for term in (term for terms in choice for term in terms if key_of(term) in held):
            place = number_of(key_of(term))
            most[place] = max(most.get(place, 0.0), weight_of(term, held[key_of(term)], meta))
        for place, weight in most.items():
            query[place] = query.get(place, 0.0) + weight
    return {place: weight for place, weight in query.items() if weight > 0}
