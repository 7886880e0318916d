"""Which votes are on the texts as they are, also of stores that 0.2.0 wrote."""

from __future__ import annotations

import hashlib
import sqlite3

import pytest
from court import make_pool, vote
from hypothesis import given
from hypothesis import strategies as st

from suwen.jury.consensus import consensus
from suwen.jury.current_votes import CurrentVotes
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Judge, JuryProblem, is_on, read_verdicts, text_digest, write_verdicts
from suwen.jury.votes import Votes
from suwen.llm.asker import MARKS
from suwen.llm.token_estimate import fit


def old_digest(shown: str) -> str:
    """The digest as 0.2.0 made it: of the passage as the judge saw it."""
    return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()[:12]


LONG = "高血压患者应低盐饮食。 " * 40


@pytest.mark.parametrize("tokens", [80, 200, 333])
@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_vote_of_0_2_0_on_a_cut_passage_is_known_again(tokens, language):
    cut = vote("q", "p", "a", "S", cut=True, digest=old_digest(fit(LONG, tokens, MARKS[language])))
    assert is_on(cut, "query", LONG) and not is_on(cut, "query", "别的" + LONG)
    assert not is_on(cut._replace(cut=False), "query", LONG)


@given(st.text(), st.text(), st.text())
def test_a_vote_is_on_its_texts_alone(query, passage, other):
    cast = vote("q", "p", "a", "S", digest=text_digest(query, passage))
    assert is_on(cast, query, passage)
    assert is_on(cast, query, other) == (other == passage) and is_on(cast, other, passage) == (other == query)
    old = vote("q", "p", "a", "S", digest=old_digest(passage))
    assert is_on(old, query, passage) and (is_on(old, query, other) == (other == passage))


def test_a_store_of_0_2_0_opens_and_keeps_its_votes(tmp_path):
    path = tmp_path / "votes.db"
    with Votes(path) as votes:
        votes.enrol(Judge("a", "m"), "m", "grade/zh/2", "f")
        votes.add([vote("q", "p", "a", "S")])
    base = sqlite3.connect(path)
    base.execute("INSERT INTO votes SELECT query_id, 'p2', judge, round, NULL, 'missing', reason, model, prompt, "
                 "fingerprint, reply_key, position, batch, cut, digest, at FROM votes")  # fmt: skip
    base.commit()
    base.close()
    with Votes(path, create=False) as votes:
        assert [(v.passage_id, v.grade, v.abstained) for v in votes] == [("p", "S", None), ("p2", None, "malformed")]
        assert votes.replace([vote("q", "p", "a", "D")]) == 1
        assert [v.grade for v in votes.superseded()] == ["S"]
        assert len(votes) == 2 and [(v.passage_id, v.grade) for v in votes] == [("p", "D"), ("p2", None)]


def test_votes_that_others_took_the_place_of_are_kept_by_round(tmp_path):
    with Votes(tmp_path / "votes.db") as votes:
        for at, grade in enumerate("SAB"):
            for round_ in (0, 1):
                votes.replace([vote("q", "p", "a", grade, round_, at=float(at))])
        votes.replace([vote("q", "p", "a", None, 1, at=9.0)])
        votes.replace([vote("q", "p", "a", "D", 1, at=10.0)])
        assert [(v.grade, v.round) for v in votes] == [("B", 0), ("D", 1)] and len(votes) == 2
        kept = [(v.grade, v.round) for v in votes.superseded()]
        assert kept == [("S", 0), ("S", 1), ("A", 0), ("A", 1), ("B", 1), (None, 1)]
        assert votes.asked_again("q", "a", 1) == {"p": 1} and votes.asked_again("q", "a") == {}
        assert votes.of("q", "a", 1)["p"].grade == "D"


def test_a_verdict_of_0_2_0_is_read_with_todays_names(tmp_path):
    with Votes(tmp_path / "votes.db") as votes:
        votes.enrol(Judge("a", "m"), "m", "grade/zh/2", "f")
        votes.add([vote("q", "p", "a", None)])
        write_verdicts(tmp_path / "v.jsonl", consensus(votes))
    text = (tmp_path / "v.jsonl").read_text().replace("malformed", "refusal")
    (tmp_path / "v.jsonl").write_text(text)
    assert next(read_verdicts(tmp_path / "v.jsonl")).votes[0].abstained == "refused"


def test_what_counts_is_counted(tmp_path):
    work = make_pool(tmp_path / "work", {"q": ["p1", "p2", "p3"]})
    with Votes(work.votes) as votes, Texts(work.texts) as texts:
        for name in ("done", "half", "none"):
            votes.enrol(Judge(name, "m"), "m", "grade/zh/2", "f")
        cast = {p: text_digest("query q", f"text of {p}") for p in ("p1", "p2", "p3")}
        votes.add(vote("q", p, "done", "S", digest=digest) for p, digest in cast.items())
        votes.add([vote("q", "p1", "half", "S", digest="0" * 12), vote("q", "gone", "half", "S")])
        current = CurrentVotes(votes, work.pool, texts)
        assert current.voted == {"done": 3, "half": 1} and current.outside == 1 and len(list(current)) == 3
        names, left = current.jury()
        assert names == ["done"] and left.judges == {"half": 1, "none": 0} and left.stale == 1
        assert len(left.lines()) == 4
        assert current.jury(include=True)[0] == ["done", "half", "none"]
        with pytest.raises(JuryProblem, match="--include-incomplete"):
            current.jury(["half"])
        with pytest.raises(JuryProblem, match="has not voted"):
            current.jury(["nobody"])
