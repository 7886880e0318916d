"""Fresh documents as in life: a server and workers as processes of their own, and a document encoder on torch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import suwen
from held_port import held_port
from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key
from suwen.service.service_client import Client

COMMAND = [sys.executable, "-c", "from suwen.cli.main import run; run()"]
#: The same, with a document encoder that never comes back from anything but the probe's 32 texts.
HANGING = [
    sys.executable,
    "-c",
    """
import time
from suwen.cli.main import run
from suwen.encoders.document import DocumentEncoder
plain = DocumentEncoder.encode_documents
DocumentEncoder.encode_documents = lambda self, texts: plain(self, texts) if len(texts) == 32 else time.sleep(600)
run()
""",
]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SUWEN_")} | {
    "PYTHONPATH": str(Path(suwen.__file__).parents[1]),
    "COLUMNS": "200",
    "OMP_NUM_THREADS": "1",
}
NEW = {"id": "病历/7 号", "title": "用药", "text": "布洛芬不宜与阿司匹林同服，以免出血。" * 12}
PATIENCE = 300.0


@contextmanager
def started(
    *arguments: object, command: list[str] = COMMAND, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A command as a process, and the lines it says; ended by force if it is still there."""
    process = subprocess.Popen(
        [*command, *map(str, arguments)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | variables
    )
    said: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: said.extend(iter(process.stderr.readline, "")), daemon=True)
    reader.start()
    try:
        yield process, said
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()


def until(true: Callable[[], Any], said: list[str]) -> Any:
    """Wait until something holds; what it gave."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, said[-5:]
        time.sleep(0.05)
    return found


class Site:
    """An index in the space of a pair with a document encoder, its keys, and a port that stays the same."""

    def __init__(self, folder: Path, pair: Path, base: Path, port: int) -> None:
        self.folder, self.pair, self.base, self.port = folder, pair, base, port
        self.key = new_key(folder / "keys.toml", "gpu", "write")
        self.client = Client(f"http://127.0.0.1:{self.port}", self.key, timeout=120)
        with Index.create(folder / "index", pair=pair) as index:
            index.add([Document(f"d{n}", f"第{n}条：高血压患者应低盐饮食。") for n in range(6)])

    @contextmanager
    def serving(self, **variables: object) -> Iterator[subprocess.Popen[str]]:
        options = ("--port", self.port, "--keys", self.folder / "keys.toml")
        named = {f"SUWEN_SERVE_{name.upper()}": str(value) for name, value in variables.items()}
        with started("serve", self.folder / "index", *options, **named) as (process, said):
            until(lambda: process.poll() is not None or self.ready(), said)
            assert process.poll() is None, said
            yield process

    def ready(self) -> bool:
        try:
            return self.client.get("/readyz") == {"status": "ready"}
        except suwen.errors.SuwenError:
            return False

    def worker(self, command: list[str] = COMMAND) -> Any:
        named = ("--server", self.client.server, "--pair", self.pair, "--base", self.base)
        return started("worker", *named, command=command, SUWEN_KEY=self.key)

    def waiting(self) -> int:
        return int(self.client.get("/info")["freshness"]["waiting_documents"])

    def found(self, query: str) -> Any:
        return self.client.post("/search", {"query": query, "k": 1, "mode": "lexical"})["hits"][0]


@pytest.fixture
def site(adapter_pair: Path, base_folder: Path) -> Iterator[Site]:
    with folder_in_memory() as folder, held_port() as port:
        yield Site(folder, adapter_pair, base_folder, port)


def test_posted_found_encoded_found(site: Site) -> None:
    with site.serving():
        (stored,) = site.client.post("/documents", {"documents": [NEW]})["documents"]
        assert (stored["state"], stored["passages"] > 1) == ("fresh", True)
        hit = site.found("布洛芬阿司匹林")
        assert (hit["document_id"], hit["state"], hit["encoder"]) == (NEW["id"], "fresh", "l2")
        with site.worker() as (process, said):
            until(lambda: site.waiting() == 0, said)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        assert any("stopping" in line for line in said)
        hit = site.found("布洛芬阿司匹林")
        assert (hit["document_id"], hit["state"], hit["encoder"]) == (NEW["id"], "encoded", "document")
        again = site.client.post("/documents", {"documents": [NEW]})
        assert (again["unchanged"], again["documents"][0]["version"]) == (1, stored["version"])
        assert again["documents"][0]["state"] == "encoded"
        about = site.client.get("/info")
        assert about["index"]["documents"] == 7 and set(about["index"]["encoders"]) == {"document"}
        assert about["freshness"]["leased"] == 0


def test_a_killed_workers_lease_ends_and_a_changed_document_stays(site: Site) -> None:
    with site.serving(lease_seconds=3):
        with site.worker(command=HANGING) as (process, said):
            assert until(lambda: site.client.get("/info")["freshness"]["leased"], said) == 6
            site.client.post("/documents", {"documents": [{"id": "d0", "text": "改过的内容：糖尿病。"}]})
            process.kill()
        assert site.waiting() == 6
        with site.worker() as (process, said):
            until(lambda: site.waiting() == 0, said)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        document = site.client.get("/documents/d0")
        assert (document["text"], document["state"]) == ("改过的内容：糖尿病。", "encoded")
        about = site.client.get("/info")
        assert about["index"]["documents"] == 6 and about["index"]["encoders"] == {"document": 6}


def test_a_worker_outlives_restarts_and_a_kill_of_the_server(site: Site) -> None:
    with site.worker() as (worker, said):
        with site.serving() as first:
            until(lambda: site.waiting() == 0, said)
            site.client.post("/documents", {"documents": [NEW]})
            first.kill()
        until(lambda: any("trying again" in line for line in said), said)
        with site.serving():
            assert site.client.get("/info")["index"]["documents"] == 7, "what was acknowledged is there"
            until(lambda: site.waiting() == 0, said)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0


def test_a_worker_of_another_space_is_refused(site: Site, router_folder: Path) -> None:
    with (
        site.serving(),
        started("worker", "--server", site.client.server, "--document-encoder", router_folder, SUWEN_KEY=site.key) as (
            process,
            said,
        ),
    ):
        assert process.wait(PATIENCE) == 1
    assert "their vectors cannot be compared" in "".join(said)


def test_the_server_encodes_by_itself(site: Site) -> None:
    with site.serving(document_encoder="own", base=site.base):
        until(lambda: site.waiting() == 0, [])
        told = site.client.get("/info")
        assert told["freshness"]["worker"] == "in process"
        assert told["index"]["encoders"] == {"document": 6}


def test_documents_through_the_server_by_command(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(json.dumps({"_id": "note", "text": NEW["text"]}, ensure_ascii=False), encoding="utf-8")

    def run(*arguments: object) -> str:
        named = (*map(str, arguments), "--server", site.client.server)
        done = subprocess.run(
            [*COMMAND, *named], env=ENVIRONMENT | {"SUWEN_KEY": site.key}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with site.serving():
        assert re.search("1 added", run("add", file))
        assert site.found("布洛芬")["document_id"] == "note"
        assert "deleted 1 of 1" in run("delete", "note")
        refused = subprocess.run(
            [*COMMAND, "add", str(site.folder / "index"), str(file)],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert refused.returncode == 1 and "is being written by process" in refused.stderr
