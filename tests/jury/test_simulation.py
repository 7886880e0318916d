"""A jury whose truth is known: 5,000 pairs, judges of stated accuracy and bias, through the whole of the machinery."""

from __future__ import annotations

import math
from contextlib import ExitStack

import numpy as np
import pytest
from court import config, judges, make_pool
from server import Server
from statsmodels.stats import inter_rater

from suwen.jury.agreement import agreement, ratings
from suwen.jury.consensus import Rule, consensus, funnel
from suwen.jury.judge_batches import JudgingSettings, draw
from suwen.jury.judging import Jury
from suwen.jury.positions import position_effects
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Judge
from suwen.jury.votes import Votes
from suwen.llm.client import LLM

QUERIES, PASSAGES, PRIOR = 100, 50, 0.3
#: How often each judge sees a positive (sensitivity) and a negative (specificity): one fair, one kind, one severe.
JUDGES = {"one": (0.90, 0.90), "two": (0.97, 0.80), "three": (0.75, 0.97)}
#: How often the first judge does not answer.
SILENT = 0.02


def chance(*parts):
    return draw(*parts) / 2**64


def is_positive(text):
    return chance("truth", text) < PRIOR


def opinion(model, query, passage):
    if model == "one" and chance("silent", passage) < SILENT:
        return "?"
    sensitivity, specificity = JUDGES[model]
    truth = is_positive(passage)
    right = chance("vote", model, passage) < (sensitivity if truth else specificity)
    two = chance("grade", model, passage)
    return ("S" if two < 0.4 else "A") if truth == right else "BCD"[int(two * 3)]


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulation")
    pairs = {f"q{q}": [f"q{q}-{p}" for p in range(PASSAGES)] for q in range(QUERIES)}
    texts = {id_: f"passage {id_}" for ids in pairs.values() for id_ in ids}
    work = make_pool(folder, pairs, texts)
    with ExitStack() as stack:
        server = stack.enter_context(Server(judges(opinion), models=tuple(JUDGES)))
        votes = stack.enter_context(Votes(work.votes))
        llm = stack.enter_context(LLM.open(config(server.url), work.replies))
        jury = [Judge(name, name) for name in JUDGES]
        settings = JudgingSettings(batch=25, again=0.05)
        done = Jury(jury, work.pool, stack.enter_context(Texts(work.texts)), votes, llm, settings).judge()
        assert done.complete
        yield work, votes, texts


def near(found, expected, of):
    """Within four standard errors of a share."""
    return abs(found - expected) <= 4 * math.sqrt(expected * (1 - expected) / of)


def test_unanimous_consensus_reaches_the_precision_theory_predicts(held):
    _, votes, texts = held
    verdicts = list(consensus(votes))
    assert len(verdicts) == QUERIES * PASSAGES == 5000
    sees = math.prod(sensitivity for sensitivity, _ in JUDGES.values())
    errs = math.prod(1 - specificity for _, specificity in JUDGES.values())
    expected = PRIOR * sees / (PRIOR * sees + (1 - PRIOR) * errs)
    positive = [is_positive(texts[one.passage_id]) for one in verdicts if one.label == "positive"]
    assert expected > 0.99 and near(np.mean(positive), expected, len(positive))
    shown = (1 - SILENT) * (PRIOR * sees + (1 - PRIOR) * errs)
    assert near(len(positive) / 5000, shown, 5000)
    rejects = math.prod(specificity for _, specificity in JUDGES.values())
    misses = math.prod(1 - sensitivity for sensitivity, _ in JUDGES.values())
    negative = [not is_positive(texts[one.passage_id]) for one in verdicts if one.label == "negative"]
    right = (1 - PRIOR) * rejects / ((1 - PRIOR) * rejects + PRIOR * misses)
    assert near(np.mean(negative), right, len(negative))


def test_unanimity_is_purer_than_a_majority_and_than_any_single_judge(held):
    _, votes, texts = held

    def precision(rule, jury=None):
        found = [is_positive(texts[one.passage_id]) for one in consensus(votes, rule, jury) if one.label == "positive"]
        return np.mean(found)

    alone = [precision(Rule(), [name]) for name in JUDGES]
    for name, value in zip(JUDGES, alone, strict=True):
        sensitivity, specificity = JUDGES[name]
        assert near(value, PRIOR * sensitivity / (PRIOR * sensitivity + (1 - PRIOR) * (1 - specificity)), 1000)
    assert precision(Rule()) > precision(Rule("majority")) > min(alone)
    assert precision(Rule()) > max(alone)


def test_kappa_is_that_of_statsmodels_and_near_what_theory_predicts(held):
    _, votes, _ = held
    table = ratings(votes, list(JUDGES))
    found = agreement(table)
    graded = table.grades[table.complete]
    counts, _ = inter_rater.aggregate_raters((graded >= 3).astype(int), n_cat=2)
    assert found.sides.value == pytest.approx(inter_rater.fleiss_kappa(counts), abs=1e-12)
    five, _ = inter_rater.aggregate_raters(graded.astype(int), n_cat=5)
    assert found.grades.value == pytest.approx(inter_rater.fleiss_kappa(five), abs=1e-12)
    says = [PRIOR * a + (1 - PRIOR) * (1 - b) for a, b in JUDGES.values()]
    agree = []
    for left in range(3):
        for right in range(left):
            (a1, b1), (a2, b2) = list(JUDGES.values())[left], list(JUDGES.values())[right]
            both = PRIOR * (a1 * a2 + (1 - a1) * (1 - a2)) + (1 - PRIOR) * (b1 * b2 + (1 - b1) * (1 - b2))
            agree.append(both)
    mean = sum(says) / 3
    theory = (sum(agree) / 3 - (mean**2 + (1 - mean) ** 2)) / (1 - (mean**2 + (1 - mean) ** 2))
    assert found.sides.low < theory < found.sides.high
    assert found.sides.high - found.sides.low < 0.06


def test_severity_finds_the_kind_and_the_severe_judge(held):
    _, votes, _ = held
    by_judge = {one.judge: one for one in agreement(ratings(votes, list(JUDGES))).severity}
    for name, (sensitivity, specificity) in JUDGES.items():
        expected = PRIOR * sensitivity + (1 - PRIOR) * (1 - specificity)
        assert near(by_judge[name].positive, expected, by_judge[name].graded)
    assert by_judge["two"].difference > 0 > by_judge["three"].difference
    assert near(by_judge["one"].abstained / 5000, SILENT, 5000)


def test_the_funnel_adds_up(held):
    work, votes, _ = held
    found = funnel(work.pool, consensus(votes), list(JUDGES))
    assert found.pooled == 5000 == found.judged and found.unjudged == 0
    assert found.positive + found.negative + found.split + found.abstained == 5000
    assert found.abstained == sum(v.grade is None for v in votes if v.round == 0)


def test_judges_who_do_not_look_at_the_order_show_no_position_effect(held):
    _, votes, _ = held
    for effect in position_effects(votes, list(JUDGES)):
        assert effect.twice >= 4 * PASSAGES and effect.same_grade == 1.0 and effect.kappa == 1.0
        assert effect.first_half == pytest.approx(effect.second_half)
        means = [mean for mean, count in effect.means.values() if count]
        assert len(means) == 25 and max(means) - min(means) < 1.0
