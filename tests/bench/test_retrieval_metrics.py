import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from suwen.bench import retrieval_metrics as metrics
from suwen.bench.retrieval_metrics import MetricError, evaluate, judge
from suwen.errors import SuwenError

IDS = st.text(alphabet="ab9Z-糖尿病𠮷", min_size=1, max_size=3)
QUERIES = st.sampled_from(["q1", "q2", "q3", "问题"])
CUTS = (1, 3, 10, 100)
NAMES = [f"{base}@{k}" for base in metrics.RANKING for k in CUTS] + list(metrics.RANKING)
GRADES = st.integers(min_value=0, max_value=3)
RANX = {
    "ndcg": "ndcg", "ndcg_exp": "ndcg_burges", "map": "map", "mrr": "mrr",
    "recall": "recall", "precision": "precision", "accuracy": "hit_rate",
}  # fmt: skip


def qrels_of(grades, least=0):
    return st.dictionaries(QUERIES, st.dictionaries(IDS, grades, min_size=least, max_size=8), min_size=1)


def runs_of(scores):
    return st.dictionaries(QUERIES, st.dictionaries(IDS, scores, max_size=12))


def naive(run, qrels, name, relevant_from=1):
    """Each metric from its textbook definition, over a list sorted in plain Python."""
    base, k = metrics.parse(name)
    values = []
    for query, judgements in qrels.items():
        if not judgements:
            continue
        hits = sorted(run.get(query, {}).items(), key=lambda hit: (hit[1], hit[0]), reverse=True)
        top = [judgements.get(passage, -1) for passage, _ in hits][:k]
        relevant = sum(grade >= relevant_from for grade in judgements.values())
        right = [grade >= relevant_from for grade in top]
        values.append(NAIVE[base](top, right, relevant, sorted(judgements.values(), reverse=True), k))
    return values


def naive_dcg(grades, gain):
    return sum(gain(max(grade, 0)) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def naive_ndcg(gain):
    def compute(top, right, relevant, ideal, k):
        best = naive_dcg(ideal[:k], gain)
        return naive_dcg(top, gain) / best if best else 0.0

    return compute


def naive_ap(right, whole):
    return sum(sum(right[: i + 1]) / (i + 1) for i in range(len(right)) if right[i]) / whole if whole else 0.0


NAIVE = {
    "ndcg": naive_ndcg(lambda grade: grade),
    "ndcg_exp": naive_ndcg(lambda grade: 2**grade - 1),
    "map": lambda top, right, relevant, ideal, k: naive_ap(right, relevant),
    "map_min": lambda top, right, relevant, ideal, k: naive_ap(right, min(relevant, k or relevant)),
    "mrr": lambda top, right, relevant, ideal, k: 1 / (right.index(True) + 1) if any(right) else 0.0,
    "recall": lambda top, right, relevant, ideal, k: sum(right) / relevant if relevant else 0.0,
    "precision": lambda top, right, relevant, ideal, k: sum(right) / (k or len(top) or 1),
    "accuracy": lambda top, right, relevant, ideal, k: float(any(right)),
    "hole": lambda top, right, relevant, ideal, k: sum(grade < 0 for grade in top) / len(top) if top else 0.0,
}


def usable(run, qrels):
    judged = [query for query, judgements in qrels.items() if judgements]
    return bool(judged) and (not run or any(query in run for query in judged))


# -- oracles ---------------------------------------------------------------------------------------------------------


def ranx_values(run, qrels, names):
    """What ranx finds, given its own arrays: (passage number, score) by descending score, none for a missing query."""
    import ranx
    from numba.typed import List

    numbers: dict[str, int] = {}

    def arrays(side):
        rows = [sorted(side.get(query, {}).items(), key=lambda row: -row[1]) for query in qrels]
        numbered = [[(numbers.setdefault(passage, len(numbers)), value) for passage, value in row] for row in rows]
        return List([np.array(row, np.float64).reshape(-1, 2) for row in numbered])

    theirs = [name.replace(name.partition("@")[0], RANX[name.partition("@")[0]]) for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ranx.evaluate(arrays(qrels), arrays(run), theirs, return_mean=False)
    return dict(zip(names, (found[name] for name in theirs), strict=True))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs_of(st.just(0.0)), qrels_of(GRADES, least=1), st.randoms(use_true_random=False))
def test_values_are_ranxs_where_nothing_ties(run, qrels, random):
    for hits in run.values():
        places = random.sample(range(1000), len(hits))
        hits.update({passage: place / 7 for passage, place in zip(list(hits), places, strict=True)})
    if not usable(run, qrels):
        return
    names = [name for name in NAMES if name.partition("@")[0] in RANX]
    ours, oracle = evaluate(run, qrels, names), ranx_values(run, qrels, names)
    for name in names:
        np.testing.assert_allclose(ours[name], oracle[name], atol=1e-12, err_msg=name)


def test_values_are_ranxs_on_long_lists():
    rng = np.random.default_rng(11)
    passages = [f"d{number}" for number in range(3000)]
    run, qrels = {}, {}
    for query in map(str, range(30)):
        drawn = rng.choice(3000, 1200, replace=False).tolist()
        run[query] = {passages[at]: score for at, score in zip(drawn[:1000], rng.random(1000).tolist(), strict=True)}
        qrels[query] = {
            passages[at]: int(grade) for at, grade in zip(drawn[900:], rng.integers(0, 4, 300), strict=True)
        }
    del run["7"]
    names = [
        "ndcg@10",
        "ndcg",
        "ndcg_exp@1000",
        "map@1000",
        "map",
        "mrr@10",
        "recall@100",
        "precision@200",
        "accuracy@1",
    ]
    ours, oracle = evaluate(run, qrels, names), ranx_values(run, qrels, names)
    for name in names:
        np.testing.assert_allclose(ours[name], oracle[name], atol=1e-12, err_msg=name)
        assert ours[name][7] == 0


@settings(max_examples=100, deadline=None)
@given(runs_of(st.sampled_from([0.0, -0.0, 1.0, 2.5, -math.inf, math.inf])), qrels_of(st.integers(-2, 4)))
def test_values_are_the_naive_ones_with_ties(run, qrels):
    if not usable(run, qrels):
        return
    for name, values in evaluate(run, qrels, NAMES).items():
        np.testing.assert_allclose(values, naive(run, qrels, name), atol=1e-12, err_msg=name)


@given(runs_of(st.sampled_from([0.1, 0.2])), qrels_of(st.integers(0, 3)), st.integers(1, 3))
def test_relevance_from_a_higher_grade(run, qrels, least):
    if not usable(run, qrels):
        return
    judged = judge(run, qrels, relevant_from=least)
    for name in NAMES:
        values = metrics.score(judged, [name])[name]
        np.testing.assert_allclose(values, naive(run, qrels, name, least), atol=1e-12, err_msg=name)


@given(runs_of(st.sampled_from([0.1, 0.2, 0.3])), qrels_of(st.integers(0, 3)))
def test_ids_beside_scores_are_the_same_run(run, qrels):
    if not usable(run, qrels):
        return
    arrays = {query: (list(hits), np.array(list(hits.values()))) for query, hits in run.items()}
    for ours, other in zip(judge(run, qrels), judge(arrays, qrels), strict=True):
        assert np.array_equal(ours, other)


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_by_hand():
    # Ranks: b (grade 1), x (unjudged), a (grade 3), y (judged 0); c (grade 1) is not found.
    run = {"q": {"a": 0.5, "b": 0.9, "x": 0.7, "y": 0.1}}
    qrels = {"q": {"a": 3, "b": 1, "c": 1, "y": 0}}
    found = {name: values.item() for name, values in evaluate(run, qrels, NAMES).items()}
    log3 = math.log2(3)
    assert found["ndcg@3"] == pytest.approx((1 + 3 / 2) / (3 + 1 / log3 + 1 / 2))
    assert found["ndcg_exp@3"] == pytest.approx((1 + 7 / 2) / (7 + 1 / log3 + 1 / 2))
    assert found["map@3"] == pytest.approx((1 + 2 / 3) / 3)
    assert found["map@1"] == pytest.approx(1 / 3)
    assert found["map_min@1"] == 1
    assert found["mrr@10"] == 1
    assert found["recall@1"] == pytest.approx(1 / 3) and found["recall@3"] == pytest.approx(2 / 3)
    assert found["precision@10"] == pytest.approx(0.2) and found["precision"] == 0.5
    assert found["accuracy@1"] == 1
    assert found["hole@1"] == 0 and found["hole@3"] == pytest.approx(1 / 3) and found["hole@10"] == 0.25


@pytest.mark.parametrize(
    ("hits", "rank"),
    [
        ({"a": 1.0, "b": 1.0}, 2),  # b stands above a: ids descend
        ({"9": 1.0, "a": 1.0, "10": 1.0}, 1),  # "a" is after every digit
        ({"a": 1.0, "aa": 1.0}, 2),  # a longer string is the later one
        ({"a": 1.0, "A": 1.0}, 1),  # capitals come first in code points
        ({"a": 1.0, "糖": 1.0, "𠮷": 1.0}, 3),  # UTF-8 bytes are in the order of code points
        ({"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.5, "e": 1.0}, 4),
    ],
)
def test_ties_go_to_the_later_id(hits, rank):
    for order in (list(hits), list(reversed(hits))):
        judged = judge({"q": {passage: hits[passage] for passage in order}}, {"q": {"a": 1}})
        assert judged.rank.tolist() == [rank]


def test_scores_are_compared_in_double_precision():
    # The two scores differ by less than float32 can hold: trec_eval 10 and ranx see a first, trec_eval 9 sees a tie.
    run, qrels = {"q": {"a": 0.1 + 1e-12, "b": 0.1}}, {"q": {"a": 1}}
    assert judge(run, qrels).rank.tolist() == [1]
    assert judge({"q": {"a": 1e300, "b": 1e200}}, qrels).rank.tolist() == [1]


def test_queries_and_their_order():
    qrels = {"q3": {"a": 1}, "none": {}, "q1": {"a": 0}, "q2": {"a": 1}}
    judged = judge({"q1": {"a": 1.0}, "q2": {"a": 1.0}, "unjudged": {"a": math.nan}}, qrels)
    assert judged.queries == ("q3", "q1", "q2")
    assert metrics.recall(judged, 1).tolist() == [0, 0, 1]
    assert all(np.all(values == 0) for values in evaluate({}, qrels, NAMES).values())


def test_an_empty_list_of_hits_scores_zero():
    for hits in ({}, ([], [])):
        assert all(values.tolist() == [0.0] for values in evaluate({"q": hits}, {"q": {"a": 1}}, NAMES).values())


@given(runs_of(st.floats(0, 1)), qrels_of(GRADES))
def test_every_value_is_a_share(run, qrels):
    if not usable(run, qrels):
        return
    for values in evaluate(run, qrels, NAMES).values():
        assert values.dtype == np.float64 and np.all((values >= 0) & (values <= 1 + 1e-12))


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ({"q": {"a": 1.0, "b": math.nan}}, {"q": {"a": 1}}, "'q'.*'b'.*NaN"),
        ({"q": (["a", "b", "a"], [3.0, 2.0, 1.0])}, {"q": {"b": 1}}, "'a' twice"),
        ({"q": (["a", "b"], [3.0])}, {"q": {"b": 1}}, "2 passage ids but 1 score"),
        ({"q": {"a": None}}, {"q": {"a": 1}}, "'a' as None"),
        ({"q": {"a": "high"}}, {"q": {"a": 1}}, "no number"),
        ({"q": (["a"], ["high"])}, {"q": {"a": 1}}, "no number"),
        ({"q": {"a": 1.0}}, {"q": {"a": 0.5}}, "'a' as 0.5.*whole"),
        ({"q": {"a": 1.0}}, {"q": {"a": math.nan}}, "whole"),
        ({"q": {"a": 1.0}}, {"q": {"a": "relevant"}}, "whole"),
        ({"q": {"a": 1.0}}, {"q": {"a": 1001}}, "beyond 1000"),
        ({"q": {"a": 1.0}}, {}, "no judgement"),
        ({"q": {"a": 1.0}}, {"q": {}}, "no judgement"),
        ({"17": {"a": 1.0}}, {"q17": {"a": 1}}, "'17'.*'q17'"),
    ],
)
def test_bad_input_is_named(run, qrels, message):
    with pytest.raises(SuwenError, match=message):
        evaluate(run, qrels, ["ndcg@10"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f1@10", "known are ndcg, ndcg_exp, map"),
        ("ndcg@0", "whole number"),
        ("ndcg@ten", "whole number"),
        ("ndcg@²", "whole number"),
        ("ndcg@", "whole number"),
        ("pearson@10", "no cutoff"),
        ("pearson", "does not score a ranking"),
    ],
)
def test_unknown_metrics_are_named(name, message):
    with pytest.raises(MetricError, match=message):
        evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}, [name])


def test_wrong_limits_are_refused():
    judged = judge({"q": {"a": 1.0}}, {"q": {"a": 1}})
    for compute in metrics.RANKING.values():
        with pytest.raises(MetricError, match="cutoff"):
            compute(judged, 0)
    with pytest.raises(MetricError, match="relevant_from"):
        judge({"q": {"a": 1.0}}, {"q": {"a": 1}}, relevant_from=0)


def test_every_metric_has_a_definition():
    assert set(metrics.RANKING) < set(metrics.DEFINITIONS)
    assert "linear" in metrics.definition("ndcg@10") and "exponential" in metrics.definition("ndcg_exp@10")
    assert metrics.parse("recall@100") == ("recall", 100) and metrics.parse("map") == ("map", None)


# -- correlation and similarity --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 5)), min_size=2, max_size=40))
def test_correlations_are_scipys(pairs):
    left, right = np.array(pairs, dtype=float).T
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        for compute in (metrics.pearson, metrics.spearman):
            with pytest.raises(MetricError, match="same value everywhere"):
                compute(left, right)
        return
    assert metrics.pearson(left, right) == pytest.approx(stats.pearsonr(left, right).statistic, abs=1e-12)
    assert metrics.spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic, abs=1e-12)


def test_spearman_shares_ranks_by_hand():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: covariance 4.5, squares 4.5 and 5.
    assert metrics.spearman([0, 1, 1, 2], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert metrics.pearson([1e200, 2e200, 3e200], [1e-200, 2e-200, 3e-200]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("left", "right"), [([1, 2], [1, 2, 3]), ([1], [1]), ([1, math.nan], [1, 2]), ([[1, 2]], [[1, 2]])]
)
def test_correlation_refuses(left, right):
    for compute in (metrics.pearson, metrics.spearman):
        with pytest.raises(MetricError):
            compute(left, right)


def test_positive_similarity():
    queries = np.array([[3, 4], [1, 0]], dtype=np.float32)
    positives = np.array([[4, 3], [0, 2]], dtype=np.float32)
    assert metrics.pair_similarities(queries, positives) == pytest.approx([24 / 25, 0])
    assert metrics.pair_similarities(queries, positives, "dot") == pytest.approx([24, 0])
    with pytest.raises(MetricError, match="row 1"):
        metrics.pair_similarities(queries, np.array([[1.0, 0], [0, 0]]))
    with pytest.raises(MetricError, match="one space"):
        metrics.pair_similarities(queries, np.ones((2, 3)))
