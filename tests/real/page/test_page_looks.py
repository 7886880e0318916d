"""The pages for every reader: keyboard, phone, dark, both languages, screen readers; and the index page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from visiting import WEB, brightness, fits, visit


@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_on_a_phone(tab, address, language):
    tab.screen(320, 640, phone=True)
    tab.speak(language)
    visit(tab, address)
    assert fits(tab)
    tab.tap("#examples-zh .example")
    tab.until("document.querySelectorAll('.hit').length === 10")
    assert fits(tab)
    tab.tap(".hit .why summary")
    tab.until("document.querySelector('.why table')")
    assert fits(tab)
    tab.tap("#open-filters")
    tab.until("!document.getElementById('filters').hidden")
    assert fits(tab)
    tab.tap("[name=mode][value=compare]")
    tab.until("document.querySelectorAll('.column .hit').length === 30")
    seen = (
        "[...document.querySelectorAll('.column')].filter((one) => one.checkVisibility()).map((one) => one.dataset.way)"
    )
    assert fits(tab) and tab.see(seen) == ["hybrid"]
    tab.tap(".switcher [data-way=lexical]")
    tab.until(f"String({seen}) === 'lexical'")
    tab.tap("#open-add")
    tab.until("document.getElementById('add-dialog').open")
    assert fits(tab)
    visit(tab, address, q="棘手的标题甲乙丙")
    assert fits(tab)
    tab.go(f"{address}/index")
    tab.until("document.querySelector('.figure')")
    assert fits(tab)


def test_dark_is_the_systems_choice_and_then_the_readers(tab, address):
    visit(tab, address)
    assert brightness(tab) > 0.9
    tab.prefer("dark")
    assert brightness(tab) < 0.2
    tab.click("#theme")
    assert brightness(tab) > 0.9
    tab.go(f"{address}/index")
    tab.until("document.querySelector('.figure')")
    assert brightness(tab) > 0.9, "the choice holds on the other page"
    tab.press("t")
    assert brightness(tab) < 0.2


def test_both_languages(tab, address):
    tab.speak("zh-CN")
    visit(tab, address, q="stone")
    assert tab.see("document.documentElement.lang") == "zh-Hans" and tab.text("nav a") == "检索"
    assert tab.text(".why summary") == "为什么是这条"
    hits = tab.texts(".hit h2")
    tab.click("#language")
    assert tab.see("document.documentElement.lang") == "en" and tab.text("nav a") == "Search"
    assert tab.text(".why summary") == "Why this hit" and tab.texts(".hit h2") == hits
    assert tab.see("document.getElementById('q').placeholder").startswith("A symptom")
    assert "lang=en" in tab.see("location.hash")
    tab.go(f"{address}/index")
    tab.until("document.querySelector('.figure')")
    assert tab.text(".card h2") == "Contents", "the choice holds on the other page"
    visit(tab, address, q="stone", lang="zh")
    assert tab.text("nav a") == "检索", "a link may name the language"


def test_every_word_is_there_in_both_languages(tab, address):
    visit(tab, address)
    chinese, english = (tab.see(f"import('/web/words_{tag}.js').then((one) => one.default)") for tag in ("zh", "en"))
    assert set(chinese) == set(english)
    holes = re.compile(r"\{\w+\}")
    assert {key for key in chinese if set(holes.findall(chinese[key])) != set(holes.findall(english[key]))} == set()
    sources = "".join(file.read_text(encoding="utf-8") for file in WEB.iterdir() if not file.name.startswith("words_"))
    named = {*re.findall(r"say\(\"([\w.]+)\"", sources), *re.findall(r"data-say(?:-\w+)?=\"([\w.]+)\"", sources)}
    assert named and named <= set(chinese)


def test_one_of_a_thing_is_told_as_one(tab, address):
    visit(tab, address, lang="en")
    named = "words.say('document.passages', { count })"
    say = f"import('/web/words.js').then((words) => [1, '2', 0].map((count) => {named}))"
    assert tab.see(say) == ["1 passage", "2 passages", "0 passages"]
    bars = "import('/web/words.js').then((words) => words.say('filter.bad', { clause: 'x' }))"
    assert "field=a|b" in tab.see(bars)


def test_landmarks_and_names_for_a_screen_reader(tab, address):
    visit(tab, address, q="stone")
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = {node["role"]["value"] for node in tree if not node.get("ignored")}
    assert {"banner", "navigation", "main", "search", "contentinfo", "status", "list", "article"} <= roles
    for node in tree:
        if not node.get("ignored") and node["role"]["value"] in (
            "button",
            "searchbox",
            "combobox",
            "radio",
            "checkbox",
            "link",
        ):
            assert node["name"]["value"].strip(), f"a {node['role']['value']} has no name"
    articles = [
        node["name"]["value"] for node in tree if node["role"]["value"] == "article" and not node.get("ignored")
    ]
    assert articles == tab.texts(".hit h2")


def test_by_keyboard_alone(tab, address):
    visit(tab, address)
    assert tab.see("document.activeElement.id") == "q"
    tab.write("头痛")
    tab.press("Enter")
    tab.until("document.querySelectorAll('.hit').length === 10")
    tab.press("ArrowDown")
    assert tab.see("document.activeElement.querySelector('.rank').textContent") == "1"
    tab.press("j", "ArrowDown", "k")
    assert tab.see("document.activeElement.querySelector('.rank').textContent") == "2"
    tab.press("Enter")
    assert tab.see("document.activeElement.querySelector('.why').open")
    title = tab.see("document.activeElement.querySelector('h2').textContent")
    tab.press("o")
    tab.until("document.querySelector('#document-dialog .passages')")
    assert tab.text("#document-title") == title
    tab.press("j", "Escape")
    assert tab.see("document.activeElement.matches('.hit')"), "closing a window gives the focus back"
    tab.press("n")
    tab.until("document.querySelector('.rank')?.textContent === '11'")
    tab.press("p")
    tab.until("document.querySelector('.rank')?.textContent === '1'")
    tab.press("4")
    tab.until("document.querySelectorAll('.column .hit').length === 30")
    tab.press("j", "l", "j")
    assert tab.see("document.activeElement.closest('.column').dataset.way") == "lexical"
    assert tab.see("document.activeElement.querySelector('.rank').textContent") == "2"
    tab.press("f")
    assert tab.see("document.activeElement.id") == "filter-field"
    tab.press("Escape")
    assert tab.see("document.getElementById('filters').hidden")
    tab.press("?")
    assert tab.see("document.getElementById('help-dialog').open")
    tab.press("Escape", "/")
    assert tab.see("document.activeElement.id") == "q"
    tab.write("a?/jt")
    assert tab.see("document.getElementById('q').value") == "a?/jt", "who types gives no commands"


def test_single_letters_can_be_turned_off(tab, address):
    visit(tab, address, q="头痛")
    tab.press("Escape", "?")
    tab.click("#help-single")
    tab.press("Escape", "j")
    assert not tab.see("document.activeElement.matches('.hit')")
    tab.press("?")
    assert tab.see("document.getElementById('help-dialog').open")


def test_the_letters_of_an_input_method_are_no_commands(tab, address):
    visit(tab, address, q="头痛")
    composing = "new KeyboardEvent('keydown', { key: 'j', isComposing: true, bubbles: true })"
    tab.see(f"document.body.dispatchEvent({composing})")
    assert not tab.see("document.activeElement.matches('.hit')")


def test_the_documentation_lists_the_keys_of_the_help(tab, address):
    visit(tab, address)
    tab.press("Escape", "?")
    rows = "[...document.querySelectorAll('#help-keys dt')]"
    shown = tab.see(f"{rows}.map((row) => [...row.children].map((key) => key.textContent))")
    page = (Path(__file__).parents[3] / "docs" / "page.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*`) \|", page, re.MULTILINE)
    assert [re.findall(r"`([^`]+)`", row) for row in rows] == shown


def test_the_index_page(tab, address):
    tab.go(f"{address}/index")
    tab.until("document.querySelector('.figure')")
    info = httpx.get(f"{address}/info", timeout=120).json()
    assert tab.texts(".figure b") == [str(info["index"]["documents"]), str(info["index"]["passages"])]
    told = tab.text("#about")
    for part in (info["space"]["id"], info["pair"]["name"], "department", "not configured"):
        assert part in told
    shares = dict(zip(tab.texts(".shares th"), tab.texts(".shares td:nth-child(3)"), strict=True))
    assert shares == {"document encoder": "360", "l6": str(info["index"]["encoders"]["l6"])}
    tab.click("#recall-go")
    tab.until("document.querySelector('.verdict')")
    assert "100.0% of the exact top 10 found" in tab.text(".verdict")
