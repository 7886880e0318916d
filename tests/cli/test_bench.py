from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from suwen.bench.suite_tasks import suites
from suwen.cli.benchmark import bench_app
from suwen.errors import SuwenError

DOCUMENTS = {"d1": "高血压患者应低盐饮食", "d2": "糖尿病的早期症状", "d3": "孕妇可以接种流感疫苗"}
QUERIES = {"q1": "高血压怎么吃", "q2": "流感疫苗能打吗，孕妇想问一下"}


def run(*words: object):
    return CliRunner().invoke(bench_app, [str(word) for word in words])


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "my-collection"
    (folder / "qrels").mkdir(parents=True)
    lines(folder / "corpus.jsonl", [{"_id": key, "text": text} for key, text in DOCUMENTS.items()])
    lines(folder / "queries.jsonl", [{"_id": key, "text": text} for key, text in QUERIES.items()])
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td3\t1\n")
    return folder


@pytest.fixture
def suite(collection: Path, tmp_path: Path) -> Path:
    made = run("scaffold", tmp_path / "mine.toml", collection)
    assert made.exit_code == 0 and "suwen bench run" in made.stdout
    return tmp_path / "mine.toml"


def test_a_collection_of_ones_own_from_scaffold_to_scores(suite: Path, tmp_path: Path):
    found = run("run", suite, "-s", "bm25:bigrams", "-s", "bm25:words", "--out", tmp_path / "out")
    assert found.exit_code == 0
    assert "my-collection-test" in found.stdout and found.stdout.count("100.00") == 2
    assert "bm25:bigrams: 1 task;" in found.stderr
    again = run("run", suite, "-s", "bm25:bigrams", "--out", tmp_path / "out", "--json")
    told = json.loads(again.stdout)["systems"][0]
    assert told["reused"] == ["my-collection-test"]
    assert told["results"]["my-collection-test"]["ndcg@10"] == 1.0
    assert Path(told["folder"], "my-collection-test.json").is_file()


def test_missing_data_are_told_and_the_rest_runs(suite: Path, tmp_path: Path, collection: Path):
    text = suite.read_text(encoding="utf-8")
    task = text[text.index("[[tasks]]") :].replace("my-collection-test", "Gone").replace(str(collection), "nowhere")
    suite.write_text(f"{text}\n{task}", encoding="utf-8")
    found = run("run", suite, "-s", "bm25:words", "-s", "bm25:bigrams", "--out", tmp_path / "out")
    assert found.exit_code == 3 and "my-collection-test" in found.stdout
    assert found.stderr.count("no result for Gone") == 1 and "nothing to fetch" in found.stderr
    none = run("run", suite, "-s", "bm25:words", "--task", "Gone", "--out", tmp_path / "out")
    assert none.exit_code == 1


def test_what_to_fetch_is_said_before_anything_runs(collection: Path, tmp_path: Path):
    found = run("run", "cmirb", "-s", "bm25:words", "--out", tmp_path / "out")
    said = str(found.exception)
    assert isinstance(found.exception, SuwenError) and said.startswith("10 of 10 tasks of cmirb have no data here")
    assert said.count("hf download CMIRB/") == 10 and "--revision main" in said and "--data" in said
    assert not (tmp_path / "out").exists()
    collection.rename(tmp_path / "MedExamRetrieval")
    tasks = ("--task", "MedExamRetrieval", "--task", "DuBaikeRetrieval")
    some = run("run", "cmirb", "-s", "bm25:words", "--out", tmp_path / "out", "--data", tmp_path, *tasks)
    assert some.exit_code == 3 and "MedExamRetrieval" in some.stdout
    assert "1 of 2 tasks of cmirb has no data here" in some.stderr
    assert some.stderr.index("hf download CMIRB/DuBaikeRetrieval") < some.stderr.index("no result for DuBaikeRetrieval")


def test_tasks_that_are_fetched_alike_are_named_in_one_line(tmp_path: Path):
    tasks = ("--task", "CMedTEB-Retrieval", "--task", "CMedTEB-STS")
    said = str(run("run", "cmedteb", "-s", "bm25:words", "--out", tmp_path / "out", *tasks).exception)
    assert said.count("CMedTEB-Retrieval, CMedTEB-STS: the authors' repository") == 1 == said.count("PhilipGAQ/CARE")


def test_data_by_folder_or_by_task(collection: Path, tmp_path: Path):
    (tmp_path / "data" / "cmirb").mkdir(parents=True)
    collection.rename(tmp_path / "data" / "cmirb" / "MedExamRetrieval")
    options = ("--task", "MedExamRetrieval", "--json", "--out", tmp_path / "out", "-s", "bm25:bigrams")
    root = json.loads(run("run", "cmirb", *options, "--data", tmp_path / "data").stdout)
    named = f"MedExamRetrieval={tmp_path / 'data' / 'cmirb' / 'MedExamRetrieval'}"
    by_task = json.loads(run("run", "cmirb", *options, "--data", named).stdout)
    assert root["systems"][0]["results"] == by_task["systems"][0]["results"]
    assert by_task["systems"][0]["reused"] == ["MedExamRetrieval"]
    none = run("run", "cmirb", "--task", "MedExamRetrieval", "--data", named)
    assert isinstance(none.exception, SuwenError) and "(`-s bm25:words`)" in str(none.exception)
    both = run("run", "cmirb", *options, "--data", tmp_path, "--data", named)
    assert isinstance(both.exception, SuwenError) and "not both" in str(both.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "nosuite", "-s", "bm25:words"), "No suite 'nosuite'"),
        (("run", "cmirb"), "10 of 10 tasks of cmirb have no data here. Fetch them"),
        (("run", "cmirb", "-s", "bm26:words"), "is not a system"),
        (("run", "cmirb", "-s", "bm25:words", "--task", "Nope"), "no task 'Nope'"),
        (("suites", "nosuite"), "No suite 'nosuite'"),
        (("contamination", "x.jsonl"), "either --suite or --collection"),
    ],
)
def test_wrong_words_are_explained(words: tuple[str, ...], said: str):
    found = run(*words)
    assert isinstance(found.exception, SuwenError) and said in str(found.exception)


def test_contamination_of_a_suite_and_of_a_collection(suite: Path, collection: Path, tmp_path: Path):
    rows = [
        {"query": "高血压 怎么吃？", "pos": ["少盐"], "neg": []},
        {"query": "无关", "pos": ["无关的答案"], "neg": []},
    ]
    training = lines(tmp_path / "train.jsonl", rows)
    found = run("contamination", training, "--suite", suite)
    assert found.exit_code == 3
    assert "2 queries against 4 training texts: 1 exact, 0 near (50.00%)" in found.stdout
    assert "my-collection-test/q1" in found.stdout and "train.jsonl:1 query" in found.stdout
    told = json.loads(run("contamination", training, "--collection", collection, "--json").stdout)
    assert [(one["query"], one["kind"]) for one in told["overlaps"]] == [("q1", "exact")]
    clean = run("contamination", lines(tmp_path / "clean.jsonl", rows[1:]), "--suite", suite)
    assert clean.exit_code == 0 and "0 exact, 0 near" in clean.stdout


def test_contamination_tells_of_rows_it_could_not_compare(collection: Path, tmp_path: Path):
    rows = [{"query": "无关", "positive_passages": [{"title": "", "text": "高血压 怎么吃？"}]}, {"id": 3}]
    found = run("contamination", lines(tmp_path / "train.jsonl", rows), "--collection", collection)
    assert found.exit_code == 3 and "1 exact" in found.stdout and "positive_passages.text" in found.stdout
    assert "1 row could not be compared. The first:" in found.stderr and "its fields are id" in found.stderr
    told = json.loads(run("contamination", tmp_path / "train.jsonl", "--collection", collection, "--json").stdout)
    assert told["rows_without_text"] == 1


def test_contamination_looks_through_every_suite(collection: Path, tmp_path: Path):
    copies = [tmp_path / "data" / "bmretriever" / "NFCorpus", tmp_path / "data" / "cmirb" / "CmedqaRetrieval"]
    for copy in copies:
        shutil.copytree(collection, copy)
        (copy / "qrels" / "test.tsv").rename(copy / "qrels" / ("test.tsv" if "NF" in copy.name else "dev.tsv"))
    training = lines(tmp_path / "train.jsonl", [{"query": "高血压 怎么吃？", "pos": ["少盐"], "neg": []}])
    found = run("contamination", training, "--suite", "all", "--data", tmp_path / "data", "--offline")
    assert found.exit_code == 3 and "NFCorpus/q1" in found.stdout and "CmedqaRetrieval/q1" in found.stdout
    assert "left out MedExamRetrieval" in found.stderr


def test_suites_are_listed_with_their_tasks():
    found = run("suites")
    assert all(name in found.stdout for name in suites())
    one = run("suites", "cmedteb")
    assert "CMedQAv1-reranking: rerank, map@10, split test, hub mteb/CMedQAv1-reranking" in one.stdout
    assert "hf download" in one.stdout and "no public copy" in one.stdout
    told = json.loads(run("suites", "cmirb", "--json").stdout)
    assert len(told["tasks"]) == 10 and told["tasks"][0]["metrics"][0] == "ndcg@10"
    assert [suite["name"] for suite in json.loads(run("suites", "--json").stdout)] == suites()


def test_help_names_every_kind_of_system():
    text = run("run", "--help").stdout
    assert all(kind in text for kind in ("pair:", "st:", "bm25:", "hybrid", "openai:", "run:"))


def test_an_evaluation_set_is_built_where_the_suite_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"source": source, "query": f"{source}?", "document": "Rest."} for source in ("icliniq", "another")]
    built = run("build", "iCliniq", lines(tmp_path / "consult.jsonl", rows))
    assert built.exit_code == 0 and "of another site: 1" in built.stdout
    found = run("run", "bmretriever", "--data", "data", "--task", "iCliniq", "-s", "bm25:words", "--json")
    assert list(json.loads(found.stdout)["systems"][0]["results"]) == ["iCliniq"]
    wrong = run("build", "iCliniq", "consult.jsonl")
    assert isinstance(wrong.exception, SuwenError) and "already there" in str(wrong.exception)
