"""The report page and the audit: what they count and what they show."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from court import make_pool, vote

from suwen.html_kit import POLICY
from suwen.jury.audit import audit, means, write_audit
from suwen.jury.consensus import Rule, consensus
from suwen.jury.jury_report import disagreements, jury_report, write_report
from suwen.jury.review import Reviews, review_report
from suwen.jury.sampling import draw_sample
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Judge, JuryProblem
from suwen.jury.votes import Votes
from suwen.llm.reply_cache import LedgerRow

GRADES = {"p0": "SS", "p1": "SA", "p2": "SD", "p3": "BD", "p4": "DD", "p5": ("S", None), "p6": "AB"}
NASTY = "<script>alert(1)</script>"


@pytest.fixture
def held(tmp_path):
    pairs = {q: [*GRADES, "p7"] for q in ("q1", "q2")}
    work = make_pool(tmp_path / "work", pairs, {"p2": NASTY + "长" * 900})
    votes = Votes(work.votes)
    for name in ("a", "b"):
        votes.enrol(Judge(name, "m"), "served-m", "grade/zh/1", "f")
    for query in pairs:
        for passage, grades in GRADES.items():
            votes.add([vote(query, passage, j, g, reason=NASTY) for j, g in zip("ab", grades, strict=True)])
        votes.add([vote(query, "p0", "a", "A", 1, position=1)])
    with Texts(work.texts) as texts:
        yield work, votes, texts
    votes.close()


class Reader(HTMLParser):
    """The text of a page and its tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_shows_every_part_and_runs_nothing(held, tmp_path):
    work, votes, texts = held
    sample = draw_sample(consensus(votes), work.pool, texts, 10)
    with Reviews(work.reviews) as reviews:
        reviews.add(sample[0].pair, "li", "negative")
        review = review_report(sample, reviews)
    ledger = [LedgerRow("m", 12, 12, 3456, 789, 0.5, 60.0)]
    found = jury_report(work.pool, votes, review=review, ledger=ledger)
    write_report(work.report, found, work.pool, texts, consensus(votes), "医学检索评审")
    text = work.report.read_text(encoding="utf-8")
    page = Reader(text)
    said = " ".join(page.words)
    assert POLICY in text and "script" not in page.tags and NASTY in said
    for words in (
        "医学检索评审",
        "Fleiss' kappa",
        "Cohen's kappa",
        "Mean grade by place",
        "Expert review",
        "served-m",
        "3,456",
    ):
        assert words in said
    assert page.tags.count("details") == 2 and page.tags.count("h2") == 7
    funnel = found.funnel
    assert (funnel.pooled, funnel.positive, funnel.negative, funnel.split, funnel.abstained, funnel.unjudged) == (
        16,
        4,
        4,
        4,
        2,
        2,
    )
    numbers = json.loads(work.report.with_suffix(".json").read_text(encoding="utf-8"))
    assert numbers["funnel"]["positive"] == 4 and numbers["agreement"]["pairwise"].keys() == {"a / b"}
    assert numbers["positions"][0]["twice"] == 2 and numbers["positions"][1]["same_grade"] is None


def test_examples_are_the_widest_disagreements_one_of_a_query(held):
    _, votes, _ = held
    chosen = disagreements(consensus(votes))
    assert [one.passage_id for one in chosen] == ["p2", "p2"] and {one.query_id for one in chosen} == {"q1", "q2"}
    assert disagreements(consensus(votes), most=1) == chosen[:1] and disagreements([]) == []


def test_an_audit_counts_as_the_paper_does(held, tmp_path):
    work, votes, texts = held
    # q1: p0 right, p4 wrong, p2 undecided, p99 not retrieved; p1 is missing. q2: nothing was ever labelled.
    qrels = {"q1": {"p0": 1, "p4": 2, "p2": 1, "p99": 1, "p3": 0}, "q2": {"p9": 0}}
    found = audit("bench", qrels, work.pool, votes)
    one, two = found.queries
    assert one == ("q1", 3, 2, 1, 1, 1, 1)
    assert two == ("q2", 0, 2, 0, 2, 0, 0)
    # As in the paper's Table 20: judged = original - false positives + false negatives, here less the undecided.
    assert all(q.judged == q.original - q.false_positives - q.undecided + q.false_negatives for q in found.queries)
    assert means(found)["false negatives"] == 1.5 and means(found)["original positives"] == 1.5
    assert [(v.query_id, v.passage_id) for v in found.false_positives] == [("q1", "p4")]
    assert {v.query_id for v in found.false_negatives} == {"q1", "q2"}
    write_audit(tmp_path / "audit.html", found, work.pool, texts)
    page = Reader((tmp_path / "audit.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags and page.tags.count("details") == 3
    numbers = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert numbers["means"]["judged positives"] == 2.0 and len(numbers["false_negatives"]) == 2


def test_the_grade_cut_moves_an_audit(held):
    work, votes, _ = held
    strict = audit("bench", {"q1": {"p0": 1}}, work.pool, votes, Rule(worst="S"))
    assert (strict.queries[0].judged, strict.queries[0].false_negatives) == (1, 0)
    alone = audit("bench", {"q1": {"p0": 1}}, work.pool, votes, jury=["a"])
    assert alone.queries[0].judged == 5


def test_an_audit_of_other_queries_is_told(held):
    work, votes, _ = held
    with pytest.raises(JuryProblem, match="right split"):
        audit("bench", {"elsewhere": {"p0": 1}}, work.pool, votes)


def test_one_judge_makes_a_report_without_kappa(tmp_path):
    work = make_pool(tmp_path / "work", {"q": ["p"]})
    with Votes(work.votes) as votes, Texts(work.texts) as texts:
        votes.enrol(Judge("a", "m"), "m", "grade/zh/1", "f")
        votes.add([vote("q", "p", "a", "S")])
        found = jury_report(work.pool, votes)
        write_report(work.report, found, work.pool, texts, consensus(votes))
    assert "nowhere on two sides" in work.report.read_text(encoding="utf-8")
    assert json.loads(work.report.with_suffix(".json").read_text())["agreement"]["sides"]["value"] is None
