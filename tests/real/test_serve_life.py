"""``suwen serve`` as a process of its own, from its start to its end: bad starts, its log, and a good end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from in_memory import folder_in_memory

sys.path.insert(0, str(Path(__file__).parent))
from serve_process import COMMAND, DOCUMENT, ENVIRONMENT, Server, fails, make_index, serving

from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.service.keys import new_key


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return make_index(tmp_path / "notes")


def test_the_log_is_json_and_holds_no_text(index: Path) -> None:
    with serving(index) as server:
        httpx.post(f"{server.address}/search", json={"query": "布洛芬退烧吗"}, timeout=120)
        httpx.post(f"{server.address}/search", json={"query": "!"}, timeout=120)
        server.stop()
        server.reader.join(120)
        lines = [json.loads(line) for line in server.said]
    asked = [line for line in lines if line.get("route") == "/search"]
    assert [(line["status"], line.get("code")) for line in asked] == [(200, None), (422, "empty_query")]
    assert "布洛芬" not in "".join(server.said)


# -- the pair of the package ------------------------------------------------------------------------------------


def test_with_the_pair_of_the_package_a_posted_document_is_fresh_and_found(tmp_path: Path) -> None:
    """Its document encoder has no base here: the sample comes by ready vectors, what is posted by a tier."""
    with Index.create(tmp_path / "sample") as made:
        index_sample(made)
    with serving(tmp_path / "sample") as server:
        about = httpx.get(f"{server.address}/info", timeout=120).json()
        assert (about["pair"]["default_tier"], about["pair"]["document"]) == ("l6", "adapter")
        assert (about["index"]["encoders"], about["freshness"]["worker"]) == ({"document": 360}, "none")
        note = {"id": "note-7", "text": "纽扣电池卡在食管里两小时就会灼伤，不要催吐，立即就医。"}
        stored = httpx.post(f"{server.address}/documents", json={"documents": [note]}, timeout=60).json()
        assert stored["documents"][0]["state"] == "fresh"
        for tier in about["pair"]["tiers"]:
            asked = {"query": "孩子误吞了纽扣电池", "mode": "dense", "tier": tier}
            hit = httpx.post(f"{server.address}/search", json=asked, timeout=60).json()["hits"][0]
            assert (hit["document_id"], hit["encoder"], hit["state"]) == ("note-7", "l6", "fresh")
        told = httpx.get(f"{server.address}/info", timeout=120).json()
        assert (told["freshness"]["fresh_passages"], told["index"]["encoders"]["l6"]) == (1, 1)


# -- starting ---------------------------------------------------------------------------------------------------


def test_a_port_in_use(index: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is in use: stop the server that has it" in fails(
            "serve", index, "--port", port
        )


def test_an_index_that_another_process_writes(index: Path) -> None:
    with serving(index) as server:
        assert f"is being written by process {server.process.pid}" in fails("serve", index, "--port", "0")
        with serving(index, "--read-only") as second:
            told = httpx.post(f"{second.address}/documents", json={"documents": [DOCUMENT]}, timeout=120)
            assert (told.status_code, told.json()["error"]["code"]) == (403, "read_only")
            httpx.post(
                f"{server.address}/documents",
                json={"documents": [{"id": "n", "text": "氯雷他定治鼻炎。"}]},
                timeout=120,
            )
            hits = httpx.post(f"{second.address}/search", json={"query": "氯雷他定"}, timeout=120).json()["hits"]
            assert hits[0]["document_id"] == "n"


def test_an_index_that_is_damaged(index: Path) -> None:
    (index / "truth.db").write_bytes(b"no database" * 1000)
    said = fails("serve", index, "--port", "0")
    assert "truth.db cannot be read" in said and "restore a backup" in said


def test_what_is_no_index(tmp_path: Path) -> None:
    said = fails("serve", tmp_path, "--port", "0")
    assert "is not an index" in said
    # Not a word of serving before it.
    assert said.startswith("error: ") and len(said.splitlines()) == 1
    assert "no index is named" in fails("serve")


def test_one_of_several_that_is_no_index(index: Path, tmp_path: Path) -> None:
    config = tmp_path / "suwen.toml"
    config.write_text(f'[serve]\nport = 0\n[serve.indexes.other]\nindex = "{tmp_path / "nope"}"\n', encoding="utf-8")
    said = fails("serve", index, "--config", config)
    assert said.startswith("error: ") and "nope is not an index" in said


def test_a_public_address_needs_keys(index: Path, tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::"):
        said = fails("serve", index, "--host", host, "--port", "0")
        assert "no keys are configured: make one with 'suwen key new" in said
    assert "there is no" in fails("serve", index, "--host", "0.0.0.0", "--keys", tmp_path / "none.toml")
    new_key(tmp_path / "keys.toml", "a", "read")
    said = fails("serve", index, "--host", "no such host", "--port", "0", "--keys", tmp_path / "keys.toml")
    assert "is not an address of this machine" in said


def test_without_keys_it_answers_to_this_machines_names_alone(index: Path) -> None:
    with serving(index) as server:
        port = server.place[1]
        assert httpx.get(f"http://localhost:{port}/info", timeout=120).status_code == 200
        told = httpx.get(f"{server.address}/info", headers={"Host": f"evil.example:{port}"}, timeout=120)
        assert (told.status_code, told.json()["error"]["code"]) == (403, "forbidden_host")


def test_the_address_for_programs(index: Path) -> None:
    command = [*COMMAND, "serve", str(index), "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stdout is not None
            told = json.loads("".join(process.stdout.readline() for _ in range(4)))
            assert told["index"] == str(index)
            assert httpx.get(f"{told['address']}/healthz", timeout=120).json() == {"status": "ok"}
        finally:
            process.terminate()


# -- stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_was_accepted(index: Path, how: int) -> None:
    documents = [{"id": f"d{number}", "text": f"第{number}号记录。" * 400} for number in range(6)]
    replies: list[Any] = []

    def post(server: Server, batch: Sequence[dict[str, str]]) -> None:
        with suppress(httpx.ConnectError):
            replies.append(httpx.post(f"{server.address}/documents", json={"documents": list(batch)}, timeout=60))

    with serving(index) as server:
        threads = [threading.Thread(target=post, args=(server, [document])) for document in documents]
        for thread in threads:
            thread.start()
        while 'suwen_queue_length{kind="write"} 0.0' in httpx.get(f"{server.address}/metrics", timeout=120).text:
            if not any(thread.is_alive() for thread in threads):
                break
        assert server.stop(how) == 0
        for thread in threads:
            thread.join()
    stored = {one["id"] for reply in replies if reply.status_code == 200 for one in reply.json()["documents"]}
    assert stored, [reply.text for reply in replies]
    with Index.open(index, write=True) as opened:
        assert stored <= set(opened.ids())
        assert opened.engine.verify() == []


def test_an_idle_client_does_not_hold_up_a_stop(index: Path) -> None:
    with serving(index) as server, server.connect() as idle, httpx.Client(base_url=server.address, timeout=120) as kept:
        kept.get("/healthz")
        idle.sendall(b"GET")
        assert server.stop() == 0
