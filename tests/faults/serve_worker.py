"""The real server as a child that can be struck: a program that forks one for each job, a line of JSON each.

The modules are read once, by the parent: an interpreter that starts anew for every life would spend most of it on
that. A child loads the fault shim itself, so that its journal begins where the server does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sqlite3
from pathlib import Path
from typing import Any

import sentence_transformers  # noqa: F401 - what a child would read first
from broken import BUILDS
from forked import fork_for_each_line
from workload import SEAL, Checkpointing

from suwen.index import embedded, snapshot
from suwen.index.embedded import EmbeddedEngine
from suwen.service.request_log import log_to_stderr
from suwen.service.serve_settings import ServeSettings
from suwen.service.server import serve

#: The engine's calls behind posts, deletes and the background; a change outside of them counts under ``idle``.
VERBS = ("add", "delete", "reencode")


def arm(shim: ctypes.CDLL) -> None:
    """Let the shim count the changes of each call under its name."""

    def named(verb: str) -> None:
        plain = getattr(EmbeddedEngine, verb)

        def call(self: EmbeddedEngine, *given: Any) -> Any:
            shim.shim_arm(verb.encode())
            try:
                return plain(self, *given)
            finally:
                shim.shim_arm(b"idle")

        setattr(EmbeddedEngine, verb, call)

    for verb in VERBS:
        named(verb)


def live(job: dict[str, Any]) -> None:
    """Serve until a signal or the shim ends it."""
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    log_to_stderr()
    sqlite3.connect = functools.partial(sqlite3.connect, factory=Checkpointing)  # type: ignore[assignment]
    # Small, so that a few dozen passages are sealed several times, and searched where they were sealed.
    EmbeddedEngine.open.__func__.__kwdefaults__["seal"] = SEAL
    snapshot.EXACT_LIMIT = 0
    # A crash must leave nothing that only a rebuild mends: a large index would not get one on opening.
    embedded._HEAL_LIMIT = -1
    if job["build"]:
        BUILDS[job["build"]]()
    if job["shim"]:
        os.environ.update(job["watch"])
        arm(ctypes.CDLL(job["shim"]))
    settings = ServeSettings(index=job["index"], base=job["base"], port=0)
    # Renamed into place: nobody reads half an address.
    address = Path(job["address"])

    def listening(said: str) -> None:
        address.with_suffix(".new").write_text(said, encoding="utf-8")
        address.with_suffix(".new").replace(address)

    serve(settings, listening)


if __name__ == "__main__":
    fork_for_each_line(live)
