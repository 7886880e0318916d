"""``suwen jury`` end to end: pool, dry run, judge, consensus, review, report, audit, against a scripted server."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "jury"))
from court import judges
from server import Server
from small_pair import NOTES

from suwen.cli.jury import jury_app
from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.errors import SuwenError
from suwen.jury.verdicts import read_verdicts

QUERIES = [Query("q1", "高血压患者怎么吃"), Query("q2", "尿酸结石能溶解吗"), Query("q3", "孕妇能打流感疫苗吗")]
RIGHT = {"高血压患者怎么吃": "低盐", "尿酸结石能溶解吗": "碱化", "孕妇能打流感疫苗吗": "孕妇"}


def opinion(model, query, passage):
    if RIGHT[query] in passage:
        return "S" if model == "one" else "A"
    return "A" if model == "kind" and "肾病" in passage else "D"


@pytest.fixture
def server():
    with Server(judges(opinion), models=("one", "kind")) as running:
        yield running


@pytest.fixture
def jury(capfd, monkeypatch, small, tmp_path, server):
    """Runs ``suwen jury ARGUMENTS --json`` and gives its exit code and what it printed."""
    monkeypatch.setenv("SUWEN_PAIR", str(small))
    monkeypatch.chdir(tmp_path)
    models = "".join(f'[llm.models.{n}]\nendpoint = "here"\nmodel = "{n}"\nprice_in = 1.0\n' for n in ("one", "kind"))
    Path("suwen.toml").write_text(f'[llm.endpoints.here]\nbase_url = "{server.url}"\nbackoff = 0.01\n{models}')
    documents = [Document(id_, text, title) for id_, title, text, _ in NOTES]
    qrels = {"test": [Qrel("q1", "bp", 1), Qrel("q2", "sleep", 1), Qrel("q3", "flu", 1)]}
    write_collection("collection", documents, QUERIES, qrels)

    def call(*arguments, as_json=True):
        capfd.readouterr()
        code = 0
        try:
            code = jury_app([*map(str, arguments), *(["--json"] if as_json else [])], standalone_mode=False) or 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capfd.readouterr().out
        return code, json.loads(said) if as_json and said.strip() else said

    return call


def test_from_a_collection_to_a_report(jury, server):
    code, pooled = jury("pool", "collection", "work", "--with", "lexical", "--with", "dense", "--depth", 5)
    assert code == 0 and pooled["queries"] == 3 and pooled["pairs"] >= 15
    code, plan = jury(
        "judge", "work", "-j", "one", "-j", "kind", "-j", "kind:en", "--batch", 4, "--again", 0.3, "--dry-run"
    )
    assert code == 0 and plan["calls"] > 0 and plan["tokens"] > 0 and plan["cost"] > 0 and server.total == 0
    code, done = jury("judge", "work", "-j", "one", "-j", "kind", "-j", "kind:en", "--batch", 4, "--again", 0.3)
    assert code == 0 and done["spent"]["calls"] == plan["calls"] == server.total and done["abstentions"] == 0
    code, labels = jury("consensus", "work")
    assert code == 0 and labels["positive"] == 3 and labels["undecided"] >= 1
    positives = {(v.query_id, v.passage_id) for v in read_verdicts("work/verdicts.jsonl") if v.label == "positive"}
    assert positives == {("q1", "bp"), ("q2", "stone"), ("q3", "flu")}
    assert jury("consensus", "work", "--jury", "one", "--out", "one.jsonl")[1].get("undecided") is None
    code, found = jury("report", "work")
    assert found["funnel"]["positive"] == 3 and 0 < found["agreement"]["sides"]["value"] < 1
    assert found["positions"][0]["same_grade"] == 1.0 and found["ledger"][0]["calls"] > 0
    assert "Fleiss" in Path("work/report.html").read_text(encoding="utf-8")


def test_experts_by_csv_change_the_labels(jury):
    jury("pool", "collection", "work", "--depth", 4)
    jury("judge", "work", "-j", "one", "-j", "kind")
    jury("consensus", "work")
    code, sample = jury("review", "sample", "work", "--size", 200)
    assert code == 0 and sample["pairs"] == sum(taken for taken, _ in sample["strata"].values())
    with pytest.raises(SuwenError, match="--again"):
        jury("review", "sample", "work")
    with Path("work/review/sample.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "positive" if RIGHT[row["query"]] in row["passage"] else "negative"
    with Path("li.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert jury("review", "import", "work", "li.csv", "--reviewer", "li") == (0, {"new": len(rows)})
    code, agreed = jury("review", "agreement", "work")
    assert agreed["overall"]["share"]["value"] == 1.0 and agreed["undecided"]["negative"] >= 1
    assert jury("consensus", "work")[1]["undecided"] >= 1
    code, final = jury("consensus", "work", "--reviewed")
    assert "undecided" not in final and final["positive"] == 3
    changed = [v for v in read_verdicts("work/verdicts.jsonl") if v.history[0]["label"] == "undecided"]
    assert changed and all(v.history[-1]["by"] == "experts" and len(v.votes) == 2 for v in changed)
    assert "Expert review" in (jury("report", "work") and Path("work/report.html").read_text(encoding="utf-8"))
    assert "weighted" in jury("review", "agreement", "work", as_json=False)[1]


def test_an_audit_finds_what_the_benchmark_has_wrong(jury, server):
    arguments = ("audit", "collection", "work", "-j", "one", "--split", "test", "--depth", 10)
    code, plan = jury(*arguments, "--dry-run")
    assert code == 0 and plan["calls"] == 3 and server.total == 0
    code, means = jury(*arguments)
    assert code == 0 and server.total == 3
    assert means["original positives"] == means["judged positives"] == 1.0
    assert means["false positives"] == means["false negatives"] == pytest.approx(1 / 3)
    assert jury(*arguments)[1] == means and server.total == 3
    assert "尿酸结石能溶解吗" in Path("work/audit.html").read_text(encoding="utf-8")


def test_a_budget_too_small_ends_with_code_3_and_the_rest_is_asked_later(jury, server):
    jury("pool", "collection", "work", "--depth", 4)
    code, done = jury("judge", "work", "-j", "one", "--batch", 2, "--calls", 2)
    assert code == 3 and done["stopped"] and server.total == 2
    assert jury("judge", "work", "-j", "one", "--batch", 2)[0] == 0 and server.repeated == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("judge", "work", "-j", "on", "--dry-run"), "did you mean 'one'"),
        (("judge", "work", "-j", "one", "--calls", "0"), "allows no call"),
        (("judge", "work", "-j", "one", "--cost", "0"), "allows no call"),
        (("judge", "nowhere", "-j", "one"), "suwen jury pool"),
        (("judge", "work", "-j", "one", "--batch", "0"), "1 to 100"),
        (("judge", "work", "-j", "one:fr", "--dry-run"), "not written in 'fr'"),
        (("judge", "work", "-j", "one", "-j", "one"), "one name"),
        (("consensus", "nowhere"), "suwen jury judge"),
        (("review", "sample", "nowhere"), "texts.db"),
        (("review", "agreement", "work"), "review sample"),
        (("pool", "collection", "work", "--with", "bm25"), "MODE"),
    ],
)
def test_bad_input_is_told_and_nothing_is_asked(jury, server, arguments, words):
    jury("pool", "collection", "work", "--depth", 2)
    with pytest.raises(SuwenError, match=words):
        jury(*arguments)
    assert server.total == 0


def test_an_endpoint_that_is_down_or_lacks_its_key_is_told(jury, server, monkeypatch):
    jury("pool", "collection", "work", "--depth", 2)
    text = Path("suwen.toml").read_text()
    Path("suwen.toml").write_text(text.replace(server.url, "http://127.0.0.1:9/v1"))
    assert jury("judge", "work", "-j", "one", "--dry-run")[0] == 0
    with pytest.raises(SuwenError, match=r"127\.0\.0\.1:9"):
        jury("judge", "work", "-j", "one")
    Path("suwen.toml").write_text(text.replace("backoff", 'key_env = "NO_SUCH_KEY"\nbackoff'))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(SuwenError, match="NO_SUCH_KEY"):
        jury("judge", "work", "-j", "one")
