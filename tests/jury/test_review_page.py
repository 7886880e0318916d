"""The labelling page's answers, without a browser, and over a real socket."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager

import pytest

from suwen.jury.review import Reviews
from suwen.jury.review_page import ReviewPage, serve
from suwen.jury.sampling import Sampled, Stratum
from suwen.jury.verdicts import JuryProblem

SAMPLE = [
    Sampled(f"{n:016x}", f"q{n}", f"p{n}", f"问题{n}", f"资料{n}<b>", Stratum("positive", "far apart", "few shared"), 9)
    for n in range(6)
]
HOST = {"host": "127.0.0.1:8765"}
JSON = HOST | {"content-type": "application/json"}


@pytest.fixture
def reviews(tmp_path):
    with Reviews(tmp_path / "reviews.db") as store:
        yield store


@pytest.fixture
def page(reviews):
    return ReviewPage(SAMPLE, reviews)


def get(page, target, headers=HOST):
    answer = page.respond("GET", target, headers)
    return answer.status, json.loads(answer.body)


def post(page, data, headers=JSON):
    answer = page.respond("POST", "/api/label", headers, json.dumps(data).encode())
    return answer.status, json.loads(answer.body)


def test_a_reviewer_goes_through_all_pairs_once_and_can_stop_and_go_on(page, reviews):
    seen = []
    for number in range(6):
        # A new page each time: as after a restart.
        status, state = get(ReviewPage(SAMPLE, reviews), "/api/pair?reviewer=li")
        assert status == 200 and state["done"] == number and state["total"] == 6 and state["label"] is None
        seen.append(state["pair"])
        status, after = post(page, {"reviewer": "li", "pair": state["pair"], "label": "positive", "note": " n "})
        assert status == 200 and after["stored"] == state["pair"] and after["done"] == number + 1
    assert sorted(seen) == [one.pair for one in SAMPLE]
    _, end = get(page, "/api/pair?reviewer=li")
    assert end == {"at": 6, "total": 6, "done": 6}
    assert reviews.by("li")[seen[0]].note == "n"


def test_going_back_shows_ones_own_label_and_changing_it_keeps_both(page, reviews):
    first = get(page, "/api/pair?reviewer=li&at=0")[1]["pair"]
    post(page, {"reviewer": "li", "pair": first, "label": "positive"})
    assert get(page, "/api/pair?reviewer=li&at=0")[1]["label"] == "positive"
    assert get(page, "/api/pair?reviewer=wang&at=0")[1]["label"] is None
    post(page, {"reviewer": "li", "pair": first, "label": "negative"})
    assert [review.label for review in reviews] == ["positive", "negative"]


def test_reviewers_have_orders_of_their_own(page):
    orders = {
        name: [get(page, f"/api/pair?reviewer={name}&at={n}")[1]["pair"] for n in range(6)] for name in ("li", "wang")
    }
    assert orders["li"] != orders["wang"] and set(orders["li"]) == set(orders["wang"])


def test_nothing_sent_tells_the_jurys_label(page):
    for target in ("/", "/review.js", "/review.css"):
        body = page.respond("GET", target, HOST).body.decode()
        assert "far apart" not in body and "few shared" not in body
    state = get(page, "/api/pair?reviewer=li")[1]
    assert set(state) == {"at", "total", "done", "pair", "query", "passage", "label", "note"}


@pytest.mark.parametrize("target", ["/", "/review.js", "/review.css", "/api/pair?reviewer=li", "/nowhere"])
def test_every_answer_carries_the_policy(page, target):
    answer = page.respond("GET", target, HOST)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"


def test_the_page_has_no_inline_script_or_style(page):
    html = page.respond("GET", "/", HOST).body.decode()
    assert "<style" not in html and "style=" not in html and "onclick" not in html
    assert html.count("<script") == 1 and '<script src="review.js" defer></script>' in html
    script = page.respond("GET", "/review.js", HOST).body.decode()
    assert "innerHTML" not in script and "insertAdjacentHTML" not in script and "eval(" not in script


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ({"reviewer": "li", "pair": "nowhere", "label": "positive"}, 400),
        ({"reviewer": "li", "pair": SAMPLE[0].pair, "label": "S"}, 400),
        ({"reviewer": "<b>", "pair": SAMPLE[0].pair, "label": "positive"}, 400),
        ({"reviewer": "", "pair": SAMPLE[0].pair, "label": "positive"}, 400),
        ({"pair": SAMPLE[0].pair, "label": "positive"}, 400),
        ({"reviewer": "li", "pair": SAMPLE[0].pair, "label": "positive", "note": "x" * 3000}, 400),
        ({"reviewer": "li", "pair": SAMPLE[0].pair, "label": "positive", "note": 3}, 400),
        ({"reviewer": "li", "pair": [1], "label": "positive"}, 400),
        ([1], 400),
        ("x" * 100_000, 413),
    ],
)
def test_bad_labels_are_refused_and_not_stored(page, reviews, data, status):
    got, answer = post(page, data)
    assert got == status and answer["error"] and list(reviews) == []


@pytest.mark.parametrize(
    "target",
    [
        "/api/pair",
        "/api/pair?reviewer=",
        "/api/pair?reviewer=li&at=7",
        "/api/pair?reviewer=li&at=-1",
        "/api/pair?reviewer=li&at=x",
    ],
)
def test_bad_questions_are_refused(page, target):
    assert get(page, target)[0] == 400


def test_other_sites_can_neither_read_nor_write(page, reviews):
    assert page.respond("GET", "/", {"host": "evil.example:8765"}).status == 403
    assert page.respond("GET", "/", {}).status == 403
    label = {"reviewer": "li", "pair": SAMPLE[0].pair, "label": "positive"}
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert post(page, label, HOST | {"content-type": kind})[0] == 415
    assert list(reviews) == []
    assert post(page, label, JSON | {"content-type": "application/json; charset=utf-8"})[0] == 200
    assert ReviewPage(SAMPLE, reviews, hosts=None).respond("GET", "/", {"host": "review.example"}).status == 200


def test_paths_outside_the_page_are_nothing(page):
    for target in ("/../review.py", "/pages/review.html", "/review.html", "/api", "//review.js/.."):
        assert page.respond("GET", target, HOST).status == 404
    assert page.respond("DELETE", "/", HOST).status == 404


def test_an_empty_sample_cannot_be_reviewed(reviews):
    with pytest.raises(JuryProblem, match="empty"):
        ReviewPage([], reviews)


@contextmanager
def served(page):
    server = serve(page, port=0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_over_a_real_socket(page, reviews):
    with served(page) as port:
        wire = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        wire.request("GET", "/")
        answer = wire.getresponse()
        assert answer.status == 200 and b"Expert review" in answer.read()
        assert answer.headers["Server"].strip() == "suwen"
        body = json.dumps({"reviewer": "li", "pair": SAMPLE[0].pair, "label": "unsure"})
        wire.request("POST", "/api/label", body, {"Content-Type": "application/json"})
        assert wire.getresponse().status == 200
        wire.close()
        for length in ("9999999", "x"):
            wire = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            wire.putrequest("POST", "/api/label")
            wire.putheader("Content-Length", length)
            wire.endheaders()
            assert wire.getresponse().status == 413
            wire.close()
        with pytest.raises(JuryProblem, match="another --port"):
            serve(page, port=port)
    assert reviews.by("li")[SAMPLE[0].pair].label == "unsure"


def test_many_reviewers_at_once_lose_nothing(page, reviews):
    def work(name):
        for one in SAMPLE:
            assert post(page, {"reviewer": name, "pair": one.pair, "label": "negative"})[0] == 200

    threads = [threading.Thread(target=work, args=(f"r{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(by) for by in reviews.latest().values()) == 48
