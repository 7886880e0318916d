"""Files into the index by the page: chosen, dropped, watched, cancelled and refused, in a real browser."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from suwen.encoders.static import StaticEncoder
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
from axe import serious
from browser import Tab
from visiting import DOCUMENTS, fits, search, serving, wait_ready

from books_on_the_spot import pdf

TELLS = "document.querySelector('#files li:nth-child({}) .soft').textContent.startsWith({!r})"


@pytest.fixture(scope="module")
def few(tmp_path_factory, pair) -> Path:
    """An index of two documents."""
    folder = tmp_path_factory.mktemp("few") / "index"
    with Index.create(folder, pair=pair) as index:
        index.add(DOCUMENTS, encoder=index.choose_encoder(tier="static", remember=True).encoder)
    return folder


@pytest.fixture
def writable(few: Path, pair: Path, tmp_path: Path) -> Iterator[str]:
    """A service of a copy of it, which a test may write to."""
    with serving(ServeSettings(index=shutil.copytree(few, tmp_path / "index"), pair=pair)) as address:
        wait_ready(address)
        yield address


def opened(tab: Tab, address: str) -> None:
    tab.go(address)
    tab.until("!document.getElementById('open-add').hidden")
    tab.click("#open-add")


def choose(tab: Tab, *files: Path) -> None:
    """Choose files as the browser's own window does."""
    chosen = tab.call("Runtime.evaluate", expression="document.getElementById('files-chosen')")["result"]["objectId"]
    tab.call("DOM.setFileInputFiles", files=[str(file) for file in files], objectId=chosen)


def drop(tab: Tab, *files: Path) -> None:
    """Let go of files over the window, away from the box meant for them."""
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        tab.call("Input.dispatchDragEvent", type=kind, x=640, y=420, data=data)


def test_files_are_chosen_and_dropped_and_found(tab, writable, tmp_path):
    pages = [[(60, 100, f"Ward {number} gives bisoprolol at eight o'clock.")] for number in (7, 8)]
    book = pdf(tmp_path / "rules.pdf", pages, title="Ward rules")
    (note := tmp_path / "值班.md").write_text("# 值班\n\n夜班每两小时巡视一次。", "utf-8")
    (lines := tmp_path / "more.jsonl").write_text('{"id": "more-1", "text": "Turn the patient every two hours."}\n')
    opened(tab, writable)
    choose(tab, book, note)
    tab.until(TELLS.format(1, "Done. Documents added: 2"))
    tab.until(TELLS.format(2, "Done. Documents added: 1"))
    drop(tab, lines)
    tab.until(TELLS.format(3, "Done. Documents added: 1"))
    assert tab.texts("#files b") == ["rules.pdf", "值班.md", "more.jsonl"]
    assert tab.text("#files-status") == "more.jsonl: Done. Documents added: 1, replaced: 0, unchanged: 0"
    assert tab.texts("#files button:not([hidden])") == [] and tab.see("location.pathname") == "/"
    tab.press("Escape")
    search(tab, "Ward 8 bisoprolol")
    assert tab.text(".hit .facts .source").endswith("p. 2")


def test_files_that_fail_say_why_in_the_language_of_the_page(tab, writable, tmp_path):
    (cut := tmp_path / "cut.pdf").write_bytes(b"%PDF-1.7 cut")
    (other := tmp_path / "slides.pptx").write_bytes(b"PK")
    (folder := tmp_path / "folder").mkdir()
    tab.speak("zh-CN")
    opened(tab, writable)
    choose(tab, cut, other)
    tab.until(TELLS.format(1, "没有存入"))
    tab.until(TELLS.format(2, "没有存入"))
    drop(tab, folder)
    tab.until(TELLS.format(3, "没有存入"))
    assert "cut.pdf: not a whole PDF" in tab.text("#files li:nth-child(1) .own [lang=en]")
    assert "this server reads" in tab.text("#files li:nth-child(2) .own [lang=en]")
    assert tab.text("#files li:nth-child(2) .notice .title") == "这个文件无法读取"
    assert "请选择其中的文件" in tab.text("#files li:nth-child(3) .notice")
    for width in (1280, 320):
        tab.screen(width, 800, phone=width < 500)
        assert (serious(tab), fits(tab)) == ([], True)


def test_an_import_is_watched_and_cancelled(tab, writable, tmp_path, monkeypatch):
    reached, go = threading.Event(), threading.Event()
    plain = StaticEncoder.encode

    def encode(encoder, texts, **options):
        if any("halt" in text for text in texts):
            reached.set()
            assert go.wait(300)
        return plain(encoder, texts, **options)

    monkeypatch.setattr(StaticEncoder, "encode", encode)
    # The first is stored, the second waits at its encoder.
    long = "".join(f'{{"id": "n{n}", "text": "{"halt" if n else "pulse"} {"x " * 9000}"}}\n' for n in range(2))
    (lines := tmp_path / "long.jsonl").write_text(long)
    opened(tab, writable)
    choose(tab, lines)
    tab.until(TELLS.format(1, "Storing: 1 of 2 documents"))
    assert reached.wait(300)
    assert tab.see("document.querySelector('#files progress').value") == 1
    assert tab.see("document.querySelector('#files button').getAttribute('aria-label')") == "Cancel long.jsonl"
    assert serious(tab) == []
    tab.click("#files button")
    go.set()
    tab.until(TELLS.format(1, "Cancelled; 1 documents"))
    assert tab.see("document.activeElement.id") == "files-chosen"


def test_a_key_that_may_not_write_is_refused_politely(tab, few, pair, tmp_path):
    read = new_key(tmp_path / "keys.toml", "reader", "read")
    settings = ServeSettings(index=shutil.copytree(few, tmp_path / "index"), pair=pair, keys=tmp_path / "keys.toml")
    (note := tmp_path / "a.txt").write_text("At eight.")
    with serving(settings) as address:
        wait_ready(address)
        tab.go(address)
        tab.see(f"sessionStorage.setItem('suwen.key', '{read}')")
        tab.go(f"{address}/?again")
        tab.until("document.getElementById('home').dataset.ready")
        assert tab.see("document.getElementById('open-add').hidden"), "it is not even offered"
        tab.see("document.getElementById('add-dialog').showModal()")
        choose(tab, note)
        tab.until("document.querySelector('#files .notice.bad')")
        assert tab.text("#files .notice .title") == "This key may not do this"
        assert "Use another key" in tab.text("#files .notice")
