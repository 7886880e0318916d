"""The verb ``worker``: a machine with a GPU that encodes a server's fresh documents."""

from __future__ import annotations

import signal
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from suwen.cli.output import Json, out, print_json, say
from suwen.encoders.who_encodes import load_document_encoder

Server = Annotated[str, typer.Option("--server", help="The server's address, http://HOST:PORT.")]
Key = Annotated[
    str | None, typer.Option("--key", envvar="SUWEN_KEY", help="A key of the server that may write (or SUWEN_KEY).")
]


def worker(
    server: Server,
    key: Key = None,
    document_encoder: Annotated[
        str | None,
        typer.Option("--document-encoder", help="A full pair, a model or an adapter pair; else the pair's own."),
    ] = None,
    pair: Annotated[
        Path | None, typer.Option("--pair", help="The pair of the index; else SUWEN_PAIR, the default pair.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", help="The base of an adapter: GGUF file, folder or hub id (or SUWEN_BASE).")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="auto, fp32, bf16 or fp16.")] = "auto",
    batch: Annotated[int, typer.Option("--batch", min=1, help="The most documents leased at once.")] = 32,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits, instead of asking again.")] = False,
    json: Json = False,
) -> None:
    """Encode a server's fresh documents with the document encoder, on this machine (needs suwen[train]).

    Documents are leased in batches; the server stores the vectors, and refuses those of a document that has changed
    meanwhile. Run several workers if you like. Ctrl-C gives back what is leased; the server may restart meanwhile.

    Example: `suwen worker --server http://search:8000 --base base.gguf`
    """
    from suwen.service.document_worker import Worker
    from suwen.service.service_client import Client

    client = Client(server, key)
    encoder = load_document_encoder(pair, document_encoder, base=base, dtype=dtype)  # type: ignore[arg-type]
    stop = _stopped_by_signals()
    working = Worker(client, encoder, most=batch, stop=stop, say=say)
    working.check()
    say(f"working for {client.server} with {encoder.name} ({encoder.space.id})")
    done = working.run(once=once)
    if json:
        print_json(asdict(done))
    else:
        out.print(f"{done.documents} documents encoded ({done.passages} passages)", soft_wrap=True)


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
