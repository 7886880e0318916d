"""The shapes of text-embeddings-inference and of Cohere's second version: what their clients send is understood."""

from __future__ import annotations

import numpy as np
import pytest

TEXTS = ["胰岛素降低血糖。", "布洛芬可以退烧。", "房颤需要抗凝。"]


def test_vectors_are_those_of_the_other_protocol(client) -> None:
    ours = client.post("/v1/embeddings", json={"input": TEXTS}).json()["data"]
    expected = [one["embedding"] for one in ours]
    assert np.allclose(client.post("/embed", json={"inputs": TEXTS}).json(), expected, atol=1e-6)
    one = client.post("/embed", json={"inputs": TEXTS[0], "truncate": True, "truncation_direction": "Right"}).json()
    assert np.allclose(one, expected[:1], atol=1e-6)
    query = client.post("/embed", json={"inputs": "血糖高", "prompt_name": "query"}).json()
    wanted = client.post("/v1/embeddings", json={"input": "血糖高", "input_type": "query"}).json()["data"]
    assert np.allclose(query[0], wanted[0]["embedding"], atol=1e-6)


def test_texts_are_ordered_alike_in_every_shape(client) -> None:
    query = "发烧吃布洛芬吗"
    first = client.post("/v1/rerank", json={"query": query, "documents": TEXTS}).json()["results"]
    order = [(one["index"], one["relevance_score"]) for one in first]
    second = client.post("/v2/rerank", json={"model": "suwen", "query": query, "documents": TEXTS, "top_n": 2}).json()
    assert [(one["index"], one["relevance_score"]) for one in second["results"]] == order[:2]
    assert second["id"] and second["meta"]["api_version"] == {"version": "2"}
    assert "no cross-encoder" in second["meta"]["scored_by"]
    raw = client.post("/rerank", json={"query": query, "texts": TEXTS, "raw_scores": True}).json()
    assert [(one["index"], one["score"]) for one in raw] == order
    assert set(raw[0]) == {"index", "score"}
    scaled = client.post("/rerank", json={"query": query, "texts": TEXTS, "return_text": True}).json()
    assert [one["index"] for one in scaled] == [place for place, _ in order]
    assert all(0 <= one["score"] <= 1 and one["text"] == TEXTS[one["index"]] for one in scaled)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/embed", {"inputs": [1, 2]}, "inputs"),
        ("/embed", {"inputs": []}, "inputs"),
        ("/embed", {"inputs": "a", "prompt_name": "king"}, "prompt_name"),
        ("/embed", {"inputs": ["a"] * 300}, "inputs"),
        ("/rerank", {"query": "a", "texts": [{"text": "b"}]}, "texts.0"),
        ("/rerank", {"query": "!", "texts": ["b"]}, "query"),
        ("/rerank", {"query": "a", "texts": ["b"] * 1001}, "texts"),
        ("/v2/rerank", {"query": "a", "documents": [{"text": "b"}]}, "documents.0"),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "model": "gpt"}, "model"),
    ],
)
def test_what_cannot_be_done_is_said(client, path: str, body: dict[str, object], param: str) -> None:
    reply = client.post(path, json=body)
    assert 400 <= reply.status_code < 500
    assert reply.json()["error"]["param"] == param
