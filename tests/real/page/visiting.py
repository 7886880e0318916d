"""What the tests of the pages share: the service on a free port, and what a visitor does there. No test is here."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import matplotlib.image
import numpy as np
import uvicorn

import suwen
from suwen.corpora.records import Document
from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
from browser import Tab

WEB = Path(suwen.__file__).parent / "service" / "web"
ATTACK = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
#: Emoji, a flag of two characters, and a character outside the first plane: each is two units of a browser's string.
EMOJI = "💊💊饭后服用🇨🇳二甲双胍可减轻胃部不适🩺。𬌗面的事与它无关😀。漏服二甲双胍时💡不要加倍补服。"
DOCUMENTS = [
    Document("药/💊 100%", EMOJI, "二甲双胍怎么吃 💊", {"department": "内分泌科", "year": 2024}),
    Document(f"attack-{ATTACK}", f"棘手的文字甲乙丙。{ATTACK}", f"棘手的标题{ATTACK}", {"note": ATTACK, ATTACK: "值"}),
]


@contextmanager
def serving(settings: ServeSettings, prepare: Callable[[Holder], None] | None = None) -> Iterator[str]:
    """The service on a free port; its address."""
    holder = Holder(settings)
    if prepare:
        prepare(holder)
    server = uvicorn.Server(uvicorn.Config(create_app(holder), host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service does not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def wait_ready(address: str) -> None:
    """Wait until a server may be asked; one whose index another holds never may."""
    while (said := httpx.get(f"{address}/readyz", timeout=120)).status_code != 200:
        assert "is being written to by" not in said.text, said.text
        time.sleep(0.02)


def visit(tab: Tab, address: str, **asked: Any) -> None:
    """Open the search page, with a search when one is given, and wait for what it shows."""
    # The same page with another # is not loaded anew.
    tab.go("about:blank")
    tab.go(f"{address}/#{urlencode(asked, doseq=True)}" if asked else address)
    tab.until("document.querySelector('.hit, #results .notice, #home[data-ready]:not([hidden])')")


def search(tab: Tab, query: str) -> None:
    """Type a query into the box as a person does."""
    tab.click("#q")
    tab.see("document.getElementById('q').select()")
    tab.write(query)
    tab.press("Enter")
    shown = json.dumps(query)
    tab.until(f"document.title.startsWith({shown}) && !document.querySelector('#results[aria-busy]')")
    tab.until("document.querySelector('.hit, #results .notice')")


def fits(tab: Tab) -> bool:
    """Whether the page scrolls up and down alone."""
    return tab.see("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def brightness(tab: Tab) -> float:
    """Of the page's ground, left of everything."""
    tab.see("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
    shot = matplotlib.image.imread(io.BytesIO(tab.shot()), format="png")[..., :3]
    assert np.abs(shot - shot[-4, 4]).max(axis=2).mean() > 0.005, "the page is empty"
    return float(shot[-4, 4].mean())


def api(address: str, **body: Any) -> dict[str, Any]:
    return httpx.post(f"{address}/search", json=body, timeout=120).raise_for_status().json()
