"""The report's page in a real browser: headless Chromium lays it out, loads its pictures and draws it."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from reported import run_both

from suwen.bench.benchmark_report import write_report
from suwen.html_kit import POLICY

#: Put into a copy of the page: says what the browser made of it. The page itself has no script.
_PROBE = """<script>addEventListener("load", () => {
  const body = document.body, images = [...document.images];
  body.dataset.images = images.length;
  body.dataset.loaded = images.filter((image) => image.complete && image.naturalWidth > 300).length;
  body.dataset.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  body.dataset.tables = [...document.querySelectorAll("table")].filter((table) => table.offsetHeight > 40).length;
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  body.dataset.opened = [...document.querySelectorAll(".sides")].filter((one) => one.offsetHeight > 20).length;
  body.dataset.ground = getComputedStyle(body).backgroundColor;
});</script></body>"""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
_WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "训练.csv").write_text("step,损失\n0,2\n1,1\n2,0.5\n", encoding="utf-8")
    return write_report(run_both(folder), folder / "report", curves=[folder / "训练.csv"]).page


@pytest.fixture(scope="module")
def probed(made):
    text = made.read_text(encoding="utf-8")
    assert POLICY in text
    copy = made.with_name("probed.html")
    copy.write_text(text.replace(POLICY, f"{POLICY}; script-src 'unsafe-inline'").replace("</body>", _PROBE), "utf-8")
    return copy


def browse(page: Path, profile: Path, *options: str) -> str:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no browser to look at the page with; install one: apt-get install chromium fonts-noto-cjk"
    command = [program, *_FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8")


def observed(dom: str) -> dict[str, str]:
    body = re.search(r"<body([^>]*)>", dom)
    assert body is not None
    return dict(re.findall(r'data-(\w+)="([^"]*)"', body[1]))


@pytest.mark.parametrize("width", _WIDTHS.values(), ids=_WIDTHS)
def test_the_browser_loads_every_picture_and_lays_out_every_table(probed, tmp_path, width):
    dom = browse(probed, tmp_path, f"--window-size={width},900", "--dump-dom")
    seen = observed(dom)
    assert seen["images"] == seen["loaded"] == "7"
    assert int(seen["tables"]) == dom.count("<caption>") >= 6
    assert int(seen["opened"]) == dom.count("<details") > 0
    assert seen["overflow"] == "0", "the page scrolls sideways"
    assert "血压高的人" in dom and "小集-test" in dom


def test_texts_of_the_collection_are_shown_and_not_run(probed, tmp_path):
    dom = browse(probed, tmp_path, "--dump-dom")
    assert "血压高的人&lt;b&gt;怎么吃&lt;/b&gt; &amp; 怎么动" in dom
    assert "<title>Retrieval benchmark report</title>" in dom
    assert dom.count("<script") == 1  # the probe's


def test_the_page_follows_a_dark_screen(probed, tmp_path):
    light = observed(browse(probed, tmp_path / "light", "--dump-dom"))["ground"]
    dark = observed(browse(probed, tmp_path / "dark", "--blink-settings=preferredColorScheme=0", "--dump-dom"))[
        "ground"
    ]
    assert light == "rgb(255, 255, 255)" and dark == "rgb(27, 30, 35)"


@pytest.mark.parametrize("width", _WIDTHS.values(), ids=_WIDTHS)
def test_what_is_drawn_is_not_blank(made, tmp_path, width):
    file = tmp_path / "page.png"
    browse(made, tmp_path / "profile", f"--window-size={width},2400", f"--screenshot={file}")
    shot = matplotlib.image.imread(io.BytesIO(file.read_bytes()), format="png")[..., :3]
    assert shot.shape[0] == 2400
    dark = shot.mean(axis=2) < 0.5
    for band in np.array_split(dark, 6):
        assert 0.001 < band.mean() < 0.5, "a part of the page is empty"
    coloured = np.ptp(shot, axis=2) > 0.3
    assert coloured.sum() > 1000, "no coloured plot is to be seen"
