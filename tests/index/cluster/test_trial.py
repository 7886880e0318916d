"""``suwen engine check``: it holds on both searchers, leaves nothing behind, and says what does not hold."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

import milvus_server
from postgres_server import new_address
from suwen.cli.main import app
from suwen.index.cluster import snapshot
from suwen.index.cluster.place import Place
from suwen.index.engine import IndexProblem
from suwen.index.opening import try_engine
from suwen.index.vectors import best


def schemas(address: str) -> list[str]:
    with Place(address).connect() as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'suwen_check%'")
        return [name for (name,) in found]


@pytest.mark.parametrize("new", [new_address, milvus_server.new_address], ids=["pgvector", "milvus"])
def test_everything_holds_and_nothing_is_left(new: Callable[[], str]) -> None:
    address = new()
    done = CliRunner().invoke(app, ["engine", "check", address, "--rounds", "6", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["held"] and len(told["promises"]) == 7 and "@127" in told["address"]
    assert schemas(address) == []
    if "milvus" in address:
        from pymilvus import MilvusClient

        left = MilvusClient(uri=Place(address).milvus, dedicated=True).list_collections()
        assert not [name for name in left if "suwen_check" in name]


def test_an_engine_that_answers_wrongly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "best", lambda rows, scores, *more: best(rows, -scores, *more))
    found = try_engine(new_address(), rounds=2)
    assert "instead of" in found[0].problem
    assert [one.problem for one in found if one.promise.startswith("a second writer")] == [""]


def test_a_folder_is_not_tried(tmp_path) -> None:
    with pytest.raises(IndexProblem, match="is a folder"):
        try_engine(tmp_path / "index")
