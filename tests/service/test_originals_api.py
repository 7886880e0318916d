"""The files of books, opened by a document's id: with rights, ranges, and no way out of their folder."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import pdf


def original(client: Any, id_: str, **headers: str) -> Any:
    return client.get(f"/originals/{quote(id_, safe='')}", headers=headers)


@pytest.fixture
def shelf(tmp_path: Path, static_pair: Path) -> tuple[Path, Path]:
    """A folder of books with secrets around it, and an index whose metadata try to get at these."""
    books = tmp_path / "shelf"
    (books / "wards").mkdir(parents=True)
    pdf(books / "wards" / "rules.pdf", [[(60, 100, "Bisoprolol at eight.")]])
    (books / "page.html").write_text("<script>alert(1)</script><p>Rest.", "utf-8")
    (books / "notes.txt").write_text("not a book", "utf-8")
    (tmp_path / "secret.pdf").write_bytes(b"%PDF-secret")
    (books / "link.pdf").symlink_to(tmp_path / "secret.pdf")
    paths = {
        "wards/rules.pdf#page=1": "wards/rules.pdf",
        "page": "page.html",
        "up": "../secret.pdf",
        "round": "wards/../../secret.pdf",
        "far": str(tmp_path / "secret.pdf"),
        "link": "link.pdf",
        "nul": "a\0.pdf",
        "long": "a" * 5000 + ".pdf",
        "folder": "wards",
        "text": "notes.txt",
        "gone": "gone.pdf",
        "number": 7,
    }
    with Index.create(tmp_path / "books", pair=static_pair) as index:
        index.add([Document(id_, f"Text of {id_}.", "", {"path": path}) for id_, path in paths.items()])
        index.add([Document("none", "No path at all.", "", {})])
    return tmp_path / "books", books


def test_a_pdf_is_shown_and_parts_of_it_can_be_asked_for(served, shelf) -> None:
    index, books = shelf
    client, _ = served(index, books=books)
    whole = (books / "wards" / "rules.pdf").read_bytes()
    came = original(client, "wards/rules.pdf#page=1")
    assert (came.status_code, came.content) == (200, whole)
    assert came.headers["content-type"] == "application/pdf"
    assert came.headers["content-disposition"].startswith("inline")
    part = original(client, "wards/rules.pdf#page=1", Range="bytes=0-3")
    assert (part.status_code, part.content) == (206, b"%PDF")
    assert client.get("/info").json()["originals"] is True


def test_html_is_saved_and_never_run(served, shelf) -> None:
    index, books = shelf
    came = original(served(index, books=books).client, "page")
    assert came.status_code == 200 and came.headers["content-disposition"].startswith("attachment")
    assert came.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in came.headers["content-security-policy"]
    assert came.headers["x-content-type-options"] == "nosniff"


def test_nothing_leads_out_of_the_folder(served, shelf) -> None:
    index, books = shelf
    client, _ = served(index, books=books)
    for id_ in ("up", "round", "far", "link", "nul", "long", "folder", "text", "gone", "number", "none"):
        came = original(client, id_)
        assert (came.status_code, came.json()["error"]["code"]) == (404, "not_found"), id_
    for path in ("../secret.pdf", "wards/rules.pdf", "%2e%2e/secret.pdf", "..%2fsecret.pdf"):
        came = client.get(f"/originals/{path}")
        assert came.status_code == 404 and b"%PDF" not in came.content, path


def test_a_server_without_the_folder_sends_none(served, shelf) -> None:
    client, _ = served(shelf[0])
    assert client.get("/info").json()["originals"] is False
    assert original(client, "wards/rules.pdf#page=1").status_code == 404


def test_a_key_that_may_read_the_index_is_needed(served, shelf, tmp_path: Path) -> None:
    index, books = shelf
    file = tmp_path / "keys.toml"
    mine, other = new_key(file, "mine", "read"), new_key(file, "other", "read", indexes=("elsewhere",))
    client, _ = served(index, books=books, keys=file, wait=False)
    while client.get("/readyz").json() != {"status": "ready"}:
        time.sleep(0.01)
    codes = [
        original(client, "wards/rules.pdf#page=1", **headers).status_code
        for headers in ({}, {"Authorization": f"Bearer {other}"}, {"Authorization": f"Bearer {mine}"})
    ]
    assert codes == [401, 403, 200]


def test_an_imported_book_is_kept_and_replaces_no_file_of_the_shelf(served, shelf, tmp_path: Path) -> None:
    index, books = shelf
    pdf(books / "rules.pdf", [[(60, 100, "The shelf's own rules.")]])
    before = (books / "rules.pdf").read_bytes()
    body = pdf(tmp_path / "any", [[(60, 100, "Ward 7 gives bisoprolol at eight.")]] * 2).read_bytes()
    client, _ = served(index, books=books)
    taken = client.post("/imports?name=rules.pdf", content=body, headers={"Content-Type": "application/pdf"}).json()
    while (job := client.get(f"/imports/{taken['id']}").json())["state"] not in ("done", "failed"):
        time.sleep(0.02)
    assert (job["state"], job["page"], job["pages"]) == ("done", 2, 2)
    assert original(client, "rules.pdf#page=2").content == body
    assert (books / "rules.pdf").read_bytes() == before
