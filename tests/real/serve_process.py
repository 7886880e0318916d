"""A real ``suwen serve`` process with the pair of the package, and commands that fail. No test lives here."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

import suwen
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index

COMMAND = [sys.executable, "-c", "from suwen.cli.main import run; run()"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SUWEN_")} | {
    "PYTHONPATH": str(Path(suwen.__file__).parents[1])
}
DOCUMENT = {"id": "x", "text": "甲"}


class Server:
    """A running ``suwen serve``, and its keys by their roles where it has some."""

    def __init__(self, process: subprocess.Popen[str], address: str, said: list[str]) -> None:
        self.process, self.address, self.said = process, address, said
        self.keys: dict[str, str] = {}
        self.reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.place = (host.strip("[]"), int(port))

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.place, timeout=120)
        connection.settimeout(120)
        return connection

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=300)


@contextmanager
def serving(index: Path, *options: str, ready: bool = True, **variables: object) -> Iterator[Server]:
    """Start a server on a free port and stop it at the end."""
    environment = ENVIRONMENT | {f"SUWEN_SERVE_{name.upper()}": str(value) for name, value in variables.items()}
    process = subprocess.Popen(
        [*COMMAND, "serve", str(index), "--port", "0", *options], stderr=subprocess.PIPE, text=True, env=environment
    )
    said: list[str] = []
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://\S+", first)
        assert found, first + process.stderr.read()
        server = Server(process, found[0], said)
        server.reader.start()
        while ready and httpx.get(f"{server.address}/readyz", timeout=120).status_code != 200:
            assert process.poll() is None, said
            time.sleep(0.02)
        yield server
        if process.poll() is None:
            assert server.stop() == 0, said
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def fails(*arguments: str | Path) -> str:
    """Run a command that must fail with one clear message; what it said."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT, timeout=300
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def make_index(folder: Path) -> Path:
    notes = [Document("fever", "布洛芬可以退烧止痛。", "布洛芬", {"year": 2021}), Document("sugar", "胰岛素降低血糖。")]
    with Index.create(folder) as index:
        index.add(notes)
    return folder
