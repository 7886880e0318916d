"""The terms of a cluster index in PostgreSQL: how many rows hold each, which those are, or what each row holds.

A generation has a table of terms in blocks: one for each term of each write, which a rebuild joins to long ones. Who
searches words in PostgreSQL keeps in a block which rows hold the term (``postings``); who searches them elsewhere
keeps a second table of what each row holds, for exact scores of what the other system proposes. Knows no documents.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from suwen.index.cluster.cut import Cut, Found, key, key_of, number_of
from suwen.index.cluster.truth import Connection, Meta
from suwen.index.cluster.wire import copy_bytes
from suwen.index.engine import Alternatives, DamagedIndex, Ranking, Rows
from suwen.index.lexical_terms import Wanting, terms_of

#: Row within the block, how often the term is in it, and the step of its length.
_POSTING = np.dtype([("row", "<u4"), ("count", "<u2"), ("length", "u1")])
#: A term by its place in sparse vectors, and how often it is in the row.
_HELD = np.dtype([("term", "<u4"), ("count", "<u2")])
GONE = "the searcher's words are gone: run 'suwen rebuild' on the index; it needs no encoder"


def table(generation: int) -> str:
    """The table of a generation's terms."""
    return f"words_{generation}"


def rows_table(generation: int) -> str:
    """The table of what each row of a generation holds."""
    return f"cuts_{generation}"


def create(connection: Connection, generation: int, by_row: bool) -> None:
    """Make the empty tables of a generation: terms with their rows, or rows with their terms."""
    columns = 'term text COLLATE "C" NOT NULL, first bigint NOT NULL, held int NOT NULL, postings bytea'
    connection.execute(f"CREATE TABLE {table(generation)}({columns}, PRIMARY KEY (term, first))".encode())
    if by_row:
        name = rows_table(generation)
        connection.execute(f"CREATE TABLE {name}(row bigint PRIMARY KEY, lengths bytea, terms bytea)".encode())
        connection.execute(f"ALTER TABLE {name} ALTER terms SET STORAGE EXTERNAL".encode())


def add(connection: Connection, generation: int, rows: Rows, cut: Cut, by_row: bool) -> None:
    """Write the terms of these rows, which ascend."""
    if len(rows):
        first = int(rows[0])
        entries = None if by_row else _postings(cut, rows - first)
        copy_bytes(connection, table(generation), _blocks(cut, first, entries))
        if by_row:
            copy_bytes(connection, rows_table(generation), _held_by_rows(cut, rows))


def _postings(cut: Cut, offsets: Rows) -> bytes:
    entries = np.empty(len(cut.terms), dtype=_POSTING)
    entries["row"], entries["count"], entries["length"] = offsets[cut.texts], cut.counts, cut.steps()
    return entries.tobytes()


def _blocks(cut: Cut, first: int, entries: bytes | None) -> Iterator[bytes]:
    """Records of the table of terms, as COPY takes them: written by hand, since there are hundreds for a passage."""
    size = _POSTING.itemsize
    four, middle, last = struct.Struct(">hi").pack, struct.Struct(">iqiii").pack, struct.Struct(">iqii").pack
    for name, begin, end in cut.by_term():
        term = name.encode(errors="replace")
        if entries is None:
            yield four(4, len(term)) + term + last(8, first, 4, end - begin) + b"\xff\xff\xff\xff"
        else:
            length = size * (end - begin)
            yield four(4, len(term)) + term + middle(8, first, 4, end - begin, length)
            yield entries[size * begin : size * end]


def _held_by_rows(cut: Cut, rows: Rows) -> Iterator[bytes]:
    numbers = np.array([number_of(name) for name in cut.keys], dtype=np.uint32)
    order, begin = cut.by_text()
    entries = np.empty(len(order), dtype=_HELD)
    entries["term"], entries["count"] = numbers[cut.terms[order]], cut.counts[order]
    for place, row in enumerate(rows.tolist()):
        held, lengths = entries[begin[place] : begin[place + 1]].tobytes(), cut.lengths[place].tobytes()
        yield struct.pack(">hiqi", 3, 8, row, len(lengths)) + lengths + struct.pack(">i", len(held)) + held


# -- searching --------------------------------------------------------------------------------------------------


def asked(text: str, also: Alternatives) -> list[str]:
    """Every term that a search may look up."""
    names = (text, *also, *chain(*also.values()))
    return list({key_of(term): None for name in names for term in terms_of(name)})


def rank(connection: Connection, meta: Meta, text: str, also: Alternatives) -> Ranking:
    """Every row that shares a term with a text, best first; equal scores by row. Deleted ones are still among them."""
    terms = asked(text, also)
    found, held = _found(connection, meta.generation, terms)
    wanted = wanting(connection, meta, held).of(text, also)
    return found.ranked(wanted, meta, held)


def wanting(connection: Connection, meta: Meta, held: dict[str, int]) -> Wanting:
    """What takes queries apart, by how many rows hold each term; words that are all gone are not passed over."""
    if not held and meta.words + meta.bigrams > 0 and not is_filled(connection, meta.generation):
        raise DamagedIndex(GONE)
    return Wanting(lambda term: held.get(key_of(term), 0), meta.searched)


def _found(connection: Connection, generation: int, terms: Sequence[str]) -> tuple[Found, dict[str, int]]:
    """Who holds these terms, and how many rows hold each of those that are held."""
    query = f"SELECT term, first, held, postings FROM {table(generation)} WHERE term = ANY(%s)"
    places, held = {name: place for place, name in enumerate(terms)}, dict[str, int]()
    blocks = connection.cursor(binary=True).execute(query.encode(), (list(terms),)).fetchall()
    for term, _, count, _ in blocks:
        held[term] = held.get(term, 0) + count
    entries = np.frombuffer(b"".join(block[3] for block in blocks), dtype=_POSTING)
    counts = np.array([block[2] for block in blocks], dtype=np.int64)
    first = np.repeat(np.array([block[1] for block in blocks], dtype=np.int64), counts)
    which = np.repeat(np.array([places[block[0]] for block in blocks], dtype=np.int64), counts)
    rows = first + entries["row"]
    return Found(terms, which, rows, entries["count"].astype(np.float64), entries["length"].astype(np.int64)), held


def held_by(connection: Connection, generation: int, rows: Rows, terms: Sequence[str]) -> tuple[Found, Rows]:
    """Which of these terms these rows hold, and which of the rows are known here."""
    query = f"SELECT row, lengths, terms FROM {rows_table(generation)} WHERE row = ANY(%s)"
    records = connection.cursor(binary=True).execute(query.encode(), (rows.tolist(),)).fetchall()
    entries = np.frombuffer(b"".join(record[2] for record in records), dtype=_HELD)
    sizes = [len(record[2]) // _HELD.itemsize for record in records]
    lengths = np.frombuffer(b"".join(record[1] for record in records), dtype=np.uint8).reshape(-1, 2)
    numbers = np.array([number_of(name) for name in terms], dtype=np.uint32)
    order = np.argsort(numbers, kind="stable")
    places = np.minimum(np.searchsorted(numbers[order], entries["term"]), len(terms) - 1)
    ours = np.flatnonzero(numbers[order][places] == entries["term"])
    which = order[places[ours]]
    of = np.repeat(np.arange(len(records)), sizes)[ours]
    field = np.array([name[0] == "b" for name in terms], dtype=np.int64)
    names = np.array([record[0] for record in records], dtype=np.int64)
    counts, steps = entries["count"][ours].astype(np.float64), lengths[of, field[which]].astype(np.int64)
    return Found(terms, which, names[of], counts, steps), names


def frequencies(connection: Connection, generation: int, keys: Sequence[str]) -> dict[str, int]:
    """How many rows hold each of these terms, for those that any holds; deleted ones count until a rebuild."""
    query = f"SELECT term, sum(held)::bigint FROM {table(generation)} WHERE term = ANY(%s) GROUP BY term"
    return {term: int(held) for term, held in connection.execute(query.encode(), (list(keys),))}


def vocabulary(connection: Connection, meta: Meta, terms: Sequence[str]) -> list[int]:
    """In how many passages each of these bigrams, or words of other scripts, stands."""
    keys = [key(1, term) for term in terms]
    held = frequencies(connection, meta.generation, keys)
    return [held.get(name, 0) for name in keys]


def beginning(connection: Connection, meta: Meta, prefix: str) -> list[tuple[str, int]]:
    """The terms of the same kind that begin with these letters, and in how many passages each stands."""
    first, last = key(1, prefix), f"{key(1, prefix)}\U0010ffff"
    query = f"""SELECT term, sum(held)::bigint FROM {table(meta.generation)}
                WHERE term >= %s AND term < %s GROUP BY term ORDER BY term"""
    return [(str(term)[1:], int(held)) for term, held in connection.execute(query.encode(), (first, last))]


# -- upkeep -----------------------------------------------------------------------------------------------------


def is_filled(connection: Connection, generation: int) -> bool:
    """Whether any term is there."""
    found = connection.execute(f"SELECT EXISTS(SELECT 1 FROM {table(generation)})".encode()).fetchone()
    return found is not None and bool(found[0])


def rows(connection: Connection, generation: int, by_row: bool) -> Rows:
    """Every row that any term is held by (or that is known to hold none), ascending."""
    seen: list[Rows] = [np.empty(0, np.int64)]
    query = f"SELECT first, postings FROM {table(generation)}"
    if by_row:
        query = f"SELECT row, NULL FROM {rows_table(generation)}"
    with connection.cursor(binary=True) as cursor:
        for first, postings in cursor.stream(query.encode()):
            within = [0] if postings is None else np.frombuffer(postings, dtype=_POSTING)["row"].astype(np.int64)
            seen.append(first + np.asarray(within, dtype=np.int64))
            if len(seen) > 4096:
                seen = [np.unique(np.concatenate(seen))]
    return np.unique(np.concatenate(seen))


def lacks_rows(connection: Connection, generation: int) -> bool:
    """Whether there are passages of which it is not known what they hold."""
    query = f"""SELECT EXISTS(SELECT 1 FROM passages WHERE NOT EXISTS(
                  SELECT 1 FROM {rows_table(generation)} AS cut WHERE cut.row = passages.row))"""
    return bool((connection.execute(query.encode()).fetchone() or (False,))[0])


def drop(connection: Connection, generation: int) -> None:
    """Forget a generation, if it is there."""
    for name in (table(generation), rows_table(generation)):
        connection.execute(f"DROP TABLE IF EXISTS {name}".encode())


def blocks(connection: Connection, generation: int) -> int:
    """In how many writes the terms came."""
    query = f"SELECT count(DISTINCT first) FROM {table(generation)}"
    return int((connection.execute(query.encode()).fetchone() or (0,))[0])


def generations(connection: Connection, prefix: str = "words") -> set[int]:
    """The generations that have a table of this kind."""
    query = """SELECT substring(relname from '_([0-9]+)$')::bigint FROM pg_class
               WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname ~ %s"""
    return {int(found) for (found,) in connection.execute(query, (f"^{prefix}_[0-9]+$",))}
