"""BM25 over words and character bigrams inside PostgreSQL: who holds a term, in blocks of rows. Knows no documents.

The ranking is tantivy's, down to how it rounds the length of a text, so that an index that moves between engines
answers alike. A block holds one term's passages of one write; a rebuild joins blocks to long ones.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from suwen.index.cluster.stored import copy
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.engine import Alternatives, DamagedIndex, Ranking, Rows
from suwen.index.lexical_terms import Term, Wanting, terms_of
from suwen.text.segment import bigrams, words

_K1, _B = 1.2, 0.75
#: Row within the block, how often the term is in it, and the step of its length.
_POSTING = np.dtype([("row", "<u4"), ("count", "<u2"), ("length", "u1")])
_LONGEST = 64
#: Of one term: the first row of each block, and its postings.
_Blocks = list[tuple[int, npt.NDArray[np.void]]]
_Scored = tuple[Rows, npt.NDArray[np.float64]]
_NOTHING: _Scored = (np.empty(0, np.int64), np.empty(0))


def _lengths() -> list[int]:
    """The lengths that tantivy tells apart: each up to 40, then in steps that grow with it."""
    steps = [*range(24)]
    for number in range(256 - 24):
        bits, shift = number & 7, (number >> 3) - 1
        steps.append(24 + (bits if shift < 0 else (bits | 8) << shift))
    return steps


_LENGTHS = _lengths()
_AS_LENGTH = np.array(_LENGTHS, dtype=np.float64)


def table(generation: int) -> str:
    """The table of a generation."""
    return f"words_{generation}"


def create(connection: Connection, generation: int) -> None:
    """Make an empty table."""
    columns = 'term text COLLATE "C" NOT NULL, first bigint NOT NULL, postings bytea NOT NULL'
    connection.execute(f"CREATE TABLE {table(generation)}({columns}, PRIMARY KEY (term, first))".encode())


def add(connection: Connection, generation: int, contents: Sequence[tuple[int, str]]) -> tuple[int, int]:
    """Write the terms of these rows (ascending); how many words and how many bigrams that were."""
    held: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    total = [0, 0]
    if not contents:
        return 0, 0
    first = contents[0][0]
    for row, text in contents:
        for field, terms in enumerate((words(text), bigrams(text))):
            total[field] += len(terms)
            length = bisect_right(_LENGTHS, len(terms)) - 1
            for term, count in Counter(terms).items():
                held[key(field, term)].append((row - first, min(count, 65535), length))
    blocks = ((term, first, np.array(found, dtype=_POSTING).tobytes()) for term, found in held.items())
    copy(connection, table(generation), blocks, ("text", "int8", "bytea"))
    return total[0], total[1]


def cut(text: str) -> list[str]:
    """Every term of a text."""
    return words(text) + bigrams(text)


def key(field: int, term: str) -> str:
    """What a term is called in the table: its field, and itself unless it is too long for an index."""
    if len(term) > _LONGEST or "\0" in term:
        term = hashlib.sha1(term.encode(errors="replace")).hexdigest()
    return "wb"[field] + term


def rank(connection: Connection, meta: Meta, text: str, also: Alternatives) -> Ranking:
    """Every row that shares a term with a text, best first; equal scores by row. Deleted ones are still among them."""
    asked = {_key(term): term for name in (text, *also, *chain(*also.values())) for term in terms_of(name)}
    held = _held(connection, meta.generation, list(asked))
    wanted = Wanting(lambda term: sum(len(found) for _, found in held.get(_key(term), ())), meta.searched).of(
        text, also
    )
    if not held:
        if meta.words + meta.bigrams > 0 and not is_filled(connection, meta.generation):
            raise DamagedIndex("the searcher's words are gone: run 'suwen rebuild' on the index; it needs no encoder")
        return Ranking(np.empty(0, np.int64), np.empty(0, np.float32), wanted.most)
    parts = [_scored(term, held, meta) for term in wanted.terms]
    for choice in wanted.choices:
        alike = [_summed([_scored(term, held, meta) for term in terms]) for terms in choice]
        parts.append(_joined(alike, np.maximum) if alike else _NOTHING)
    rows, scores = _summed(parts or [_NOTHING])
    order = np.lexsort((rows, -np.round(scores.astype(np.float32), 4)))
    return Ranking(rows[order], scores[order].astype(np.float32), wanted.most)


def frequencies(connection: Connection, meta: Meta, terms: Sequence[str]) -> list[int]:
    """In how many passages each of these bigrams, or words of other scripts, stands."""
    held = _held(connection, meta.generation, [key(1, term) for term in terms])
    return [sum(len(found) for _, found in held.get(key(1, term), ())) for term in terms]


def beginning(connection: Connection, meta: Meta, prefix: str) -> list[tuple[str, int]]:
    """The terms of the same kind that begin with these letters, and in how many passages each stands."""
    first, last = key(1, prefix), f"{key(1, prefix)}\U0010ffff"
    query = f"""SELECT term, sum(octet_length(postings))::bigint FROM {table(meta.generation)}
                WHERE term >= %s AND term < %s GROUP BY term ORDER BY term"""
    found = connection.execute(query.encode(), (first, last)).fetchall()
    return [(str(term)[1:], int(length) // _POSTING.itemsize) for term, length in found]


def _key(term: Term) -> str:
    return key(int(term.field == "bigrams"), term.text)


def _held(connection: Connection, generation: int, terms: Sequence[str]) -> dict[str, _Blocks]:
    """The blocks of these terms."""
    query = f"SELECT term, first, postings FROM {table(generation)} WHERE term = ANY(%s)"
    held: dict[str, _Blocks] = defaultdict(list)
    for term, first, postings in connection.cursor(binary=True).execute(query.encode(), (list(terms),)):
        held[term].append((first, np.frombuffer(postings, dtype=_POSTING)))
    return dict(held)


def _scored(term: Term, held: dict[str, _Blocks], meta: Meta) -> _Scored:
    """The rows that hold a term, and what it adds to the score of each."""
    blocks = held.get(_key(term))
    if not blocks:
        return _NOTHING
    rows = np.concatenate([first + found["row"].astype(np.int64) for first, found in blocks])
    counts = np.concatenate([found["count"] for _, found in blocks]).astype(np.float64)
    lengths = _AS_LENGTH[np.concatenate([found["length"] for _, found in blocks])]
    mean = (meta.words if term.field == "words" else meta.bigrams) / max(1, meta.searched)
    idf = math.log(1 + (meta.searched - len(rows) + 0.5) / (len(rows) + 0.5))
    weight = term.weight * idf * (_K1 + 1)
    return rows, weight * counts / (counts + _K1 * (1 - _B + _B * lengths / mean))


def _summed(parts: Sequence[_Scored]) -> _Scored:
    return _joined(parts, np.add)


def _joined(parts: Sequence[_Scored], how: np.ufunc) -> _Scored:
    """The rows of several, each once, with what is made of their scores."""
    rows, places = np.unique(np.concatenate([rows for rows, _ in parts]), return_inverse=True)
    scores = np.zeros(len(rows))
    how.at(scores, places, np.concatenate([score for _, score in parts]))
    return rows, scores


def is_filled(connection: Connection, generation: int) -> bool:
    """Whether any term is there."""
    found = connection.execute(f"SELECT EXISTS(SELECT 1 FROM {table(generation)})".encode()).fetchone()
    return found is not None and bool(found[0])


def rebuild(connection: Connection, generation: int, chunks: Iterable[Sequence[tuple[int, str]]]) -> Iterator[int]:
    """Fill a new table, a long block at a time; after each how many rows it took. Counts go to ``meta`` at the end."""
    searched = total_words = total_bigrams = 0
    for contents in chunks:
        added = add(connection, generation, contents)
        total_words, total_bigrams = total_words + added[0], total_bigrams + added[1]
        searched += len(contents)
        yield len(contents)
    query = "UPDATE meta SET searched = %s, words = %s, bigrams = %s"
    connection.execute(query, (searched, total_words, total_bigrams))


def rows(connection: Connection, generation: int) -> Rows:
    """Every row that any term is held by, ascending."""
    query = f"SELECT first, postings FROM {table(generation)}"
    seen: list[Rows] = [np.empty(0, np.int64)]
    with connection.cursor(binary=True) as cursor:
        for first, postings in cursor.stream(query.encode()):
            seen.append(first + np.frombuffer(postings, dtype=_POSTING)["row"].astype(np.int64))
            if len(seen) > 4096:
                seen = [np.unique(np.concatenate(seen))]
    return np.unique(np.concatenate(seen))
