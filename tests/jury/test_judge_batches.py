"""Orders, cuts, requests and replies, without a server."""

from __future__ import annotations

import json

import pytest
from court import config
from hypothesis import given
from hypothesis import strategies as st

from suwen.jury.judge_batches import Batch, JudgeRequests, JudgingSettings, Shown, again, order, read_grades
from suwen.jury.verdicts import Judge, JuryProblem

IDS = [f"p{number}" for number in range(30)]


def test_the_order_is_a_shuffle_fixed_by_seed_query_and_judge():
    one = order(IDS, JudgingSettings(), "q", "j")
    assert sorted(one) == sorted(IDS) and one != IDS
    assert order(IDS[::-1], JudgingSettings(), "q", "j") == one
    assert order(IDS, JudgingSettings(seed=1), "q", "j") != one != order(IDS, JudgingSettings(), "q2", "j")
    assert order(IDS, JudgingSettings(), "q", "j2") != one
    # What is asked later does not change the order of what is there.
    assert [id_ for id_ in order([*IDS, "new"], JudgingSettings(), "q", "j") if id_ != "new"] == one


@given(st.sets(st.integers(0, 6)))
def test_what_a_run_left_undone_is_batched_as_it_would_have_been(done):
    asker = JudgeRequests(Judge("j", "one"), config("http://127.0.0.1:1/v1"), JudgingSettings(batch=4))
    whole = order(IDS, JudgingSettings(), "q", "j")
    texts = {id_: f"text {id_}" for id_ in IDS}
    every = asker.batches(("q", "query"), texts, whole, 0)
    voted = {shown.id for number in done for shown in every[number].passages}
    rest = asker.batches(("q", "query"), texts, [id_ for id_ in whole if id_ not in voted], 0)
    assert rest == [batch for number, batch in enumerate(every) if number not in done]


def test_a_share_of_queries_is_judged_again_rounded_up():
    queries = [f"q{number}" for number in range(25)]
    assert len(again(queries, JudgingSettings(again=0.1))) == 3
    assert again(queries, JudgingSettings()) == set() and again(queries, JudgingSettings(again=1.0)) == set(queries)
    assert again(queries, JudgingSettings(again=0.2)) == again(queries[::-1], JudgingSettings(again=0.2))


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": 101}, {"again": -0.1}, {"again": 1.5}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(JuryProblem):
        JudgingSettings(**wrong)


BATCH = Batch(Judge("j", "one"), 0, "q", "query", tuple(Shown(f"id{n}", f"text {n}", False) for n in (1, 2, 3)))


def said(text, data=None):
    return {id_: (graded.grade, graded.abstained) for id_, graded in read_grades(text, BATCH, data).items()}


def test_grades_are_read_from_good_and_bad_replies():
    whole = {"P1": {"reason": "{x}", "grade": "S"}, "P2": {"grade": "D"}, "P3": {"grade": "B", "reason": "r"}}
    text = json.dumps(whole)
    assert said(text, whole) == said(text) == {"id1": ("S", None), "id2": ("D", None), "id3": ("B", None)}
    assert said(f"Here you are:\n```json\n{text}\n```")["id1"] == ("S", None)
    assert said("nothing") == dict.fromkeys(("id1", "id2", "id3"), (None, "malformed"))
    assert said('["S"]') == dict.fromkeys(("id1", "id2", "id3"), (None, "malformed"))
    assert said('{"P1": "S", "P2": {"grade": "E"}, "P3": {"grade": ["S"]}}') == {
        "id1": (None, "malformed"),
        "id2": (None, "malformed"),
        "id3": (None, "malformed"),
    }
    assert said('{"P1": {"grade": "A", "reason": "x"}, "P2": {"gra') == {
        "id1": ("A", None),
        "id2": (None, "malformed"),
        "id3": (None, "malformed"),
    }


@given(st.text())
def test_no_reply_breaks_the_reading(text):
    assert set(read_grades(text, BATCH)) == {"id1", "id2", "id3"}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_request_holds_the_criteria_the_query_and_every_passage(language):
    asker = JudgeRequests(Judge("j", "one", language), config("http://127.0.0.1:1/v1"), JudgingSettings())
    request = asker.request(BATCH)
    text = request.messages[-1].content
    assert "query" in text and all(f"【P{n}】\ntext {n}" in text for n in (1, 2, 3)) and "id1" not in text
    assert all(grade in text for grade in "SABCD")
    assert request.schema["required"] == ["P1", "P2", "P3"] and request.schema["additionalProperties"] is False
    assert asker.reply_key(request) != asker.reply_key(asker.request(BATCH, sample=1))


def test_a_prompt_of_ones_own_must_ask_for_a_grade(tmp_path):
    (tmp_path / "grade.toml").write_text(
        "version = 3\nschema = '{\"type\": \"object\"}'\n[zh]\nuser = '{{query}}{{passages}}{{count}}{{form}}'\n"
    )
    asker = JudgeRequests(Judge("j", "one"), config("http://127.0.0.1:1/v1"), JudgingSettings(), tmp_path)
    assert asker.prompt_name == "grade/zh/3"
    with pytest.raises(JuryProblem, match="schema of a grade"):
        asker.request(BATCH)


@pytest.mark.parametrize("reasons", [True, False])
def test_the_form_that_is_asked_for_shows_no_grade(reasons):
    asker = JudgeRequests(Judge("j", "one"), config("http://127.0.0.1:1/v1"), JudgingSettings(batch=2, reasons=reasons))
    text = asker.request(Batch(Judge("j", "one"), 0, "q", "query", (Shown("p", "text", False),))).messages[-1].content
    form = text[text.rindex('{"P1"') :]
    assert '"grade": "…"' in form and not set("SABCD") & set(form)
    assert ('"reason": "…"' in form) is reasons
