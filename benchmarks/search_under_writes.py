"""How long searches take while documents are posted or imported as fast as the server takes them, beside an idle one.

Run: python benchmarks/search_under_writes.py [--rounds 5 --searches 200 --passages 5000 --tier l6]

One server, as a user starts it. In each round three stretches of searches follow one another: nobody writes; posts
fill every place for writes, and who is turned away asks again after a second; an import is at work. The searches are
hybrid, one after the other with a pause, from this process; those who write are a process of their own, and the server
is idle again before the next stretch. Of a stretch the 50th, 95th and 99th percentile count, as ratios to the idle
stretch of the same round; the median over the rounds is what is held against the target. Where the machine has no core
to spare for those who write, they are part of what is measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from serve_throughput import HITS, make_index, queries, running

PERCENTILES = (50, 95, 99)
#: Of idle: the bars for the 95th and the 99th percentile.
TARGETS = {95: 2.0, 99: 4.0}
WRITERS = 20
PAUSE = 0.02


class Asking:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
        self._connection.request(method, path, body, {"Content-Type": kind})
        reply = self._connection.getresponse()
        return reply.status, json.loads(reply.read())


def search(port: int, count: int, tier: str) -> tuple[list[float], int]:
    """Milliseconds of each percentile, and how many were not answered."""
    asking, asked = Asking(port), queries()
    took, refused = [], 0
    for number in range(count):
        body = {"query": asked[number % len(asked)], "k": HITS, "tier": tier}
        began = time.perf_counter()
        status, _ = asking.ask("POST", "/search", json.dumps(body, ensure_ascii=False).encode())
        took.append(1000 * (time.perf_counter() - began))
        refused += status != 200
        time.sleep(PAUSE)
    return [float(np.percentile(took, one)) for one in PERCENTILES], refused


# -- those who write, in a process of their own -----------------------------------------------------------------------


def text(draw: random.Random) -> str:
    return "".join(draw.choice(("高血压患者应低盐饮食。", "肾结石多饮水。", "布洛芬饭后服。")) for _ in range(20))


def post(port: int) -> None:
    """Post until killed, from more connections than there are places."""

    def one(number: int) -> None:
        draw, asking = random.Random(number), Asking(port)
        while True:
            documents = [{"id": f"w{number}-{n}", "text": text(draw)} for n in range(8)]
            status, _ = asking.ask("POST", "/documents", json.dumps({"documents": documents}).encode())
            if status not in {200, 429}:
                os._exit(1)
            time.sleep(1.0 if status == 429 else 0.0)

    for number in range(WRITERS):
        threading.Thread(target=one, args=(number,), daemon=True).start()
    time.sleep(3600)


@contextmanager
def posting(port: int) -> Iterator[None]:
    command = [sys.executable, __file__, "--post", "--port", str(port)]
    process = subprocess.Popen(command)
    try:
        wait_for(port, lambda length: length > 8 or process.poll() is not None)
        assert process.poll() is None, "posts are not taken"
        yield
    finally:
        process.kill()
        process.wait()
        wait_for(port, lambda length: length == 0)


@contextmanager
def importing(port: int) -> Iterator[None]:
    draw = random.Random(time.time_ns())
    lines = (json.dumps({"id": f"i{n}", "text": text(draw)}, ensure_ascii=False) + "\n" for n in range(20_000))
    _, job = Asking(port).ask("POST", "/imports", "".join(lines).encode(), "application/x-ndjson")
    try:
        while Asking(port).ask("GET", f"/imports/{job['id']}")[1]["encoded"] < 20:
            time.sleep(0.1)
        yield
        assert Asking(port).ask("GET", f"/imports/{job['id']}")[1]["state"] == "storing", (
            "it ended too early: import more"
        )
    finally:
        Asking(port).ask("DELETE", f"/imports/{job['id']}")


@contextmanager
def idle(port: int) -> Iterator[None]:
    yield


def wait_for(port: int, true: Any) -> None:
    """Wait until the number of writes in work or waiting is as wanted."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        (length,) = (float(line.split()[-1]) for line in lines if line.startswith('suwen_queue_length{kind="write"}'))
        if true(length):
            return
        time.sleep(0.1)


def compare(folder: Path, rounds: int, count: int, tier: str) -> None:
    ways = {"posts": posting, "import": importing}
    ratios: dict[str, list[list[float]]] = {name: [] for name in ways}
    with running("writer", folder) as (_, port):
        search(port, 20, tier)
        for number in range(rounds):
            with idle(port):
                alone, _ = search(port, count, tier)
            print(
                f"round {number + 1}: idle "
                + ", ".join(f"p{p} {one:.1f} ms" for p, one in zip(PERCENTILES, alone, strict=True)),
                flush=True,
            )
            for name, way in ways.items():
                with way(port):
                    beside, refused = search(port, count, tier)
                ratios[name].append([one / two for one, two in zip(beside, alone, strict=True)])
                said = ", ".join(f"p{p} {one:.2f}" for p, one in zip(PERCENTILES, ratios[name][-1], strict=True))
                print(f"  beside {name}: {said} of idle; {refused} not answered", flush=True)
    for name, found in ratios.items():
        middle = {p: median(one[place] for one in found) for place, p in enumerate(PERCENTILES)}
        told = ", ".join(f"p{p} {value:.2f}" for p, value in middle.items())
        met = all(middle[p] <= most for p, most in TARGETS.items())
        print(f"{name}: median of {rounds} rounds {told}; targets p95 2, p99 4: {'met' if met else 'NOT met'}")


def main() -> None:
    """Make the index, start the server, compare; or be those who post."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rounds", 5), ("searches", 200), ("passages", 5000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tier", default="l6")
    parser.add_argument("--post", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    if options.post:
        post(int(options.port))
        return
    with tempfile.TemporaryDirectory() as folder:
        # What is posted is encoded by the tier that the index was built with.
        make_index(Path(folder), options.passages, options.tier)
        compare(Path(folder), options.rounds, options.searches, options.tier)


if __name__ == "__main__":
    main()
