"""The pages under attack, with keys, with errors, and while the index opens: in a real browser."""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path

import httpx

from suwen.jury.jury_folder import JuryFolder
from suwen.jury.review import Reviews
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
from visiting import ATTACK, DOCUMENTS, WEB, serving, visit


def test_text_is_only_ever_text(tab, address):
    visit(tab, address, q=f"棘手的标题甲乙丙{ATTACK}")
    assert tab.text(".hit h2") == DOCUMENTS[1].title and tab.text(".hit .text") == DOCUMENTS[1].text
    assert ATTACK in tab.text(".hit .meta") and ATTACK in tab.text(".hit .id") and ATTACK in tab.see("document.title")
    tab.click("[name=mode][value=compare]")
    tab.until("document.querySelector('.column .hit')")
    tab.press("j", "o")
    tab.until("document.querySelector('#document-dialog .passages')")
    assert ATTACK in tab.text("#document-body .text") and ATTACK in tab.text("#document-body .meta")
    visit(tab, address, q=ATTACK, tier=ATTACK, where=f"{ATTACK}=1")
    assert ATTACK in tab.text(".notice.bad"), tab.text("#results")
    assert tab.see("window.pwned === undefined && document.querySelectorAll('img').length === 0")
    assert tab.see("[...document.scripts].every((one) => one.src.startsWith(location.origin + '/web/'))")


def test_a_key_is_asked_for_and_kept_in_the_tab(tab, keyed):
    address, read, _ = keyed
    tab.go(f"{address}/#q=stone")
    tab.until("document.getElementById('key-dialog').open")
    assert tab.see("document.activeElement.id") == "key-value"
    tab.write("wrong")
    tab.press("Enter")
    tab.until("!document.getElementById('key-refused').hidden && document.getElementById('key-dialog').open")
    tab.write(read)
    tab.press("Enter")
    tab.until("document.querySelectorAll('.hit').length === 10")
    assert tab.see(f"sessionStorage.getItem('suwen.key') === {json.dumps(read)}")
    assert read not in tab.see("JSON.stringify(localStorage) + document.cookie + location.href")
    tab.click("#forget-key")
    tab.until("document.getElementById('key-dialog')?.open")
    tab.press("Escape")
    tab.until("document.querySelector('.notice.bad')")
    assert "A valid key is needed" in tab.text(".notice.bad") and "unauthorized" in tab.text(".notice.bad .facts")
    assert tab.see("sessionStorage.length") == 0


def test_the_review_page_is_mounted_behind_the_key(tab, keyed, tmp_path):
    address, read, write = keyed
    assert httpx.get(f"{address}/review/api/pair?reviewer=li", timeout=120).status_code == 401
    held = {"Authorization": f"Bearer {read}"}
    assert httpx.get(f"{address}/review/api/pair?reviewer=li", headers=held, timeout=120).status_code == 403
    tab.go(f"{address}/review")
    tab.until("document.getElementById('reviewer')")
    assert tab.see("location.pathname") == "/review/"
    tab.click("#reviewer")
    tab.write("li")
    tab.press("Enter")
    tab.until("document.getElementById('key-dialog')?.open")
    tab.write(write)
    tab.press("Enter")
    tab.until("document.getElementById('count').textContent.startsWith('0 of 3')")
    assert ATTACK in tab.text("#query") and tab.see("document.querySelectorAll('img').length") == 0
    tab.press("1")
    tab.until("document.getElementById('count').textContent.startsWith('1 of 3')")
    with Reviews(JuryFolder(tmp_path / "work").reviews) as reviews:
        assert [review.label for review in reviews] == ["positive"]
    tab.go(f"{address}/")
    tab.until("!document.getElementById('to-review').hidden")


def test_there_is_no_review_page_without_a_jury(tab, address):
    assert httpx.get(f"{address}/review/", timeout=120).status_code == 404
    visit(tab, address)
    assert tab.see("document.getElementById('to-review').hidden")


def test_files_are_asked_for_again_and_sent_only_when_changed(address):
    with httpx.Client(base_url=address, timeout=120) as client:
        for path in ("/", "/index", *(f"/web/{file.name}" for file in WEB.iterdir() if file.suffix != ".html")):
            answer = client.get(path)
            assert answer.status_code == 200 and answer.headers["cache-control"] == "no-cache"
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304 and again.content == b""
            assert client.head(path).headers["etag"] == answer.headers["etag"]
        for path in ("/web/frame.html", "/web/nothing.js", "/web/..%2fpages.py", "/web/__init__.py"):
            assert client.get(path).json()["error"]["code"] == "not_found"


def test_no_file_makes_html_of_text_or_asks_another_host():
    for file in WEB.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            file
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file
        if file.suffix == ".html":
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text), file


def test_an_error_is_shown_with_its_message_and_request_id(tab, address):
    visit(tab, address, q="血压", where="nowhere=1")
    told = tab.text(".notice.bad")
    assert "There is no such metadata field" in told and "'nowhere'" in told
    assert re.search(r"unknown_field · Request id [0-9a-f]{16}", told)
    visit(tab, address, q="？！")
    assert "nothing to search for" in tab.text(".notice.bad .title")


def test_the_page_waits_while_the_index_is_opened(tab, folder, pair):
    gate = threading.Event()
    settings = ServeSettings(index=folder, pair=pair, read_only=True)
    with serving(settings, lambda holder: holder.on_open.append(lambda _: gate.wait(300))) as address:
        try:
            tab.go(f"{address}/#q=stone")
            tab.until("document.querySelector('#notices .notice')")
            assert "is being opened" in tab.text("#notices") and tab.texts(".hit") == []
        finally:
            gate.set()
        tab.until("document.querySelectorAll('.hit').length === 10")
        assert tab.text("#notices") == ""
        assert tab.see("document.getElementById('open-add').hidden"), "a service that only reads takes no documents"
