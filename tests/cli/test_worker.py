"""``suwen worker``, and ``add`` and ``delete`` through a server."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from fresh_side import BigEncoder, Running, make_index, running

from suwen.cli.worker import _stopped_by_signals
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair, default_pair_path
from suwen.retrieve.retriever import Index

Suwen = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server with two documents that wait."""
    monkeypatch.delenv("SUWEN_PAIR", raising=False)
    with running(make_index(tmp_path / "site", 2)) as site:
        yield site


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts the signal handlers back that a worker sets."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_what_waits_is_encoded(suwen: Suwen, server: Running, monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    big = BigEncoder(server.holder.index.pair)
    monkeypatch.setattr("suwen.encoders.who_encodes.load_document_encoder", lambda *_, **__: big)
    done = suwen("worker", "--server", server.url, "--document-encoder", "big", "--once", "--json")
    assert done.code == 0 and done.json == {"documents": 2, "passages": 2, "stale": 0}
    assert f"working for {server.url} with big" in done.err
    assert server.client().get("/info")["freshness"]["waiting_documents"] == 0
    done = suwen("worker", "--server", server.url, "--document-encoder", "big", "--once")
    assert done.out == "0 documents encoded (0 passages)\n"


def test_a_worker_that_cannot_be_started(suwen: Suwen) -> None:
    assert "--document-encoder" in suwen("worker", "--server", "http://127.0.0.1:9").err
    assert "http://HOST:PORT" in suwen("worker", "--server", "search").err
    assert suwen("worker").code == 2
    assert suwen("worker", "index", "--server", "http://127.0.0.1:9").code == 2
    assert "are for --server" in suwen("worker", "index", "--base", "base.gguf").err


def test_the_second_pass_of_an_index(suwen: Suwen, tmp_path: Path, handlers: None) -> None:
    folder, pair = tmp_path / "index", Pair.load(default_pair_path())
    with Index.create(folder, pair=pair) as index:
        index.add([Document("a", "布洛芬不宜与阿司匹林同服"), Document("b", "肾结石")], encoder=pair.encoder("static"))
        index.engine.remember(tier="")
    given = ("worker", str(folder), "--pair", str(pair.path))
    done = suwen(*given, "--json")
    assert done.code == 0 and done.json == {"documents": 2, "tier": "l6", "waiting": 0}
    assert suwen(*given).out == f"{folder}: nothing waits for another tier\n"


def test_the_first_signal_stops_and_the_second_kills(handlers: None) -> None:
    stop = _stopped_by_signals()
    assert not stop.is_set()
    signal.raise_signal(signal.SIGTERM)
    assert stop.wait(300)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL
    assert threading.main_thread().is_alive()


# -- add and delete through the server ------------------------------------------------------------------------------


def test_add_and_delete_go_through_the_server(suwen: Suwen, server: Running, source: Path) -> None:
    done = suwen("add", "--server", server.url, source, "--json")
    assert done.code == 0
    assert {name: done.json[name] for name in ("read", "added", "unchanged")} == {
        "read": 10,
        "added": 10,
        "unchanged": 0,
    }
    again = suwen("add", source, "--server", server.url)
    assert again.out.startswith(f"{server.url}: 0 added, 0 changed, 10 unchanged")
    done = suwen("add", "--server", server.url, "--id", "a//b", "--text", "布洛芬不宜与阿司匹林同服。", "--title", "药")
    assert "1 added" in done.out
    assert server.client().get("/documents/a//b")["title"] == "药"
    done = suwen("delete", "--server", server.url, "a//b", "bp", "nobody", "--json")
    assert done.json == {"deleted": 2}
    assert suwen("delete", "--server", server.url, "stone").out == "deleted 1 of 1 document\n"


def test_the_key_comes_from_the_environment(suwen: Suwen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from suwen.service.keys import new_key

    keys = tmp_path / "keys.toml"
    key = new_key(keys, "desk", "write")
    monkeypatch.delenv("SUWEN_PAIR", raising=False)
    with running(make_index(tmp_path / "site"), keys=keys) as site:
        asked = ("add", "--server", site.url, "--id", "a", "--text", "文。")
        refused = suwen(*asked)
        assert refused.code == 1 and "unauthorized" in refused.err
        assert suwen(*asked, "--key", key).code == 0
        monkeypatch.setenv("SUWEN_KEY", key)
        assert "1 unchanged" in suwen(*asked).out


def test_what_comes_twice(suwen: Suwen, server: Running, tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text('{"_id": "a", "text": "第一版。"}\n{"_id": "a", "text": "第二版。"}\n', encoding="utf-8")
    refused = suwen("add", "--server", server.url, file)
    assert refused.code == 1 and "--duplicates first|last" in refused.err
    for keep, text in (("first", "第一版。"), ("last", "第二版。")):
        assert suwen("add", "--server", server.url, file, "--duplicates", keep).code == 0
        assert server.client().get("/documents/a")["text"] == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add",), "give the folder of an index, or --server"),
        (("add", "--server", "http://127.0.0.1:9"), "nothing to add"),
        (("add", "--server", "http://127.0.0.1:9", "--id", "a", "--text", "文"), "cannot be reached"),
        (("add", "--server", "x", "--tier", "static", "--id", "a", "--text", "文"), "the server's own choice"),
        (("delete", "my-index"), "give the ids"),
        (("delete", "--server", "http://127.0.0.1:9", "a"), "cannot be reached"),
    ],
)
def test_bad_input(suwen: Suwen, arguments: tuple[str, ...], said: str) -> None:
    done = suwen(*arguments)
    assert done.code == 1 and said in done.err.replace("\n", " ")
