"""``hyde:MODEL:SYSTEM`` where queries name nothing that documents say, with a real server that knows better."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from suwen.bench.hyde_system import HydeSettings, HydeSystem
from suwen.bench.suite_runner import run_suite
from suwen.bench.system_specs import parse_systems
from suwen.bench.systems import SystemProblem

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
sys.path.insert(0, str(Path(__file__).parent))
from hyde_suite import SAYS, make_suite
from server import Body, Server


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


def configure(folder: Path, url: str) -> None:
    text = (
        f'[llm.endpoints.here]\nbase_url = "{url}"\n[llm.models.m]\nendpoint = "here"\nmodel = "scripted"\nseed = 1\n'
    )
    (folder / "suwen.toml").write_text(text, "utf-8")


def test_documents_are_found_by_what_is_written_for_queries(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def play(body: Body) -> str:
        asked.append(body["messages"][-1]["content"])
        return SAYS[asked[-1].rsplit("：", 1)[1].strip()]

    with Server(play) as server:
        configure(tmp_path, server.url)
        monkeypatch.chdir(tmp_path)
        systems = ["plain=pair:default#static", "written=hyde:m,n=2,fusion=documents:pair:default#static"]
        measured = run_suite(suite, systems, out=tmp_path / "out").systems
        done = {one.system: one.results["t"].metrics["ndcg@10"] for one in measured}
        assert done["written"] == 1.0 > done["plain"]
        assert all("标题" in text for text in asked), "the task's kind of prompt is not the one that was asked with"
        calls = server.total
        # Two documents of two queries; and for the time of a query, of one to warm up and of both again.
        assert calls == 4 + 6
        run_suite(suite, ["again=hyde:m,n=2,weight=3:pair:default#static"], out=tmp_path / "out").systems
        assert server.total == calls + 6, "another weight writes anew what is not timed"
        (untimed,) = run_suite(suite, ["quick=hyde:m,n=2,timed=0:pair:default#static"], out=tmp_path / "out").systems
        assert server.total == calls + 6, "what nobody asked the time of is written again"
        assert untimed.results["t"].about["query_ms"] is None


def test_a_query_for_which_nothing_good_is_written_is_asked_as_it_is(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(lambda _: "No idea, sorry about that.") as server:
        configure(tmp_path, server.url)
        monkeypatch.chdir(tmp_path)
        systems = ["p=pair:default#static", "w=hyde:m:pair:default#static"]
        plain, written = run_suite(suite, systems, out=tmp_path / "out").systems
    assert "'language': 2" in caplog.text, "what is left out is not told"
    assert np.isclose(plain.results["t"].metrics["ndcg@10"], written.results["t"].metrics["ndcg@10"])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("hyde:m:bm25:words", "rewrites an encoder's queries"),
        ("hyde:m", "rewrites an encoder's queries"),
        ("hyde:m,much=3:pair:default#static", "no setting 'much'"),
        ("hyde:m,n=two:pair:default#static", "give a number"),
        ("hyde:m,fusion=sum:pair:default#static", "no fusion 'sum'"),
        ("hyde:m,n=0:pair:default#static", "at least 1"),
        ("hyde:m,timed=-1:pair:default#static", "0 or more"),
    ],
)
def test_what_is_written_wrongly_is_refused(spec: str, told: str) -> None:
    with pytest.raises(SystemProblem, match=told):
        parse_systems([spec])


def test_vectors_that_are_compared_by_direction_count_alike_however_long_they_are(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suwen.bench.suite_tasks import load_suite
    from suwen.bench.systems import Setting

    class Long:
        """Queries point one way, documents another, and their vectors are a hundred times as long."""

        name, spec, similarity = "long", "st:long", "cosine"
        asked: ClassVar[list[str]] = []

        def contract(self, setting: object, side: str) -> dict[str, str]:
            return {"long": str(tmp_path), "side": side}

        def encode(self, texts: list[str], setting: object, side: str) -> object:
            self.asked.append(side)
            way = [1.0, 0.0] if side == "query" else [0.0, 100.0]
            return np.array([way] * len(texts), np.float32)

    with Server(lambda _: SAYS["甲"]) as server:
        configure(tmp_path, server.url)
        monkeypatch.chdir(tmp_path)
        loaded = load_suite(suite)
        setting = Setting(loaded.tasks[0], loaded.templates)
        fused = HydeSystem("s", HydeSettings("m"), Long()).encode(["甲"], setting, "query")  # type: ignore[arg-type]
        assert np.allclose(fused, [[0.5**0.5, 0.5**0.5]])
        heavy = HydeSystem("s", HydeSettings("m", weight=3), Long()).encode(["甲"], setting, "query")  # type: ignore[arg-type]
        assert heavy[0, 0] > fused[0, 0], "a weight counts for nothing"
        assert Long.asked.count("document") == 1, "what was written is encoded again for another weight"
