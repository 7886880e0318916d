"""What eight clients get of `suwen serve` beside one client, and two processes beside one: per second, per CPU second.

Run: python benchmarks/serve_clients.py [--passages 10000 --rounds 5 --seconds 2 --out FILE --old CHECKOUT]

Three servers of the same index, asked in turn within each round, over connections that stay open:
  one     `suwen serve`
  before  the same with Python's own switch interval of 5 ms, and short searches side by side; with --old, that checkout
  two     `suwen serve --workers 2`
CPU time is that of the server's processes, all threads, by their clocks; that of the load, which has a process of its
own, is told apart. The median of the rounds counts. Requests per second mean something only on a machine with no other
work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from serve_throughput import cpu_seconds, free_port, make_index, wait

SERVERS = ("one", "before", "two")
KINDS = ("lexical", "hybrid")
CLIENTS = (1, 8)


@contextmanager
def running(name: str, folder: Path, old: Path | None = None) -> Iterator[tuple[psutil.Process, int]]:
    """A server of the kind, all of its processes answering."""
    port = free_port()
    command = [sys.executable, __file__, "--serve", name, "--port", str(port), "--folder", str(folder)]
    other = {"PYTHONPATH": str(old / "src"), "SUWEN_OLD": "1"} if old and name == "before" else {}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | other)
    try:
        wait(process, port, folder / f"{name}.log")
        server = psutil.Process(process.pid)
        while name == "two" and not _listening(server, port):
            time.sleep(0.1)
        yield server, port
    finally:
        process.terminate()
        process.wait(timeout=60)


def _listening(server: psutil.Process, port: int) -> bool:
    found = [c for one in server.children() for c in one.net_connections("tcp") if c.status == "LISTEN"]
    return any(c.laddr.port == port for c in found)


def spent(server: psutil.Process) -> float:
    """CPU seconds of a server and its processes so far."""
    return sum(cpu_seconds(one.pid) for one in (server, *server.children()))


def measure(server: psutil.Process, port: int, kind: str, seconds: float, clients: int) -> dict[str, float]:
    """One stretch of load on one server."""
    load = [sys.executable, str(Path(__file__).with_name("serve_throughput.py")), "--load", kind, "--port", str(port)]
    load += ["--seconds", str(seconds), "--connections", str(clients)]
    before = spent(server)
    reply = json.loads(subprocess.run(load, check=True, capture_output=True).stdout)
    used = spent(server) - before
    return {"per_second": reply["done"] / reply["seconds"], "per_cpu_second": reply["done"] / used,
            "server_ms": 1000 * used / reply["done"], "load_ms": 1000 * reply["cpu"] / reply["done"],
            "cores": used / reply["seconds"], "refused": reply["refused"]}  # fmt: skip


def compare(folder: Path, rounds: int, seconds: float, old: Path | None = None) -> list[dict[str, object]]:
    """Every server, kind and number of clients in turn, round after round; the medians."""
    found: dict[tuple[str, str, int], list[dict[str, float]]] = {}
    with ExitStack() as open_ones:
        servers = {name: open_ones.enter_context(running(name, folder, old)) for name in SERVERS}
        for number in range(-1, rounds):
            for kind in KINDS:
                for clients in CLIENTS:
                    for name, (server, port) in servers.items():
                        one = measure(server, port, kind, seconds if number >= 0 else 0.5, clients)
                        if number >= 0:
                            found.setdefault((kind, name, clients), []).append(one)
    return [
        {"kind": kind, "server": name, "clients": clients}
        | {what: round(statistics.median(one[what] for one in many), 3) for what in many[0]}
        for (kind, name, clients), many in found.items()
    ]


def tell(rows: list[dict[str, object]]) -> None:
    """The ratios of docs/results/performance.md."""
    by = {(row["kind"], row["server"], row["clients"]): row for row in rows}
    print("| | eight clients over one, per CPU second | per second | CPU of the load over the server's |")
    print("|---|---|---|---|")
    for kind in KINDS:
        for name in SERVERS:
            alone, many = by[kind, name, CLIENTS[0]], by[kind, name, CLIENTS[1]]
            ratios = [many[what] / alone[what] for what in ("per_cpu_second", "per_second")]  # type: ignore[operator]
            share = many["load_ms"] / many["server_ms"]  # type: ignore[operator]
            print(f"| {kind}, {name} | {ratios[0]:.2f} | {ratios[1]:.2f} | {share:.2f} |")
    for kind in KINDS:
        one, two, before = (by[kind, name, CLIENTS[1]] for name in ("one", "two", "before"))
        ratios = [a[what] / b[what] for a, b, what in ((two, one, "per_second"), (two, one, "cores"))]  # type: ignore[operator]
        print(f"{kind}, eight clients: two processes serve {ratios[0]:.2f} of one's, with {ratios[1]:.2f} of its CPU;")
        print(f"one serves {one['per_second'] / before['per_second']:.2f} of what it did before")  # type: ignore[operator]


def main() -> None:
    """Build the index, start the servers, compare; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--old", type=Path, help="another checkout of suwen, served as `before`")
    for hidden in ("--serve", "--folder", "--port"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    if options.serve:
        from suwen.cli.main import run
        from suwen.service import search_api, server

        if options.serve == "before" and "SUWEN_OLD" not in os.environ:
            server._SWITCH = 0.005
            search_api._is_short = lambda *_: False
        workers = "2" if options.serve == "two" else "1"
        sys.argv = [
            "suwen",
            "serve",
            f"{options.folder}/index",
            "--port",
            options.port,
            "--workers",
            workers,
            "--read-only",
        ]
        run()
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(options.folder or made)
        if not (folder / "index").exists():
            make_index(folder, options.passages)
        rows = compare(folder, options.rounds, options.seconds, options.old)
    tell(rows)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
