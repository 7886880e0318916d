"""The search page in a real browser, against the real service: search, compare, explain, filter, add and find."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from visiting import DOCUMENTS, api, search, visit


def test_a_search_shows_hits_with_marks_metadata_scores_state_and_times(tab, address):
    visit(tab, address)
    assert "362 documents" in tab.text("#home-lead")
    search(tab, "血压高头晕吃什么药")
    expected = api(address, query="血压高头晕吃什么药", k=10, highlights=True)["hits"]
    assert tab.texts(".hit h2") == [hit["title"] for hit in expected]
    assert tab.texts(".hit .text") == [hit["text"] for hit in expected]
    # Cut to two places, not rounded: 0.40 would be an answer, 0.395 is none.
    shown = [float(score) for score in tab.texts(".hit .score b")]
    assert shown == [math.floor(100 * hit["confidence"] + 1e-9) / 100 for hit in expected]
    assert tab.texts(".hit:first-child .meta .name")[:5] == list(expected[0]["metadata"])
    assert set(tab.texts(".hit .badge")) == {"Encoded"}
    assert re.search(r"encode [\d.]+.*search [\d.]+", tab.text(".latency"))
    assert "10 results, the first" in tab.text("#status")
    assert tab.see("document.getElementById('status').getAttribute('aria-live')") == "polite"


def test_an_example_is_asked_with_one_click(tab, address):
    visit(tab, address)
    tab.click("#examples-en .example")
    tab.until("document.querySelectorAll('.hit').length === 10")
    assert tab.see("document.getElementById('q').value") == tab.see(
        "new URLSearchParams(location.hash.slice(1)).get('q')"
    )


def test_what_the_library_marked_is_what_is_marked(tab, address):
    query = "漏服二甲双胍怎么办💡"
    hit = next(
        hit for hit in api(address, query=query, highlights=True)["hits"] if hit["document_id"] == DOCUMENTS[0].id
    )
    assert any(ord(character) > 0xFFFF for character in hit["text"][: hit["highlights"][-1]["start"]])
    visit(tab, address, q=query)
    inside = "[...document.querySelectorAll('.hit')].find((one) => one.dataset.document.startsWith('药/'))"
    marked = tab.see(f"[...{inside}.querySelectorAll('.text mark')].map((one) => one.textContent)")
    sentences = tab.see(f"[...{inside}.querySelectorAll('.sentence')].map((one) => one.textContent)")
    assert marked == [hit["text"][a:b] for light in hit["highlights"] for a, b in light["terms"]]
    assert "".join(sentences) == "".join(light["text"] for light in hit["highlights"])
    assert tab.see(f"{inside}.querySelector('.text').textContent") == hit["text"]


def test_an_excerpt_never_halves_a_character(tab, address):
    visit(tab, address)
    broken = tab.see(
        """import("/web/marks.js").then(({ marked }) => {
          const text = "😀".repeat(300) + "肝" + "𬌗".repeat(300);
          const bad = [];
          for (let at = 0; at < 601; at += 7) {
            const parts = marked(text, [{ start: at, end: Math.min(601, at + 40), terms: [[at, at + 1]] }], 111);
            const shown = parts.filter(Boolean).map((part) => part.textContent ?? part).join("");
            const mark = parts.flatMap((part) => [...(part?.querySelectorAll?.("mark") ?? [])])[0]?.textContent;
            if (!shown.isWellFormed() || mark !== [...text][at]) bad.push(at);
          }
          return bad;
        })"""
    )
    assert broken == []


def test_three_ways_side_by_side(tab, address):
    query = "房颤能不能只吃阿司匹林"
    visit(tab, address, q=query)
    tab.click("[name=mode][value=compare]")
    tab.until("document.querySelectorAll('.column .hit').length === 30")
    ranks = {}
    for way in ("dense", "lexical", "hybrid"):
        hits = api(address, query=query, mode=way)["hits"]
        ranks[way] = [hit["id"] for hit in hits]
        assert tab.texts(f".column[data-way={way}] h3") == [hit["title"] for hit in hits]
        assert "encode" in tab.text(f".column[data-way={way}] .latency")
    first = ranks["hybrid"][0]
    told = " ".join(tab.texts(".column[data-way=hybrid] li:first-child .place"))
    place = {way: ranks[way].index(first) + 1 if first in ranks[way] else "–" for way in ("dense", "lexical")}
    assert told == f"Dense {place['dense']} Lexical {place['lexical']}"
    tops = tab.see("[...document.querySelectorAll('.column')].map((one) => one.getBoundingClientRect().top)")
    assert len(set(tops)) == 1, "the columns do not stand side by side"
    assert "mode=compare" in tab.see("location.hash")


def test_why_a_hit_is_there(tab, address):
    visit(tab, address, q="肾结石怎么判断酸性还是碱性")
    told = api(address, query="肾结石怎么判断酸性还是碱性", explain=True)["hits"][0]
    tab.click(".hit .why summary")
    tab.until("document.querySelector('.why table')")
    cells = tab.texts(".why[open] tbody tr:first-child td")
    dense = told["explanation"]["dense"]
    assert cells[:4] == [str(dense["rank"]), f"{dense['score']:.3f}", f"{dense['value']:.3f}", "4.5"]
    shares = [float(text) for text in tab.texts(".why[open] td.share")]
    assert sum(shares) == pytest.approx(told["score"], abs=0.002)
    assert told["explanation"]["space"] in tab.text(".why[open] .origin")


def test_why_a_hit_was_moved(tab, address):
    query = "房颤能不能只吃阿司匹林，不吃利伐沙班"
    visit(tab, address, q=query)
    why = [hit["explanation"]["moved"] for hit in api(address, query=query, explain=True)["hits"]]
    place = next(place for place, reasons in enumerate(why) if reasons)
    tab.see(f"document.querySelectorAll('.hit .why summary')[{place}].click()")
    tab.until("document.querySelector('.why table')")
    said = tab.texts(".why[open] p.soft")[1:]
    assert len(said) == len(why[place]) and all("移" in one or "Moved" in one for one in said)


def test_nothing_relevant_is_said_aloud(tab, address):
    query = "哪支球队赢了世界杯"
    assert api(address, query=query)["relevant"] is False
    visit(tab, address, q=query)
    assert "seems to answer" in tab.text(".notice.warn .title")
    assert "seems to answer" in tab.text("#status")
    visit(tab, address, q="高血压的饮食要注意什么")
    assert tab.texts(".notice.warn") == []


def test_what_is_of_another_field_is_told_in_both_languages(tab, address):
    assert api(address, query="sourdough")["relevant"] is False
    for language, words in (("en", "another field than medicine"), ("zh", "医学以外的事")):
        visit(tab, address, q="sourdough", lang=language)
        assert words in tab.text(".notice.calm") and tab.text(".notice.warn .title")


def test_the_next_page_goes_on_where_the_first_ended(tab, address):
    visit(tab, address, q="头痛")
    first = tab.texts(".hit .id")
    tab.click("#page-next")
    tab.until("document.querySelector('.hit .rank')?.textContent === '11'")
    whole = [hit["document_id"] for hit in api(address, query="头痛", k=20)["hits"]]
    assert first + tab.texts(".hit .id") == whole
    assert tab.see("document.activeElement.matches('.hit')")
    tab.see("history.back()")
    tab.until("document.querySelector('.hit .rank')?.textContent === '1'")
    assert tab.texts(".hit .id") == first


def test_a_document_is_added_found_at_once_and_taken_back(tab, address):
    visit(tab, address)
    tab.click("#open-add")
    tab.write("误吞纽扣电池 🔋")
    tab.press("Tab")
    tab.write("纽扣电池卡在食管里两小时就会灼伤，不要催吐，立即就医。")
    tab.click("#add summary")
    tab.click("#add-metadata")
    tab.write("department=急诊科\nyear=2025")
    tab.click("#add-go")
    tab.until("document.querySelector('.notice.good')")
    assert "Added “误吞纽扣电池 🔋”" in tab.text(".notice.good") and "hit number 1" in tab.text(".notice.good")
    assert tab.text(".hit h2") == "误吞纽扣电池 🔋"
    assert tab.texts(".hit:focus .badge") == ["Just added", "Fresh"]
    stored = httpx.get(f"{address}/documents/{tab.text('.hit .id')}", timeout=120).json()
    assert stored["metadata"] == {"department": "急诊科", "year": 2025} and stored["state"] == "fresh"
    tab.click(".notice.good button")
    tab.until("document.querySelector('.notice.good')?.textContent.startsWith('Deleted')")
    tab.until("(document.querySelector('.hit h2')?.textContent ?? '误吞纽扣电池 🔋') !== '误吞纽扣电池 🔋'")
    assert httpx.get(f"{address}/documents/{stored['id']}", timeout=120).status_code == 404


def test_a_document_that_cannot_be_stored_stays_in_the_window(tab, address):
    visit(tab, address)
    tab.click("#open-add")
    tab.press("Tab")
    tab.write("　 ")
    tab.click("#add-go")
    tab.until("document.querySelector('#add-problem .notice.bad')")
    assert "empty_document" in tab.text("#add-problem .facts") and "Request id" in tab.text("#add-problem .facts")
    tab.write("有字")
    tab.click("#add summary")
    tab.click("#add-metadata")
    tab.write("没有等号")
    tab.click("#add-go")
    tab.until("document.querySelector('#add-problem').textContent.includes('Line 1')")
    assert tab.see("document.getElementById('add-dialog').open")


def test_a_link_holds_the_whole_search(tab, address):
    visit(tab, address, q="血压", mode="dense", tier="static", where=["lang=zh", "year>=2022"], per="document")
    expected = api(
        address,
        query="血压",
        mode="dense",
        tier="static",
        where={"lang": ["zh"], "year": {"gte": 2022}},
        per_document=True,
    )
    assert tab.texts(".hit .id") == [hit["document_id"] for hit in expected["hits"]]
    assert tab.see("document.getElementById('tier').value") == "static"
    assert tab.see("document.querySelector('[name=mode]:checked').value") == "dense"
    assert len(tab.texts(".chip")) == 2 and tab.see("document.getElementById('per-document').checked")
    tab.go("about:blank")
    tab.go(f"{address}/?{urlencode({'q': '头痛'})}")
    tab.until("document.querySelector('.hit')")
    assert tab.see("location.search === '' && location.hash.startsWith('#q=')"), (
        "a question stays out of the address sent"
    )


def test_hits_are_counted_by_field_narrowed_and_sorted(tab, address):
    settled = "!document.querySelector('#results[aria-busy]')"
    visit(tab, address, q="血压")
    told = api(address, query="血压", facets=["lang", "year"])["facets"]
    counts = {str(one["value"]): str(one["count"]) for one in told["lang"]["values"]}
    groups = "[...document.querySelectorAll('.facets section')]"
    group = f"{groups}.find((one) => one.querySelector('h3').textContent === 'lang')"
    shown = tab.see(
        f"[...{group}.querySelectorAll('button')].map((one) => [...one.children].map((part) => part.textContent))"
    )
    without = {"(none)": str(told["lang"]["missing"])} if told["lang"]["missing"] else {}
    assert dict(shown) == counts | without and "zh" in counts
    tab.see(f"[...{group}.querySelectorAll('button')].find((one) => one.textContent.startsWith('zh')).click()")
    tab.until(f"document.querySelectorAll('.chip').length === 1 && {settled}")
    assert tab.see(f"{group}.querySelector('button').getAttribute('aria-pressed')") == "true"
    tab.see(
        "(() => { const one = document.getElementById('sort'); one.value = '-year'; "
        "one.dispatchEvent(new Event('change')); })()"
    )
    tab.until(f"location.hash.includes('sort=-year') && {settled}")
    expected = api(address, query="血压", where="lang=zh", sort="-year")["hits"]
    assert tab.texts(".hit .id") == [hit["document_id"] for hit in expected]
    years = [hit["metadata"]["year"] for hit in expected]
    assert years == sorted(years, reverse=True) and len(set(years)) > 1
    tab.see(f"{group}.querySelector('[aria-pressed=true]').click()")
    tab.until(f"document.querySelectorAll('.chip').length === 0 && {settled}")


def test_filters_and_tiers_are_picked(tab, address):
    visit(tab, address, q="血压")
    tab.click("#open-filters")
    assert {"department", "lang", "year"} <= set(tab.texts("#filter-field option"))
    tab.see("document.getElementById('filter-field').value = 'lang'")
    tab.click("#filter-value")
    tab.write("en")
    tab.press("Enter")
    tab.until("document.querySelectorAll('.chip').length === 1 && !document.querySelector('#results[aria-busy]')")
    values = "[...document.querySelectorAll('.meta li')].filter((one) => one.textContent.startsWith('lang'))"
    assert set(tab.see(f"{values}.map((one) => one.textContent)")) == {"langen"}
    tab.click("#filter-free")
    tab.write("year ≥ 2023 OR year is missing")
    tab.press("Enter")
    tab.until("document.querySelectorAll('.chip').length === 2 && !document.querySelector('#results[aria-busy]')")
    expected = api(address, query="血压", where={"lang": ["en"], "$or": [{"year": {"gte": 2023}}, {"year": None}]})[
        "hits"
    ]
    assert tab.texts(".hit .id") == [hit["document_id"] for hit in expected]
    tab.write("nonsense")
    tab.press("Enter")
    assert "nonsense" in tab.text("#filter-complaint")
    tab.click(".chip")
    tab.until("document.querySelectorAll('.chip').length === 1 && !document.querySelector('#results[aria-busy]')")
    tab.click(".hit .meta button")
    tab.until("document.querySelectorAll('.chip').length === 2")
    assert tab.texts("#tier option") == ["l6 (default)", "static"]
