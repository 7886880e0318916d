"""CMIRB's Algorithm 1 against a real server: each filter, the funnel, resumption, faults, bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from server import Fault, Server

from suwen.corpora.collection import Collection, write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.curate import CurateError
from suwen.curate.cmirb import Cmirb, CmirbSettings, choice, read_references
from suwen.jury.pooling import index_collection, index_retriever
from suwen.jury.texts import Texts
from suwen.llm.asker import Unfinished
from suwen.retrieve.retriever import Index

DOCUMENTS = [
    Document("gastric", "淋巴转移是胃癌的主要转移途径，进展期的转移率可达七成。", "胃癌的转移"),
    Document("gastric2", "胃癌也可以直接蔓延到邻近器官。", "胃癌的扩散"),
    Document("ocd", "强迫症表现为反复的强迫思维与强迫行为。", "强迫症"),
    Document("ocd2", "强迫症患者常反复洗手，反复检查门锁。", "强迫症的例子"),
    Document("match", "昨晚的强队比赛中，主队凭借门将的表现获胜。", "球赛"),
    Document("flu", "流感疫苗每年秋季接种。", "疫苗"),
]
QUERIES = [
    Query("q1", "胃癌最常见的转移途径是（）。A:直接蔓延，B:血行转移，D:淋巴转移"),
    Query("q2", "强迫症的表现是什么？"),
    Query("q3", "昨晚比赛谁赢了？"),
    Query("q4", "流感疫苗什么时候接种？"),
]
REFERENCES = {"q1": "D：淋巴转移", "q2": "反复的强迫思维和强迫行为"}


def play(body: dict[str, Any]) -> str:
    """A model that reads: what it says follows from the texts it is shown."""
    content = body["messages"][1]["content"]
    schema = body["response_format"]["json_schema"]["schema"]["properties"]
    query = match[1] if (match := re.search("问题：(.+)", content)) else ""
    if "medical" in schema:
        said: dict[str, Any] = {"reason": "…", "medical": int("比赛" not in content)}
    elif "best" in schema:
        labels = re.findall(r"【(P\d+)】\n(.+)\n(.+)", content)
        topic = next(word for word in ("胃癌", "强迫症", "疫苗") if word in query)
        said = {"best": [label for label, title, text in labels if topic in title + text][:3]}
    elif "spans" in schema:
        passage = content.split("资料：\n")[1].split("\n\n以 JSON")[0]
        text = passage.split("\n")[-1]
        # It invents evidence for one document.
        said = {"spans": ["患者什么都怕。"] if "洗手" in text else [text.rstrip("。"), "编造的一句"]}
    elif "answerable" in schema:
        evidence = content.split("证据：\n")[1].split("\n\n先")[0]
        if "胃癌" in query:
            said = {"reason": "…", "answerable": True, "answer": "D：淋巴转移" if "淋巴" in evidence else "A：直接蔓延"}
        else:
            said = {"reason": "…", "answerable": "疫苗" not in query, "answer": "强迫思维和强迫行为"}
    elif "similarity" in schema:
        said = {"reason": "…", "similarity": 0.95}
    else:
        said = {"reason": "…", "quality": 5 if "胃癌" in content else 4}
    return json.dumps(said, ensure_ascii=False)


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    qrels = [Qrel("q2", "ocd", 1), Qrel("q2", "ocd2", 1), Qrel("q3", "match", 1), Qrel("q4", "flu", 0)]
    return write_collection(tmp_path / "collection", DOCUMENTS, QUERIES, {"test": qrels})


@pytest.fixture
def words(collection: Collection, tmp_path: Path):
    index_collection(collection, tmp_path / "index")
    with Index.open(tmp_path / "index") as index:
        yield index_retriever(index, "lexical").search


def pipeline(ask: Any, url: str, collection: Collection, folder: Path, **more: Any) -> Cmirb:
    settings = CmirbSettings(**more.pop("settings", {}))
    references = more.pop("references", REFERENCES)
    folder.mkdir(exist_ok=True)
    (folder / "texts.db").unlink(missing_ok=True)
    asker = ask(url, **more)
    return Cmirb(collection, asker, Texts(folder / "texts.db", create=True), settings, references)


def test_the_whole_algorithm(ask, collection, words, tmp_path) -> None:
    with Server(play) as server:
        made = pipeline(ask, server.url, collection, tmp_path / "work")
        matches = made.run(words)
        validated = [body for _, body, _ in server.log if "similarity" in json.dumps(body["response_format"])]
    assert {(match.query_id, match.document_id) for match in matches} == {("q1", "gastric"), ("q2", "ocd")}
    first = next(match for match in matches if match.query_id == "q1")
    assert first.evidence == ["淋巴转移是胃癌的主要转移途径，进展期的转移率可达七成"]
    assert (first.similarity, first.quality, first.answer) == (1.0, 5, "D：淋巴转移")
    # The letters of q1 are compared without asking.
    assert len(validated) == 1
    funnel = made.funnel
    assert (funnel.queries, funnel.medical_queries, funnel.documents, funnel.medical_documents) == (4, 3, 6, 5)
    assert (funnel.chosen, funnel.with_evidence, funnel.answered, funnel.validated) == (5, 4, 3, 2)
    assert (funnel.pairs, funnel.kept, funnel.kept_queries, funnel.unanswered) == (2, 2, 2, 0)
    made.write(matches, tmp_path / "out")
    written = Collection.open(tmp_path / "out")
    assert written.check() == [] and written.qrels("test") == {"q1": {"gastric": 1}, "q2": {"ocd": 1}}
    assert "match" not in {document.id for document in written.documents()}
    assert json.loads((tmp_path / "out" / "about" / "funnel.json").read_text("utf-8"))["kept"] == 2


def test_without_a_reference_the_document_is_one(ask, collection, words, tmp_path) -> None:
    with Server(play) as server:
        pipeline(ask, server.url, collection, tmp_path / "work", references={}).run(words)
        asked = [body["messages"][1]["content"] for _, body, _ in server.log if "similarity" in json.dumps(body)]
    assert len(asked) == 3 and any("参考：\n强迫症\n强迫症表现为" in text for text in asked)


def test_given_pairs_are_only_scored(ask, collection, tmp_path) -> None:
    with Server(play) as server:
        made = pipeline(
            ask, server.url, collection, tmp_path / "work", settings={"quality": 5, "filter_documents": False}
        )
        assert made.run(None) == []
        assert (made.funnel.pairs, made.funnel.kept) == (2, 0)
        assert server.total == 4 + 2
        with pytest.raises(CurateError, match="no pair was kept"):
            made.write([], tmp_path / "out")


@pytest.mark.parametrize("calls", [2, 9, 12, 18])
def test_stopped_anywhere_it_goes_on_and_asks_nothing_twice(ask, collection, words, tmp_path, calls) -> None:
    with Server(play) as server:
        with pytest.raises(Unfinished):
            pipeline(ask, server.url, collection, tmp_path / "work", calls=calls).run(words)
        assert server.total == calls
        made = pipeline(ask, server.url, collection, tmp_path / "work")
        assert len(made.run(words)) == 2
        assert server.repeated == 0


def test_faults_change_nothing(ask, collection, words, tmp_path) -> None:
    kinds = (Fault("status", 429, retry_after="0"), Fault("cut-mid"), Fault("empty"), Fault("status", 503))
    with Server(play, lambda number, _: kinds[number // 2 % 4] if number % 2 else None) as server:
        made = pipeline(ask, server.url, collection, tmp_path / "work", attempts=40)
        assert len(made.run(words)) == 2 and made.funnel.unanswered == 0


def test_a_choice_of_passages_that_are_not_there_is_sent_back(ask, collection, words, tmp_path) -> None:
    def wrong(body: dict[str, Any]) -> str:
        said = json.loads(play(body))
        if "best" in said and len(body["messages"]) == 2:
            said["best"] = ["P1", "P99"]
        return json.dumps(said, ensure_ascii=False)

    with Server(wrong) as server:
        made = pipeline(ask, server.url, collection, tmp_path / "work")
        assert len(made.run(words)) == 2
        assert any("there is no passage P99" in body["messages"][-1]["content"] for _, body, _ in server.log)


def test_a_dry_run_plans_the_most(ask, collection, words, tmp_path) -> None:
    with Server(play) as server:
        planned = pipeline(ask, server.url, collection, tmp_path / "work", dry_run=True)
        planned.run(words)
        assert server.total == 0
        real = pipeline(ask, server.url, collection, tmp_path / "work")
        real.run(words)
    most = {name: step.calls for name, step in planned.asker.steps.items()}
    assert list(most) == list(real.asker.steps)
    assert all(step.calls <= most[name] for name, step in real.asker.steps.items() if name != "validate")
    assert most["medical queries"] == 4 and most["medical documents"] == 6 and most["choose"] == 4


def test_documents_longer_than_the_context_are_cut(ask, tmp_path) -> None:
    long = write_collection(
        tmp_path / "long", [Document("d", "强迫症" * 2000, "长文")], [Query("q2", "强迫症的表现是什么？")], {}
    )
    with Server(play) as server:
        made = pipeline(ask, server.url, long, tmp_path / "work", references={}, settings={"quality": 1})
        made.asker.config = made.asker.config.model_copy(update={"context": 1500})
        assert len(made.run(lambda query, depth: [("d", 1.0)])) == 1
        assert made.asker.cut >= 3
        assert max(len(body["messages"][1]["content"]) for _, body, _ in server.log) < 1500


def test_bad_input_is_refused(ask, collection, tmp_path) -> None:
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(CurateError, match="unknown queries: q9"):
        pipeline(ask, url, collection, tmp_path / "work", references={"q9": "…"})
    empty = write_collection(tmp_path / "empty", DOCUMENTS, [], {})
    with pytest.raises(CurateError, match="no queries"):
        pipeline(ask, url, empty, tmp_path / "work", references={})
    twins = write_collection(tmp_path / "twins", DOCUMENTS, [Query("a", "感冒？"), Query("b", "感冒")], {})
    with pytest.raises(CurateError, match="are the same"):
        pipeline(ask, url, twins, tmp_path / "work", references={})
    with pytest.raises(CurateError, match="found nothing"), Server(play) as server:
        pipeline(ask, server.url, collection, tmp_path / "work").run(lambda query, depth: [])
    for settings in ({"best": 30}, {"quality": 6}, {"similarity": 2.0}):
        with pytest.raises(CurateError):
            CmirbSettings(**settings)


def test_references_are_read_or_their_line_is_named(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"_id": "q1", "answer": "甲"}\n', encoding="utf-8")
    assert read_references(tmp_path / "a.jsonl") == {"q1": "甲"}
    (tmp_path / "b.jsonl").write_text('{"_id": "q1", "answer": " "}\n', encoding="utf-8")
    with pytest.raises(CurateError, match=r"b\.jsonl:1"):
        read_references(tmp_path / "b.jsonl")


def test_letters_of_options() -> None:
    assert [choice(text) for text in ("D", "（B）血行转移", "C、三种", "Ａ．", "DNA 检测", "淋巴转移")] == [
        *("D", "B", "C", "A"),
        *(None, None),
    ]
