"""``/documents``: durable and searchable on the answer, a batch whole or not at all, ids of any kind."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.retrieve.retriever import Index
from suwen.service.answers import DocumentAnswer, PostAnswer

# The test client decodes percent signs twice; tests/real/test_serve.py tries them over the wire.
ODD_IDS = [
    "a/b",
    "病历/2024/07 号",
    "😀",
    "100%",
    "a?b#c",
    "a b",
    "../x",
    "//",
    "é\u0301",
    "'\";--",
    "delete",
    ".",
]


def post(client, *documents: dict) -> dict:
    reply = client.post("/documents", json={"documents": list(documents)})
    assert reply.status_code == 200, reply.text
    PostAnswer.model_validate(reply.json())
    return reply.json()


def path_of(id_: str) -> str:
    return f"/documents/{quote(id_, safe='')}"


def found(client, query: str) -> list[str]:
    return [hit["document_id"] for hit in client.post("/search", json={"query": query}).json()["hits"]]


def test_a_posted_document_is_found_in_the_next_request(client) -> None:
    assert "new" not in found(client, "氯雷他定治过敏")
    told = post(
        client, {"id": "new", "title": "过敏", "text": "氯雷他定可以治过敏性鼻炎。", "metadata": {"year": 2025}}
    )
    assert (told["added"], told["changed"], told["unchanged"], told["passages"]) == (1, 0, 0, 1)
    assert found(client, "氯雷他定治过敏")[0] == "new"
    again = post(
        client, {"id": "new", "title": "过敏", "text": "氯雷他定可以治过敏性鼻炎。", "metadata": {"year": 2025}}
    )
    assert (again["added"], again["unchanged"]) == (0, 1)
    assert again["documents"] == told["documents"]
    changed = post(client, {"id": "new", "text": "西替利嗪会让人犯困。"})
    assert (changed["added"], changed["changed"]) == (0, 1)
    assert changed["documents"][0]["version"] != told["documents"][0]["version"]
    assert client.delete("/documents/new").json() == {"deleted": 1}
    assert "new" not in found(client, "西替利嗪")
    assert client.delete("/documents/new").json()["error"]["code"] == "unknown_document"


@pytest.mark.parametrize("id_", ODD_IDS)
def test_any_id_works(client, id_: str) -> None:
    post(client, {"id": id_, "text": f"这是编号特别的文档 {ODD_IDS.index(id_)}。"})
    if id_ != ".":  # A client folds /documents/. before it sends it.
        told = client.get(path_of(id_))
        assert told.json()["id"] == id_
        DocumentAnswer.model_validate(told.json())
    assert id_ in client.get("/documents").json()["ids"]
    assert client.post("/documents/delete", json={"ids": [id_, "not there"]}).json() == {"deleted": 1}
    assert id_ not in client.get("/documents").json()["ids"]


@settings(max_examples=25)
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="%"), min_size=1, max_size=40).filter(
        lambda text: text not in (".", "..")
    )
)
def test_every_id_comes_back(client, id_: str) -> None:
    post(client, {"id": id_, "text": "随便什么内容。"})
    assert client.get(path_of(id_)).json()["id"] == id_
    assert client.delete(path_of(id_)).json() == {"deleted": 1}


@pytest.mark.parametrize(
    ("documents", "status", "code", "param"),
    [
        ([{"id": "x", "text": ""}], 422, "empty_document", "documents.0.text"),
        ([{"id": "x", "text": " \n\u3000"}], 422, "empty_document", "documents.0.text"),
        (
            [{"id": "x", "text": "甲"}, {"id": "y", "text": "乙"}, {"id": "x", "text": "丙"}],
            422,
            "duplicate_id",
            "documents.2.id",
        ),
        ([{"id": "", "text": "甲"}], 422, "invalid_request", "documents.0.id"),
        ([{"id": "a\nb", "text": "甲"}], 422, "bad_document", "documents.0.id"),
        ([{"id": "x" * 513, "text": "甲"}], 422, "invalid_request", "documents.0.id"),
        ([], 422, "invalid_request", "documents"),
        ([{"id": "x", "text": "甲", "body": "乙"}], 422, "invalid_request", "documents.0.body"),
        ([{"id": "x", "text": "甲", "metadata": {"a": {"b": 1}}}], 422, "invalid_request", None),
        ([{"id": f"x{n}", "text": "甲"} for n in range(257)], 422, "too_many", "documents"),
    ],
)
def test_a_wrong_batch_stores_nothing(client, documents: list, status: int, code: str, param: str | None) -> None:
    before = client.get("/documents").json()
    reply = client.post("/documents", json={"documents": documents})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code)
    if param is not None:
        assert error["param"] == param
    assert client.get("/documents").json() == before


def test_ten_megabytes_in_one_document(client) -> None:
    reply = client.post("/documents", json={"documents": [{"id": "long", "text": "a b c d " * 1_250_000}]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "text_too_long")
    assert "or split it" in reply.json()["error"]["message"]
    reply = client.post("/documents", json={"documents": [{"id": "long", "text": "a" * 17 * 2**20}]})
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_large")


def test_another_index(client) -> None:
    reply = client.post("/documents", json={"documents": [{"id": "x", "text": "甲"}], "index": "other"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_index")
    reply = client.post("/documents/delete", json={"ids": ["fever"], "index": "other"})
    assert reply.json()["error"]["code"] == "unknown_index"


def test_a_document_comes_back_as_it_was(client) -> None:
    text = "  高血压病人应少吃盐。" + "每天走六千步有好处。" * 60 + "\n\n复查血压。"
    metadata = {"年份": 2020, "tags": ["a", 2, True], "x": 0.5, "big": 2**70}
    post(client, {"id": "whole", "title": "高血压", "text": text, "metadata": metadata})
    told = client.get("/documents/whole").json()
    assert (told["title"], told["metadata"], told["state"]) == ("高血压", metadata, "encoded")
    assert len(told["passages"]) > 2
    for passage in told["passages"]:
        assert text[passage["start"] : passage["end"]] == passage["text"]
        assert told["text"][passage["start"] : passage["end"]] == passage["text"]
        assert (passage["encoder"], passage["state"]) == ("static", "encoded")
    assert (told["text"].split(), len(told["text"])) == (text.split(), len(text))
    client.delete("/documents/whole")


def test_ids_come_a_page_at_a_time(client) -> None:
    every = client.get("/documents").json()
    assert every["next"] is None
    assert every["ids"] == sorted(every["ids"])
    seen, after = [], ""
    while after is not None:
        page = client.get("/documents", params={"after": after, "limit": 2}).json()
        seen += page["ids"]
        after = page["next"]
    assert seen == every["ids"]


def test_what_was_acknowledged_is_there_after_a_restart(served, tmp_path: Path) -> None:
    client, holder = served()
    for number in range(5):
        post(client, {"id": f"n{number}", "text": f"第{number}号记录"})
    client.delete("/documents/n3")
    with Index.open(holder.settings.index) as beside:
        assert sorted(id_ for id_ in beside.ids() if id_[0] == "n") == ["n0", "n1", "n2", "n4"]


def test_a_post_to_an_index_of_some_size_does_not_measure_it_anew(served, monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = served()
    measured: list[str] = []
    monkeypatch.setattr(Index, "calibrate", lambda self: measured.append(threading.current_thread().name))
    post(client, {"id": "one", "text": "只有一句话。"})
    assert measured == []
    post(client, *({"id": f"many{n}", "text": f"第{n}句话。"} for n in range(20)))
    while not measured:
        time.sleep(0.01)
    assert set(measured) == {"suwen-reencode"}, "no post waits for it"


def test_mirrored_documents_are_listed_too(tmp_path: Path, static_pair: Path, served) -> None:
    from suwen.corpora.records import Document

    with Index.create(tmp_path / "other", pair=static_pair) as index:
        index.add([Document("m", "镜像来的文档。")], mirror=True)
    client, _ = served(tmp_path / "other")
    assert client.get("/documents").json() == {"ids": ["m"], "next": None}


def test_searches_beside_posts_and_deletes(served) -> None:
    client, _ = served()
    stop, problems = threading.Event(), []

    def look() -> None:
        while not stop.is_set() and not problems:
            reply = client.post("/search", json={"query": "流感疫苗 布洛芬", "k": 50})
            ids = [hit["document_id"] for hit in reply.json().get("hits", [])]
            if reply.status_code != 200 or "fever" not in ids or len(ids) != len(set(ids)):
                problems.append(reply.text)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(25):
            id_ = f"v{number % 5}"
            post(client, {"id": id_, "text": f"流感疫苗第{number}批。"})
            (hit,) = [
                hit
                for hit in client.post("/search", json={"query": "流感疫苗", "k": 50}).json()["hits"]
                if hit["document_id"] == id_
            ]
            assert hit["text"] == f"流感疫苗第{number}批。"
            if number % 3 == 2:
                assert client.delete(f"/documents/{id_}").json() == {"deleted": 1}
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
