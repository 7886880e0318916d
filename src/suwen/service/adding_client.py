"""Documents through a server: few of them are posted, many are imported. What ``suwen add --server`` does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from suwen.corpora.records import Document
from suwen.encoders.cores import grouped
from suwen.errors import SuwenError
from suwen.retrieve.ingest import Duplicates, IngestProgress, SeenIds
from suwen.service.service_client import Client, patiently

#: Small batches wait for the disk too often, large ones keep others waiting; and a tier that is a transformer encodes
#: about 15 passages a second on one thread, so that this much takes a third of the time a request may.
_BATCH_BYTES = 64 * 2**10
#: What is larger than this in all, or has a document longer than a batch, is imported.
_POSTED_BYTES = 2**20
#: The length of one import: sent again in seconds where a connection breaks.
_IMPORT_BYTES = 16 * 2**20
#: Seconds between two looks at an import.
_LOOK = 0.5
_COUNTS = ("read", "added", "changed", "unchanged", "passages")
_DONE = ("done", "failed", "cancelled")


class Sized(dict[str, Any]):
    """A document as the API takes it, and its line of JSON."""

    def __init__(self, document: Document) -> None:
        super().__init__(id=document.id, title=document.title, text=document.text, metadata=dict(document.metadata))
        self.line = json.dumps(self, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


def add_documents(
    client: Client,
    documents: Iterable[Document],
    duplicates: Duplicates = "error",
    progress: IngestProgress | None = None,
) -> dict[str, int]:
    """Bring documents to a server, in the way that suits their size; counts of what they were to it.

    Raises:
        IngestError: An id comes twice, and that is an error; batches before it are stored.
        ServerError: A batch was refused; those before it are stored.
    """
    limits = client.get("/info")["limits"]
    tell = progress or (lambda read, passages: None)
    with SeenIds() as seen:
        once = map(Sized, seen.once(documents, duplicates, "Batches before it are stored", lambda: None))
        first, large = _looked_at(once)
        everything = chain(first, once)
        # A server of an older release knows no imports.
        if large and "import_bytes" in limits:
            return _import(client, everything, min(int(limits["import_bytes"]), _IMPORT_BYTES), tell)
        return _post(client, everything, limits, tell)


def _looked_at(documents: Iterator[Sized]) -> tuple[list[Sized], bool]:
    """The first documents, and whether there is more than requests should carry."""
    first: list[Sized] = []
    size = 0
    for document in documents:
        first.append(document)
        size += len(document.line)
        if size > _POSTED_BYTES or len(document.line) > _BATCH_BYTES:
            return first, True
    return first, False


def _post(
    client: Client, documents: Iterator[Sized], limits: Mapping[str, Any], tell: IngestProgress
) -> dict[str, int]:
    totals = dict.fromkeys(_COUNTS, 0)
    for batch in _batches(documents, int(limits["batch_documents"]), int(limits["body_bytes"])):
        answer = patiently(partial(client.post, "/documents", {"documents": batch}), tries=8)
        totals["read"] += len(batch)
        for name in _COUNTS[1:]:
            totals[name] += int(answer[name])
        tell(totals["read"], totals["passages"])
    return totals


def _batches(documents: Iterator[Sized], most: int, body_bytes: int) -> Iterator[list[Sized]]:
    """Documents as the API takes them; an id that comes again begins a new batch, so that the last one stays."""
    batch: list[Sized] = []
    ids: set[str] = set()
    room = 0
    for document in documents:
        size = len(document.line) + 2
        if batch and (len(batch) >= most or size > room or document["id"] in ids):
            yield batch
            batch, ids = [], set()
        if not batch:
            room = min(body_bytes - 1024, _BATCH_BYTES)
        batch.append(document)
        ids.add(document["id"])
        room -= size
    if batch:
        yield batch


def _import(client: Client, documents: Iterator[Sized], most: int, tell: IngestProgress) -> dict[str, int]:
    """Send documents as imports, one after the other, and see each of them to its end."""
    totals = dict.fromkeys(_COUNTS, 0)
    for part in grouped(documents, lambda document: len(document.line), most):
        body = b"".join(document.line for document in part)
        # Ids that may not come twice were found out here; the later of two may be in the next part.
        call = partial(client.send, "/imports?duplicates=last", body, "application/x-ndjson")
        job = patiently(call, tries=8)
        while job["state"] not in _DONE:
            tell(totals["read"] + job["read"], totals["passages"] + job["encoded"])
            time.sleep(_LOOK)
            job = patiently(partial(client.get, f"/imports/{job['id']}"), tries=8)
        for name in _COUNTS:
            totals[name] += int(job[name])
        tell(totals["read"], totals["passages"])
        if job["state"] != "done":
            raise _unfinished(job, totals["read"])
    return totals


def _unfinished(job: Mapping[str, Any], stored: int) -> SuwenError:
    why = f"{job['error']['code']}: {job['error']['message']}" if job["error"] else "somebody cancelled it"
    return SuwenError(f"the import {job['id']} was not finished ({why}); {stored} documents before are stored")
