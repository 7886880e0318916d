"""A hand-written collection, suites around it, and an embedding server that really listens."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from suwen.bench.suite_tasks import Suite, load_suite

DOCUMENTS = {
    "d1": ("高血压", "高血压患者应低盐饮食并定期测量血压"),
    "d2": ("", "糖尿病的早期症状包括多饮多尿和体重下降"),
    "d3": ("", "孕妇可以接种流感疫苗"),
    "d4": ("", "胃痛反酸可能是慢性胃炎"),
    "d5": ("", "aspirin lowers the risk of a second heart attack"),
    "d6": ("", "慢性肾病患者要限制蛋白质的摄入"),
}
QUERIES = {"q1": "血压高的人怎么吃", "q2": "糖尿病有什么症状", "q3": "怀孕能打流感疫苗吗", "q4": "没有人评判的问题"}
QRELS = {"q1": {"d1": 2, "d6": 0}, "q2": {"d2": 1}, "q3": {"d3": 1, "d4": 0}}


def lines(path: Path, rows: list[dict]) -> Path:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_beir(folder: Path, qrels: dict[str, dict[str, int]] = QRELS, split: str = "test") -> Path:
    """The collection in BEIR's layout."""
    lines(folder / "corpus.jsonl", [{"_id": i, "title": t, "text": x} for i, (t, x) in DOCUMENTS.items()])
    lines(folder / "queries.jsonl", [{"_id": i, "text": text} for i, text in QUERIES.items()])
    (folder / "qrels").mkdir(exist_ok=True)
    rows = [f"{query}\t{document}\t{grade}" for query, found in qrels.items() for document, grade in found.items()]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """The collection in BEIR's layout."""
    return write_beir(tmp_path / "beir")


HEAD = """
name = "{name}"
title = "Hand-made"
paper = ""
reference = ""
templates = {{ query = "<{{instruction}}> {{text}}", document = "{{text}}" }}
"""
TASK = """
[[tasks]]
name = "{name}"
kind = "{kind}"
language = "zh"
metrics = {metrics}
split = "{split}"
similarity = "{similarity}"
licence = "own"
layouts = ["beir"]
{path}
get = "fetch {name} by hand"
instruction = {{ query = "{instruction}", document = "" }}
hub = {{ id = "{hub}", revision = "{revision}" }}
counts = {counts}
"""
DEFAULTS = {
    "kind": "retrieval",
    "metrics": ["ndcg@10", "recall@100"],
    "split": "test",
    "similarity": "contract",
    "path": "",
    "instruction": "",
    "hub": "",
    "revision": "",
    "counts": "{}",
}


@pytest.fixture
def make_suite(tmp_path: Path) -> Callable[..., Suite]:
    """Write a suite file of tasks given as keywords and load it; ``file`` holds its path afterwards."""

    def make(*tasks: dict, name: str = "mine", tail: str = "") -> Suite:
        text = HEAD.format(name=name)
        for task in tasks:
            values = {**DEFAULTS, **task}
            values["metrics"] = json.dumps(values["metrics"])
            values["path"] = f"path = {json.dumps(str(values['path']))}" if values["path"] else ""
            text += TASK.format(**values)
        file = tmp_path / f"{name}.toml"
        file.write_text(text + tail, encoding="utf-8")
        return load_suite(file)

    return make


class EmbeddingServer:
    """Answers ``/v1/embeddings`` with character counts; ``before`` may answer for it, or wait."""

    dimension = 16

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.before: Callable[[dict], tuple[int, dict, dict] | None] = lambda body: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append(dict(self.headers))
                status, headers, reply = outer.before(body) or (200, {}, outer.reply(body))
                raw = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(raw))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(raw)
                except OSError:
                    pass  # the client was killed meanwhile

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self.thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @classmethod
    def vector(cls, text: str) -> list[float]:
        """A vector of the characters: texts that share many are near."""
        found = [0.0] * cls.dimension
        for character in text:
            found[ord(character) % cls.dimension] += 1.0
        return found

    def reply(self, body: dict) -> dict:
        """The whole reply, in reverse order as the protocol allows."""
        items = [{"index": i, "embedding": self.vector(text)} for i, text in enumerate(body["input"])]
        return {"object": "list", "data": items[::-1], "model": body["model"]}

    def texts(self) -> list[str]:
        """Every text that was asked for."""
        return [text for request in self.requests for text in request["input"]]


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    """A running server."""
    made = EmbeddingServer()
    made.thread.start()
    yield made
    made._server.shutdown()
    made._server.server_close()
