"""An index copied document by document to another engine, vectors and all: no encoder is needed. Resumable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import numpy as np

from suwen.corpora.records import Document
from suwen.index.address import Address
from suwen.index.engine import EncodedDocument, Engine, IndexProblem, Progress, all_ids
from suwen.index.opening import create_engine, index_exists, open_engine

#: What the index knows other names by, which is nobody else's: of all it keeps beside documents, this alone is copied.
SYNONYMS = "synonyms.txt"
#: Documents copied in one step.
_BATCH = 64
#: What the copy remembers of itself while it is unfinished: where it comes from, and the last document it has.
_FROM, _LAST = "copying_from", "copying_last"


def copy_index(source: Address, target: Address, progress: Progress | None = None) -> tuple[int, int]:
    """Copy every document of an index, in the order of their ids, to a new one.

    Cut off, it goes on after the last document that is there. Nothing should be written to the source meanwhile: what
    is derived, such as calibrations, is made again when the copy is first used.

    Args:
        source: The address of the index.
        target: The address of the copy: nothing, or a copy that was cut off.
        progress: Told of the documents that are there.

    Returns:
        How many documents and passages the copy holds.
    """
    with closing(open_engine(source)) as old, closing(_target(old, target)) as new:
        settings, there = new.settings(), new.stats().documents
        wanted = old.stats()
        ids = all_ids(old, str(settings.get(_LAST, "")))
        while batch := list(islice(ids, _BATCH)):
            new.add(list(_documents(old, batch)), {_LAST: batch[-1]})
            there += len(batch)
            if progress:
                progress(there, wanted.documents)
        found = new.stats()
        if found[:2] != wanted[:2] or old.stats()[:2] != wanted[:2]:
            raise IndexProblem(
                f"{old.address} has {wanted.documents} documents and {wanted.passages} passages, the copy "
                f"{found.documents} and {found.passages}: it was changed meanwhile. Empty {new.address} and copy again"
            )
        if (names := old.get_blob(SYNONYMS)) is not None:
            new.put_blob(SYNONYMS, names)
        new.remember(**{**old.settings(), _FROM: "", _LAST: ""})
        return found.documents, found.passages


def _target(old: Engine, target: Address) -> Engine:
    """The copy, made or gone on with; an index that is anything else is refused."""
    if unfinished := old.settings().get(_FROM):
        raise IndexProblem(f"{old.address} is itself an unfinished copy of {unfinished}: finish that one first")
    if not index_exists(target):
        dimension = old.stats().dimension
        new = create_engine(target, space=old.space, dimension=dimension, similarity=old.similarity)
        new.remember(**{_FROM: old.address, _LAST: ""})
        return new
    new = open_engine(target, write=True)
    if new.space != old.space or new.settings().get(_FROM) != old.address:
        address = new.address
        new.close()
        raise IndexProblem(
            f"{address} is an index already, and no unfinished copy of {old.address}: name another place"
        )
    return new


def _documents(engine: Engine, ids: list[str]) -> Iterator[EncodedDocument]:
    dimension = engine.stats().dimension
    for id_ in ids:
        with engine.snapshot() as view:
            stored = view.document(id_)
        if stored is None:
            raise IndexProblem(f"document {id_!r} was deleted during the copy: copy again once nothing is written")
        encoder = stored.passages[0].encoder if stored.passages else ""
        made = engine.stored_vectors(id_, encoder) if stored.passages else {}
        passages = [item.passage for item in stored.passages]
        contents = [*(passage.content for passage in passages), *(asked.text for asked in stored.questions)]
        vectors = np.array([made[content] for content in contents], dtype=np.float32).reshape(-1, dimension)
        itself = Document(id_, stored.text, stored.title, stored.metadata)
        came = stored.origin, stored.arrived, stored.questions
        yield EncodedDocument(itself, passages, vectors, encoder, stored.digest, *came)
