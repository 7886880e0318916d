"""Requests per second and CPU time of `suwen serve`, beside a bare handler and a sentence-transformers service.

Run: python benchmarks/serve_throughput.py [--passages 10000 --rounds 5 --seconds 3 --connections 8 --old CHECKOUT]

Four ways to ask the same queries, taken in turn within each round on the same cores:
  library   index.search in a loop, one thread: what the service adds is counted from here
  suwen     `suwen serve --read-only` (its log goes to a file); `writer`, for other scripts, may write too
  bare      uvicorn and FastAPI, one handler that returns a constant: the bytes of one of suwen's answers
  peer      uvicorn and FastAPI over sentence-transformers and faiss: the same static weights (int8 rows times their
            scales, in fp32), exact search over vectors of the same passages, the same texts in the answer
With --old a fifth: `before`, the service of another checkout of suwen, asked for hybrid searches. With --added beside
it, these and the library alone: what the service adds to a hybrid search, before and now.

CPU time is that of the server's process, all threads, user and system, by its clock. The load comes from a process of
its own, over connections that stay open, each sending its next request when the last is answered; its CPU time is told
apart. Passages are sentences of the bundled sample, shuffled: their meaning does not matter here, their length does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel

from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import Pair
from suwen.retrieve.retriever import Index

TARGET = 1.0
HITS = 10
#: A table lookup: what the service adds would be lost beside a transformer.
TIER = "static"
#: `shown` is what the search page asks for: hybrid, with highlights and explanations.
KINDS = ("hybrid", "shown", "dense", "embed")
_SHOWN = {"highlights": True, "explain": True}


class Measured(NamedTuple):
    """One way for one stretch of time."""

    per_second: float
    server_ms: float
    load_ms: float
    refused: int


class Asked(BaseModel):
    """What the peer takes."""

    query: str
    k: int = HITS
    mode: str = "dense"


# -- the corpus -------------------------------------------------------------------------------------------------------


def make_index(folder: Path, passages: int, tier: str = TIER) -> None:
    """An index of so many short passages, made of the sample's sentences."""
    draw = random.Random(7)
    whole = "".join(document.text for document in read_documents(sample_path()))
    sentences = [part for part in re.findall(r"[^。！？.]+[。！？.]", whole) if len(part) < 150]
    texts = ["".join(draw.sample(sentences, 2)) for _ in range(passages)]
    (folder / "texts.json").write_bytes(orjson.dumps(texts))
    with Index.create(folder / "index") as index:
        documents = (Document(f"d{number}", text) for number, text in enumerate(texts))
        index.add(documents, encoder=index.pair.encoder(tier))
        index.calibrate()
        assert index.engine.stats().passages == passages, "a text was split: the peer would hold other passages"


def queries() -> list[str]:
    """The sample's own queries."""
    lines = (sample_path() / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def requests(kind: str) -> list[tuple[str, bytes]]:
    """Path and body of one request per query."""
    if kind == "embed":
        asked = {"input_type": "query", "encoding_format": "base64"}
        return [("/v1/embeddings", orjson.dumps({"input": text, "model": TIER} | asked)) for text in queries()]
    asked = {"k": HITS, "tier": TIER, **_way(kind)}
    return [("/search", orjson.dumps({"query": text, **asked})) for text in queries()]


def _way(kind: str) -> dict[str, Any]:
    return {"mode": "hybrid", **_SHOWN} if kind == "shown" else {"mode": kind}


# -- the rivals, each in a process of its own -------------------------------------------------------------------------


def serve_bare(port: int, folder: Path) -> None:
    import uvicorn
    from fastapi import FastAPI, Response

    app = FastAPI()
    constant = (folder / "answer.json").read_bytes()

    @app.post("/search")
    async def search() -> Response:
        return Response(constant, media_type="application/json")

    uvicorn.run(app, port=port, log_level="error", access_log=False)


def peer_model(pair: Pair) -> Callable[[list[str], int], Any]:
    """The pair's static tier as a sentence-transformers model: vectors of texts as queries (0) or documents (1)."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tier = pair.path / pair.manifest.tiers[TIER].path
    rows = np.load(tier / "embeddings.npy").astype(np.float32) * np.load(tier / "scales.npy")[:, None]
    tokenizer = Tokenizer.from_file(str(tier / "tokenizer.json"))
    embedding = StaticEmbedding(tokenizer, embedding_weights=torch.from_numpy(rows))
    model = SentenceTransformer(modules=[embedding], device="cpu")
    forms = np.load(tier / "form.npy") if (tier / "form.npy").is_file() else np.zeros((2, rows.shape[1]), np.float32)

    def encode(texts: list[str], form: int) -> Any:
        found = model.encode(texts, convert_to_numpy=True, show_progress_bar=False) + forms[form]
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return encode


def serve_peer(port: int, folder: Path) -> None:
    import faiss
    import uvicorn
    from fastapi import FastAPI

    encode = peer_model(Pair.load())
    texts = orjson.loads((folder / "texts.json").read_bytes())
    vectors = encode(texts, 1)
    ours = Pair.load().encoder(TIER).encode_documents(texts[:64])
    assert (np.sum(ours * vectors[:64], axis=1) > 0.9999).all(), "the peer's weights are not the pair's"
    exact = faiss.IndexFlatIP(vectors.shape[1])
    exact.add(vectors)

    app = FastAPI()

    @app.post("/search")
    def search(asked: Asked) -> dict[str, Any]:
        scores, places = exact.search(encode([asked.query], 0), asked.k)
        found = zip(scores[0].tolist(), places[0].tolist(), strict=True)
        return {"hits": [{"id": place, "score": score, "text": texts[place]} for score, place in found]}

    uvicorn.run(app, port=port, log_level="error", access_log=False)


# -- the load ---------------------------------------------------------------------------------------------------------


def load(port: int, kind: str, seconds: float, connections: int) -> dict[str, Any]:
    """Ask as fast as answers come; how many did, and what it cost here."""
    same = "HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length:"
    whole = [f"POST {path} {same} {len(body)}\r\n\r\n".encode() + body for path, body in requests(kind)]
    done, refused = 0, 0

    async def one(first: int, ends: float) -> None:
        nonlocal done, refused
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        place = first
        while time.perf_counter() < ends:
            writer.write(whole[place % len(whole)])
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head, re.I)
            assert found, head
            await reader.readexactly(int(found[1]))
            refused += head[9:12] != b"200"
            done += 1
            place += connections
        writer.close()

    async def all_of_them() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(one(number, started + seconds) for number in range(connections)))
        return time.perf_counter() - started

    began = time.process_time()
    took = asyncio.run(all_of_them())
    return {"done": done, "refused": refused, "seconds": took, "cpu": time.process_time() - began}


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, by its own clock: /proc counts in hundredths of a second, which is too coarse."""
    # What clock_getcpuclockid(3) gives on Linux.
    return time.clock_gettime((~pid << 3) | 2)


def measure(process: subprocess.Popen[bytes], port: int, kind: str, seconds: float, connections: int) -> Measured:
    """One stretch of load on one server."""
    command = [sys.executable, __file__, "--load", kind, "--port", str(port)]
    command += ["--seconds", str(seconds), "--connections", str(connections)]
    before = cpu_seconds(process.pid)
    reply = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    spent = cpu_seconds(process.pid) - before
    done = reply["done"]
    return Measured(done / reply["seconds"], 1000 * spent / done, 1000 * reply["cpu"] / done, reply["refused"])


def library(folder: Path, kind: str, seconds: float) -> float:
    """CPU milliseconds of one call of the library, in this process, in one thread."""
    with Index.open(folder / "index") as index:
        encoder = index.pair.encoder(TIER)

        def call(text: str) -> object:
            return (
                encoder.encode_queries([text]) if kind == "embed" else index.search(text, HITS, tier=TIER, **_way(kind))
            )

        asked = queries()
        for text in asked:
            call(text)
        calls, began, ends = 0, time.process_time(), time.perf_counter() + seconds
        while time.perf_counter() < ends:
            call(asked[calls % len(asked)])
            calls += 1
        return 1000 * (time.process_time() - began) / calls


# -- side by side -----------------------------------------------------------------------------------------------------


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def running(name: str, folder: Path, old: Path | None = None) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server of the kind, answering."""
    port = free_port()
    other = {} if old is None else {"PYTHONPATH": str(old / "src")}
    command = [sys.executable, __file__, "--serve", name, "--port", str(port), "--folder", str(folder)]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | other)
    try:
        wait(process, port, folder / f"{name}.log")
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    path, body = requests("dense")[0]
    headers = {"Content-Type": "application/json"}
    for _ in range(6000):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)).read()
        except OSError as problem:
            if isinstance(problem, urllib.error.HTTPError) and problem.code != 503:
                raise
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{log} says why the server does not answer")


def compare(folder: Path, rounds: int, seconds: float, connections: int, old: Path | None = None) -> None:
    with ExitStack() as servers:
        suwen = servers.enter_context(running("suwen", folder))
        path, body = requests("hybrid")[0]
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"http://127.0.0.1:{suwen[1]}{path}", body, headers)
        (folder / "answer.json").write_bytes(urllib.request.urlopen(asked).read())
        plan = [(suwen, kind, kind) for kind in KINDS]
        if old is not None:
            plan.append((servers.enter_context(running("before", folder, old)), "hybrid", "before"))
        plan.append((servers.enter_context(running("bare", folder)), "hybrid", "bare"))
        plan.append((servers.enter_context(running("peer", folder)), "dense", "peer"))
        found: dict[str, list[Measured]] = {name: [] for *_, name in plan}
        alone: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for number in range(-1, rounds):
            for (process, port), kind, name in plan:
                one = measure(process, port, kind, seconds if number >= 0 else 1.0, connections)
                found[name] += [one] * (number >= 0)
            for kind in KINDS:
                alone[kind] += [library(folder, kind, min(seconds, 2.0))] * (number >= 0)
    alone |= {"before": alone["hybrid"]} if old is not None else {}
    tell(found, {kind: min(times) for kind, times in alone.items()}, connections)
    differences = {
        name: statistics.median(one.server_ms - alone[name][place] for place, one in enumerate(found[name]))
        for name in alone
    }
    print("CPU added, the median of the rounds:", ", ".join(f"{name} {ms:.2f} ms" for name, ms in differences.items()))


def added(folder: Path, rounds: int, seconds: float, connections: int, old: Path) -> None:
    """CPU that the service adds to a hybrid search of the library: now, and in another checkout."""
    found: dict[str, list[Measured]] = {"now": [], "before": []}
    alone: list[float] = []
    with running("suwen", folder) as now, running("before", folder, old) as before:
        servers = {"now": now, "before": before}
        for number in range(-1, rounds):
            spent = library(folder, "hybrid", seconds)
            for name, (process, port) in servers.items():
                one = measure(process, port, "hybrid", seconds if number >= 0 else 1.0, connections)
                found[name] += [one] * (number >= 0)
            alone += [spent] * (number >= 0)
    for name, many in found.items():
        more = [one.server_ms - spent for one, spent in zip(many, alone, strict=True)]
        least = min(one.server_ms for one in many) - min(alone)
        share = statistics.median(spent / one.server_ms for one, spent in zip(many, alone, strict=True))
        print(
            f"{name}: {statistics.median(more):.2f} ms added (median of {rounds} rounds; of the best {least:.2f}),",
            end=" ",
        )
        print(f"the library's share {share:.3f}")
    ratio = statistics.median(a.server_ms / b.server_ms for a, b in zip(found["now"], found["before"], strict=True))
    print(f"CPU of a request over before's: {ratio:.3f}")


def tell(found: dict[str, list[Measured]], alone: dict[str, float], connections: int) -> None:
    """The table of docs/results/performance.md. The best of several rounds counts: other load only adds."""
    speed = {name: max(one.per_second for one in many) for name, many in found.items()}
    spent = {name: min(one.server_ms for one in many) for name, many in found.items()}
    refused = sum(one.refused for many in found.values() for one in many)
    print(f"{connections} connections, {refused} requests refused")
    print("| | requests/s over bare's | over the peer's | CPU over bare's | over peer's | library's share | added |")
    print("|---|---|---|---|---|---|---|")
    for name in (*(name for name in found if name in alone), "peer"):
        ratios = [way[name] / way[rival] for way in (speed, spent) for rival in ("bare", "peer")]
        cells = [f"{ratio:.2f}" for ratio in ratios]
        if name in alone:
            cells += [f"{alone[name] / spent[name]:.2f}", f"{spent[name] - alone[name]:.2f} ms"]
        print(f"| {name} | {' | '.join(cells)} |")
    load = {name: min(one.load_ms for one in many) / spent[name] for name, many in found.items()}
    print("CPU of the load over the server's:", ", ".join(f"{name} {ratio:.2f}" for name, ratio in load.items()))
    steady = {name: min(one.per_second for one in many) / speed[name] for name, many in found.items()}
    print("slowest round over the fastest:", ", ".join(f"{name} {ratio:.2f}" for name, ratio in steady.items()))
    over, inside = (way["shown"] / way["hybrid"] for way in (spent, alone))
    print(f"with highlights and explanations over without: {over:.2f}, in the library alone {inside:.2f}")
    added = spent["hybrid"] - alone["hybrid"]
    print(f"CPU added to a hybrid search of the library: {added:.2f} ms; the target is {TARGET:.0f}")


def main() -> None:
    """Build the index, start the servers, compare; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, kind, default in (("passages", int, 10_000), ("rounds", int, 5), ("connections", int, 8)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--old", type=Path, help="another checkout of suwen, served as `before`")
    parser.add_argument("--added", action="store_true", help="with --old: what the service adds, before and now")
    for hidden in ("--load", "--serve", "--folder", "--port"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    if options.load:
        print(json.dumps(load(int(options.port), options.load, options.seconds, options.connections)))
    elif options.serve in ("suwen", "before", "writer"):
        sys.argv = ["suwen", "serve", f"{options.folder}/index", "--port", options.port]
        sys.argv += [] if options.serve == "writer" else ["--read-only"]
        from suwen.cli.main import run

        run()
    elif options.serve:
        {"bare": serve_bare, "peer": serve_peer}[options.serve](int(options.port), Path(options.folder))
    else:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(options.folder or made)
            if not (folder / "index").exists():
                make_index(folder, options.passages)
            way = added if options.added else compare
            way(folder, options.rounds, options.seconds, options.connections, options.old)


if __name__ == "__main__":
    main()
