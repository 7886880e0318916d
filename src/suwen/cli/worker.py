"""The verb ``worker``: a machine with a GPU that encodes a server's fresh documents."""

from __future__ import annotations

import signal
import threading
from dataclasses import asdict
from types import FrameType
from typing import Annotated

import typer

from suwen.cli.options import Base, DocumentEncoder, Dtype, Json, Key, PairFolder
from suwen.cli.output import say, show


def worker(
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The server's address, http://HOST:PORT.")],
    key: Key = None,
    document_encoder: DocumentEncoder = None,
    pair: PairFolder = None,
    base: Base = None,
    dtype: Dtype = "auto",
    batch: Annotated[int, typer.Option("--batch", min=1, help="The most documents leased at once.")] = 32,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits, instead of asking again.")] = False,
    json: Json = False,
) -> None:
    """Encode a server's fresh documents with the document encoder, on this machine (needs suwen[train]).

    Documents are leased in batches; the server stores the vectors, and refuses those of a document that has changed
    meanwhile. Run several workers if you like. Ctrl-C gives back what is leased; the server may restart meanwhile.

    Example: `suwen worker --server http://search:8000 --base base.gguf`
    """
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
    show(asdict(done), f"{done.documents} documents encoded ({done.passages} passages)", json=json)


def _stopped_by_signals() -> threading.Event:
    """An event that the first Ctrl-C or SIGTERM sets; a second one ends the process as usual."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        say("stopping: what is being encoded is sent, the rest given back")
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop


VERBS = (worker,)
