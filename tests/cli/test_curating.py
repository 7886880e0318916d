"""``suwen curate``: every verb end to end over a real server, its dry run, its exit codes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))

from server import Says, Server

from suwen.cli.curating import curate_app
from suwen.corpora.collection import Collection, write_collection
from suwen.corpora.question_files import content_hash, read_questions
from suwen.corpora.records import Document, Query
from suwen.corpora.training_rows import read_training_rows
from suwen.errors import SuwenError
from suwen.jury.verdicts import Verdict, write_verdicts
from suwen.retrieve.retriever import Index

Run = Callable[..., Result]
DRUGS = ("布洛芬", "阿司匹林", "二甲双胍", "华法林", "阿莫西林", "奥美拉唑")
DOCUMENTS = [Document(f"d{n}", f"{drug}应当在饭后服用，每日不超过三次。", drug) for n, drug in enumerate(DRUGS)]
QUERIES = [Query(f"q{n}", f"{drug}什么时候服用比较好") for n, drug in enumerate(DRUGS)]


def written(asked: str) -> str:
    """A query of a document, or a document of a query."""
    drug = next(drug for drug in DRUGS if drug in asked)
    return f"{drug}要怎么吃才好？" if "问题：" not in asked else f"{drug}一般建议饭后吃，一天最多三次，吃完多喝水。"


def play(body: dict[str, Any]) -> str:
    """Answers every prompt of the room: relevant is what names the query's drug."""
    if "response_format" not in body:
        return written(body["messages"][-1]["content"])
    content = body["messages"][1]["content"]
    schema = body["response_format"]["json_schema"]["schema"]["properties"]
    query = re.search("问题：(.+)", content)
    drug = next((drug for drug in DRUGS if query and drug in query[1]), "")
    passages = re.findall(r"【(P\d+)】\n(.+(?:\n.+)?)", content)
    if "P1" in schema:
        return json.dumps({label: "yes" if drug in text else "no" for label, text in passages})
    if "same" in schema:
        term, synonym = re.search("名词“(.+?)”有一个同义说法“(.+?)”", content).groups()
        made = {"same": f"{synonym}何时服用会比较好呢？", "other_with_synonym": f"{synonym}的常见副作用有哪些？"}
        return json.dumps(made | {"other_with_term": f"{term}一盒要花多少钱呢？"}, ensure_ascii=False)
    if "best" in schema:
        return json.dumps({"best": [label for label, text in passages if drug in text][:3]})
    said = {
        "medical": {"reason": "", "medical": 1},
        "spans": {"spans": ["应当在饭后服用"]},
        "answerable": {"reason": "", "answerable": True, "answer": "饭后"},
        "similarity": {"reason": "", "similarity": 1},
        "quality": {"reason": "", "quality": 5},
        "query": {"query": f"{next((one for one in DRUGS if one in content), '')}怎么吃"},
        "tasks": {"tasks": [f"给出{one}，找出与它有关的说明{one * 9}" for one in DRUGS]},
        "positive": {"query": "x" * 9, "positive": content[:60], "negative": "不" * 20},
        "found": {"found": [{"kind": "name", "text": "阿强"}] if "阿强" in content else []},
    }
    # The key that comes last says most: an example has a query too.
    return json.dumps([value for key, value in said.items() if key in schema][-1], ensure_ascii=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(play) as made:
        yield made


@pytest.fixture
def curate(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, small: Path) -> Run:
    """Runs ``suwen curate ARGUMENTS`` in a folder with a suwen.toml, the model being ``m``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUWEN_PAIR", str(small))
    text = f'[llm.endpoints.here]\nbase_url = "{server.url}"\nbackoff = 0.01\n'
    text += '[llm.models.m]\nendpoint = "here"\nmodel = "scripted"\nmax_tokens = 256\n'
    text += (
        '[llm.models.dead]\nendpoint = "gone"\nmodel = "x"\n[llm.endpoints.gone]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    text += 'attempts = 1\n[llm.models.keyed]\nendpoint = "locked"\nmodel = "x"\n'
    text += f'[llm.endpoints.locked]\nbase_url = "{server.url}"\nkey_env = "NO_SUCH_KEY"\n'
    (tmp_path / "suwen.toml").write_text(text, encoding="utf-8")
    return lambda *arguments: CliRunner().invoke(curate_app, [str(argument) for argument in arguments])


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "collection", DOCUMENTS, QUERIES, {}).path


@pytest.fixture
def index(tmp_path: Path, small: Path) -> Path:
    with Index.create(tmp_path / "index", pair=small) as made:
        made.add(DOCUMENTS)
    return tmp_path / "index"


def said(result: Result) -> Any:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)


def test_assemble(curate: Run, collection: Path, tmp_path: Path) -> None:
    verdicts = [
        Verdict(query.id, document.id, "positive" if query.id[1:] == document.id[1:] else "negative")
        for query in QUERIES
        for document in DOCUMENTS
    ]
    write_verdicts(tmp_path / "verdicts.jsonl", verdicts)
    told = said(curate("assemble", collection, tmp_path / "verdicts.jsonl", "bench", "--negatives", 2, "--json"))
    assert told["funnel"]["test_queries"] == 6 and [line["kind"] for line in told["statistics"]] == [
        "retrieval",
        "rerank",
    ]
    assert (tmp_path / "bench" / "suite.toml").is_file()
    shown = curate("assemble", collection, tmp_path / "verdicts.jsonl", "other")
    assert shown.exit_code == 0 and "suwen bench run" in shown.stdout and "Avg. pos. / share" in shown.stdout


def test_synonyms(curate: Run, collection: Path, tmp_path: Path, server: Server) -> None:
    (tmp_path / "names.tsv").write_text("name\taliases\n布洛芬\t异丁苯丙酸\n阿司匹林\t乙酰水杨酸\n", encoding="utf-8")
    line = ("synonyms", collection, "names.tsv", "sts", "-m", "m", "--json")
    plan = said(curate(*line, "--dry-run"))
    assert plan["plan"][0]["calls"] == 2 and server.total == 0 and not (tmp_path / "sts").exists()
    told = said(curate(*line))
    assert told["funnel"]["rewritten"] == 2 and len((tmp_path / "sts" / "test.jsonl").read_text().splitlines()) == 2


def test_cmirb(curate: Run, collection: Path, tmp_path: Path, server: Server) -> None:
    line = ("cmirb", collection, "made", "-m", "m", "--json")
    plan = said(curate(*line, "--dry-run"))
    assert plan["total"]["calls"] > 12 and server.total == 0
    told = said(curate(*line))
    assert told["funnel"]["kept"] == 6 and Collection.open(tmp_path / "made").check() == []
    assert server.total <= plan["total"]["calls"]
    again = curate(*line)
    assert isinstance(again.exception, SuwenError) and "there already" in str(again.exception)


def test_rows(curate: Run, collection: Path, index: Path, tmp_path: Path, server: Server) -> None:
    line = ("rows", collection, index, "rows.jsonl", "-m", "m", "--seeds", 0, "--threshold", 1.0, "--json")
    assert said(curate(*line, "--dry-run"))["total"]["calls"] == 6 and server.total == 0
    stopped = curate(*line, "--calls", 2)
    assert stopped.exit_code == 3 and not (tmp_path / "rows.jsonl").exists() and "budget is spent" in stopped.stderr
    told = said(curate(*line))
    assert told["funnel"]["rows"] == 6 and told["steps"][0]["cached"] == 2 and server.repeated == 0
    rows = list(read_training_rows(tmp_path / "rows.jsonl"))
    assert all(row.query[:2] in row.pos[0] and not any(row.query[:2] in text for text in row.neg) for row in rows)


def test_synthesise_then_keep_what_is_found_again(
    curate: Run, collection: Path, index: Path, tmp_path: Path, server: Server
) -> None:
    line = ("synthesise", "made.jsonl", "--from", collection, "--dataset", "药品说明", "-m", "m", "--json")
    assert "no instruction for the data set" in str(curate(*line).exception)
    line = (*line, "--instruction", "找出说明")
    assert said(curate(*line, "--dry-run"))["total"]["calls"] == 6 and server.total == 0
    assert said(curate(*line))["funnel"]["rows"] == 6
    told = said(curate("round-trip", "made.jsonl", index, "kept.jsonl", "--mode", "lexical", "--top", 1, "--json"))
    assert told["read"] == told["kept"] == 6 and len(list(read_training_rows(tmp_path / "kept.jsonl"))) == 6
    assert said(curate("sample", "kept.jsonl", "check", "--size", 4, "--json"))["rows_to_check"] == 4
    few = curate("synthesise", "few.jsonl", "--tasks", 60, "-m", "m", "--json")
    assert "60 tasks were asked for and" in few.stderr and said(few)["funnel"]["tasks_asked_for"] == 60
    told = said(curate("synthesise", "tasks.jsonl", "--tasks", 6, "-m", "m", "--json"))
    assert told["funnel"]["tasks"] == 6 and told["funnel"]["repeated"] == 5


def test_questions_to_index_by(curate: Run, collection: Path, tmp_path: Path, server: Server) -> None:
    line = ("synthesise", "asked.jsonl", "--from", collection, "--questions", 2, "-m", "m", "--json")
    assert said(curate(*line, "--dry-run"))["total"]["calls"] == 12 and server.total == 0
    outcome = said(curate(*line))
    assert [(step["name"], step["calls"], step["failed"]) for step in outcome["steps"]] == [("queries", 12, 0)]
    told = outcome["funnel"]
    # Both draws of this model are the same.
    assert (told["passages"], told["questions"], told["repeated"], told["kept"], told["asked"]) == (6, 6, 6, 12, 12)
    lines = list(read_questions(tmp_path / "asked.jsonl"))
    documents = {document.id: document for document in Collection.open(collection).documents()}
    assert len(lines) == 6
    for asked in lines:
        document = documents[asked.id.removesuffix("#0")]
        assert asked.sha1 == content_hash(document.content)
        assert asked.questions[0].removesuffix("要怎么吃才好？") in document.text
    assert "name their source with --from" in str(curate(*line[:2], *line[4:]).exception)


def test_what_got_no_reply_of_use_is_told_where_texts_are_written(
    curate: Run, collection: Path, server: Server
) -> None:
    """A model that says nothing about aspirin, and of metformin only what stands there."""

    def play(body: dict[str, Any]) -> str | Says:
        content = body["messages"][-1]["content"]
        document = "二甲双胍应当在饭后服用，每日不超过三次。"
        refused = Says("", refusal="no") if "阿司匹林" in content else ""
        return refused or (document if document in content else written(content))

    server.play = play
    asked = curate("synthesise", "asked.jsonl", "--from", collection, "--questions", 2, "-m", "m", "--json")
    made = curate("rewrites", collection, "made.jsonl", "-m", "m", "--candidates", 2, "--tier", "static", "--json")
    for outcome, failed in ((asked, 2), (made, 1)):
        assert outcome.exit_code == 3 and f"{failed} requests got no reply that could be used" in outcome.stderr
        told = said(outcome)
        assert told["total"]["failed"] == failed and "refused" in told["problem"]
        account = told["funnel"]
        assert account["asked"] == sum(account[name] for name in ("kept", "copied", "unanswered"))
        assert account["asked"] == sum(step["calls"] + step["cached"] for step in told["steps"])


def test_rewrites(curate: Run, collection: Path, tmp_path: Path, server: Server) -> None:
    texts = (collection / "corpus.jsonl").read_text(encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text('{"_id": "empty", "text": ""}\n' + texts, encoding="utf-8")
    line = ("rewrites", "texts.jsonl", "made.jsonl", "-m", "m", "--candidates", 2, "--tier", "static", "--json")
    assert said(curate(*line, "--dry-run"))["total"]["calls"] == 6 + 12 and server.total == 0
    told = said(curate(*line))["funnel"]
    assert (told["documents"], told["unreadable"], told["rewrites"], told["kept"]) == (6, 1, 6, 18)
    rows = list(read_training_rows(tmp_path / "made.jsonl"))
    assert all(row.query.removesuffix("要怎么吃才好？") in row.pos[0] for row in rows)
    stopped = curate(*line, "--seed", 1, "--calls", 2)
    assert stopped.exit_code == 3 and "budget is spent" in stopped.stderr


def test_mine(curate: Run, index: Path, tmp_path: Path) -> None:
    row = {"query": QUERIES[0].text, "pos": [DOCUMENTS[0].text]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    told = said(curate("mine", "rows.jsonl", index, "mined.jsonl", "--first", 1, "--margin", 0, "--count", 2, "--json"))
    assert told["rows"] == 1 and told["negatives"] == 2
    assert len(next(read_training_rows(tmp_path / "mined.jsonl")).neg) == 2


def test_mine_on_our_own_training_file(curate: Run, index: Path, collection: Path, tmp_path: Path) -> None:
    """The rows that `assemble` writes have titles, as the index has, and negatives of their own."""
    verdicts = [
        Verdict(query.id, document.id, "positive" if n == m else "negative")
        for n, query in enumerate(QUERIES)
        for m, document in enumerate(DOCUMENTS[:3] if n < 3 else DOCUMENTS[3:], 0 if n < 3 else 3)
    ]
    write_verdicts(tmp_path / "verdicts.jsonl", verdicts)
    assert said(curate("assemble", collection, "verdicts.jsonl", "made", "--train", 0.5, "--json"))
    rows = list(read_training_rows(tmp_path / "made" / "train.jsonl.gz"))
    brought = sum(len(row.neg) for row in rows)
    assert rows and all("\n" in row.pos[0] for row in rows) and brought
    line = ("mine", "made/train.jsonl.gz", index, "mined.jsonl", "--first", 1, "--margin", 1, "--count", 2, "--json")
    told = said(curate(*line))
    mined = list(read_training_rows(tmp_path / "mined.jsonl"))
    added = sum(len(row.neg) for row in mined) - brought
    assert told["negatives_added"] == added > 0 and told["negatives"] == added + brought
    assert told["rows_without_a_new_one"] == sum(len(a.neg) == len(b.neg) for a, b in zip(rows, mined, strict=True))
    assert all("\n" in text for row in mined for text in row.neg)


def test_rows_are_verified_with_their_titles(curate: Run, index: Path, collection: Path, tmp_path, server) -> None:
    told = said(curate("rows", collection, index, "rows.jsonl", "-m", "m", "--depth", 6, "--all", "--json"))
    assert told["funnel"]["rows"] == 6
    shown = [body["messages"][1]["content"] for _, body, _ in server.log]
    assert shown and all(f"】\n{drug}\n{drug}应当" in text for text in shown for drug in DRUGS)
    for row, drug in zip(read_training_rows(tmp_path / "rows.jsonl"), DRUGS, strict=True):
        assert row.pos == (f"{drug}\n{drug}应当在饭后服用，每日不超过三次。",) and all("\n" in text for text in row.neg)


def test_unknown_fields_survive_anonymise(curate: Run, tmp_path: Path) -> None:
    records = [
        {
            "_id": "a",
            "title": "记录",
            "text": "患者王建国，电话13912345678。",
            "科室": "心内科",
            "visits": [{"day": 3, "by": "王建国"}],
        },
        {"id": 7, "content": "咳嗽三天。", "empty": None, "tel": 13912345678, "metadata": {"kept": True}},
    ]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (tmp_path / "notes.jsonl").write_text(lines, encoding="utf-8")
    assert said(curate("anonymise", "notes.jsonl", "masked.jsonl", "-m", "m", "--json"))["funnel"]["documents"] == 2
    one, two = map(json.loads, (tmp_path / "masked.jsonl").read_text("utf-8").splitlines())
    assert set(one) == set(records[0]) and one["科室"] == "心内科" and one["visits"][0]["day"] == 3
    assert "王建国" not in json.dumps(one, ensure_ascii=False) and "13912345678" not in json.dumps(one)
    assert two["id"] == 7 and set(two) == {"id", "content", "empty", "tel", "metadata"} and two["empty"] is None
    assert two["metadata"] == {"kept": True} and "13912345678" not in json.dumps(two)


def test_fields_of_a_table_survive_anonymise_as_json_can_carry_them(curate: Run, tmp_path: Path) -> None:
    columns = {"text": ["咳嗽三天。"], "day": [date(2024, 1, 2)], "value": [float("nan")], "dose": [2.5]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "notes.parquet")
    assert said(curate("anonymise", "notes.parquet", "masked.jsonl", "-m", "m", "--json"))["funnel"]["documents"] == 1
    one = json.loads((tmp_path / "masked.jsonl").read_text("utf-8"))
    assert {name: one[name] for name in columns} == {
        "text": "咳嗽三天。",
        "day": "2024-01-02",
        "value": None,
        "dose": 2.5,
    }
    assert one["_id"]


def test_ids_survive_diversify(curate: Run, collection: Path, tmp_path: Path) -> None:
    said(curate("diversify", collection, "kept.jsonl", "--seeds", 6, "--json"))
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text("utf-8").splitlines()]
    assert [(one["_id"], one["query"]) for one in kept] == [(query.id, query.text) for query in QUERIES]
    given = [{"_id": f"x{n}", "text": query.text, "source": {"page": n}} for n, query in enumerate(QUERIES)]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in given)
    (tmp_path / "asked.jsonl").write_text(lines, encoding="utf-8")
    said(curate("diversify", "asked.jsonl", "again.jsonl", "--seeds", 6, "--json"))
    again = (tmp_path / "again.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in again] == given


def test_no_negative_holds_what_is_held_out(curate: Run, index: Path, tmp_path: Path) -> None:
    row = {"query": QUERIES[0].text, "pos": [DOCUMENTS[0].text]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    held = [{"text": document.text} for document in DOCUMENTS[1:4]]
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in held)
    (tmp_path / "held.jsonl").write_text(lines, encoding="utf-8")
    line = ("mine", "rows.jsonl", index, "mined.jsonl", "--first", 1, "--margin", 0, "--json")
    told = said(curate(*line, "--held-out", "held.jsonl"))
    negatives = next(read_training_rows(tmp_path / "mined.jsonl")).neg
    assert told["held_out"] == 3 and negatives
    assert not any(document.text in text for document in DOCUMENTS[1:4] for text in negatives)


def test_convert(curate: Run, tmp_path: Path) -> None:
    (tmp_path / "mqp.csv").write_text("1,Is it flu?,Do I have flu?,1\n1,Is it flu?,What is flu?,0\n", encoding="utf-8")
    (tmp_path / "held.jsonl").write_text('{"text": "flu is a disease"}\n', encoding="utf-8")
    told = said(curate("convert", "mqp", "mqp.csv", "rows.jsonl", "--held-out", "held.jsonl", "--json"))
    assert (told["records"], told["rows"], told["out"]) == (2, 1, "rows.jsonl")
    row = next(read_training_rows(tmp_path / "rows.jsonl"))
    assert row.prompt == "Given a sentence, retrieve sentences with the same meaning" and row.neg == ("What is flu?",)
    assert "evaluation set" in str(curate("convert", "pubmedqa", "mqp.csv", "rows.jsonl").exception)
    (tmp_path / "med.jsonl").write_text('{"description": "Flu.", "utterances": ["Is it?", "No."]}\n', encoding="utf-8")
    told = curate("convert", "healthcaremagic", "med.jsonl", "rows.jsonl")
    assert "1  of unknown origin" in told.stdout and "1 records do not say where they come from" in told.stderr


def test_pairs(curate: Run, collection: Path, tmp_path: Path) -> None:
    documents = [{"title": drug, "text": document.text * 3} for drug, document in zip(DRUGS, DOCUMENTS, strict=True)]
    lines = (json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    (tmp_path / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    told = said(curate("pairs", "texts.jsonl", "pairs.jsonl", "--count", 3, "--json"))
    assert told["rows"] == told["pairs of texts.jsonl"] == 3
    assert next(read_training_rows(tmp_path / "pairs.jsonl")).query == DRUGS[0]


def test_diversify(curate: Run, collection: Path, tmp_path: Path) -> None:
    told = said(curate("diversify", collection, "kept.jsonl", "--seeds", 0, "--threshold", 0.5, "--most", 0, "--json"))
    kept = (tmp_path / "kept.jsonl").read_text("utf-8").splitlines()
    assert told["judged"] == 6 and len(kept) == told["kept"] < 6
    told = said(
        curate("diversify", collection, "docs.jsonl", "--kind", "documents", "--threshold", 1.0, "--seeds", 2, "--json")
    )
    assert told["seeds"] == 2 and len((tmp_path / "docs.jsonl").read_text("utf-8").splitlines()) == 6
    assert "give a lower --seeds" in curate("diversify", collection, "all.jsonl").stderr


def test_anonymise(curate: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text(
        '{"_id": "a", "text": "患者王小明，小名阿强，头痛三天。"}\n', encoding="utf-8"
    )
    line = ("anonymise", "notes.jsonl", "masked.jsonl", "-m", "m", "--sheet", "check.csv", "--share", 1, "--json")
    assert said(curate(*line, "--dry-run"))["total"]["calls"] == 1 and not (tmp_path / "masked.jsonl").exists()
    told = said(curate(*line))
    assert told["funnel"] | {"by_rules": 1, "by_model": 1, "to_check": 1} == told["funnel"]
    assert json.loads((tmp_path / "masked.jsonl").read_text("utf-8"))["text"] == "患者[姓名1]，小名[姓名2]，头痛三天。"
    assert "阿强" not in (tmp_path / "check.csv").read_text("utf-8-sig")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("-m", "n"), "no model is called 'n'"),
        (("-m", "keyed"), "NO_SUCH_KEY is not set"),
        (("-m", "dead"), "gone"),
        (("-m", "m", "--calls", "0"), "allows no call"),
        (("-m", "m", "--config", "none.toml"), "there is no none.toml"),
    ],
)
def test_what_is_wrong_is_told_before_money_is_spent(
    curate: Run, collection: Path, index: Path, server: Server, options: tuple[str, ...], problem: str
) -> None:
    result = curate("rows", collection, index, "rows.jsonl", *options)
    assert isinstance(result.exception, SuwenError) and problem in str(result.exception)
    assert server.total == 0


def test_replies_that_cannot_be_used_give_exit_code_3(
    curate: Run, collection: Path, index: Path, server: Server
) -> None:
    server.play = lambda body: "nonsense" if DRUGS[0] in body["messages"][1]["content"].split("\n")[0] else play(body)
    result = curate("rows", collection, index, "rows.jsonl", "-m", "m", "--all")
    assert result.exit_code == 3 and "got no reply that could be used" in result.stderr
    assert "without a positive" in result.stdout
