"""Two API servers on one index in PostgreSQL: one writes, the other finds it; and what callers hear when it is down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from postgres_server import new_address, server
from suwen.corpora.records import Document
from suwen.encoders.space import SpaceMismatch
from suwen.index.copying import copy_index
from suwen.index.opening import create_engine
from suwen.retrieve.retriever import Index
from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.serve_settings import ServeSettings, load_settings

NOTES = {
    "stone": ("肾结石", "尿液的酸碱度可以提示结石的成分。尿酸结石多见于酸性尿。", {"year": 2019}),
    "fever": ("布洛芬", "布洛芬可以退烧止痛，胃溃疡病人慎用。", {"year": 2021}),
    "sugar": ("胰岛素", "胰岛素用来降低血糖，剂量因人而异。", {"year": 2023}),
    "heart": ("房颤", "房颤病人多需要抗凝，以免血栓。", {"year": 2020}),
}
QUERIES = ("肾结石 酸性", "退烧", "抗凝 血栓", "血糖 怎么降")


@pytest.fixture
def address(static_pair: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = new_address()
    with Index.create(made, pair=static_pair) as index:
        index.add([Document(id_, text, title, meta) for id_, (title, text, meta) in NOTES.items()])
    return made


@pytest.fixture
def servers(address: str) -> Iterator[tuple[TestClient, TestClient]]:
    """One that writes, one that only reads."""
    with ExitStack() as stack:
        made = []
        for read_only in (False, True):
            holder = Holder(ServeSettings(index=Path(address), read_only=read_only))
            client = stack.enter_context(TestClient(create_app(holder), raise_server_exceptions=False))
            while client.get("/readyz").json() != {"status": "ready"}:
                assert holder.failure is None
                time.sleep(0.01)
            made.append(client)
        yield made[0], made[1]


def found(client: TestClient, query: str, **more: Any) -> list[str]:
    answer = client.post("/search", json={"query": query, **more})
    assert answer.status_code == 200, answer.text
    return [hit["document_id"] for hit in answer.json()["hits"]]


def test_what_one_server_takes_another_finds(servers: tuple[TestClient, TestClient]) -> None:
    writer, reader = servers
    assert found(reader, "肾结石 酸性")[0].startswith("stone")
    posted = writer.post("/documents", json={"documents": [{"id": "new", "text": "痛风病人少吃海鲜", "metadata": {}}]})
    assert posted.status_code in (200, 201, 202), posted.text
    assert found(reader, "痛风 海鲜")[0].startswith("new")
    assert all(id_.startswith("sugar") for id_ in found(reader, "血糖", where={"year": {"gte": 2022}}))
    refused = reader.post("/documents", json={"documents": [{"id": "no", "text": "不行"}]})
    assert refused.status_code == 403


def test_a_database_that_is_down_is_a_503_and_comes_back(servers: tuple[TestClient, TestClient]) -> None:
    _, reader = servers
    server().kill()
    answer = reader.post("/search", json={"query": "退烧"})
    server().start()
    assert answer.status_code == 503 and server().password not in answer.text
    assert found(reader, "退烧")[0].startswith("fever")


def test_answers_are_those_of_the_embedded_engine(address: str, static_pair: Path, tmp_path: Path) -> None:
    copy_index(address, tmp_path / "copy")
    with Index.open(address, pair=static_pair) as one, Index.open(tmp_path / "copy", pair=static_pair) as other:
        for query in QUERIES:
            for mode in ("dense", "lexical", "hybrid"):
                ours, theirs = one.search(query, k=4, mode=mode), other.search(query, k=4, mode=mode)
                assert [hit.id for hit in ours.hits] == [hit.id for hit in theirs.hits]
                assert [hit.score for hit in ours.hits] == pytest.approx([hit.score for hit in theirs.hits], abs=1e-4)


def test_an_index_of_another_space_is_refused(static_pair: Path) -> None:
    made = new_address()
    create_engine(made, space="sp-another0000000000000", dimension=16).close()
    with pytest.raises(SpaceMismatch):
        Index.open(made, pair=static_pair)


def test_an_address_in_the_settings_stays_one(tmp_path: Path) -> None:
    (tmp_path / "suwen.toml").write_text('[serve]\nindex = "postgresql://u@h/db?index=clinic"\n', encoding="utf-8")
    settings = load_settings(None, tmp_path / "suwen.toml", environment={})
    assert settings.name == "clinic"
    assert settings.spool.name == "imports" and "postgresql" not in str(settings.spool)
