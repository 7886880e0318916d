"""``/v1/embeddings`` and ``/v1/models``: what OpenAI's protocol asks for, by the vectors of the pair itself."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from suwen.encoders.pair import Pair
from suwen.encoders.space import Space, load_manifest, save_manifest
from suwen.retrieve.retriever import Index
from suwen.service.app import create_app
from suwen.service.embeddings_api import cut, width_of, written
from suwen.service.holder import Holder
from suwen.service.problems import Problem
from suwen.service.serve_settings import ServeSettings

TEXTS = ["肾结石患者每天应饮水两升以上。", "Ibuprofen may harm the kidney.", "房颤要不要抗凝"]


@pytest.fixture(scope="module")
def pair(static_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The static pair's table as a Matryoshka space with two tiers, which tell queries from documents by a prompt."""
    folder = tmp_path_factory.mktemp("pair") / "nested"
    shutil.copytree(static_pair, folder)
    manifest = load_manifest(folder)
    space = Space.mint(**(manifest.space.model_dump(exclude={"id"}) | {"full_dimension": 512}))
    prompts = [{"query": "提问：", "document": ""}, {"query": "question: ", "document": ""}]
    (tier,) = manifest.tiers.values()
    tiers = {
        name: tier.model_dump() | {"aligned_to": space.id, "prompts": prompt, "max_length": length}
        for name, prompt, length in zip(("static", "short"), prompts, (512, 8), strict=True)
    }
    changed = manifest.model_dump() | {"name": "nested", "space": space.model_dump(), "tiers": tiers}
    save_manifest(folder, type(manifest).model_validate(changed))
    return Pair.load(folder)


@pytest.fixture(scope="module")
def client(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("index") / "notes"
    Index.create(folder, pair=pair).close()
    settings = ServeSettings(index=folder, pair=pair.path, embedding_inputs=40, text_characters=5000)
    with TestClient(create_app(Holder(settings))) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.02)
        yield client


def vectors_of(client: TestClient, **body: object) -> np.ndarray:
    reply = client.post("/v1/embeddings", json=body)
    assert reply.status_code == 200, reply.text
    return np.array([item["embedding"] for item in reply.json()["data"]], dtype=np.float32)


def problem_of(client: TestClient, status: int, **body: object) -> dict:
    reply = client.post("/v1/embeddings", json=body)
    assert reply.status_code == status, reply.text
    return reply.json()["error"]


def test_documents_are_encoded_as_the_pair_encodes_them(client: TestClient, pair: Pair) -> None:
    reply = client.post("/v1/embeddings", json={"model": "suwen", "input": TEXTS}).json()
    assert (reply["object"], reply["model"]) == ("list", "static")
    assert [(item["object"], item["index"]) for item in reply["data"]] == [("embedding", place) for place in range(3)]
    found = np.array([item["embedding"] for item in reply["data"]], dtype=np.float32)
    np.testing.assert_array_equal(found, pair.encoder().encode_documents(TEXTS))


def test_queries_are_encoded_in_the_form_of_queries(client: TestClient, pair: Pair) -> None:
    found = vectors_of(client, input=TEXTS, input_type="query")
    np.testing.assert_array_equal(found, pair.encoder().encode_queries(TEXTS))
    assert not np.allclose(found, vectors_of(client, input=TEXTS, input_type="document"))


def test_one_text_may_stand_alone(client: TestClient) -> None:
    np.testing.assert_array_equal(vectors_of(client, input=TEXTS[0]), vectors_of(client, input=[TEXTS[0]]))


def test_a_text_is_cleaned_as_in_searches(client: TestClient) -> None:
    np.testing.assert_array_equal(vectors_of(client, input="\ufeff 血压\r\n"), vectors_of(client, input="血压"))


@pytest.mark.parametrize("model", ["suwen", "nested", "static"])
def test_the_default_tier_has_three_names(client: TestClient, model: str) -> None:
    assert client.post("/v1/embeddings", json={"model": model, "input": "血压"}).json()["model"] == "static"


def test_another_tier_is_named_by_its_name(client: TestClient, pair: Pair) -> None:
    found = vectors_of(client, model="short", input=TEXTS, input_type="query")
    np.testing.assert_array_equal(found, pair.encoder("short").encode_queries(TEXTS))


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(client: TestClient) -> None:
    problem = problem_of(client, 404, model="text-embedding-3-small", input="血压")
    assert (problem["code"], problem["param"]) == ("unknown_model", "model")
    assert "suwen, static, short" in problem["message"]


def test_base64_is_little_endian_float32(client: TestClient) -> None:
    reply = client.post("/v1/embeddings", json={"input": TEXTS, "encoding_format": "base64"}).json()
    found = [np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4") for item in reply["data"]]
    np.testing.assert_array_equal(np.stack(found), vectors_of(client, input=TEXTS))


def test_dimensions_cut_and_renormalise(client: TestClient) -> None:
    whole, part = vectors_of(client, input=TEXTS), vectors_of(client, input=TEXTS, dimensions=64)
    assert part.shape == (3, 64)
    np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, atol=1e-6)
    expected = whole[:, :64] / np.linalg.norm(whole[:, :64], axis=1, keepdims=True)
    np.testing.assert_allclose(part, expected, atol=1e-6)


def test_more_dimensions_than_there_are_are_refused(client: TestClient) -> None:
    problem = problem_of(client, 422, input="血压", dimensions=257)
    assert problem["param"] == "dimensions" and "256" in problem["message"]


def test_only_a_matryoshka_space_is_cut(static_pair: Path) -> None:
    plain = Pair.load(static_pair)
    assert width_of(plain, None) == width_of(plain, plain.space.dimension) == 256
    with pytest.raises(Problem, match="no Matryoshka") as problem:
        width_of(plain, 128)
    assert problem.value.param == "dimensions"


def test_usage_counts_the_tokens_read(client: TestClient, pair: Pair) -> None:
    counts = pair.encoder().count_tokens(TEXTS)
    for model, expected in (("static", sum(counts)), ("short", sum(min(count, 8) for count in counts))):
        usage = client.post("/v1/embeddings", json={"model": model, "input": TEXTS}).json()["usage"]
        assert usage == {"prompt_tokens": expected, "total_tokens": expected}


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2], [3]], ["text", 7]])
def test_token_numbers_are_refused_with_the_fix(client: TestClient, tokens: list) -> None:
    problem = problem_of(client, 422, input=tokens)
    assert problem["code"] == "invalid_request" and problem["param"] == "input"
    assert "send the texts themselves" in problem["message"]


def test_too_many_texts_are_refused(client: TestClient) -> None:
    assert vectors_of(client, input=["血压"] * 40).shape == (40, 256)
    problem = problem_of(client, 422, input=["血压"] * 41)
    assert (problem["code"], problem["param"]) == ("too_many", "input")


def test_a_text_too_long_is_refused_by_its_place(client: TestClient) -> None:
    problem = problem_of(client, 422, input=["血压", "血" * 5001])
    assert (problem["code"], problem["param"]) == ("text_too_long", "input[1]")


@pytest.mark.parametrize("empty", [[], "", ["血压", " \u200b\n"]])
def test_nothing_to_encode_is_refused(client: TestClient, empty: object) -> None:
    assert problem_of(client, 422, input=empty)["code"] == "invalid_request"


@pytest.mark.parametrize(
    "body", [{}, {"input": 5}, {"input": "a", "input_type": "title"}, {"input": "a", "dimensions": 0}]
)
def test_what_is_malformed_is_refused(client: TestClient, body: dict) -> None:
    assert problem_of(client, 422, **body)["code"] == "invalid_request"


def test_fields_without_meaning_here_are_ignored(client: TestClient) -> None:
    assert vectors_of(client, input="血压", user="u-1", truncate="END").shape == (1, 256)


def test_models_are_listed_and_found(client: TestClient, pair: Pair) -> None:
    listed = client.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["suwen", "static", "short"]
    assert {model["space"] for model in listed["data"]} == {pair.space.id}
    assert [model["max_length"] for model in listed["data"]] == [512, 512, 8]
    for model in listed["data"]:
        assert client.get(f"/v1/models/{model['id']}").json() == model
    missing = client.get("/v1/models/gpt-4/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_model")


def test_the_description_names_every_status(client: TestClient) -> None:
    described = json.loads(client.get("/openapi.json").text)["paths"]["/v1/embeddings"]["post"]
    assert {"200", "401", "404", "422", "429", "503"} <= set(described["responses"])
    assert "input_type" in json.dumps(described) or "$ref" in json.dumps(described["requestBody"])


@settings(deadline=None, max_examples=50)
@given(arrays(np.float32, (3, 16), elements=st.floats(-1, 1, width=32)), st.integers(1, 16))
def test_a_cut_vector_is_as_long_as_before(vectors: np.ndarray, width: int) -> None:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.where(lengths > 1e-3, vectors / np.maximum(lengths, 1e-3), np.eye(1, 16, dtype=np.float32))
    unit = unit.astype(np.float32)
    part = cut(unit, width)
    assert part.shape == (3, width)
    np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, atol=1e-5)


@settings(deadline=None, max_examples=50)
@given(arrays(np.float32, (2, 5), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_writing_as_base64_loses_nothing(vectors: np.ndarray) -> None:
    back = [np.frombuffer(base64.b64decode(text), dtype="<f4") for text in written(vectors, "base64")]
    np.testing.assert_array_equal(np.stack(back), vectors)
