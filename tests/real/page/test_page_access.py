"""What axe-core finds on the pages, wide and at 320 pixels, light and dark, in both languages: nothing serious."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from axe import serious
from visiting import fits, visit

_SCREENS = [("zh-CN", "light", 320), ("en-US", "dark", 320), ("zh-CN", "dark", 1280), ("en-US", "light", 1280)]


@pytest.mark.parametrize(("language", "scheme", "width"), _SCREENS)
def test_search_and_index_pages(tab, address, language, scheme, width):
    tab.screen(width, 800, phone=width < 500)
    tab.speak(language)
    tab.prefer(scheme)
    visit(tab, address)
    tab.until("document.querySelector('.example')")
    assert (serious(tab), fits(tab)) == ([], True), "the home page"
    visit(tab, address, q="头痛", where="lang=zh")
    tab.see("document.querySelector('.why summary').click()")
    tab.until("document.querySelector('.why table')")
    tab.see("document.getElementById('open-filters').click()")
    assert (serious(tab), fits(tab)) == ([], True), "hits, an explanation and filters"
    visit(tab, address, q="头痛", mode="compare")
    assert (serious(tab), fits(tab)) == ([], True), "the comparison"
    visit(tab, address, q="血压", where="nowhere=1")
    tab.see("document.getElementById('open-add').click()")
    assert (serious(tab), fits(tab)) == ([], True), "an error, and the window to add a document"
    tab.go(f"{address}/index")
    tab.until("document.querySelector('.figure')")
    assert (serious(tab), fits(tab)) == ([], True), "the index page"


@pytest.mark.parametrize(("scheme", "width"), [("light", 320), ("dark", 1280)])
def test_review_page(tab, keyed, scheme, width):
    address, _, write = keyed
    tab.screen(width, 800, phone=width < 500)
    tab.prefer(scheme)
    tab.go(f"{address}/review/")
    tab.until("document.getElementById('reviewer')")
    assert (serious(tab), fits(tab)) == ([], True), "who is it"
    tab.see("document.getElementById('reviewer').value = 'li'; document.querySelector('#enter button').click()")
    tab.until("document.getElementById('key-dialog')?.open")
    assert (serious(tab), fits(tab)) == ([], True), "the question for a key"
    tab.write(write)
    tab.press("Enter")
    tab.until("document.getElementById('count').textContent.startsWith('0 of 3')")
    tab.see("document.getElementById('far').open = document.getElementById('guide').open = true")
    tab.until("document.getElementById('sum').textContent")
    assert (serious(tab), fits(tab)) == ([], True), "a pair, the guidelines and the progress"


def test_the_rules_are_not_blind(tab, address):
    visit(tab, address)
    tab.see("document.getElementById('q').removeAttribute('aria-label')")
    tab.see("document.getElementById('q').removeAttribute('placeholder')")
    tab.see("document.getElementById('home-lead').style.color = '#bbb'")
    assert {"label", "color-contrast"} <= {one["rule"] for one in serious(tab)}
