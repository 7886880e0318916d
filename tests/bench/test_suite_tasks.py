from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.bench.published_tables import published
from suwen.bench.retrieval_metrics import parse
from suwen.bench.suite_tasks import FOLDER, LAYOUTS, SuiteError, Task, load_suite, scaffold_local, suites
from suwen.curate.suite_file import _quoted
from suwen.errors import SuwenError

TASKS = {"bmretriever": 11, "cardioembed": 4, "cmedteb": 5, "cmirb": 10}
ALL = [(name, task) for name in TASKS for task in load_suite(name).tasks]
STATED = {"name", "kind", "language", "metrics", "split", "licence", "layouts", "get", "instruction", "hub", "counts"}

GOOD = """
name = "mine"
title = "Mine"
paper = ""
reference = ""
templates = { query = "{text}", document = "{text}" }

[[tasks]]
name = "One"
kind = "retrieval"
language = "zh"
metrics = ["ndcg@10"]
split = "test"
licence = "own"
layouts = ["beir"]
get = "nothing to fetch"
instruction = { query = "", document = "" }
hub = { id = "", revision = "" }
counts = {}
"""


@pytest.fixture
def suite_file(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def collection(folder: Path, splits: tuple[str, ...] = ("test",)) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "title": "", "text": "感冒多喝水"}) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "感冒怎么办"}) + "\n")
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return folder


def test_the_shipped_suites_and_their_sizes():
    assert suites() == sorted(TASKS)
    assert {name: len(load_suite(name).tasks) for name in suites()} == TASKS


@pytest.mark.parametrize("name", TASKS)
def test_every_task_states_every_field(name):
    data = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    assert data["name"] == name
    for task in data["tasks"]:
        assert set(task) >= STATED, task["name"]
        assert set(task["instruction"]) == {"query", "document"}
        assert set(task["hub"]) == {"id", "revision"}
        assert set(task["counts"]) & {"queries", "pairs"}, task["name"]


@pytest.mark.parametrize(("suite", "task"), ALL)
def test_a_task_can_be_fetched_or_says_how(suite, task):
    assert set(task.layouts) <= set(LAYOUTS)
    if task.hub.id is None:
        assert task.hub.revision is None
    else:
        assert task.get.startswith(f"hf download {task.hub.id} --repo-type dataset ")
        assert f"--revision {task.hub.revision or 'COMMIT'}" in task.get


@pytest.mark.parametrize("name", TASKS)
def test_published_columns_exist_and_measure_that_metric(name):
    suite = load_suite(name)
    kinds: dict[tuple[int, str], set[str]] = {}
    for figure in published(suite.paper):
        kinds.setdefault((figure.table, figure.column), set()).add(figure.kind.casefold())
    for column in (c for task in suite.tasks for c in task.published):
        base, _ = parse(column.metric)
        wanted = column.metric if "@" in column.metric else base
        assert any(kind.startswith(wanted) for kind in kinds[column.table, column.column]), column
    for column in (c for average in suite.averages for c in average.published):
        assert any(kind.startswith(("mean of", "ndcg@10")) for kind in kinds[column.table, column.column]), column


def test_main_metrics_are_the_papers():
    main = {task.name: task.main for task in load_suite("cmedteb").tasks}
    assert main == {
        "CMedTEB-Retrieval": "ndcg@10",
        "CMedTEB-Rerank": "map@10",
        "CMedTEB-STS": "pearson",
        "CMedQAv1-reranking": "map@10",
        "CMedQAv2-reranking": "map@10",
    }
    assert all(task.metrics[:2] == ("ndcg@10", "recall@100") for task in load_suite("cmirb").tasks)
    bm = {task.name: task for task in load_suite("bmretriever").tasks}
    assert bm["BIOSSES"].main == "spearman" and bm["BIOSSES"].similarity == "cosine"
    assert bm["BioASQ"].metrics == bm["iCliniq"].metrics == ("recall@5", "recall@20", "ndcg@20")
    assert bm["MeSH"].metrics == ("recall@1", "recall@5", "mrr@5")
    assert bm["RELISH"].metrics == ("map", "ndcg")
    cardio = load_suite("cardioembed").task("Cardiology-Paraphrase")
    assert cardio.metrics[:4] == ("accuracy@1", "accuracy@5", "accuracy@10", "mrr")
    assert cardio.metrics[4:] == ("positive_similarity", "positive_similarity_deviation")


def test_instructions_are_the_models_inputs():
    cmedteb = load_suite("cmedteb")
    assert cmedteb.templates.query == "<instruct>{instruction}\n<query>{text}"
    assert cmedteb.task("CMedTEB-STS").instruction.query == "Retrieve semantically similar text."
    assert all(task.instruction.query and not task.instruction.document for task in cmedteb.tasks)
    bm = load_suite("bmretriever")
    assert bm.templates.document == "{instruction}\npassage: {text}"
    assert {task.instruction.document for task in bm.tasks} == {"Represent this passage"}
    assert bm.task("DrugBank").instruction.query == "Given a drug, retrieve passages for its definition"
    kinds = [task.hyde for task in load_suite("cmirb").tasks]
    assert (kinds.count("q2p"), kinds.count("t2p"), kinds.count("p2p")) == (7, 2, 1)


def test_counts_agree_with_the_published_statistics():
    names = {"Medical": "MedicalRet.", "Cmedqa": "CmedqaRet.", "Covid": "CovidRet."}
    names |= {"DXYDis.": "DXYDisease", "DXYCon.": "DXYConsult"}
    printed = {(f.row, f.column): f.number for f in published("automir", 1)}
    for task in load_suite("cmirb").tasks:
        row = names.get(task.published[0].column, task.published[0].column)
        assert (task.counts.queries, task.counts.documents) == (printed[row, "Queries"], printed[row, "Documents"])
    retrieval = load_suite("cmedteb").task("CMedTEB-Retrieval").counts
    assert (retrieval.queries, retrieval.documents, retrieval.relevant_per_query) == (734, 229_457, 8.43)


def test_averages_are_named_and_grouped():
    groups = {name: {a.name: len(a.over) for a in load_suite(name).averages} for name in TASKS}
    assert groups["cmedteb"] == {"average": 5, "new three": 3, "cmedqa": 2, "retrieval and rerank": 2}
    five = {"knowledge": 3, "consultation": 3, "news": 1, "post": 1, "literature": 2}
    assert groups["cmirb"] == {**five, "average": 10, "average recall@100": 10}
    assert groups["bmretriever"] == {"retrieval": 4, "all five": 5, "question answering": 3, "entity linking": 2}
    assert groups["cardioembed"] == {}
    new = next(a for a in load_suite("cmedteb").averages if a.name == "new three")
    assert new.over == ("CMedTEB-Retrieval", "CMedTEB-Rerank", "CMedTEB-STS") and new.metric is None


def test_a_suite_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        load_suite("cmirb").tasks[0].split = "train"


def test_an_unpinned_task_demands_a_revision():
    task = load_suite("cmirb").task("MedExamRetrieval")
    with pytest.raises(SuiteError, match=r"MedExamRetrieval.*CMIRB/MedExamRetrieval.*--revision COMMIT.*hf download"):
        task.source()
    assert task.source("main") == task.hub.model_copy(update={"revision": "main"})


def test_a_pinned_task_needs_nothing_and_one_without_a_hub_copy_a_path():
    assert load_suite("cmedteb").task("CMedQAv2-reranking").source().revision.startswith("01399b69")
    with pytest.raises(SuiteError, match=r"CMedTEB-Retrieval: no public copy.*local path.*beir"):
        load_suite("cmedteb").task("CMedTEB-Retrieval").source("main")


def test_an_unknown_task_or_suite_names_the_choices(tmp_path):
    with pytest.raises(SuiteError, match=r"no task 'SciFac'. Did you mean 'SciFact'\? Choose one of: .*SciFact"):
        load_suite("cardioembed").task("SciFac")
    with pytest.raises(SuiteError, match=r"No suite 'cmedtab'.*Did you mean 'cmedteb'\?.*cmedteb, cmirb"):
        load_suite("cmedtab")
    with pytest.raises(SuiteError, match="one of: bmretriever"):
        load_suite(tmp_path)


def test_a_suite_of_ones_own_loads(suite_file):
    suite = load_suite(suite_file(GOOD))
    assert suite.paper is None and suite.tasks[0].hub.id is None and suite.tasks[0].counts.queries is None
    assert load_suite(str(suite_file(GOOD))) == suite


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"ndcg@10"', '"ndgc@10"', r"tasks\[0\] \(One\): Unknown metric 'ndgc@10'; known are ndcg"),
        ('"ndcg@10"', '"ndcg@0"', r"\(One\): Metric 'ndcg@0' has no usable cutoff"),
        ('"ndcg@10"', '"pearson"', r"\(One\): Metric 'pearson' does not measure a retrieval task; choose from: ndcg"),
        ('"ndcg@10"', '"ndcg@10", "ndcg@10"', "named twice"),
        ('["ndcg@10"]', "[]", r"\(One\)\.metrics: .*at least 1"),
        ('kind = "retrieval"', 'kind = "sts"', "'ndcg@10' does not measure a sts task; choose from: pearson, spearman"),
        ('kind = "retrieval"', 'kind = "search"', r"\(One\)\.kind: Input should be 'retrieval', 'rerank'"),
        ('split = "test"', "", r"\(One\)\.split: missing\. Add it"),
        ('split = "test"', 'split = "test"\nsplits = 1', r"\(One\)\.splits: no such key\. Remove it"),
        ("counts = {}", "counts = { querys = 3 }", r"\(One\)\.counts\.querys: no such key"),
        ("counts = {}", "counts = { queries = 0 }", r"\(One\)\.counts\.queries: .*greater than or equal to 1"),
        ('revision = ""', 'revision = "main"', r"\(One\)\.hub\.revision: 'main' is no commit; write its 40"),
        ('layouts = ["beir"]', 'layouts = ["bier"]', r"\(One\)\.layouts\[0\]: Input should be 'beir'"),
        ('paper = ""', 'papr = ""', r"paper: missing"),
        ('title = "Mine"', "title = 3", r"title: Input should be a valid string"),
        ("counts = {}", 'counts = {}\npublished = [{ table = 1, column = "x", metric = "mrr" }]', "add it to metrics"),
    ],
)
def test_a_bad_suite_file_names_file_key_and_fix(suite_file, old, new, said):
    assert old in GOOD
    path = suite_file(GOOD.replace(old, new))
    with pytest.raises(SuwenError, match=said) as caught:
        load_suite(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ('[[averages]]\nname = "a"\nover = ["Two"]', "average 'a' names no task 'Two'; there are: One"),
        (
            '[[averages]]\nname = "a"\nover = ["One"]\nmetric = "mrr@5"',
            "average 'a' needs 'mrr@5' in the metrics of 'One'",
        ),
        ('[[averages]]\nname = "a"\nover = ["One"]\n' * 2, "two averages are called 'a'"),
        (GOOD[GOOD.index("[[tasks]]") :], "two tasks are called 'One'"),
    ],
)
def test_names_must_hold_together(suite_file, extra, said):
    with pytest.raises(SuiteError, match=said):
        load_suite(suite_file(GOOD + "\n" + extra))


def test_every_fault_of_a_file_is_told_at_once(suite_file):
    text = GOOD.replace('split = "test"', "").replace('language = "zh"', 'language = "fr"')
    with pytest.raises(SuiteError) as caught:
        load_suite(suite_file(text))
    assert len(str(caught.value).splitlines()) == 2


def test_broken_toml_and_bytes_that_are_no_text(suite_file, tmp_path):
    with pytest.raises(SuiteError, match=r"mine\.toml: not a TOML file.*line 2"):
        load_suite(suite_file('name = "x"\ntitle = \n'))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SuiteError, match=r"binary\.toml: not a TOML file"):
        load_suite(tmp_path / "binary.toml")


def test_a_relative_path_is_meant_from_the_suite_file(suite_file, tmp_path, monkeypatch):
    path = suite_file(GOOD.replace("counts = {}", 'counts = {}\npath = "data/one"'))
    monkeypatch.chdir("/")
    assert load_suite(path).tasks[0].path == str((tmp_path / "data" / "one").resolve())


def test_scaffold_writes_a_suite_that_loads(tmp_path):
    folder = collection(tmp_path / '我的 "库"', ("test", "dev"))
    suite = scaffold_local(tmp_path / "own.toml", folder)
    assert [task.name for task in suite.tasks] == ['我的 "库"-dev', '我的 "库"-test']
    assert {task.path for task in suite.tasks} == {str(folder.resolve())}
    assert load_suite(tmp_path / "own.toml") == suite
    assert suite.name == "own" and suite.tasks[1].main == "ndcg@10"


def test_scaffold_never_overwrites(tmp_path):
    folder = collection(tmp_path / "data")
    path = tmp_path / "own.toml"
    path.write_text("precious")
    with pytest.raises(SuiteError, match=r"own\.toml exists"):
        scaffold_local(path, folder)
    assert path.read_text() == "precious"


def test_scaffold_wants_a_collection_and_a_folder_to_write_in(tmp_path):
    with pytest.raises(SuiteError, match=r"lacks corpus\.jsonl and queries\.jsonl; a collection is a folder with"):
        scaffold_local(tmp_path / "own.toml", tmp_path / "nothing")
    folder = collection(tmp_path / "data", ())
    with pytest.raises(SuiteError, match=r"lacks a qrels/<split>\.tsv"):
        scaffold_local(tmp_path / "own.toml", folder)
    assert not (tmp_path / "own.toml").exists()
    (folder / "qrels" / "test.tsv").write_text("")
    with pytest.raises(SuiteError, match="choose a folder that exists"):
        scaffold_local(tmp_path / "no" / "own.toml", folder)


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_survives_the_template(text):
    text = text.encode("utf-8", "replace").decode("utf-8")
    assert tomllib.loads(f"x = {_quoted(text)}")["x"] == text


def test_main_is_the_first_metric():
    assert Task.model_validate(tomllib.loads(GOOD)["tasks"][0]).main == "ndcg@10"
