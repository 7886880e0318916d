"""Clients that people already have work against a running server: the official ``openai`` one, and plain HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import openai
import pytest

from suwen.encoders.pair import Pair
from suwen.encoders.space import Space, load_manifest, save_manifest
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key

TEXTS = ["肾结石患者每天应饮水两升以上。", "Ibuprofen may harm the kidney.", "房颤要不要抗凝"]
_START = "from suwen.cli.main import run; run()"
_PATIENCE = 300


class Server(NamedTuple):
    """A server under test: where it is, its pair, and a key that may read."""

    address: str
    pair: Pair
    key: str

    def client(self, **options: object) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.address}/v1", **{"api_key": self.key, "max_retries": 0} | options)


@contextmanager
def serving(index: Path, *options: str) -> Iterator[str]:
    """A real process; gives the address it says it is at."""
    command = [sys.executable, "-c", _START, "serve", str(index), "--port", "0", *options]
    log = index.with_name("server.log")
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"NO_COLOR": "1"})
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        assert process.wait(timeout=_PATIENCE) == 0, log.read_text(encoding="utf-8")


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"http://[\d.]+:\d+", log.read_text(encoding="utf-8"))
        if found and httpx.get(f"{found[0]}/readyz", timeout=120).status_code == 200:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"the server did not get ready: {log.read_text(encoding='utf-8')}")


@pytest.fixture(scope="module")
def server(static_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with keys, over a Matryoshka space whose tier tells queries from documents."""
    folder = tmp_path_factory.mktemp("openai")
    shutil.copytree(static_pair, folder / "pair")
    manifest = load_manifest(folder / "pair")
    space = Space.mint(**(manifest.space.model_dump(exclude={"id"}) | {"full_dimension": 512}))
    prompts = {"query": "提问：", "document": ""}
    tiers = {
        name: tier.model_dump() | {"aligned_to": space.id, "prompts": prompts} for name, tier in manifest.tiers.items()
    }
    changed = manifest.model_dump() | {"name": "nested", "space": space.model_dump(), "tiers": tiers}
    save_manifest(folder / "pair", type(manifest).model_validate(changed))
    pair = Pair.load(folder / "pair")
    Index.create(folder / "index", pair=pair).close()
    key = new_key(folder / "keys.toml", "test", "read")
    with serving(folder / "index", "--keys", str(folder / "keys.toml")) as address:
        yield Server(address, pair, key)


def vectors_of(reply: openai.types.CreateEmbeddingResponse) -> np.ndarray:
    return np.array([item.embedding for item in reply.data], dtype=np.float32)


def test_the_client_gets_the_pairs_vectors(server: Server) -> None:
    """It asks for base64 by itself, and decodes it."""
    reply = server.client().embeddings.create(model="suwen", input=TEXTS)
    np.testing.assert_array_equal(vectors_of(reply), server.pair.encoder().encode_documents(TEXTS))
    assert reply.model == server.pair.default_tier
    assert [item.index for item in reply.data] == [0, 1, 2]
    assert reply.usage.total_tokens == sum(server.pair.count_tokens(TEXTS))


def test_the_client_gets_the_same_as_floats(server: Server) -> None:
    create = server.client().embeddings.create
    floats = create(model="suwen", input=TEXTS, encoding_format="float")
    np.testing.assert_array_equal(vectors_of(floats), vectors_of(create(model="suwen", input=TEXTS)))


def test_the_client_gets_the_vectors_of_queries(server: Server) -> None:
    reply = server.client().embeddings.create(model="suwen", input=TEXTS[2], extra_body={"input_type": "query"})
    expected = server.pair.encoder().encode_queries([TEXTS[2]])
    np.testing.assert_array_equal(vectors_of(reply), expected)
    assert not np.allclose(expected, server.pair.encoder().encode_documents([TEXTS[2]]))


def test_the_client_gets_fewer_dimensions(server: Server) -> None:
    reply = server.client().embeddings.create(model="suwen", input=TEXTS, dimensions=32)
    whole = server.pair.encoder().encode_documents(TEXTS)[:, :32]
    np.testing.assert_allclose(
        vectors_of(reply), whole / np.linalg.norm(whole, axis=1, keepdims=True), rtol=0, atol=1e-6
    )


def test_the_client_lists_and_finds_models(server: Server) -> None:
    client = server.client()
    assert [model.id for model in client.models.list()] == ["suwen", "static"]
    assert client.models.retrieve("static").owned_by == "nested"


def test_the_asynchronous_client_works(server: Server) -> None:
    async def ask() -> openai.types.CreateEmbeddingResponse:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key=server.key) as client:
            return await client.embeddings.create(model="static", input=TEXTS)

    np.testing.assert_array_equal(vectors_of(asyncio.run(ask())), server.pair.encoder().encode_documents(TEXTS))


def test_an_unknown_model_is_the_clients_not_found(server: Server) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        server.client().embeddings.create(model="text-embedding-3-small", input="血压")
    assert (error.value.code, error.value.param, error.value.type) == ("unknown_model", "model", "not_found_error")
    assert error.value.request_id


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"input": [1, 2, 3]}, "input"),
        ({"input": "血压", "dimensions": 1000}, "dimensions"),
        ({"input": ""}, "input[0]"),
    ],
)
def test_a_bad_request_is_the_clients_own_error(server: Server, asked: dict, param: str) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as error:
        server.client().embeddings.create(model="suwen", **asked)
    assert (error.value.param, error.value.type) == (param, "invalid_request_error")


def test_a_wrong_key_is_the_clients_authentication_error(server: Server) -> None:
    with pytest.raises(openai.AuthenticationError) as error:
        server.client(api_key="suwen_wrong").embeddings.create(model="suwen", input="血压")
    assert error.value.code == "unauthorized"
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="suwen_wrong").models.list()


def test_rerank_by_plain_http_in_the_shape_of_cohere_and_jina(server: Server) -> None:
    body = {
        "model": "suwen",
        "query": "肾结石要多喝水吗",
        "documents": [TEXTS[1], {"text": TEXTS[0], "source": "ward"}, TEXTS[2]],
        "top_n": 2,
        "return_documents": True,
    }
    headers = {"Authorization": f"Bearer {server.key}"}
    reply = httpx.post(f"{server.address}/v1/rerank", json=body, headers=headers, timeout=120)
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert found["results"][0]["index"] == 1
    assert len(found["results"]) == 2
    assert found["results"][0]["document"] == {"text": TEXTS[0], "source": "ward"}
    assert found["results"][0]["relevance_score"] >= found["results"][1]["relevance_score"]
    assert "pair" in found["meta"]["scored_by"]
    refused = httpx.post(f"{server.address}/v1/rerank", json=body, timeout=120)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
