"""The store of votes: unique, all or none, and its own kind of file."""

from __future__ import annotations

import sqlite3

import pytest
from court import vote

from suwen.jury.verdicts import Judge
from suwen.jury.votes import Votes, VotesProblem, by_pair


def test_a_vote_is_kept_once_and_the_first_one_stays(tmp_path):
    with Votes(tmp_path / "votes.db") as votes:
        assert votes.add([vote("q", "p", "a", "S"), vote("q", "p", "b", None)]) == 2
        assert votes.add([vote("q", "p", "a", "D"), vote("q", "p", "a", "D", 1)]) == 1
        assert [(v.judge, v.round, v.grade) for v in votes] == [("a", 0, "S"), ("a", 1, "D"), ("b", 0, None)]
        assert set(votes.of("q", "a")) == {"p"} and votes.of("q", "a", 2) == {}


def test_votes_come_back_as_they_were_by_pair(tmp_path):
    given = [vote(q, p, j, "A", cut=True, at=1.5) for q in "ba" for p in "yx" for j in ("two", "one")]
    with Votes(tmp_path / "votes.db") as votes:
        votes.add(given)
    with Votes(tmp_path / "votes.db", create=False) as votes:
        assert sorted(votes) == sorted(given) and list(votes) == sorted(given)
        assert [pair for pair, _ in by_pair(votes)] == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
        assert all([v.judge for v in cast] == ["one", "two"] for _, cast in by_pair(votes))


def test_a_batch_with_a_bad_vote_leaves_nothing(tmp_path):
    with Votes(tmp_path / "votes.db") as votes:
        with pytest.raises(sqlite3.IntegrityError):
            votes.add([vote("q", "p1", "a", "S"), vote("q", "p2", "a", "S", abstained="cut")])
        assert len(votes) == 0


def test_judges_are_listed_in_the_order_they_came(tmp_path):
    with Votes(tmp_path / "votes.db") as votes:
        for name in ("zeta", "alpha", "zeta"):
            votes.enrol(Judge(name, "m"), "served", "grade/zh/1", "f")
        assert votes.judges() == ["zeta", "alpha"]
        assert votes.roll()["zeta"] == {"model": "m", "served": "served", "prompt": "grade/zh/1"}
        with pytest.raises(VotesProblem, match="f2"):
            votes.enrol(Judge("zeta", "m"), "served", "grade/zh/1", "f2")


def test_files_of_something_else_are_refused(tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.close()
    (tmp_path / "text.db").write_text("no database at all, just a text that is long enough" * 20)
    for name in ("other.db", "text.db"):
        with pytest.raises(VotesProblem, match="another file"):
            Votes(tmp_path / name)
    with pytest.raises(VotesProblem, match="suwen jury judge"):
        Votes(tmp_path / "absent.db", create=False)
