"""Copies between engines: whole, resumable, and refused where they would mix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from naive import SPACE, some_documents, waiting_in

from postgres_server import new_address
from suwen.index import copying
from suwen.index.copying import copy_index
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import Engine, IndexProblem
from suwen.index.opening import open_engine
from suwen.retrieve.wording import FILE


@pytest.fixture
def source(tmp_path: Path) -> Path:
    engine = EmbeddedEngine.create(tmp_path / "source", space=SPACE, dimension=16)
    for batch in some_documents(30, 16):
        engine.add(batch)
    waiting_in(engine)
    engine.delete(["d3"])
    engine.remember(pair_name="小", size=120)
    engine.close()
    return tmp_path / "source"


def answers(engine: Engine) -> list[object]:
    said: list[object] = [engine.ids(origin="index"), engine.backlog("document"), engine.stats()[:2]]
    with engine.snapshot() as view:
        for text in ("高血压 饮食", "number7 第二段", "stroke"):
            # Equal scores go by row, and the copy's rows are in the order of ids.
            ranking = view.lexical(text, 100, {"year": {"gte": 2002}})
            found = [item.passage.id for item in view.fetch(ranking.rows.tolist())]
            said.append(sorted(zip(np.round(ranking.scores, 3).tolist(), found, strict=True)))
        for seed in range(4):
            ranking = view.dense(np.random.default_rng(seed).standard_normal(16).astype(np.float32), 10)
            found = [item.passage.id for item in view.fetch(ranking.rows.tolist())]
            said.append((found, np.round(ranking.scores, 5).tolist()))
    return said


def test_a_copy_answers_alike_there_and_back(source: Path, tmp_path: Path) -> None:
    middle = new_address()
    assert copy_index(source, middle) == (32, 64)
    assert copy_index(middle, tmp_path / "back") == (32, 64)
    said = []
    for address in (source, middle, tmp_path / "back"):
        engine = open_engine(address, write=True)
        engine.rebuild()
        said.append(answers(engine))
        assert {key: engine.settings()[key] for key in ("pair_name", "size")} == {"pair_name": "小", "size": 120}
        assert engine.verify() == []
        engine.close()
    assert said[0] == said[1] == said[2]


def test_a_copy_that_was_cut_off_goes_on(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_BATCH", 5)

    def cut(done: int, _: int) -> None:
        if done == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_index(source, tmp_path / "copy", cut)
    told: list[int] = []
    assert copy_index(source, tmp_path / "copy", lambda done, _: told.append(done)) == (32, 64)
    assert told[0] == 20
    with pytest.raises(IndexProblem, match="no unfinished copy"):
        copy_index(source, tmp_path / "copy")


def test_a_copy_knows_the_names_of_its_index(source: Path, tmp_path: Path) -> None:
    engine = open_engine(source, write=True)
    engine.put_blob(FILE, "氯吡格雷, 小白片\n".encode())
    engine.close()
    copy_index(source, tmp_path / "copy")
    copied = open_engine(tmp_path / "copy")
    assert copied.get_blob(FILE) == "氯吡格雷, 小白片\n".encode()
    copied.close()
