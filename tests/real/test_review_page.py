"""The labelling page in a real browser: headless Chromium presses the keys, and the store has what was pressed."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from suwen.jury.consensus import consensus
from suwen.jury.jury_report import jury_report, write_report
from suwen.jury.review import Reviews
from suwen.jury.review_page import ReviewPage, serve
from suwen.jury.sampling import Sampled, Stratum
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Judge
from suwen.jury.votes import Votes

sys.path.insert(0, str(Path(__file__).parents[1] / "jury"))
from court import make_pool, vote

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
_TEXT = (
    "高血压患者的饮食\n高血压患者应低盐饮食，每天食盐不超过五克；多吃蔬菜和水果，少吃腌制食品。"
    "血压突然升高伴头痛、视物模糊时要及时就医。"
)
SAMPLE = [
    Sampled(
        f"{n:016x}",
        f"q{n}",
        f"p{n}",
        f"血压高的人怎么吃（{n}）<img src=x>",
        _TEXT,
        Stratum("positive", "one apart", "x"),
        9,
    )
    for n in range(5)
]
#: Served beside the page's own script: presses keys as a reviewer would, and writes down what it saw.
_PROBE = """
const press = (key, target) =>
  (target || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const until = async (test) => {
  for (let n = 0; n < 3000 && !test(); n += 1) await new Promise((go) => setTimeout(go, 10));
};
const count = () => document.getElementById("count").textContent;
const seen = document.body.dataset;
(async () => {
  document.getElementById("reviewer").value = "li";
  document.querySelector("#enter button").click();
  await until(() => count().startsWith("0 of 5"));
  seen.query = document.getElementById("query").textContent;
  seen.images = document.querySelectorAll("img").length;
  press("n");
  await until(() => document.activeElement.id === "note");
  document.getElementById("note").value = "看过 1 遍";
  press("1", document.getElementById("note"));
  seen.typed = count();
  press("Escape", document.getElementById("note"));
  await until(() => document.activeElement.id !== "note");
  press("1");
  await until(() => count().startsWith("1 of 5"));
  press("2");
  await until(() => count().startsWith("2 of 5"));
  press("3");
  await until(() => count().startsWith("3 of 5"));
  press("ArrowLeft");
  await until(() => count().endsWith("this is 3"));
  seen.pressed = document.querySelector('[aria-pressed="true"]').dataset.label;
  press("1");
  await until(() => count().endsWith("this is 4"));
  press("2");
  await until(() => count().startsWith("4 of 5"));
  document.querySelector('[data-label="negative"]').click();
  await until(() => !document.getElementById("end").hidden);
  seen.end = count();
  seen.problem = document.getElementById("problem").textContent;
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.ready = "yes";
})().catch((problem) => { seen.problem = String(problem); }).finally(() => fetch("done"));
"""


#: Opens the guidelines and the progress by key, and settles what two reviewers differ on.
_SETTLE = """
const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const until = async (test) => {
  for (let n = 0; n < 3000 && !test(); n += 1) await new Promise((go) => setTimeout(go, 10));
};
const byName = (id) => document.getElementById(id);
const seen = document.body.dataset;
(async () => {
  byName("reviewer").value = "li";
  document.querySelector("#enter button").click();
  await until(() => !byName("modes").hidden);
  seen.offered = byName("disputes").textContent;
  press("g");
  await until(() => byName("guide").open && byName("guidelines").textContent);
  seen.guidelines = byName("guidelines").textContent.slice(0, 12);
  press("p");
  await until(() => document.querySelectorAll("#reviewers progress").length === 2);
  seen.progress = byName("reviewers").innerText;
  byName("settle").click();
  await until(() => document.querySelectorAll("#opinions li").length === 2);
  seen.opinions = byName("opinions").innerText;
  press("2");
  await until(() => !byName("end").hidden);
  seen.end = byName("count").textContent;
  seen.images = document.querySelectorAll("img").length;
  seen.problem = byName("problem").textContent;
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.ready = "yes";
})().catch((problem) => { seen.problem = String(problem); }).finally(() => fetch("done"));
"""


class Probed(ReviewPage):
    """The page with two more scripts of the same origin; its policy stays as it is.

    The browser takes its picture when everything is loaded, so one of the two is held back until the other is done.
    """

    done = threading.Event()
    probe = _PROBE

    def respond(self, method, target, headers, body=b""):
        if target == "/probed":
            page = super().respond("GET", "/", headers)
            more = b'<script src="probe.js" defer></script><script src="hold.js" async></script></body>'
            return page._replace(body=page.body.replace(b"</body>", more))
        if target in ("/probe.js", "/hold.js", "/done"):
            if target == "/done":
                self.done.set()
            if target == "/hold.js":
                assert self.done.wait(120)
            text = self.probe if target == "/probe.js" else ""
            plain = super().respond("GET", "/review.js", headers)
            return plain._replace(body=text.encode())
        return super().respond(method, target, headers, body)


@pytest.fixture
def reviews(tmp_path: Path) -> Iterator[Reviews]:
    with Reviews(tmp_path / "reviews.db") as store:
        yield store


@pytest.fixture
def address(reviews: Reviews) -> Iterator[str]:
    Probed.done.clear()
    server = serve(Probed(SAMPLE, reviews), port=0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


#: The page asks for its first pair when it is loaded already: time enough for that.
_LATER = "--virtual-time-budget=15000"


def browse(address: str, profile: Path, *options: str) -> str:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no browser to look at the page with; install one: apt-get install chromium fonts-noto-cjk"
    command = [program, *_FLAGS, f"--user-data-dir={profile}", *options, address]
    done = subprocess.run(command, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8")


def observed(dom: str) -> dict[str, str]:
    body = re.search(r"<body([^>]*)>", dom)
    assert body is not None
    return dict(re.findall(r'data-(\w+)="([^"]*)"', body[1]))


def test_a_reviewer_settles_what_others_differ_on(address, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr(Probed, "probe", _SETTLE)
    for one in SAMPLE:
        reviews.add(one.pair, "li", "positive", "<img src=y>")
    reviews.add(SAMPLE[3].pair, "wang", "negative")
    dom = browse(f"{address}probed", tmp_path / "profile", "--window-size=390,900", "--dump-dom")
    seen = observed(dom)
    assert seen.get("ready") == "yes", dom
    assert "(1)" in seen["offered"] and seen["guidelines"] == "The question"
    assert "5 of 5" in seen["progress"] and "1 of 5" in seen["progress"]
    assert "li: It answers" in seen["opinions"] and "wang: It does not" in seen["opinions"]
    assert seen["end"].startswith("1 of 1 settled") and seen["problem"] == "" and seen["overflow"] == "0"
    assert seen["images"] == "0", "notes of reviewers are shown, not run"
    assert {pair: one.label for pair, one in reviews.adjudicated().items()} == {SAMPLE[3].pair: "negative"}
    assert reviews.settled()[SAMPLE[3].pair] == "negative"


_OWN = """
const until = async (test) => {
  for (let n = 0; n < 3000 && !test(); n += 1) await new Promise((go) => setTimeout(go, 10));
};
const byName = (id) => document.getElementById(id);
(async () => {
  byName("reviewer").value = "li";
  document.querySelector("#enter button").click();
  await until(() => byName("guidelines").textContent);
  document.body.dataset.asked = byName("ask").textContent;
  document.body.dataset.words = document.querySelector(".choices").innerText.replace(/\\s+/g, " ");
})().finally(() => fetch("done"));
"""


def test_guidelines_that_begin_with_a_question_ask_it(reviews, tmp_path, monkeypatch):
    monkeypatch.setattr(Probed, "probe", _OWN)
    Probed.done.clear()
    server = serve(Probed(SAMPLE, reviews, guidelines="# Is it right? 对吗？\n\n1 Yes."), port=0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    dom = browse(f"http://127.0.0.1:{server.server_address[1]}/probed", tmp_path / "profile", "--dump-dom")
    server.shutdown()
    server.server_close()
    thread.join()
    assert observed(dom) == {"asked": "Is it right? 对吗？", "words": "1 Yes 是 2 No 否 3 I cannot tell 不确定"}


@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_reviewer_labels_by_keyboard_alone(address, reviews, tmp_path, width):
    dom = browse(f"{address}probed", tmp_path / "profile", f"--window-size={width},900", "--dump-dom")
    seen = observed(dom)
    assert seen.get("ready") == "yes", dom
    assert "&lt;img src=x&gt;" in seen["query"] and seen["images"] == "0", "texts of a collection are shown, not run"
    assert seen["typed"].startswith("0 of 5"), "a digit in a note is no label"
    assert seen["pressed"] == "unsure" and seen["end"].startswith("5 of 5") and seen["problem"] == ""
    assert seen["overflow"] == "0", "the page scrolls sideways"
    given = [(review.label, review.note) for review in reviews]
    assert given == [
        ("positive", "看过 1 遍"),
        ("negative", ""),
        ("unsure", ""),
        ("positive", ""),
        ("negative", ""),
        ("negative", ""),
    ]
    assert sorted(review.label for review in reviews.by("li").values()) == ["negative"] * 3 + ["positive"] * 2


def test_a_reviewer_who_comes_back_goes_on(address, reviews, tmp_path):
    reviews.add(SAMPLE[0].pair, "li", "positive")
    dom = browse(f"{address}#li", tmp_path / "profile", _LATER, "--dump-dom")
    assert "1 of 5 labelled, this is" in dom and '<form id="enter" hidden' in dom


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_drawn_is_a_page(address, tmp_path, scheme):
    file = tmp_path / "page.png"
    dark = ("--blink-settings=preferredColorScheme=0",) if scheme == "dark" else ()
    browse(f"{address}#li", tmp_path / "profile", _LATER, "--window-size=900,820", *dark, f"--screenshot={file}")
    shot = matplotlib.image.imread(io.BytesIO(file.read_bytes()), format="png")[..., :3]
    assert shot.shape[:2] == (820, 900)
    assert (shot[2, 2].mean() > 0.9) == (scheme == "light")
    ink = np.abs(shot - shot[2, 2]).max(axis=2) > 0.25
    # The header, the texts and the choices have something to be seen.
    for band in np.array_split(ink[: 3 * 820 // 4], 3):
        assert band.mean() > 0.005, "a part of the page is empty"


def test_the_report_of_a_jury_in_a_browser(tmp_path):
    work = make_pool(tmp_path / "work", {f"q{n}": [f"p{m}" for m in range(8)] for n in range(6)}, {"p0": _TEXT})
    with Votes(work.votes) as votes, Texts(work.texts) as texts:
        for name in ("large", "other", "third"):
            votes.enrol(Judge(name, name), name, "grade/zh/1", "f")
        for n in range(6):
            for m in range(8):
                grades = ("SAS", "AAB", "SBD", "BCC", "DDD", "DCD", "AAA", "CDD")[m]
                cast = zip(("large", "other", "third"), grades, strict=True)
                votes.add(
                    vote(f"q{n}", f"p{m}", judge, grade, reason="主体相符", position=1 + (m + n) % 8, batch=8)
                    for judge, grade in cast
                )
        write_report(work.report, jury_report(work.pool, votes), work.pool, texts, consensus(votes))
    for width in (1280, 390):
        file = tmp_path / f"{width}.png"
        browse(work.report.as_uri(), tmp_path / "profile", f"--window-size={width},2000", f"--screenshot={file}")
        shot = matplotlib.image.imread(io.BytesIO(file.read_bytes()), format="png")[..., :3]
        for band in np.array_split(shot.mean(axis=2) < 0.5, 5):
            assert band.mean() > 0.001, "a part of the page is empty"
        blue = (shot[..., 2] - shot[..., 0]) > 0.2
        assert blue.sum() > 500, "no bar is to be seen"
