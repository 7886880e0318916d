"""The labelling page's answers, without a browser, and over a real socket."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager

import pytest

from suwen.jury.jury_folder import JuryFolder
from suwen.jury.review import Reviews, apply_reviews, review_report
from suwen.jury.review_page import ReviewPage, guidelines_of, serve
from suwen.jury.sampling import Sampled, Stratum
from suwen.jury.verdicts import JuryProblem, Verdict

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


def settle(page, data):
    answer = page.respond("POST", "/api/settle", JSON, json.dumps(data).encode())
    return answer.status, json.loads(answer.body)


@pytest.fixture
def differing(reviews, page):
    """Li and Wang label everything and differ on the first two pairs."""
    for number, one in enumerate(SAMPLE):
        reviews.add(one.pair, "li", "positive", "看过")
        reviews.add(one.pair, "wang", "negative" if number < 2 else "positive")
    return page


def test_guidelines_are_the_packages_or_ones_own(page, reviews, tmp_path):
    assert "does this passage, as it stands, answer" in get(page, "/api/guidelines")[1]["guidelines"]
    folder = JuryFolder(tmp_path)
    assert guidelines_of(folder) is None
    folder.guidelines.parent.mkdir(parents=True)
    folder.guidelines.write_text("只看文字。", encoding="utf-8")
    own = ReviewPage(SAMPLE, reviews, guidelines=guidelines_of(folder))
    assert get(own, "/api/guidelines")[1] == {"guidelines": "只看文字。"}
    with pytest.raises(JuryProblem, match="UTF-8"):
        guidelines_of(folder, tmp_path / "absent.md")


def test_progress_names_everybody_and_tells_no_label(page, reviews):
    post(page, {"reviewer": "li", "pair": SAMPLE[0].pair, "label": "positive", "note": "秘密"})
    post(page, {"reviewer": "wang", "pair": SAMPLE[0].pair, "label": "negative"})
    post(page, {"reviewer": "wang", "pair": SAMPLE[1].pair, "label": "unsure"})
    _, far = get(page, "/api/progress")
    assert far["reviewers"] == [{"name": "li", "done": 1}, {"name": "wang", "done": 2}]
    assert (far["total"], far["labelled"], far["disputed"], far["settled"]) == (6, 2, 1, 0)
    assert not any(word in json.dumps(far) for word in ("positive", "negative", "秘密"))


def test_what_reviewers_differ_on_is_settled_and_counts(differing, reviews):
    assert get(differing, "/api/pair?reviewer=li")[1]["disputed"] == 2
    _, first = get(differing, "/api/dispute?reviewer=chief")
    assert (first["total"], first["done"], first["label"]) == (2, 0, None)
    assert {(one["reviewer"], one["label"]) for one in first["opinions"]} == {("li", "positive"), ("wang", "negative")}
    before = reviews.settled()[first["pair"]]
    status, after = settle(differing, {"reviewer": "chief", "pair": first["pair"], "label": "negative", "note": "定"})
    assert status == 200 and after["done"] == 1 and after["disputed"] == 1
    assert before is None and reviews.settled()[first["pair"]] == "negative"
    assert get(differing, "/api/dispute?reviewer=chief&at=0")[1]["label"] in ("negative", None)
    # The blind labels stay what they were.
    assert {name: one.label for name, one in reviews.latest()[first["pair"]].items()} == {
        "li": "positive",
        "wang": "negative",
    }
    report = review_report(SAMPLE, reviews)
    assert report.unsure == 1 and report.overall.of == 5 and report.overall.agreed == 4
    assert report.reviewers["li"].agreed == 6 and "chief" not in report.reviewers


def test_who_still_labels_stays_blind(page, reviews):
    reviews.add(SAMPLE[0].pair, "li", "positive")
    reviews.add(SAMPLE[0].pair, "wang", "negative")
    reviews.add(SAMPLE[1].pair, "zhao", "positive")
    _, state = get(page, "/api/dispute?reviewer=zhao")
    assert state["total"] == 0 and state["opinions"] == []
    assert settle(page, {"reviewer": "zhao", "pair": SAMPLE[0].pair, "label": "positive"})[0] == 400
    assert settle(page, {"reviewer": "chief", "pair": SAMPLE[2].pair, "label": "positive"})[0] == 400
    assert reviews.adjudicated() == {}
    # Who has settled a pair is not asked for a blind label of it.
    settle(page, {"reviewer": "chief", "pair": SAMPLE[0].pair, "label": "positive"})
    assert get(page, "/api/pair?reviewer=chief")[1]["total"] == 5


def test_an_adjudication_reaches_the_verdicts(differing, reviews):
    settle(differing, {"reviewer": "chief", "pair": SAMPLE[0].pair, "label": "negative"})
    verdicts = [Verdict(one.query_id, one.passage_id, "positive") for one in SAMPLE]
    pairs = {(one.query_id, one.passage_id): one.pair for one in SAMPLE}
    found = list(apply_reviews(verdicts, reviews, lambda one: (pairs[one.query_id, one.passage_id],)))
    assert [one.label for one in found] == ["negative", *["positive"] * 5]
    assert found[0].history[-2]["source"] == "adjudication" and found[0].history[-2]["by"] == "expert:chief"
