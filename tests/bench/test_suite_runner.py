from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from suwen.bench.ranking_systems import read_run
from suwen.bench.result_files import Result, read_results, sidecar, system_folder
from suwen.bench.retrieval_metrics import evaluate, pair_similarities, spearman
from suwen.bench.suite_runner import averages, run_suite
from suwen.bench.suite_tasks import SuiteError, load_suite
from suwen.bench.systems import SystemProblem
from suwen.bench.task_scoring import default_depth
from suwen.corpora.collection import Collection

PAIRS = [
    {"sentence1": "高血压怎么吃", "sentence2": "血压高的饮食", "score": 1},
    {"sentence1": "胃痛", "sentence2": "流感疫苗", "score": 0},
    {"sentence1": "糖尿病症状", "sentence2": "糖尿病有什么症状", "score": 1},
    {"sentence1": "肾病", "sentence2": "骨折", "score": 0},
]
TRIPLETS = [
    {"anchor": "高血压病人少吃盐", "positive": "高血压患者应低盐饮食", "negatives": ["多喝水"]},
    {"anchor": "胃痛反酸", "positive": "慢性胃炎会胃痛反酸", "negatives": []},
    {"anchor": "怀孕打疫苗", "positive": "孕妇可以接种流感疫苗", "negatives": []},
]
RERANK = [
    {"query": "血压高怎么办", "pos": ["低盐饮食"], "neg": ["多喝热水", "慢性胃炎"]},
    {"query": "胃痛反酸", "pos": ["慢性胃炎"], "neg": ["低盐饮食"]},
]
AVERAGES = """
[[averages]]
name = "both"
over = ["Search", "Rerank"]
metric = ""

[[averages]]
name = "all"
over = ["Search", "Missing"]
metric = "ndcg@10"
"""


def put(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def everything(beir: Path, tmp_path: Path, make_suite):
    """A suite with a task of each kind, one of which has no data."""
    return make_suite(
        {"name": "Search", "path": beir, "metrics": ["ndcg@10", "recall@100", "hole@10"]},
        {
            "name": "Rerank",
            "kind": "rerank",
            "metrics": ["map@10", "mrr@10"],
            "path": put(tmp_path / "r.jsonl", RERANK),
        },
        {"name": "Pairs", "kind": "sts", "metrics": ["spearman", "pearson"], "path": put(tmp_path / "p.jsonl", PAIRS)},
        {
            "name": "Same",
            "kind": "paraphrase",
            "metrics": ["accuracy@1", "mrr", "positive_similarity", "positive_similarity_deviation"],
            "path": put(tmp_path / "t.jsonl", TRIPLETS),
        },
        {"name": "Missing"},
        tail=AVERAGES,
    )


def test_a_task_of_each_kind(everything, bert_folder: Path, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    done = run_suite(everything, [f"st:{bert_folder}"], out=tmp_path / "out")
    (one,) = done.systems
    assert list(one.results) == ["Search", "Rerank", "Pairs", "Same"]
    assert list(one.failures) == ["Missing"] and "fetch Missing by hand" in one.failures["Missing"]
    assert not done.complete
    model = SentenceTransformer(str(bert_folder), device="cpu")
    left, right = ([row[side] for row in PAIRS] for side in ("sentence1", "sentence2"))
    expected = spearman(pair_similarities(model.encode_query(left), model.encode_query(right)), [1, 0, 1, 0])
    assert one.results["Pairs"].metrics["spearman"] == pytest.approx(expected)
    asked = model.encode_query([row["anchor"] for row in TRIPLETS])
    found = model.encode_document([row["positive"] for row in TRIPLETS])
    assert one.results["Same"].metrics["positive_similarity"] == pytest.approx(
        float((asked * found).sum(1).mean()), abs=1e-5
    )
    ranks = [1 + int((row > row[number]).sum()) for number, row in enumerate(asked @ found.T)]
    assert one.results["Same"].metrics["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert one.averages["both"].value == pytest.approx(
        np.mean([one.results["Search"].metrics["ndcg@10"], one.results["Rerank"].metrics["map@10"]])
    )
    assert one.averages["all"] == (None, ("Missing",))


def stored_run(result: Result) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for _, query, document, score in read_run(sidecar(result.path, ".trec")):
        scores.setdefault(query, {})[document] = score
    return scores


def test_only_candidates_are_reranked(everything, tmp_path: Path):
    done = run_suite(everything, ["bm25:bigrams"], tasks=["Rerank"], out=tmp_path)
    run = stored_run(done.systems[0].results["Rerank"])
    assert {query: len(hits) for query, hits in run.items()} == {"q0": 3, "q1": 2}
    # No candidate shares a bigram with its query: all tie at 0, and the later id comes first.
    assert [row["metrics"]["map@10"] for row in done.systems[0].results["Rerank"].per_query()] == [1 / 3, 1.0]


def test_the_stored_run_gives_the_stored_scores(everything, beir: Path, bert_folder: Path, tmp_path: Path):
    done = run_suite(everything, [f"st:{bert_folder}", "bm25:words"], tasks=["Search"], out=tmp_path)
    qrels = Collection.open(beir).qrels("test")
    for one in done.systems:
        result = one.results["Search"]
        again = evaluate(stored_run(result), qrels, ["ndcg@10", "recall@100", "hole@10"])
        assert {name: float(values.mean()) for name, values in again.items()} == dict(result.metrics)
        assert [row["metrics"]["ndcg@10"] for row in result.per_query()] == again["ndcg@10"].tolist()
        assert [row["query"] for row in result.per_query()] == ["q1", "q2", "q3"]


def test_the_result_file_is_mtebs(everything, bert_folder: Path, tmp_path: Path):
    done = run_suite(everything, [f"mine=st:{bert_folder}"], out=tmp_path)
    folder = system_folder(tmp_path, "mine", "mine")
    raw = json.loads((folder / "Search.json").read_text(encoding="utf-8"))
    entry = raw["scores"]["test"][0]
    assert raw["task_name"] == "Search" and raw["dataset_revision"] == "local"
    assert raw.keys() >= {"mteb_version", "evaluation_time", "kg_co2_emissions"}
    assert entry["main_score"] == entry["ndcg_at_10"] == done.systems[0].results["Search"].metrics["ndcg@10"]
    assert (entry["hf_subset"], entry["languages"]) == ("default", ["cmn-Hans"])
    pairs = json.loads((folder / "Pairs.json").read_text())["scores"]["test"][0]
    assert pairs["cosine_spearman"] == pairs["spearman"] == pairs["main_score"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["main"]["Search"] == entry["main_score"] and summary["averages"]["all"] is None


def test_what_a_report_needs_is_stored(everything, bert_folder: Path, tmp_path: Path):
    run_suite(everything, [f"st:{bert_folder}", "bm25:words"], out=tmp_path)
    found = {(result.system, result.task): result for result in read_results(tmp_path)}
    assert len(found) == 4 + 3  # BM25 gives no similarity of two sentences
    rows = found["st:model", "Search"].per_query()
    assert rows[0]["text"] == "血压高的人怎么吃" and rows[0]["relevant"][0]["id"] == "d1"
    assert len(rows[0]["hits"]) == 3 and rows[0]["hits"][0]["score"] >= rows[0]["hits"][1]["score"]
    shown = found["st:model", "Search"].similarities()
    assert len(shown["positives"]) == 3 and len(shown["negatives"]) == 2
    assert shown["negatives_are"] == "passages judged irrelevant"
    assert found["st:model", "Same"].similarities()["negatives_are"] == "random passages"
    assert found["st:model", "Rerank"].similarities()["positives"][0] == pytest.approx(
        stored_run(found["st:model", "Rerank"])["q0"]["d0"], abs=1e-5
    )
    assert found["bm25:words", "Search"].similarities() is None
    assert found["st:model", "Search"].about["query_ms"] > 0
    assert "positive_similarity is left out" in found["bm25:words", "Same"].about["notes"][0]


def test_a_system_that_cannot_do_a_task_is_no_failure(everything, tmp_path: Path):
    (one,) = run_suite(everything, ["bm25:words"], tasks=["Pairs", "Search"], out=tmp_path).systems
    assert list(one.left_out) == ["Pairs"] and not one.failures and list(one.results) == ["Search"]


def files(folder: Path) -> dict[Path, int]:
    return {
        file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file() and file.name != "summary.json"
    }


def test_a_finished_task_is_read_back_until_something_changes(everything, beir: Path, tmp_path: Path):
    run = {"suite": everything, "systems": ["bm25:words"], "tasks": ["Search", "Rerank"], "out": tmp_path / "out"}
    first = run_suite(**run)
    before = files(tmp_path / "out")
    second = run_suite(**run)
    assert second.systems[0].reused == ["Search", "Rerank"] and files(tmp_path / "out") == before
    assert second.systems[0].results["Search"].metrics == first.systems[0].results["Search"].metrics

    qrels = beir / "qrels" / "test.tsv"
    qrels.write_text(qrels.read_text() + "q2\td1\t1\n")
    third = run_suite(**run)
    assert third.systems[0].reused == ["Rerank"]
    assert third.systems[0].results["Search"].metrics != first.systems[0].results["Search"].metrics
    assert run_suite(**run, again=True).systems[0].reused == []
    assert run_suite(**run, depth=500).systems[0].reused == []


def test_a_damaged_result_is_made_again(everything, tmp_path: Path):
    run = {"suite": everything, "systems": ["bm25:words"], "tasks": ["Search"], "out": tmp_path / "out"}
    file = run_suite(**run).systems[0].results["Search"].path
    file.write_text('{"half":')
    assert run_suite(**run).systems[0].reused == []
    assert run_suite(**run).systems[0].reused == ["Search"]


def test_a_failing_task_leaves_no_result_behind(everything, beir: Path, tmp_path: Path):
    run = tmp_path / "x.run"
    run.write_text("q1 Q0 d1 1 nan x\n")
    (one,) = run_suite(everything, [f"run:{run}"], tasks=["Search"], out=tmp_path / "out").systems
    assert "'nan', which is no number" in one.failures["Search"]
    assert [file.name for file in one.folder.iterdir()] == ["summary.json"]


def test_models_of_different_width_leave_no_result_behind(everything, bert_folder: Path, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    wide = SentenceTransformer(modules=list(SentenceTransformer(str(bert_folder), device="cpu"))[:2], device="cpu")
    wide.save(str(tmp_path / "wide"))
    (one,) = run_suite(
        everything, [f"st:{bert_folder}+{tmp_path / 'wide'}"], tasks=["Search"], out=tmp_path / "o"
    ).systems
    assert "24 dimensions and the document side of 32" in one.failures["Search"]
    assert [file.name for file in one.folder.iterdir()] == ["summary.json"]


def test_what_is_not_understood_stops_before_anything_runs(everything, tmp_path: Path):
    with pytest.raises(SuiteError, match="no task 'Nope'"):
        run_suite(everything, ["bm25:words"], tasks=["Nope"], out=tmp_path / "o")
    with pytest.raises(SystemProblem, match="no system to run"):
        run_suite(everything, [], out=tmp_path / "o")
    bad = tmp_path / "bad.toml"
    bad.write_text((tmp_path / "mine.toml").read_text().replace("recall@100", "recal@100"))
    with pytest.raises(SuiteError, match=r"Search.*Unknown metric 'recal@100'"):
        run_suite(bad, ["bm25:words"], out=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_progress_names_what_runs(everything, bert_folder: Path, tmp_path: Path):
    told = []
    run_suite(
        everything,
        [f"st:{bert_folder}"],
        tasks=["Search"],
        out=tmp_path,
        shard_size=4,
        progress=lambda *x: told.append(x),
    )
    assert told == [("st:model on Search", 4, 6), ("st:model on Search", 6, 6)]


def test_depth_follows_the_metrics():
    suite = load_suite("cardioembed")
    assert default_depth(suite.task("SciFact")) == 100
    assert default_depth(suite.task("Cardiology-Paraphrase")) == 1000  # mrr has no cutoff
    assert default_depth(suite.task("BIOSSES")) == 100


def test_averages_of_a_shipped_suite():
    suite = load_suite("cmedteb")
    metrics = {task.name: {task.main: number / 10} for number, task in enumerate(suite.tasks)}
    found = averages(suite, metrics)
    assert found["average"].value == pytest.approx(0.2)
    assert found["new three"].value == pytest.approx(0.1)
    del metrics["CMedTEB-STS"]
    assert averages(suite, metrics)["new three"] == (None, ("CMedTEB-STS",))


CHILD = """
import sys
from suwen.bench.suite_runner import run_suite
suite, url, out = sys.argv[1:]
run_suite(suite, [f"openai:{url}#m"], out=out, shard_size=4)
"""


def stall_on(text: str, reached: threading.Event, hang: threading.Event):
    """Answer as usual, but hold the request that begins with a text."""

    def before(body: dict) -> None:
        if body["input"][0] == text:
            reached.set()
            hang.wait(300)

    return before


def test_a_run_killed_while_encoding_goes_on_at_the_shard(tmp_path: Path, make_suite, server):
    documents = [f"第{number}号病历：发热{number}天" for number in range(30)]
    folder = tmp_path / "many"
    (folder / "qrels").mkdir(parents=True)
    put(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(documents)])
    put(folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"发热{n}天的病历"} for n in range(5)])
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(5))
    )
    second = tmp_path / "second"
    (second / "qrels").mkdir(parents=True)
    changed = [f"甲{text}" if number == 0 else text for number, text in enumerate(documents)]
    put(second / "corpus.jsonl", [{"_id": f"d{n}", "text": f"{text}。"} for n, text in enumerate(changed)])
    for name in ("queries.jsonl", "qrels/test.tsv"):
        (second / name).write_text((folder / name).read_text(encoding="utf-8"), encoding="utf-8")
    suite = make_suite(
        {"name": "Quick", "path": folder, "metrics": ["mrr@10"]},
        {"name": "Many", "path": second, "metrics": ["ndcg@10"]},
    )
    reached, hang = threading.Event(), threading.Event()
    server.before = stall_on("第12号病历：发热12天。", reached, hang)
    out = tmp_path / "out"
    command = [sys.executable, "-c", CHILD, str(tmp_path / "mine.toml"), server.url, str(out)]
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert reached.wait(300)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        hang.set()
    kept = files(out)
    shards = [file for file in kept if file.suffix == ".npy"]
    assert len(shards) == 8 + 2 + 3  # the first corpus, its queries, and three shards of the second
    assert [result.task for result in read_results(out)] == ["Quick"]

    server.before, server.requests[:] = lambda body: None, []
    done = run_suite(suite, [f"openai:{server.url}#m"], out=out, shard_size=4)
    assert done.systems[0].reused == ["Quick"] and done.complete
    encoded = [text for text in server.texts() if "号病历" in text]
    assert encoded == [f"{text}。" for text in changed[12:]]
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    fresh = run_suite(suite, [f"openai:{server.url}#m"], out=tmp_path / "fresh", shard_size=4)
    assert stored_run(fresh.systems[0].results["Many"]) == stored_run(done.systems[0].results["Many"])
