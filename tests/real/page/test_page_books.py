"""A hit of a book opens the book at its page, in a browser: by a link, or with the visitor's key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suwen.corpora.readers import read_documents
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
from visiting import serving, visit, wait_ready

from books_on_the_spot import pdf

PAGES = [[(60, 100, f"Ward {number} gives bisoprolol at eight o'clock.")] for number in (7, 8, 9)]
LINK = "document.querySelector('[data-document=\"wards/rules.pdf#page=2\"] a.source')"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, pair):
    """An index of one book, and the folder it was read from."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / "books" / "wards").mkdir(parents=True)
    pdf(folder / "books" / "wards" / "rules.pdf", PAGES, title="Ward rules")
    with Index.create(folder / "index", pair=pair) as index:
        index.add(read_documents(folder / "books"))
    return folder


def test_a_hit_links_to_its_page_of_the_book(tab, shelf, pair):
    settings = ServeSettings(index=shelf / "index", pair=pair, read_only=True, books=shelf / "books")
    with serving(settings) as address:
        wait_ready(address)
        visit(tab, address, q="Ward 8 bisoprolol", mode="lexical")
        assert tab.see(f"{LINK}.textContent") == "Ward rules · p. 2"
        opened = tab.see(f"{LINK}.href")
        assert opened == f"{address}/originals/wards%2Frules.pdf%23page%3D2#page=2"
        kind = (
            f"fetch({LINK}.href).then(async (one) => [one.headers.get('content-type'), (await one.text()).slice(0, 5)])"
        )
        assert tab.see(kind) == ["application/pdf", "%PDF-"]
        assert tab.complaints() == []


def test_with_keys_the_book_is_fetched_by_the_key(tab, shelf, pair, tmp_path):
    key = new_key(tmp_path / "keys.toml", "reader", "read")
    settings = ServeSettings(
        index=shelf / "index", pair=pair, read_only=True, books=shelf / "books", keys=tmp_path / "keys.toml"
    )
    with serving(settings) as address:
        wait_ready(address)
        tab.go(address)
        tab.see(f"sessionStorage.setItem('suwen.key', '{key}')")
        visit(tab, address, q="Ward 8 bisoprolol", mode="lexical")
        assert tab.see(f"fetch({LINK}.href).then((one) => one.status)") == 401
        tab.see("window.open = () => (window.made = {}); 0")
        tab.see("URL.createObjectURL = (blob) => { window.file = blob; return 'blob:made'; }; 0")
        tab.see(f"{LINK}.click()")
        tab.until("window.made?.location")
        assert tab.see("window.made.location") == "blob:made#page=2"
        assert tab.see("window.file.text()").startswith("%PDF-") and tab.see("window.file.type") == "application/pdf"


def test_without_the_files_a_hit_still_names_its_page(tab, shelf, pair):
    with serving(ServeSettings(index=shelf / "index", pair=pair, read_only=True)) as address:
        wait_ready(address)
        visit(tab, address, q="Ward 8 bisoprolol", mode="lexical")
        assert "p. 2" in tab.text("[data-document='wards/rules.pdf#page=2'] .facts")
        tab.click("[data-document='wards/rules.pdf#page=2'] .id")
        tab.until("document.querySelector('#document-dialog .passages')")
        assert "Ward 8 gives bisoprolol" in tab.text("#document-dialog .passages")
