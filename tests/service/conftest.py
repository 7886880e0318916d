"""A service of ten hand-written notes, in this process: ``served(...)`` gives a client and the holder behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.testclient import TestClient

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.serve_settings import ServeSettings

NOTES = (
    (
        "stone",
        "肾结石",
        "尿液的酸碱度可以提示结石的成分。尿酸结石多见于酸性尿。",
        {"department": "泌尿外科", "year": 2019},
    ),
    ("fever", "布洛芬", "布洛芬可以退烧止痛，胃溃疡病人慎用。", {"department": "药剂科", "year": 2021}),
    ("sugar", "胰岛素", "胰岛素用来降低血糖，剂量因人而异。", {"department": "内分泌科", "year": 2023}),
    ("heart", "房颤", "房颤病人多需要抗凝，以免血栓。", {"department": "心内科", "year": 2020}),
    ("cough", "", "儿童咳嗽多为病毒感染，不必使用抗生素。", {"department": "儿科", "year": 2022}),
    ("kidney", "Kidney stones", "Drink two litres of water a day to prevent kidney stones.", {"lang": "en"}),
)


#: On a busy machine no request is late and no stop gives up, but where a test is of that.
PATIENT: dict[str, Any] = {"seconds": 300.0, "stop_seconds": 300.0}


class Served(NamedTuple):
    """A running service."""

    client: TestClient
    holder: Holder


Serve = Callable[..., Served]


def make_index(folder: Path, pair: Path) -> Path:
    """An index of the notes."""
    with Index.create(folder, pair=pair) as index:
        index.add([Document(id_, text, title, metadata) for id_, title, text, metadata in NOTES])
    return folder


def wait_until_ready(client: TestClient) -> None:
    """Return once searches are answered."""
    while client.get("/readyz").json() != {"status": "ready"}:
        time.sleep(0.01)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own, in memory where there is such a place."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def served(tmp_path: Path, static_pair: Path) -> Iterator[Serve]:
    """Starts services of one index of the notes, with the settings given; stops them at the end."""
    with ExitStack() as stack:

        def start(index: Path | None = None, *, wait: bool = True, **settings: Any) -> Served:
            folder = index or tmp_path / "notes"
            if index is None and not folder.exists():
                make_index(folder, static_pair)
            holder = Holder(ServeSettings(index=folder, **PATIENT | settings))
            client = stack.enter_context(TestClient(create_app(holder), raise_server_exceptions=False))
            if wait:
                wait_until_ready(client)
            return Served(client, holder)

        yield start


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, static_pair: Path) -> Iterator[TestClient]:
    """A client of one service that a module's tests share."""
    folder = make_index(tmp_path_factory.mktemp("index") / "notes", static_pair)
    app = create_app(Holder(ServeSettings(index=folder, **PATIENT)))
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until_ready(client)
        yield client
