"""A real ``suwen serve`` process over hand-written notes, for tests that treat it badly. No test lives here."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from in_memory import folder_in_memory

# The pair is that of the retriever's tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))
from small_pair import make_static_pair

import suwen
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index

_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SUWEN_")} | {
    "PYTHONPATH": str(Path(suwen.__file__).parents[1])
}
_PATIENCE = 300.0
_TOPICS = ("布洛芬退烧", "胰岛素降血糖", "房颤抗凝", "肾结石多饮水", "儿童咳嗽", "kidney stones", "flu vaccine")


class LiveServer:
    """A running server: where it is, and what it last wrote to its log."""

    def __init__(self, process: subprocess.Popen[str], address: str, index: Path) -> None:
        self.process, self.address, self.index = process, address, index
        self.killed = False
        self.said: deque[str] = deque(maxlen=400)
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.place = (host, int(port))
        # Made once: a client reads the machine's certificates when it is made, which takes longer than most requests.
        self._client = httpx.Client(verify=False, timeout=120, limits=httpx.Limits(max_keepalive_connections=0))

    @property
    def failures(self) -> list[str]:
        """Log lines of requests on which the server itself failed."""
        return [line for line in list(self.said) if '"trace"' in line or '"status":500' in line]

    def wait_to_say(self, pattern: str) -> None:
        """Return once its log has such a line: what it has written is read a moment later."""
        deadline = time.monotonic() + _PATIENCE
        while not any(re.search(pattern, line) for line in list(self.said)):
            assert time.monotonic() < deadline, f"it never said {pattern}"
            time.sleep(0.02)

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(self.place, timeout=120)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request on a connection of its own."""
        return self._client.request(method, self.address + path, **options)

    def kill(self) -> None:
        """End it as a power cut of the machine would, but for what the kernel still writes."""
        self.killed = True
        self.process.kill()
        self.process.wait()

    def memory(self) -> int:
        """Bytes that are the process's own and in memory now."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        """What the process has spent so far, of its own and for the system."""
        spent = psutil.Process(self.process.pid).cpu_times()
        return float(spent.user + spent.system)


def mark(number: int) -> str:
    """A word that one note has and no other."""
    return f"zq{number:03}x"


def notes(count: int = 40) -> list[Document]:
    """Documents whose every text differs, so that a wrong answer shows."""
    return [
        Document(f"note-{number}", f"{topic}。记录号 {mark(number)}。", topic, {"year": 2000 + number})
        for number, topic in ((number, _TOPICS[number % len(_TOPICS)]) for number in range(count))
    ]


@contextmanager
def live_server(documents: list[Document] | None = None, **settings: object) -> Iterator[LiveServer]:
    """Start a server over an index of its own, in memory where there is such a place; it must end well."""
    with folder_in_memory() as folder, running(make_index(folder, documents), **settings) as server:
        yield server


def make_index(folder: Path, documents: list[Document] | None = None) -> Path:
    """An index of the notes, or of other documents."""
    # Not the pair of the package, whose default tier is a transformer: what is tried here is the service.
    with Index.create(folder / "notes", pair=make_static_pair(folder / "pair")) as made:
        made.add(notes() if documents is None else documents)
    return folder / "notes"


@contextmanager
def running(
    index: Path, *, patch: str = "", opened: Sequence[str] = (), key: str | None = None, **settings: object
) -> Iterator[LiveServer]:
    """Start a server of an index, after running ``patch`` in its process; it must end well, unless it is killed.

    It is ready before the further indexes of its folder are open: those ``opened`` names are waited for, too.
    """
    variables = {f"SUWEN_SERVE_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-c", f"{patch}\nfrom suwen.cli.main import run; run()", "serve"]
    command += [str(index), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_ENVIRONMENT | variables)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        found = re.search(r"http://\S+", first)
        assert found, first + process.stderr.read()
        server = LiveServer(process, found[0], index)
        threading.Thread(target=lambda: server.said.extend(process.stderr), daemon=True).start()
        for path in ("/readyz", *(f"/indexes/{name}/readyz" for name in opened)):
            _wait_until_ready(server, path, {"X-API-Key": key} if key else {})
        yield server
        if server.killed:
            return
        process.terminate()
        assert process.wait(_PATIENCE) == 0, list(server.said)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def _wait_until_ready(server: LiveServer, path: str, headers: dict[str, str]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while server.ask("GET", path, headers=headers).status_code != 200:
        assert server.process.poll() is None and time.monotonic() < deadline, list(server.said)
        time.sleep(0.02)
