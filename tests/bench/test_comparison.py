from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))
from reported import PAIR, QUERIES, run_both

from suwen.bench.comparison import CompareError, as_json, compare, resolve, system_names
from suwen.bench.result_files import read_results, sidecar
from suwen.bench.retrieval_metrics import MetricError

BM25 = "bm25:words"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return run_both(tmp_path_factory.mktemp("compare"))


@pytest.fixture(scope="module")
def results(out):
    return read_results(out)


@pytest.fixture(scope="module")
def found(results):
    return compare(results, PAIR, BM25)


def values(results, system, metric="ndcg@10"):
    result = next(r for r in results if r.suite == "mine" and r.system == system)
    return {row["query"]: row["metrics"][metric] for row in result.per_query()}


def test_means_test_and_queries_agree_with_the_stored_values(results, found):
    task = next(task for task in found.tasks if task.suite == "mine")
    one, other = values(results, found.a), values(results, BM25)
    assert list(one) == list(other) == list(QUERIES)
    left, right = np.array(list(one.values())), np.array(list(other.values()))
    assert (task.task, task.metric, task.queries) == ("小集-test", "ndcg@10", 8)
    assert task.a == pytest.approx(left.mean()) and task.b == pytest.approx(right.mean())
    assert task.difference == pytest.approx((left - right).mean()) and task.difference != 0
    assert task.test.p == pytest.approx(stats.ttest_rel(left, right).pvalue)
    assert task.interval.low < task.difference < task.interval.high
    assert {pair.query for pair in task.wins} == {query for query in one if one[query] > other[query]}
    assert {pair.query for pair in task.losses} == {query for query in one if one[query] < other[query]}
    assert len(task.wins) + len(task.losses) + task.ties == 8 and task.wins
    gaps = [pair.difference for pair in task.wins]
    assert gaps == sorted(gaps, reverse=True)


def test_a_win_brings_its_texts(found):
    pair = next(task for task in found.tasks if task.suite == "mine").wins[0]
    assert pair.text == QUERIES[pair.query]
    assert [hit.id for hit in pair.relevant] == [f"d{pair.query[1:]}"]
    assert pair.hits_a[0].text and pair.relevant[0].grade == 1


def test_the_other_way_round_wins_are_losses(results, found):
    back = compare(results, BM25, found.a)
    for task, mirrored in zip(found.tasks, back.tasks, strict=True):
        assert {p.query for p in task.wins} == {p.query for p in mirrored.losses}
        assert mirrored.difference == pytest.approx(-task.difference)
        assert mirrored.test.p == pytest.approx(task.test.p)


def test_of_holes_fewer_is_a_win(results):
    task = compare(results, PAIR, BM25, metric="hole@10").tasks[0]
    assert all(pair.difference < 0 for pair in task.wins) and all(pair.difference > 0 for pair in task.losses)
    assert task.wins or task.losses


def test_a_system_goes_by_its_name_or_by_what_was_asked_for(results):
    name = next(name for name in system_names(results) if name.startswith("pair:"))
    assert resolve(results, PAIR) == resolve(results, name) == name != PAIR


def test_what_cannot_be_compared_is_explained(results):
    with pytest.raises(CompareError, match="No results of system 'nobody'; name one of: bm25:words, pair:"):
        compare(results, "nobody", BM25)
    with pytest.raises(CompareError, match="no results there; name the folder"):
        resolve([], "nobody")
    with pytest.raises(CompareError, match="itself"):
        compare(results, BM25, BM25)
    with pytest.raises(MetricError, match="Unknown metric"):
        compare(results, PAIR, BM25, metric="elegance")
    with pytest.raises(CompareError, match="has no precision@3; there are: ndcg@10"):
        compare(results, PAIR, BM25, metric="precision@3")


def test_results_of_other_data_are_left_out(out, tmp_path):
    shutil.copytree(out, tmp_path / "out")
    first = next(r for r in read_results(tmp_path / "out") if r.suite == "mine" and r.system == BM25)
    raw = json.loads(first.path.read_text(encoding="utf-8"))
    raw["suwen"]["data_sha256"] = "0" * 64
    first.path.write_text(json.dumps(raw), encoding="utf-8")
    found = compare(read_results(tmp_path / "out"), PAIR, BM25)
    assert [task.suite for task in found.tasks] == ["cmirb"]
    assert "different data" in found.left_out["mine/小集-test"]


def test_a_task_only_one_has_is_left_out(out, tmp_path):
    shutil.copytree(out, tmp_path / "out")
    gone = next(r for r in read_results(tmp_path / "out") if r.suite == "cmirb" and r.system == BM25)
    sidecar(gone.path, ".queries.jsonl").unlink()
    left = read_results(tmp_path / "out")
    assert compare(left, PAIR, BM25).left_out == {"cmirb/MedExamRetrieval": "bm25:words has no result"}
    assert list(compare(left, BM25, PAIR).left_out) == ["cmirb/MedExamRetrieval"]


def test_a_correlation_has_no_test_and_says_so(tmp_path):
    from suwen.bench.suite_runner import run_suite
    from suwen.bench.suite_tasks import load_suite

    pairs = [("血压高", "高血压", 1), ("糖尿病", "骨折", 0), ("感冒发烧", "伤风发热", 1), ("胃痛", "近视", 0)]
    lines = [json.dumps({"sentence1": a, "sentence2": b, "score": s}, ensure_ascii=False) for a, b, s in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert load_suite("cmedteb").task("CMedTEB-STS").main == "pearson"
    data = {"CMedTEB-STS": tmp_path / "pairs.jsonl"}
    systems = [f"one={PAIR}", f"two={PAIR}"]
    assert run_suite("cmedteb", systems, out=tmp_path / "out", data=data, tasks=["CMedTEB-STS"]).complete
    task = compare(read_results(tmp_path / "out"), "one", "two").tasks[0]
    assert task.test is None and task.interval is None and task.difference == 0
    assert "no value per query" in task.note and task.queries == 0


def test_as_json_is_json(found):
    told = json.loads(json.dumps(as_json(found, most=1), allow_nan=False))
    task = next(task for task in told["tasks"] if task["suite"] == "mine")
    assert task["wins"] + task["losses"] + task["ties"] == 8
    assert len(task["won"]) <= 1 and set(task["interval"]) == {"difference", "low", "high", "confidence"}


def test_seeds_are_averaged_query_by_query(results):
    named = {resolve(results, PAIR): "seeds-0", BM25: "seeds-1"}
    own = [one for one in results if one.suite == "mine" and one.system in named]
    found = compare([*own, *(replace(one, system=named[one.system]) for one in own)], "seeds-*", BM25)
    task = next(task for task in found.tasks if task.suite == "mine")
    one, other = values(results, resolve(results, PAIR)), values(results, BM25)
    expected = [(one[query] + other[query]) / 2 for query in one]
    assert [pair.a for pair in task.pairs] == pytest.approx(expected) and task.a == pytest.approx(np.mean(expected))
    assert found.a == "seeds-*" and task.difference != 0


def test_seeds_of_different_data_are_refused(results):
    one = next(one for one in results if one.system == BM25)
    other = replace(one, system="seeds-1", about={**one.about, "data_sha256": "0"})
    with pytest.raises(CompareError, match="different data"):
        compare([replace(one, system="seeds-0"), other, one], "seeds-*", BM25)


def test_the_mean_weighs_tasks_alike_and_draws_within_them(results):
    found = compare(results, PAIR, BM25)
    assert len(found.tasks) > 1
    sides = [np.array([pair.difference for pair in task.pairs]) for task in found.tasks]
    mean = found.mean()
    assert mean.difference == pytest.approx(np.mean([one.mean() for one in sides]))
    dice = np.random.default_rng(5)
    drawn = np.mean([dice.choice(one, (20_000, len(one))).mean(1) for one in sides], axis=0)
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert (mean.low, mean.high) == pytest.approx((low, high), abs=0.02)
    alone = compare(results, PAIR, BM25, tasks=[found.tasks[0].task])
    assert [task.task for task in alone.tasks] == [found.tasks[0].task] and alone.mean() is None
    with pytest.raises(CompareError, match="no results of task 'nothing'"):
        compare(results, PAIR, BM25, tasks=["nothing"])
