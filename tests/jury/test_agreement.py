"""Kappas against statsmodels, and the tables they are made from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from court import vote
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats import inter_rater

from suwen.jury.agreement import (
    agreement,
    alpha_interval,
    cohen_kappa,
    counted,
    fleiss_interval,
    fleiss_kappa,
    ratings,
    sides,
    weighted_kappa,
)
from suwen.jury.verdicts import GRADES, JuryProblem

GRADE_TABLES = st.integers(2, 5).flatmap(
    lambda judges: st.lists(st.lists(st.integers(0, 4), min_size=judges, max_size=judges), min_size=2, max_size=40)
)


@given(GRADE_TABLES)
def test_fleiss_kappa_is_that_of_statsmodels(rows):
    counts = counted(np.array(rows, np.int8), 5)
    theirs, _ = inter_rater.aggregate_raters(np.array(rows), n_cat=5)
    assert (counts == theirs).all()
    ours = fleiss_kappa(counts)
    if len({value for row in rows for value in row}) == 1:
        assert math.isnan(ours)
    else:
        assert ours == pytest.approx(inter_rater.fleiss_kappa(theirs, method="fleiss"), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=60))
def test_cohen_kappa_is_that_of_statsmodels(pairs):
    table = np.zeros((5, 5))
    for left, right in pairs:
        table[left, right] += 1
    ours = cohen_kappa(*zip(*pairs, strict=True))
    if len({value for pair in pairs for value in pair}) == 1:
        assert math.isnan(ours)
    else:
        assert ours == pytest.approx(inter_rater.cohens_kappa(table, return_results=False), abs=1e-12)


def test_the_textbook_example():
    """Ten patients, fourteen raters, five categories: the usual textbook table, kappa 0.210."""
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    assert fleiss_kappa(table) == pytest.approx(0.210, abs=5e-4)


def test_kappa_needs_the_same_number_of_judges_everywhere():
    with pytest.raises(JuryProblem, match="same number"):
        fleiss_kappa([[2, 1], [1, 1]])
    with pytest.raises(JuryProblem, match="at least 2"):
        fleiss_kappa([[1, 0], [0, 1]])
    assert math.isnan(fleiss_kappa(np.zeros((0, 2))))


def simulated(queries, passages, noise, seed):
    """Judges who see the truth through noise, with queries that differ in how hard they are."""
    rng = np.random.default_rng(seed)
    truth = rng.random((queries, passages, 1)) < 0.4
    hard = rng.random((queries, 1, 1)) * noise
    votes = truth ^ (rng.random((queries, passages, 3)) < hard)
    return votes.reshape(-1, 3).astype(np.int8), np.repeat(np.arange(queries), passages)


def test_the_interval_covers_the_value_of_the_population():
    """Of 60 samples, the 95% intervals hold the long-run kappa in nearly all; drawing pairs alone would not do."""
    population, _ = simulated(20_000, 10, 0.6, seed=1)
    value = fleiss_kappa(counted(population, 2))
    held = 0
    for seed in range(60):
        grades, query = simulated(60, 10, 0.6, seed=100 + seed)
        found = fleiss_interval(counted(grades, 2), query, draws=400)
        assert found.low <= found.value <= found.high
        held += found.low <= value <= found.high
    assert held >= 51


def test_the_interval_is_the_same_for_the_same_seed_and_narrows_with_more_queries():
    few, many = ((counted(g, 2), q) for g, q in (simulated(30, 5, 0.5, 0), simulated(600, 5, 0.5, 0)))
    assert fleiss_interval(*few) == fleiss_interval(*few) != fleiss_interval(*few, seed=1)
    widths = [found.high - found.low for found in (fleiss_interval(*few), fleiss_interval(*many))]
    assert widths[1] < widths[0] / 2


VOTES = [
    *(vote("q1", "p1", judge, grade) for judge, grade in (("a", "S"), ("b", "A"), ("c", "A"))),
    *(vote("q1", "p2", judge, grade) for judge, grade in (("a", "S"), ("b", "B"), ("c", "D"))),
    *(vote("q2", "p1", judge, grade) for judge, grade in (("a", "B"), ("b", None), ("c", "D"))),
    *(vote("q2", "p3", judge, grade) for judge, grade in (("a", "C"), ("b", "D"), ("c", "D"))),
    vote("q2", "p3", "a", "S", 1),
    vote("q2", "p4", "a", "S"),
]


def test_the_table_has_grades_abstentions_and_missing_votes_apart():
    table = ratings(VOTES, ["a", "b", "c"])
    assert table.pairs == [("q1", "p1"), ("q1", "p2"), ("q2", "p1"), ("q2", "p3"), ("q2", "p4")]
    assert table.grades.tolist() == [[4, 3, 3], [4, 2, 0], [2, -1, 0], [1, 0, 0], [4, -1, -1]]
    assert table.absent.sum() == 1 and table.absent[2, 1]
    assert table.complete.tolist() == [True, True, False, True, False]
    assert sides(table).grades.tolist() == [[1, 1, 1], [1, 0, 0], [0, -1, 0], [0, 0, 0], [1, -1, -1]]
    assert sides(table, "B").grades[1].tolist() == [1, 1, 0]


def test_agreement_over_what_everyone_graded():
    found = agreement(ratings(VOTES, ["a", "b", "c"]))
    assert (found.pairs, found.complete) == (5, 3)
    assert found.sides.value == pytest.approx(fleiss_kappa([[0, 3], [2, 1], [3, 0]]))
    assert found.pairwise["b", "c"] == 1.0 and found.pairwise["a", "b"] == pytest.approx(0.4)
    assert [one.query_id for one in found.queries] == ["q1", "q2"]
    assert found.queries[0].unanimous == 0.5 and found.queries[1].complete == 1
    by_judge = {one.judge: one for one in found.severity}
    assert by_judge["a"].graded == 5 and by_judge["b"].abstained == 1 and by_judge["c"].abstained == 0
    assert by_judge["a"].shares[GRADES.index("S")] == pytest.approx(3 / 5) and by_judge["c"].positive == 0.25
    assert by_judge["a"].difference == pytest.approx((4 + 4 + 1) / 3 - (3 + 1 + 0) / 3)
    assert sum(one.difference for one in found.severity) == pytest.approx(0)


def test_one_judge_alone_has_no_kappa():
    found = agreement(ratings(VOTES, ["a"]))
    assert math.isnan(found.sides.value) and found.pairwise == {} and math.isnan(found.severity[0].difference)
    nobody = agreement(ratings([], ["a", "b"]))
    assert math.isnan(nobody.sides.value) and nobody.queries == []


# statsmodels has no standard error of some of these, and says so.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=60))
def test_weighted_kappa_is_that_of_statsmodels(pairs):
    left, right = np.array(pairs).T
    if len(set(left)) + len(set(right)) == 2:
        return
    table = np.zeros((5, 5))
    np.add.at(table, (left, right), 1)
    assert weighted_kappa(left, right) == pytest.approx(inter_rater.cohens_kappa(table, wt="quadratic").kappa, abs=1e-9)


# Four observers, twelve units, from Krippendorff's "Computing Krippendorff's Alpha-Reliability" (2011), section C.
OBSERVED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
    [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
]


def alpha_of(table: np.ndarray, categories: int, *, ordered: bool = False) -> float:
    one_query = np.zeros(len(table), np.int64)
    return alpha_interval(table.astype(np.int8), one_query, categories, ordered=ordered, draws=1).value


def test_alpha_is_that_of_krippendorffs_own_example():
    table = np.array(OBSERVED).T - 1
    assert alpha_of(table, 5) == pytest.approx(0.743, abs=5e-4)
    assert alpha_of(table, 5, ordered=True) == pytest.approx(0.815, abs=5e-4)


def by_definition(table: np.ndarray, apart) -> float:
    """One less observed over expected disagreement, pair by pair as the book defines them."""
    units = [[value for value in row if value >= 0] for row in table]
    units = [unit for unit in units if len(unit) > 1]
    every = [value for unit in units for value in unit]
    observed = sum(
        apart(a, b) / (len(unit) - 1)
        for unit in units
        for i, a in enumerate(unit)
        for j, b in enumerate(unit)
        if i != j
    ) / len(every)
    expected = sum(apart(a, b) for i, a in enumerate(every) for j, b in enumerate(every) if i != j)
    expected /= len(every) * (len(every) - 1)
    return 1 - observed / expected


@given(st.lists(st.lists(st.integers(-1, 4), min_size=3, max_size=3), min_size=2, max_size=25))
def test_alpha_is_what_the_book_defines(rows):
    table = np.array(rows)
    paired = [value for row in rows if sum(v >= 0 for v in row) > 1 for value in row if value >= 0]
    if len(set(paired)) < 2:
        assert np.isnan(alpha_of(table, 5))
        return
    sizes = np.bincount(paired, minlength=5)

    def ordinal(a: int, b: int) -> float:
        low, high = sorted((a, b))
        return float((sizes[low : high + 1].sum() - (sizes[low] + sizes[high]) / 2) ** 2)

    assert alpha_of(table, 5) == pytest.approx(by_definition(table, lambda a, b: float(a != b)))
    assert alpha_of(table, 5, ordered=True) == pytest.approx(by_definition(table, ordinal))


def test_the_interval_of_alpha_holds_it_and_is_fixed():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 300)
    noise = [np.where(rng.random(300) < 0.7, truth, rng.integers(0, 5, 300)) for _ in range(3)]
    table, query = np.stack(noise, axis=1).astype(np.int8), np.repeat(np.arange(30), 10)
    found = alpha_interval(table, query, 5, ordered=True)
    assert found.low < found.value < found.high and found == alpha_interval(table, query, 5, ordered=True)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 4)), min_size=2, max_size=30))
def test_an_item_with_weight_n_is_an_item_n_times(rows):
    left, right, weights = (list(column) for column in zip(*rows, strict=True))
    repeated = [(a, b) for a, b, n in rows for _ in range(n)]
    whole = cohen_kappa([a for a, _ in repeated], [b for _, b in repeated])
    assert cohen_kappa(left, right, weights) == pytest.approx(whole, nan_ok=True)
