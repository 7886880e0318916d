"""``suwen.connect``: an index on a real server does what the same index does here."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, live_server

import suwen
from suwen.corpora.records import Document


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(query_characters=100, cursor_hits=30) as server:
        yield server
        assert server.failures == []


def test_it_answers_as_the_index_itself_does(server: LiveServer) -> None:
    remote = suwen.connect(server.address)
    with suwen.open(server.index) as here:
        for options in (
            {},
            {"mode": "lexical", "highlights": True, "explain": True},
            {"where": {"year": {"lt": 2010}}},
            {"sort": "-year", "facets": ["year"], "fold": False, "synonyms": False},
        ):
            there, own = remote.search("布洛芬退烧", 5, **options), here.search("布洛芬退烧", 5, **options)
            assert there.hits == own.hits, options
            assert (there.mode, there.tier, there.relevant) == (own.mode, own.tier, own.relevant)
            assert (there.facets, there.also_searched) == (own.facets, own.also_searched)
        assert list(remote.ids()) == list(here.ids())
        assert list(remote.ids("note-3", 2)) == list(here.ids("note-3", 2))
        assert remote.stats() == here.stats()
        document, own = remote.document("note-7"), here.document("note-7")
        assert (document.id, document.text, document.digest) == (own.id, own.text, own.digest)
        assert [item.passage for item in document.passages] == [item.passage for item in own.passages]
        assert remote.document("nobody") is None
        assert remote.backlog().documents == here.backlog().documents


def test_documents_come_and_go(server: LiveServer) -> None:
    with suwen.connect(server.address, index="notes") as remote:
        report = remote.add([Document("a/b c", "止咳糖浆每日三次。", "止咳"), Document("second", "另一条。")])
        assert (report.read, report.added) == (2, 2)
        assert remote.document("a/b c").title == "止咳"
        assert remote.search("止咳糖浆", 1)[0].document_id == "a/b c"
        assert remote.add([Document("second", "另一条。")]).unchanged == 1
        assert remote.delete(["a/b c", "second", "nobody"]) == 2
        assert remote.document("a/b c") is None


def test_every_hit_is_read_page_by_page(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from suwen.service import remote_index

    monkeypatch.setattr(remote_index, "_PAGE", 7)
    remote = suwen.connect(server.address)
    found = list(remote.search_all("布洛芬退烧", mode="dense"))
    assert len(found) == 30, "as many as the server lets a cursor have"
    assert [hit.id for hit in found[:10]] == [hit.id for hit in remote.search("布洛芬退烧", 10, mode="dense")]
    assert len({hit.id for hit in found}) == 30


def test_a_refusal_says_what_is_wrong(server: LiveServer) -> None:
    remote = suwen.connect(server.address)
    with pytest.raises(suwen.ServerError, match="101 characters") as refused:
        remote.search("长" * 101)
    assert (refused.value.code, refused.value.param, refused.value.status) == ("text_too_long", "query", 422)
    with pytest.raises(suwen.ServerError, match="no index 'none'"):
        suwen.connect(server.address, index="none").stats()
    with pytest.raises(suwen.ServerAway, match="cannot be reached"):
        suwen.connect("http://127.0.0.1:1").stats()
    with pytest.raises(suwen.SuwenError, match="not the address of a server"):
        suwen.connect("my-index")


def test_a_server_without_time_is_asked_again_when_it_says() -> None:
    """A server that turns the first two requests away, as a full one does."""
    seen: list[str] = []

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            status = {1: 429, 2: 503}.get(len(seen), 422 if self.path == "/search" else 503)
            self.send_response(status)
            if len(seen) < 3:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"code": "x", "message": "y", "param": None}}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        remote = suwen.connect(f"http://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(suwen.ServerError):
            remote.search("a")
        assert seen == ["/search"] * 3
        # A 503 that names no time, of a damaged index say, is told at once.
        with pytest.raises(suwen.ServerAway):
            list(remote.search_all("a"))
        assert seen[3:] == ["/cursors"]
        server.shutdown()
