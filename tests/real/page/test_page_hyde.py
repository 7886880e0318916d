"""The page's switch for hypothetical documents: only where a model may write them, off until asked for, and honest."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "llm"))
from server import Body, Server
from visiting import search, serving, visit, wait_ready

SAYS = "高血压患者应当低盐饮食，并且每天早晚测量血压。"
SHOWN = "document.querySelectorAll('.hit').length > 0 && !document.querySelector('[aria-busy]')"
VISIBLE = "document.getElementById('hyde-switch').checkVisibility()"


def test_where_no_model_may_write_there_is_no_switch(tab, address):
    visit(tab, address, q="高血压", hyde="on")
    tab.until(SHOWN)
    assert tab.see(VISIBLE) is False
    assert "Note" not in tab.texts(".notice .title") and not tab.texts(".notice.bad")


def test_the_switch_is_off_until_asked_for_and_says_when_the_time_ran_out(tab, folder, pair, tmp_path, monkeypatch):
    released = threading.Event()

    def play(body: Body) -> str:
        if "失眠" in body["messages"][-1]["content"]:
            released.wait(300)
        return SAYS

    with Server(play) as server:
        config = tmp_path / "suwen.toml"
        config.write_text(
            f'[llm.endpoints.here]\nbase_url = "{server.url}"\n[llm.models.m]\nendpoint = "here"\nmodel = "scripted"\n'
            '[hyde]\nmodel = "m"\nbudget_ms = 9000\n',
            "utf-8",
        )
        monkeypatch.setenv("SUWEN_CONFIG", str(config))
        # Another server of these tests writes to the index.
        with serving(ServeSettings(index=folder, pair=pair, read_only=True)) as address:
            wait_ready(address)
            visit(tab, address)
            tab.until(VISIBLE)
            assert tab.see("document.getElementById('hyde').checked") is False
            search(tab, "那个要怎么控制")
            assert server.total == 0 and tab.texts(".notice") == [], "a model was asked unasked"
            tab.click("#hyde")
            tab.until("document.querySelector('.notice')?.textContent.includes('a language model wrote')")
            assert server.total == 1 and "hyde=on" in tab.see("location.hash")
            tab.click("[name=mode][value=lexical]")
            tab.until("document.getElementById('hyde').disabled && !document.querySelector('.notice')")
            tab.click("[name=mode][value=compare]")
            tab.until("document.querySelectorAll('.column .hit').length > 0")
            assert "a language model wrote" in tab.text(".notice") and server.total == 1, "it was written again"
            tab.click("[name=mode][value=hybrid]")
            search(tab, "失眠怎么办")
            tab.until("document.querySelector('.notice')?.textContent.includes('within 9,000 ms')")
            assert "this is the plain search" in tab.text(".notice") and tab.texts(".hit")
            released.set()
