"""How long one hostile request holds the event loop of `suwen serve`, and how much memory it takes.

Run: python benchmarks/loop_hold.py [--rounds 3 --passages 3000]

A server runs in a process of its own, over an index of the bundled sample's sentences. A task in its loop sleeps for a
millisecond again and again, and notes how late it wakes up; the peak of the process's memory is the kernel's own
(VmHWM, set back before each request). Each body is sent alone, some within the server's bounds and some over them. Of
several rounds the least hold and the least growth count: other load only adds, and a heap that has grown once is used
again. A body is what an attacker with a key would send: as expensive as its bounds let it be.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TARGET_MS, TARGET_MB = 50.0, 64.0
HAN = [chr(code) for code in range(0x4E00, 0x9FA5)]


class Attack(NamedTuple):
    """One request."""

    name: str
    path: str
    body: bytes
    kind: str = "application/json"


def searches() -> Iterator[Attack]:
    """Bodies for POST /search."""
    draw = random.Random(3)

    def where(value: str) -> bytes:
        return b'{"query": "a", "where": {"year": ' + value.encode() + b"}}"

    yield Attack("nested empty lists, 4 MB", "/search", where("[" + "[]," * 1_400_000 + "1]"))
    yield Attack("nested empty lists, 17 MB", "/search", where("[" + "[]," * 5_900_000 + "1]"))
    yield Attack("a million unknown keys", "/search", _object(f"k{n}" for n in range(1_000_000)))
    values = {f"f{n}": list(range(10_000)) for n in range(64)}
    yield Attack("640,000 filter values", "/search", json.dumps({"query": "a", "where": values}).encode())
    yield Attack("nested empty lists, 19,000", "/search", where("[" + "[]," * 9_500 + "1]"))
    yield Attack("19,000 unknown keys", "/search", _object(f"k{n}" for n in range(19_000)))
    values = {f"f{n}": [f"v{m}" for m in range(9_900)] for n in range(2)}
    yield Attack("19,800 filter values", "/search", json.dumps({"query": "a", "where": values}).encode())
    yield Attack("wrong filter values, 19,000", "/search", where("[" + "null," * 19_000 + "1]"))
    yield Attack("an unknown field of 1 MB", "/search", json.dumps({"query": "a", "x" * 1_000_000: 1}).encode())
    yield Attack("a query of 1 MB", "/search", json.dumps({"query": "a" * 1_000_000}).encode())
    yield Attack("170,000 escapes", "/search", b'{"query": "' + b"\\u4e00" * 170_000 + b'"}')
    yield Attack("a number of a million digits", "/search", b'{"query": "a", "k": ' + b"1" * 1_000_000 + b"}")
    query = "".join(draw.choice(HAN) for _ in range(8000))
    most = {"query": query, "k": 1000, "highlights": True, "explain": True}
    yield Attack("8,000 characters, everything", "/search", json.dumps(most, ensure_ascii=False).encode())


def documents() -> Iterator[Attack]:
    """Bodies for POST /documents."""

    def texts(*given: str, **more: Any) -> bytes:
        listed = [{"id": f"x{n}", "text": text, **more} for n, text in enumerate(given)]
        return json.dumps({"documents": listed}, ensure_ascii=False).encode()

    yield Attack("one text of 2 million characters", "/documents", texts("高血压患者应低盐饮食。" * 181_818))
    yield Attack("one text of 15.9 MB", "/documents", texts("a " * 7_950_000))
    yield Attack("7.9 MB with one emoji", "/documents", texts("a" * 7_900_000 + "😀"))
    yield Attack("290,000 escapes", "/documents", b'{"documents":[{"id":"x","text":"' + b"\\u4e00" * 290_000 + b'"}]}')
    yield Attack(
        "29,000 metadata values", "/documents", texts("甲", metadata={f"k{n}": list(range(9_700)) for n in range(3)})
    )
    yield Attack(
        "29,000 unknown keys", "/documents", b'{"documents":[' + _object(f"k{n}" for n in range(29_000)) + b"]}"
    )
    yield Attack("500,000 full stops", "/documents", texts("。" * 500_000))
    yield Attack("250,000 words", "/documents", texts("a " * 250_000))
    yield Attack("one word of 500,000", "/documents", texts("a" * 500_000))
    yield Attack("256 texts of 2,000", "/documents", texts(*("高血压患者应低盐饮食。" * 180 for _ in range(256))))
    yield Attack("250 passages", "/documents", texts(*("高血压患者应低盐饮食。" * 10 for _ in range(250))))


def others() -> Iterator[Attack]:
    """Bodies for the other endpoints."""
    many = {"input": ["高血压" * 10_000 for _ in range(150)]}
    yield Attack("150 texts of 30,000", "/v1/embeddings", json.dumps(many, ensure_ascii=False).encode())
    ignored = {"input": "a", "user": ["x"] * 29_000, "more": "y" * 8_000_000}
    yield Attack("ignored fields of 8 MB", "/v1/embeddings", json.dumps(ignored).encode())
    listed = {
        "query": "a",
        "documents": [{"text": "高血压", "x": [1] * 25} for _ in range(1000)],
        "return_documents": True,
    }
    yield Attack("1,000 documents with 25 values", "/v1/rerank", json.dumps(listed).encode())
    vectors = base64.b64encode(os.urandom(11_000_000)).decode()
    result = {"space": "x", "results": [{"id": "a", "version": "b", "vectors": vectors}]}
    yield Attack("vectors of 15 MB", "/worker/results", json.dumps(result).encode())
    line = json.dumps({"id": "a", "text": "高血压患者应低盐饮食。" * 20}, ensure_ascii=False).encode() + b"\n"
    yield Attack("an import of 64 MB", "/imports", line * (64 * 2**20 // len(line)), "application/x-ndjson")


def _object(names: Iterator[str]) -> bytes:
    return b"{" + b",".join(b'"%s":1' % name.encode() for name in names) + b"}"


# -- the server, in a process of its own ------------------------------------------------------------------------------


def serve(folder: Path, port: int) -> None:
    """Serve, and write down on SIGUSR2 how late the loop was, and how large the process, since SIGUSR1."""
    from suwen.service import server
    from suwen.service.holder import Holder
    from suwen.service.serve_settings import ServeSettings

    worst = [0.0]

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: (worst.__setitem__(0, 0.0), set_back()))
        loop.add_signal_handler(signal.SIGUSR2, lambda: tell(folder, worst[0]))
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            worst[0] = max(worst[0], time.perf_counter() - before - 0.001)

    class Watched(Holder):
        async def start(self) -> None:
            await super().start()
            self._watch_task = asyncio.create_task(watch())

    server.Holder = Watched  # type: ignore[misc]
    server.serve(ServeSettings(index=folder / "index", port=port, stop_seconds=2))


def set_back() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def tell(folder: Path, late: float) -> None:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    about = {"late": late, "peak": int(lines["VmHWM"].split()[0]) / 1024, "now": int(lines["VmRSS"].split()[0]) / 1024}
    (folder / "told.new").write_text(json.dumps(about))
    (folder / "told.new").rename(folder / "told.json")


# -- the attacker -----------------------------------------------------------------------------------------------------


class Server(NamedTuple):
    """A server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def asked(self, how: signal.Signals) -> dict[str, float]:
        told = self.folder / "told.json"
        told.unlink(missing_ok=True)
        self.process.send_signal(how)
        if how == signal.SIGUSR1:
            time.sleep(0.05)
            return {}
        while not told.exists():
            time.sleep(0.005)
        return dict(json.loads(told.read_text()))

    def send(self, attack: Attack) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", attack.path, attack.body, {"Content-Type": attack.kind})
            reply = connection.getresponse()
            about = json.loads(reply.read())
        except (BrokenPipeError, ConnectionResetError):
            return "hung up"
        finally:
            connection.close()
        return str(reply.status) if reply.status == 200 else f"{reply.status} {about['error']['code']}"

    def measure(self, attack: Attack) -> tuple[float, float, str]:
        """Milliseconds, megabytes, and what was answered."""
        before = self.asked(signal.SIGUSR2)["now"]
        self.asked(signal.SIGUSR1)
        said = self.send(attack)
        time.sleep(0.1)
        after = self.asked(signal.SIGUSR2)
        return 1000 * after["late"], after["peak"] - before, said


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    from serve_throughput import free_port

    port = free_port()
    with (folder / "log").open("wb") as log:
        command = [sys.executable, __file__, "--serve", str(folder), "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield Server(process, port, folder)
    finally:
        process.terminate()
        process.wait()


def compare(folder: Path, rounds: int, only: str) -> None:
    worst = [0.0, 0.0]
    print("| request | body, MB | answer | holds the loop, ms | memory, MB |")
    print("|---|---|---|---|---|")
    for attack in (*searches(), *documents(), *others()):
        if only not in f"{attack.path} {attack.name}":
            continue
        with running(folder) as server:
            server.send(Attack("warm", "/search", b'{"query": "insulin"}'))
            found = [server.measure(attack) for _ in range(rounds)]
        late, grown = min(one[0] for one in found), max(0.0, min(one[1] for one in found))
        worst = [max(worst[0], late), max(worst[1], found[0][1])]
        name, size = f"`{attack.path}`: {attack.name}", len(attack.body) / 1e6
        print(
            f"| {name} | {size:.1f} | {found[0][2]} | {late:.0f} | {found[0][1]:.0f} (again: {grown:.0f}) |", flush=True
        )
    print(
        f"longest hold {worst[0]:.0f} ms, target {TARGET_MS:.0f}; most memory {worst[1]:.0f} MB, target {TARGET_MB:.0f}"
    )


def main() -> None:
    """Make the index, start servers, attack them; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passages", type=int, default=3000)
    parser.add_argument("--only", default="", help="those whose path and name hold this")
    for hidden in ("--serve", "--port"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    if options.serve:
        serve(Path(options.serve), int(options.port))
        return
    from serve_throughput import make_index

    with tempfile.TemporaryDirectory() as folder:
        make_index(Path(folder), options.passages)
        compare(Path(folder), options.rounds, options.only)


if __name__ == "__main__":
    main()
