"""``/v1/rerank``: Cohere's and Jina's shape, the pair's cosines or a reranker's scores."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from rerankers_on_the_spot import make_reranker
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.reranker import Gain
from suwen.retrieve.retriever import Index
from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.rerank_api import ordered, similarities
from suwen.service.serve_settings import ServeSettings

QUERY = "肾结石要多喝水吗"
DOCUMENTS = [
    "布洛芬饭后服用可减轻胃部不适。",
    "肾结石患者每天应饮水两升以上。",
    "Asthma needs a corticosteroid.",
]


@pytest.fixture(scope="module")
def pair(static_pair: Path) -> Pair:
    return Pair.load(static_pair)


@pytest.fixture(scope="module")
def client(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("index") / "notes"
    Index.create(folder, pair=pair).close()
    settings = ServeSettings(index=folder, rerank_documents=50, query_characters=100, text_characters=5000)
    with TestClient(create_app(Holder(settings))) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.02)
        yield client


def rerank(client: TestClient, **body: object) -> dict:
    reply = client.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS} | body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def problem_of(client: TestClient, status: int, **body: object) -> dict:
    reply = client.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS} | body)
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


def test_scores_are_the_pairs_cosines_best_first(client: TestClient, pair: Pair) -> None:
    encoder = pair.encoder()
    cosines = encoder.encode_documents(DOCUMENTS) @ encoder.encode_queries([QUERY])[0]
    results = rerank(client)["results"]
    assert [line["index"] for line in results] == np.argsort(-cosines).tolist()
    assert results[0]["index"] == 1
    np.testing.assert_allclose([line["relevance_score"] for line in results], np.sort(cosines)[::-1], atol=1e-6)


def test_the_reply_says_who_scored(client: TestClient, pair: Pair) -> None:
    reply = rerank(client, model=pair.name)
    assert reply["model"] == pair.default_tier
    assert reply["meta"]["scored_by"].startswith("pair: cosine") and "no cross-encoder" in reply["meta"]["scored_by"]
    assert (reply["meta"]["pair"], reply["meta"]["space"]) == (pair.name, pair.space.id)
    assert reply["usage"]["total_tokens"] == sum(pair.count_tokens([QUERY, *DOCUMENTS]))
    assert reply["id"] != rerank(client)["id"]


def test_top_n_cuts_and_more_than_there_are_is_all(client: TestClient) -> None:
    everything = rerank(client)["results"]
    assert rerank(client, top_n=2)["results"] == everything[:2]
    assert rerank(client, top_n=99)["results"] == everything


def test_documents_come_back_when_asked_for(client: TestClient) -> None:
    objects = [{"text": DOCUMENTS[0]}, {"text": DOCUMENTS[1], "id": 12345678901234567890123, "tags": ["a"]}]
    assert all("document" not in line for line in rerank(client, documents=objects)["results"])
    results = rerank(client, documents=[*objects, DOCUMENTS[2]], return_documents=True)["results"]
    by_place = {line["index"]: line["document"] for line in results}
    assert by_place == {0: objects[0], 1: objects[1], 2: {"text": DOCUMENTS[2]}}


def test_strings_and_objects_score_alike(client: TestClient) -> None:
    assert (
        rerank(client)["results"] == rerank(client, documents=[{"text": document} for document in DOCUMENTS])["results"]
    )


def test_equal_documents_keep_their_order(client: TestClient) -> None:
    results = rerank(client, documents=[DOCUMENTS[1]] * 37)["results"]
    assert [line["index"] for line in results] == list(range(37))


@pytest.mark.parametrize(
    ("change", "status", "code", "param"),
    [
        ({"model": "rerank-v3.5"}, 404, "unknown_model", "model"),
        ({"query": "？！"}, 422, "empty_query", "query"),
        ({"query": "血" * 101}, 422, "text_too_long", "query"),
        ({"documents": []}, 422, "invalid_request", "documents"),
        ({"documents": ["血压"] * 51}, 422, "too_many", "documents"),
        ({"documents": ["血压", "  "]}, 422, "invalid_request", "documents[1]"),
        ({"documents": ["血压", {"text": "血" * 5001}]}, 422, "text_too_long", "documents[1]"),
        ({"top_n": 0}, 422, "invalid_request", "top_n"),
    ],
)
def test_what_cannot_be_ranked_is_refused(client: TestClient, change: dict, status: int, code: str, param: str) -> None:
    problem = problem_of(client, status, **change)
    assert (problem["code"], problem["param"]) == (code, param)


@pytest.mark.parametrize("documents", [[{"title": "no text"}], [7], "血压", None])
def test_documents_of_another_kind_are_refused(client: TestClient, documents: object) -> None:
    problem = problem_of(client, 422, documents=documents)
    assert problem["code"] == "invalid_request" and problem["param"].startswith("documents")


def test_a_space_of_dot_products_is_scored_by_them() -> None:
    query, documents = np.array([2, 0], np.float32), np.array([[3, 4], [1, 0]], np.float32)
    assert similarities(query, documents, "cosine") == [0.6, 1.0]
    assert similarities(query, documents, "dot") == [6.0, 2.0]


@given(st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=1), st.integers(1, 10) | st.none())
def test_the_order_is_by_score_then_by_place(scores: list[float], most: int | None) -> None:
    found = ordered(scores, most)
    everything = sorted(((index, score) for index, score in enumerate(scores)), key=lambda item: (-item[1], item[0]))
    assert found == everything[:most]


@pytest.fixture(scope="module")
def precise(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server whose pair has a reranker beside it, under which every character 石 counts."""
    folder = tmp_path_factory.mktemp("precise")
    shutil.copytree(pair.path, folder / "pair")
    lost = {"dev": Gain(language="en", hybrid=2.0, precise=1.0)}
    make_reranker(folder / "pair" / "reranker", {"石": 1.0}, measured=lost)
    with Index.create(folder / "notes", pair=folder / "pair") as index:
        texts = ["布洛芬饭后服用。", "结石石石。", "肾结石要多喝水吗？每天应饮水两升以上。"]
        index.add([Document(str(number), text) for number, text in enumerate(texts)])
    settings = ServeSettings(index=folder / "notes", pair=folder / "pair")
    with TestClient(create_app(Holder(settings))) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.02)
        yield client


def test_a_reranker_scores_where_there_is_one_and_the_reply_says_so(precise: TestClient, pair: Pair) -> None:
    reply = rerank(precise, documents=["药", "石石", "石"])
    assert [line["index"] for line in reply["results"]] == [1, 2, 0] and reply["model"] == "worth"
    assert reply["meta"]["scored_by"].startswith("cross-encoder: worth")
    # Beside the document's two stands the one of the query.
    assert reply["results"][0]["relevance_score"] == pytest.approx(1 / (1 + math.exp(-3)), abs=1e-6)
    assert reply["usage"]["total_tokens"] > 0
    asked = {"query": QUERY, "texts": ["药", "石石"]}
    assert precise.post("/rerank", json=asked).json()[0]["index"] == 1
    assert (
        precise.post("/v2/rerank", json={"query": QUERY, "documents": ["药", "石"]}).json()["results"][0]["index"] == 1
    )


def test_a_tier_that_is_named_and_a_language_that_loses_are_scored_by_the_pair(precise: TestClient) -> None:
    for body in ({"model": "static"}, {"query": "kidney stones"}):
        assert rerank(precise, **body)["meta"]["scored_by"].startswith("pair: cosine")


def test_a_search_has_its_first_hits_read_again(precise: TestClient, client: TestClient) -> None:
    plain = precise.post("/search", json={"query": QUERY}).json()
    read = precise.post("/search", json={"query": QUERY, "rerank": True, "explain": True}).json()
    assert plain["hits"][0]["document_id"] == "2" and read["hits"][0]["document_id"] == "1"
    assert read["hits"][0]["explanation"]["precise"] == 4.0 and read["timings"]["rerank"] > 0
    problem = client.post("/search", json={"query": QUERY, "rerank": True})
    assert (problem.status_code, problem.json()["error"]["code"]) == (422, "no_reranker")
