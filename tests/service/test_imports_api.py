"""Imports: checked whole, stored in steps, watched, cancelled, and gone on with after a stop or a kill."""

from __future__ import annotations

import json
import sys
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from suwen.corpora.page_processes import Limits
from suwen.encoders.static import StaticEncoder
from suwen.retrieve.ingest import Ingestion
from suwen.service import import_lines
from suwen.service.holder import Holder
from suwen.service.import_jobs import Imports
from suwen.service.keys import new_key

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import epub, pdf, raw_pdf

CNXML = (
    b'<document xmlns="http://cnx.rice.edu/cnxml"><title>Ward rules</title>'
    b"<content><para>At eight.</para></content></document>"
)
NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(documents: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in documents)


def notes(count: int, word: str = "骨折后应固定患肢") -> list[dict[str, Any]]:
    return [{"id": f"i{number:04}", "text": f"第{number}条：{word}。"} for number in range(count)]


def send(client: TestClient, body: bytes, **headers: str) -> Any:
    return client.post("/imports", content=body, headers=NDJSON | headers)


def ended(client: TestClient, id_: str) -> Any:
    while (job := client.get(f"/imports/{id_}").json())["state"] not in ("done", "failed", "cancelled"):
        time.sleep(0.01)
    return job


def ids(client: TestClient) -> list[str]:
    return [id_ for id_ in client.get("/documents", params={"limit": 10_000}).json()["ids"] if id_.startswith("i")]


class Slow:
    """Encoders that wait at a text until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        plain = StaticEncoder.encode

        def encode(encoder: StaticEncoder, texts: Any, **options: Any) -> Any:
            if any(at in text for text in texts):
                self.reached.set()
                assert self.go.wait(300)
            return plain(encoder, texts, **options)

        monkeypatch.setattr(StaticEncoder, "encode", encode)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_lines, "_DOCUMENTS", 10)


def test_documents_are_taken_in_and_found(served) -> None:
    client, holder = served()
    taken = send(client, lines(notes(95)))
    assert (taken.status_code, taken.json()["state"], taken.json()["documents"]) == (200, "waiting", None)
    job = ended(client, taken.json()["id"])
    assert (job["state"], job["documents"], job["read"], job["added"]) == ("done", 95, 95, 95)
    assert job["passages"] == job["encoded"] == 95 and job["error"] is None
    assert len(ids(client)) == 95
    found = client.post("/search", json={"query": "骨折固定患肢", "k": 1}).json()["hits"][0]
    assert found["document_id"].startswith("i")
    assert not list(holder.settings.index.glob("imports/*/documents.jsonl"))
    again = ended(client, send(client, lines(notes(95))).json()["id"])
    assert (again["read"], again["unchanged"], again["passages"]) == (95, 95, 0)
    assert [one["state"] for one in client.get("/imports").json()["imports"]] == ["done", "done"]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (b'{"id": "x"}', "invalid_request", "line 31: body text: it is missing"),
        (b'{"id": "x", "text": "a", "more": 1}', "invalid_request", "line 31: body more: there is no such field"),
        (b'{"id": "x", "text": " "}', "empty_document", "line 31"),
        (b'{"id": "x\\u0007", "text": "a"}', "bad_document", "control character"),
        (b"[1, 2]", "invalid_request", "not a JSON object"),
        (b"no json", "invalid_json", "line 31: the body is not JSON"),
        (b'{"id": "i0004", "text": "a"}', "duplicate_id", "line 31: document id 'i0004' comes twice"),
        (b"[" * 100 + b"]" * 100, "invalid_json", "nested deeper than 64"),
        (b'{"id": "x", "text": "a", "metadata": {"a": [' + b"1," * 60_000 + b"1]}}", "too_large", "more than 30000"),
        (b'{"id": "x", "text": "' + b"a" * 2_000_001 + b'"}', "text_too_long", "at most 2000000"),
    ],
)
def test_one_wrong_line_and_nothing_is_stored(client, line: bytes, code: str, said: str) -> None:
    before = client.get("/documents").json()
    job = ended(client, send(client, lines(notes(30)) + line + b"\n" + lines(notes(40)[30:])).json()["id"])
    assert (job["state"], job["error"]["code"], job["error"]["param"]) == ("failed", code, "line 31")
    assert said in job["error"]["message"]
    assert client.get("/documents").json() == before


@pytest.mark.parametrize(("duplicates", "word"), [("first", "甲甲"), ("last", "乙乙")])
def test_ids_that_come_twice(served, duplicates: str, word: str) -> None:
    client, _ = served()
    body = lines(notes(25, "甲甲")) + lines(notes(25, "乙乙"))
    taken = client.post("/imports", content=body, headers=NDJSON, params={"duplicates": duplicates})
    assert ended(client, taken.json()["id"])["state"] == "done"
    assert {word in client.get(f"/documents/{id_}").json()["text"] for id_ in ids(client)} == {True}


def test_what_is_refused_at_once(served) -> None:
    client, holder = served(import_bytes=2000, imports=1)
    for body, headers, code in (
        (b"", NDJSON, "invalid_request"),
        (lines(notes(3)), {"Content-Type": "application/json"}, "invalid_request"),
        (lines(notes(3)), {"Content-Type": "text/plain"}, "invalid_request"),
        (lines(notes(100)), NDJSON, "too_large"),
        (lines(notes(3)), NDJSON | {"Content-Encoding": "gzip"}, "packed_body"),
    ):
        assert client.post("/imports", content=body, headers=headers).json()["error"]["code"] == code
    assert client.get("/imports/none").json()["error"]["code"] == "unknown_import"
    assert client.delete("/imports/none").json()["error"]["code"] == "unknown_import"
    assert client.get("/imports").json() == {"imports": []}
    assert not list((holder.settings.index / "imports").iterdir())


def test_imports_that_wait_are_bounded_and_can_be_cancelled(served, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, "第15条")
    client, _ = served(imports=2)
    first = send(client, lines(notes(30))).json()["id"]
    assert slow.reached.wait(300)
    second = send(client, lines(notes(5, "第二批"))).json()["id"]
    refused = send(client, lines(notes(1)))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert client.delete(f"/imports/{second}").json()["state"] == "cancelled"
    # The one at work ends at its next step: what it was at is not stored, what was before stays.
    known, plain = threading.Event(), Imports.cancel
    monkeypatch.setattr(Imports, "cancel", lambda self, id_: (plain(self, id_), known.set())[0])
    cancelling = threading.Thread(target=client.delete, args=(f"/imports/{first}",))
    cancelling.start()
    assert known.wait(60)
    slow.go.set()
    cancelling.join()
    job = client.get(f"/imports/{first}").json()
    assert (job["state"], job["read"], job["documents"]) == ("cancelled", 10, 30)
    assert ids(client) == [f"i{number:04}" for number in range(10)]
    assert client.delete(f"/imports/{first}").json() == job
    assert ended(client, send(client, lines(notes(30))).json()["id"])["added"] == 20


def test_searches_and_posts_go_on_beside_an_import(served, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, "第15条")
    client, _ = served(concurrency=1, write_concurrency=1)
    id_ = send(client, lines(notes(30))).json()["id"]
    assert slow.reached.wait(300)
    assert client.post("/search", json={"query": "布洛芬"}).status_code == 200
    assert client.delete("/documents/fever").json() == {"deleted": 1}
    assert client.get(f"/imports/{id_}").json()["state"] == "storing"
    slow.go.set()
    assert ended(client, id_)["state"] == "done"


def test_a_stop_ends_an_import_between_two_steps_and_the_next_start_goes_on(
    served, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, "第25条")
    client, holder = served()
    id_ = send(client, lines(notes(60))).json()["id"]
    assert slow.reached.wait(300)
    stopping = threading.Thread(target=client.__exit__, args=(None, None, None))
    stopping.start()
    while not holder.ending:
        time.sleep(0.01)
    slow.go.set()
    stopping.join()
    taken: list[str] = []
    plain = Ingestion._take
    monkeypatch.setattr(Ingestion, "_take", lambda self, one: (taken.append(one.id), plain(self, one))[1])
    again, _ = served(holder.settings.index)
    job = ended(again, id_)
    assert (job["state"], job["read"], job["added"], job["unchanged"]) == ("done", 60, 60, 0)
    assert taken == [f"i{number:04}" for number in range(20, 60)], "what was stored is not even looked at again"
    assert len(ids(again)) == 60


def test_what_is_no_import_is_left_alone_and_what_never_came_whole_is_swept(served, tmp_path: Path) -> None:
    client, holder = served()
    client.__exit__(None, None, None)
    folder = holder.settings.index / "imports"
    (folder / "odd").mkdir(parents=True)
    (folder / "odd" / "job.json").write_text("{}", encoding="utf-8")
    (folder / "coming-1").write_bytes(b"half")
    (folder / ".1790000000000-ab.1-2.tmp").mkdir()
    (folder / ".1790000000000-ab.1-2.tmp" / "job.json").write_text("{}", encoding="utf-8")
    again, _ = served(holder.settings.index)
    assert again.get("/imports").json() == {"imports": []}
    assert [entry.name for entry in folder.iterdir()] == ["odd"]


def test_keys_and_their_share(served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, "第15条")
    keys = tmp_path / "keys.toml"
    one, other, reading = (
        new_key(keys, name, role) for name, role in zip("abr", ("write", "write", "read"), strict=True)
    )
    client, _ = served(keys=keys, imports=4)

    def code(key: str) -> str | None:
        reply = send(client, lines(notes(30)), Authorization=f"Bearer {key}")
        return None if reply.status_code == 200 else str(reply.json()["error"]["code"])

    assert code(reading) == "forbidden"
    assert [code(one) for _ in range(4)] == [None, None, None, "overloaded"]
    assert slow.reached.wait(300)
    assert code(other) is None
    slow.go.set()


def test_a_server_that_only_reads_takes_none(served) -> None:
    client, _ = served(read_only=True)
    assert send(client, lines(notes(1))).json()["error"]["code"] == "read_only"


def test_a_full_disk_is_waited_for(served, monkeypatch: pytest.MonkeyPatch) -> None:
    from suwen.index.embedded import EmbeddedEngine
    from suwen.index.engine import DiskFull
    from suwen.service import import_jobs

    monkeypatch.setattr(import_jobs, "_AFTER_FAILURE", 0.05)
    plain, failures = EmbeddedEngine.add, [1, 1, 1]

    def add(self: Any, documents: Any, settings: Any = None) -> None:
        if len(documents) == 10 and failures and self.known(["i0010"]):
            failures.pop()
            raise DiskFull("no space left")
        plain(self, documents, settings)

    monkeypatch.setattr(EmbeddedEngine, "add", add)
    client, holder = served()
    assert isinstance(holder, Holder)
    job = ended(client, send(client, lines(notes(40))).json()["id"])
    assert (job["state"], job["added"], job["unchanged"], failures) == ("done", 40, 0, [])


def test_a_book_becomes_documents_that_know_their_page(served, tmp_path: Path) -> None:
    client, _ = served()
    pages = [[(60, 100, f"Ward {number} gives bisoprolol at {number} o'clock.")] for number in (7, 8, 9)]
    body = pdf(tmp_path / "any", pages, title="Ward rules").read_bytes()
    taken = client.post("/imports?name=rules.pdf", content=body, headers={"Content-Type": "application/pdf"})
    assert (taken.status_code, taken.json()["name"]) == (200, "rules.pdf")
    job = ended(client, taken.json()["id"])
    assert (job["state"], job["added"], job["left_out"]) == ("done", 3, [])
    hit = client.post("/search", json={"query": "bisoprolol Ward 8", "k": 1, "mode": "lexical"}).json()["hits"][0]
    assert hit["document_id"] == "rules.pdf#page=2"
    assert hit["metadata"] == {"path": "rules.pdf", "book": "Ward rules", "page": 2}


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("a.pdf", b"%PDF-1.7 cut", "a.pdf: not a whole PDF"),
        ("a.epub", b"PK\x03\x04", "a.epub: not a whole file of its kind"),
    ],
)
def test_a_book_that_cannot_be_read_fails_with_the_reason(served, name, body, message) -> None:
    client, _ = served()
    taken = client.post(f"/imports?name={name}", content=body, headers={"Content-Type": "application/octet-stream"})
    job = ended(client, taken.json()["id"])
    assert job["state"] == "failed" and message in job["error"]["message"]


def test_a_bomb_ends_its_import_and_nothing_else(served, tmp_path: Path) -> None:
    client, _ = served()
    bomb = epub(tmp_path / "a.epub", [("A", "<p>x</p>"), ("B", "<p>y</p>")], **{"OEBPS/z.xhtml": b"0" * 9_000_000})
    locked = pdf(tmp_path / "b.pdf", [[(60, 100, "Nobody reads this.")]], password="secret")
    for name, file, message in (("a.epub", bomb, "a zip bomb?"), ("b.pdf", locked, "locked with a password")):
        sent = {"content": file.read_bytes(), "headers": {"Content-Type": "application/octet-stream"}}
        job = ended(client, client.post(f"/imports?name={name}", **sent).json()["id"])
        assert job["state"] == "failed" and message in job["error"]["message"]
        assert str(tmp_path) not in job["error"]["message"], "the server's own paths are nobody's business"
    assert client.get("/readyz").json() == {"status": "ready"}


def test_of_a_book_that_fails_nothing_is_kept_and_its_chapter_is_named(served, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    (shelf / "imported").mkdir(parents=True)
    client, _ = served(books=shelf, text_characters=1000)
    good = epub(tmp_path / "good.epub", [("A", "<p>At eight.</p>"), ("B", "<p>At nine.</p>")]).read_bytes()
    bomb = epub(tmp_path / "bomb.epub", [("A", "<p>x</p>"), ("B", "<p>" + "pill " * 300)]).read_bytes()
    headers = {"Content-Type": "application/epub+zip"}
    first = ended(client, client.post("/imports?name=a.epub", content=good, headers=headers).json()["id"])
    assert (first["state"], (shelf / "imported" / "a.epub").read_bytes()) == ("done", good)
    for name in ("a.epub", "b.epub"):
        job = ended(client, client.post(f"/imports?name={name}", content=bomb, headers=headers).json()["id"])
        assert (job["state"], job["error"]["code"], job["added"]) == ("failed", "text_too_long", 0)
        assert job["error"]["message"].startswith(f"{name}#chapter=1: its text has 1499 characters")
        assert job["error"]["param"] == f"{name}#chapter=1"
    kept = {file.name: file.read_bytes() for file in (shelf / "imported").iterdir()}
    assert kept == {"a.epub": good}, "a book that failed was kept, or took the place of one that did not"


def test_a_long_file_without_pages_is_cut_into_parts(served, tmp_path: Path) -> None:
    client, _ = served(text_characters=1000)
    page = "".join(f"<p>{number}: {'pill ' * 90}</p>" for number in range(5)).encode()
    sent = {"content": page, "headers": {"Content-Type": "text/html"}}
    job = ended(client, client.post("/imports?name=w.html", **sent).json()["id"])
    assert (job["state"], job["documents"], job["error"]) == ("done", 3, None)
    second = client.get("/documents/w.html%23part=2").json()
    assert second["metadata"] == {"path": "w.html", "book": "w", "part": 2}
    assert second["passages"][0]["text"].startswith("2: pill")
    assert client.get("/documents/w.html").json()["metadata"]["part"] == 1


def test_a_page_that_bursts_the_limits_is_left_out(served, tmp_path: Path, monkeypatch) -> None:
    from suwen.service import import_jobs

    monkeypatch.setattr(import_jobs, "_LIMITS", Limits(memory=450 * 2**20, seconds=60, processes=1))
    client, _ = served()
    bomb = zlib.compress(b"q 1 0 0 1 0 0 cm\n" * 15_000_000, 1)
    shown = zlib.compress(b"BT /F 12 Tf 60 700 Td (Bisoprolol is given at eight.) Tj ET")
    body = raw_pdf(tmp_path / "any", [shown, bomb]).read_bytes()
    taken = client.post("/imports?name=a.pdf", content=body, headers={"Content-Type": "application/pdf"}).json()
    job = ended(client, taken["id"])
    assert (job["state"], job["added"], [one["page"] for one in job["left_out"]]) == ("done", 1, [2])
    assert "memory" in job["left_out"][0]["why"]


def test_what_is_left_out_is_counted_beyond_what_is_listed(served, tmp_path: Path, monkeypatch) -> None:
    from suwen.service import import_jobs

    monkeypatch.setattr(import_jobs, "_TOLD", 2)
    client, _ = served()
    shown = zlib.compress(b"BT /F 12 Tf 60 700 Td (Bisoprolol is given at eight.) Tj ET")
    body = raw_pdf(tmp_path / "any", [shown]).read_bytes().replace(b"/Count 1", b"/Count 9999")
    taken = client.post("/imports?name=a.pdf", content=body, headers={"Content-Type": "application/pdf"}).json()
    job = ended(client, taken["id"])
    assert (job["state"], job["added"], job["left_out_total"]) == ("done", 1, 51)
    assert [one["page"] for one in job["left_out"]] == [2, 3, 0]


def test_a_bad_chapter_is_left_out_of_an_import(served, tmp_path: Path) -> None:
    client, _ = served()
    path = epub(
        tmp_path / "a", [("A", "<p>Bisoprolol is given at eight.</p>"), ("B", "")], **{"OEBPS/two b.xhtml": b"\xff"}
    )
    sent = {"content": path.read_bytes(), "headers": {"Content-Type": "application/epub+zip"}}
    job = ended(client, client.post("/imports?name=a.epub", **sent).json()["id"])
    assert (job["state"], job["added"], [one["page"] for one in job["left_out"]]) == ("done", 1, [1])


@pytest.mark.parametrize(
    ("name", "kind", "body", "title", "text"),
    [
        ("w.md", "text/markdown", b"Draft.\n\n# Ward rules\n\nAt *eight*.\n", "Ward rules", "Draft."),
        ("w.txt", "application/octet-stream", "# 病房制度\n八点给药。".encode("gb18030"), "w", "# 病房制度"),
        ("w.cnxml", "application/xml", CNXML, "Ward rules", "At eight."),
    ],
)
def test_texts_and_modules_become_one_document(served, name, kind, body, title, text) -> None:
    client, _ = served()
    taken = client.post(f"/imports?name={name}", content=body, headers={"Content-Type": kind})
    assert taken.status_code == 200, taken.text
    job = ended(client, taken.json()["id"])
    assert (job["state"], job["documents"], job["error"]) == ("done", 1, None)
    stored = client.get(f"/documents/{name}").json()
    # A text is a text; a module is a book, as elsewhere.
    book = {"book": title} if name.endswith(".cnxml") else {}
    assert (stored["title"], stored["metadata"]) == (title, {"path": name, **book})
    assert stored["passages"][0]["text"].startswith(text)


@pytest.mark.parametrize(
    ("kind", "name"), [("application/pdf", ""), ("application/pdf", "../a.pdf"), ("text/plain; pdf", "a.pdf")]
)
def test_a_book_needs_a_kind_and_a_plain_name(served, kind, name) -> None:
    client, _ = served()
    refused = client.post("/imports", params={"name": name}, content=b"%PDF", headers={"Content-Type": kind})
    assert refused.status_code == 422 and refused.json()["error"]["code"] == "invalid_request"
