"""From votes to labels, and verdicts as a file."""

from __future__ import annotations

import pytest
from court import make_pool, vote
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.files import BadRecord
from suwen.jury.consensus import Rule, consensus, decide, funnel
from suwen.jury.verdicts import GRADES, Judge, JuryProblem, read_verdicts, write_verdicts
from suwen.jury.votes import Votes

GRADE = st.sampled_from([*GRADES, None])


@pytest.mark.parametrize(
    ("grades", "unanimous", "majority"),
    [
        ("SAS", "positive", "positive"),
        ("SAB", "undecided", "positive"),
        ("SBB", "undecided", "negative"),
        ("BCD", "negative", "negative"),
        (["S", "A", None], "undecided", "positive"),
        (["S", None, None], "undecided", "undecided"),
        (["D", "D", None], "undecided", "negative"),
        ([None, None, None], "undecided", "undecided"),
        ("SB", "undecided", "undecided"),
        ("A", "positive", "positive"),
        ("", "undecided", "undecided"),
    ],
)
def test_how_votes_become_a_label(grades, unanimous, majority):
    assert decide(list(grades), Rule()) == unanimous
    assert decide(list(grades), Rule("majority")) == majority


def test_the_cut_is_a_parameter():
    assert decide(["S", "S"], Rule(worst="S")) == "positive" and decide(["S", "A"], Rule(worst="S")) == "undecided"
    assert decide(["B", "C"], Rule(worst="C")) == "positive"
    with pytest.raises(JuryProblem, match="no negatives"):
        Rule(worst="D")
    with pytest.raises(JuryProblem, match="unanimous or majority"):
        Rule("most")


@given(st.lists(GRADE, min_size=1, max_size=7), st.sampled_from("SABC"), st.integers(0, 6))
def test_an_abstention_never_helps_and_unanimity_is_the_stricter_rule(grades, worst, place):
    for mode in ("unanimous", "majority"):
        label = decide(grades, Rule(mode, worst))
        silenced = [None if number == place else grade for number, grade in enumerate(grades)]
        assert decide(silenced, Rule(mode, worst)) in (label, "undecided")
    strict, loose = decide(grades, Rule("unanimous", worst)), decide(grades, Rule("majority", worst))
    assert strict in (loose, "undecided")


@pytest.fixture
def votes(tmp_path):
    with Votes(tmp_path / "votes.db") as store:
        for name in ("b", "a"):
            store.enrol(Judge(name, "m"), "m", "grade/zh/1", "f")
        store.add([vote("q1", "p1", "a", "S"), vote("q1", "p1", "b", "A"), vote("q1", "p1", "a", "D", 1)])
        store.add([vote("q1", "p2", "a", "S"), vote("q1", "p2", "b", "D")])
        store.add([vote("q2", "p1", "a", "C"), vote("q2", "p1", "b", "D")])
        store.add([vote("q2", "p2", "a", "C"), vote("q2", "p2", "b", None)])
        store.add([vote("q2", "p3", "a", "S")])
        yield store


def labels(verdicts):
    return {(one.query_id, one.passage_id): one.label for one in verdicts}


def test_verdicts_keep_every_vote_and_say_how_they_came_about(votes, tmp_path):
    found = list(consensus(votes))
    assert labels(found) == {
        ("q1", "p1"): "positive",
        ("q1", "p2"): "undecided",
        ("q2", "p1"): "negative",
        ("q2", "p2"): "undecided",
        ("q2", "p3"): "undecided",
    }
    assert len(found[0].votes) == 3 and len(found[0].main) == 2
    assert found[0].history == (
        {"by": "jury", "label": "positive", "rule": "unanimous, S and A positive", "judges": ["b", "a"]},
    )
    assert write_verdicts(tmp_path / "verdicts.jsonl", found) == 5
    assert list(read_verdicts(tmp_path / "verdicts.jsonl")) == found


def test_a_part_of_the_jury_may_decide(votes):
    assert labels(consensus(votes, jury=["a"]))["q2", "p3"] == "positive"
    assert ("q2", "p3") not in labels(consensus(votes, jury=["b"]))
    with pytest.raises(JuryProblem, match="the judges are b, a"):
        list(consensus(votes, jury=["c"]))


def test_the_funnel_adds_up_and_knows_pairs_without_a_vote(votes, tmp_path):
    work = make_pool(tmp_path / "work", {"q1": ["p1", "p2"], "q2": ["p1", "p2", "p3"], "q3": ["p1", "p9"]})
    found = funnel(work.pool, consensus(votes), ["a", "b"])
    assert (found.queries, found.pooled, found.judged, found.with_positive) == (3, 7, 4, 1)
    assert (found.positive, found.negative, found.split, found.abstained, found.unjudged) == (1, 1, 1, 1, 3)
    assert found.positive + found.negative + found.undecided == found.pooled


def test_nobody_has_voted(tmp_path):
    with Votes(tmp_path / "none.db") as store, pytest.raises(JuryProblem, match="suwen jury judge"):
        list(consensus(store))


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"query_id": "q"}', '{"query_id":"q","passage_id":"p","label":"yes","votes":[]}']
)
def test_a_file_that_holds_no_verdicts_is_told_by_line(tmp_path, line):
    (tmp_path / "verdicts.jsonl").write_text("\n" + line + "\n", encoding="utf-8")
    with pytest.raises((JuryProblem, BadRecord), match=r"verdicts\.jsonl:2"):
        list(read_verdicts(tmp_path / "verdicts.jsonl"))


@pytest.mark.parametrize(
    ("text", "judge"),
    [
        ("large", Judge("large", "large")),
        ("large:en", Judge("large:en", "large", "en")),
        ("strict=large:zh", Judge("strict", "large")),
    ],
)
def test_judges_are_named_in_a_word(text, judge):
    assert Judge.parse(text) == judge


@pytest.mark.parametrize("text", ["", "=", ":en", "a b=large"])
def test_a_judge_without_a_model_or_with_an_odd_name_is_refused(text):
    with pytest.raises(JuryProblem):
        Judge.parse(text)
