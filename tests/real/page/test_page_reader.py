"""What a reader counts on: no old hits under a new question, own language, own rights, citations, exports, history."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key
from suwen.service.problems import CODES
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
from visiting import WEB, api, search, serving, visit, wait_ready

#: Lets a test hold back what the page asks for, and let it go: `held` counts what waits.
_HOLD = """(() => {
  const plain = window.fetch;
  window.held = [];
  window.fetch = (...asked) => new Promise((go) => window.held.push(() => go(plain(...asked))));
  window.letGo = () => { window.fetch = plain; window.held.forEach((one) => one()); };
})()"""
_GUIDE = Document(
    "guide-3",
    "每日食盐不超过五克。",
    "高血压防治指南",
    {"source": "国家指南", "url": "https://example.org/guide.pdf", "page": 12, "formula": "=1+1", "x": "javascript:a"},
)


@pytest.fixture(scope="module")
def own(tmp_path_factory, pair):
    """A service of its own that may be written, with keys: address, a key that reads, a key that writes."""
    folder = tmp_path_factory.mktemp("own")
    with Index.create(folder / "guides", pair=pair) as index:
        index.add([_GUIDE, Document("evil", "每日食盐。", "无来源", {"url": "javascript:alert(1)"})])
    file = folder / "keys.toml"
    keys = [new_key(file, role, role) for role in ("read", "write")]
    with serving(ServeSettings(index=folder / "guides", pair=pair, keys=file)) as address:
        wait_ready(address)
        yield address, *keys


def enter(tab, address: str, key: str, rest: str = "") -> None:
    tab.go(address)
    tab.see(f"sessionStorage.setItem('suwen.key', {json.dumps(key)})")
    tab.go("about:blank")
    tab.go(address + rest)


def test_the_hits_of_the_last_question_are_gone_before_the_next_is_asked(tab, address):
    visit(tab, address, q="头痛")
    before = tab.texts(".hit h2")
    tab.see(_HOLD)
    tab.see("document.getElementById('q').value = '肾结石'")
    tab.click("#search button[type=submit]")
    tab.until("window.held.length === 1")
    assert tab.texts(".hit") == [] and "肾结石" in tab.text("#results .summary")
    assert tab.text("#status").startswith("Searching for “肾结石”")
    tab.see("window.letGo()")
    tab.until("document.querySelector('.hit')")
    assert tab.texts(".hit h2") != before and tab.text(".asked b") == "“肾结石”"


def test_a_link_shows_at_once_that_a_search_is_on_its_way(tab, folder, pair):
    import threading

    gate = threading.Event()
    settings = ServeSettings(index=folder, pair=pair, read_only=True)
    with serving(settings, lambda holder: holder.on_open.append(lambda _: gate.wait(300))) as address:
        try:
            tab.go(f"{address}/#q=stone")
            tab.until("document.querySelector('.spinner')")
            assert "stone" in tab.text("#results .summary") and tab.texts(".hit") == []
        finally:
            gate.set()
        tab.until("document.querySelector('.hit')")


def test_a_hit_is_explained_when_that_is_asked_for_and_not_before(tab, address):
    visit(tab, address, q="头痛")
    tab.see(
        "window.asked = []; const plain = window.fetch; "
        "window.fetch = (to, how) => { window.asked.push(JSON.parse(how.body)); return plain(to, how); }; 0"
    )
    tab.click(".hit .why summary")
    tab.until("document.querySelector('.why table')")
    tab.click("li:nth-child(2) .why summary")
    tab.until("document.querySelectorAll('.why table').length === 2")
    assert [(body["explain"], body["highlights"]) for body in tab.see("window.asked")] == [(True, False)]


def test_words_of_the_question_are_marked_in_titles(tab, address):
    query = "血压高头晕吃什么药"
    visit(tab, address, q=query)
    hits = api(address, query=query, highlights=True)["hits"]
    expected = [hit["title"][a:b] for hit in hits for a, b in hit["title_terms"]]
    assert expected and tab.texts(".hit h2 mark") == expected


def test_a_read_key_hides_what_it_may_not_do(tab, own):
    address, read, write = own
    for key, hidden in ((read, True), (write, False)):
        enter(tab, address, key, "/#q=食盐")
        tab.until("document.querySelector('.hit')")
        assert tab.see("document.getElementById('open-add').hidden") is hidden
        tab.click(".hit .id")
        tab.until("document.querySelector('#document-dialog .passages')")
        assert tab.see("document.getElementById('document-delete').hidden") is hidden


def test_trying_again_is_offered_only_where_it_can_help(tab, address):
    visit(tab, address, q="血压", where="nowhere=1")
    assert tab.texts(".notice.bad button") == []
    visit(tab, address, q="血压")
    tab.see("window.fetch = () => Promise.reject(new TypeError('gone'))")
    tab.see("document.getElementById('search').requestSubmit()")
    tab.until("document.querySelector('.notice.bad')")
    assert tab.texts(".notice.bad button") == ["Try again"]


def test_every_error_has_its_words_in_both_languages(tab, address):
    visit(tab, address)
    for tag in ("zh", "en"):
        words = set(tab.see(f"import('/web/words_{tag}.js').then((one) => Object.keys(one.default))"))
        assert {f"error.{code}{more}" for code in CODES for more in ("", ".text")} <= words


def test_an_error_speaks_the_language_of_the_page(tab, address):
    tab.speak("zh-CN")
    visit(tab, address, q="血压", where="nowhere=1")
    title, said = tab.texts(".notice.bad > p")[:2]
    assert (title, said) == ("没有这个元数据字段", "请去掉这个筛选，或从列表里选一个字段。")
    assert "'nowhere'" in tab.text(".notice.bad details") and not tab.see("document.querySelector('.own').open")


def test_an_error_that_quotes_a_chinese_field_speaks_the_language_of_the_page(tab, address):
    tab.speak("zh-CN")
    visit(tab, address, q="头痛", where="科室=心内科")
    assert "请去掉这个筛选" in tab.text("#results .notice")
    assert "no document has the field '科室'" in tab.text("#results .own [lang=en]")


def test_examples_come_from_the_index(tab, own):
    address, read, _ = own
    enter(tab, address, read)
    tab.until("document.querySelector('.example')")
    assert set(tab.texts(".example")) == {"高血压防治指南", "每日食盐"}
    assert tab.see("document.getElementById('examples-en').parentElement.hidden")


def test_a_source_is_a_link_to_its_page_and_never_a_script(tab, own):
    address, read, _ = own
    enter(tab, address, read, "/#q=食盐")
    tab.until("document.querySelectorAll('.hit').length === 2")
    found = tab.see("[...document.querySelectorAll('a.source')].map((one) => [one.textContent, one.href, one.rel])")
    assert found == [["国家指南 · p. 12", "https://example.org/guide.pdf#page=12", "noopener noreferrer"]]
    assert "javascript:alert(1)" in tab.text("[data-document=evil] .facts")


def test_a_citation_is_copied(tab, own):
    address, read, _ = own
    enter(tab, address, read, "/#q=食盐")
    tab.until("document.querySelectorAll('.hit').length === 2")
    # The old way too: a page without https has no clipboard of the new kind.
    tab.see("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    tab.see(
        "document.addEventListener('copy', () => { window.copied = String(document.getSelection()) "
        "|| document.activeElement.value; })"
    )
    tab.click("[data-document='guide-3'] .cite")
    tab.until("document.getElementById('status').textContent === 'Citation copied'")
    told = tab.see("window.copied")
    for part in (
        _GUIDE.text,
        _GUIDE.title,
        "国家指南",
        "p. 12",
        "guide-3, characters 0–10",
        "guides",
        "guide.pdf#page=12",
    ):
        assert part in told, told


def test_hits_are_exported_whole_and_no_cell_is_a_formula(tab, own):
    address, read, _ = own
    enter(tab, address, read, "/#q=食盐")
    tab.until("document.querySelectorAll('.hit').length === 2")
    tab.see("URL.createObjectURL = (blob) => { window.file = blob; return 'data:text/plain,'; }")
    tab.click(".export button")
    tab.until("window.file")
    text = tab.see("window.file.text()")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    by_id = {row["document_id"]: row for row in rows}
    assert set(by_id) == {"guide-3", "evil"} and by_id["guide-3"]["text"] == _GUIDE.text
    assert by_id["guide-3"]["metadata.formula"] == "'=1+1" and by_id["guide-3"]["metadata.page"] == "12"
    tab.see("window.file = null")
    tab.click(".export button:nth-of-type(2)")
    tab.until("window.file")
    found = json.loads(tab.see("window.file.text()"))
    assert {row["document_id"]: row["metadata"] for row in found}["guide-3"] == dict(_GUIDE.metadata)


def test_searches_are_kept_only_where_asked_for_and_cleared_by_one_click(tab, address):
    visit(tab, address, q="头痛")
    assert "头痛" not in tab.see("JSON.stringify(localStorage)"), "off unless it is turned on"
    visit(tab, address)
    tab.click("#past-keep")
    search(tab, "肾结石")
    search(tab, "高血压")
    visit(tab, address)
    assert tab.texts("#past a") == ["高血压", "肾结石"]
    tab.click("#past li:nth-child(2) a")
    tab.until("document.querySelector('.asked b')?.textContent === '“肾结石”'")
    visit(tab, address)
    tab.click("#past-clear")
    assert tab.texts("#past a") == [] and "肾结石" not in tab.see("JSON.stringify(localStorage)")
    assert tab.see("document.getElementById('past-keep').checked")
    tab.click("#past-keep")
    assert tab.see("localStorage.getItem('suwen.past')") is None


def test_no_page_names_an_example_of_another_index():
    assert "肾结石" not in "".join(file.read_text(encoding="utf-8") for file in WEB.iterdir())
