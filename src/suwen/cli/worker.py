"""The verb ``worker``: encodes again, in the background: a server's fresh documents, or an index's second pass."""

from __future__ import annotations

import signal
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from suwen.cli.options import Base, DocumentEncoder, Dtype, Json, Key, PairFolder
from suwen.cli.output import counting, plural, say, show
from suwen.errors import SuwenError


def worker(
    index: Annotated[
        Path | None,
        typer.Argument(metavar="INDEX", help="An index whose second pass is to be done here; else give --server."),
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="URL", help="The server's address, http://HOST:PORT.")
    ] = None,
    key: Key = None,
    document_encoder: DocumentEncoder = None,
    pair: PairFolder = None,
    base: Base = None,
    dtype: Dtype = "auto",
    batch: Annotated[int, typer.Option("--batch", min=1, help="The most documents leased at once.")] = 32,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits, instead of asking again.")] = False,
    json: Json = False,
) -> None:
    """Encode again, in the background: a server's fresh documents, or what the fastest tier encoded of an index.

    With `--server`, by the document encoder (needs suwen[train]). Documents are leased in batches; the server stores
    the vectors, and refuses those of a document that has changed meanwhile. Run several workers if you like. Ctrl-C
    gives back what is leased; the server may restart meanwhile.

    With INDEX, by the usual tier: `suwen index` has a large collection encoded by the fastest one first. Searches go
    on meanwhile; stop it whenever you like, the same command goes on.

    Example: `suwen worker --server http://search:8000 --base base.gguf`, or `suwen worker my-index`
    """
    if (server is None) == (index is None):
        raise typer.BadParameter("name what to work for: the folder of an index, or --server URL")
    if server is None:
        if key or document_encoder or base:
            raise SuwenError("--key, --document-encoder and --base are for --server: leave them out")
        _second_pass(index, pair, json)
        return
    from suwen.encoders.who_encodes import load_document_encoder
    from suwen.service.document_worker import Worker
    from suwen.service.service_client import Client

    client = Client(server, key)
    encoder = load_document_encoder(pair, document_encoder, base=base, dtype=dtype)
    stop = _stopped_by_signals()
    working = Worker(client, encoder, most=batch, stop=stop, say=say)
    working.check()
    say(f"working for {client.server} with {encoder.name} ({encoder.space.id})")
    done = working.run(once=once)
    show(asdict(done), f"{plural(done.documents, 'document')} encoded ({plural(done.passages, 'passage')})", json=json)


def _second_pass(folder: Path | None, pair: Path | None, json: bool) -> None:
    from suwen.retrieve.retriever import Index
    from suwen.retrieve.second_pass import second_pass, usual_tier

    assert folder is not None
    with Index.open(folder, pair=pair, write=True) as opened:
        tier = usual_tier(opened)
        waiting = opened.engine.backlog(tier).documents if tier else 0
        stop = _stopped_by_signals()
        with counting("encoding again", waiting) as progress:
            done = second_pass(opened, progress=progress, stop=stop.is_set)
    left = waiting - done
    said = f"{plural(done, 'document')} encoded again by `{tier}`" if tier else "nothing waits for another tier"
    show(
        {"documents": done, "tier": tier, "waiting": left},
        f"{folder}: {said}" + (f"; {left:,} still wait: the same command goes on" if left else ""),
        json=json,
    )


def _stopped_by_signals() -> threading.Event:
    """An event that the first Ctrl-C or SIGTERM sets; a second one ends the process as usual."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        say("stopping: what is being encoded is kept, the rest waits")
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop


VERBS = (worker,)
