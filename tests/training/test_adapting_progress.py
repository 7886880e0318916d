"""The page of an adaptation under way: steps, calls, time, and what a stop leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suwen.llm.ledger import Budget, BudgetSpent, Meter, Progress, Spent
from suwen.training.adapting_progress import UnderWay


def page(work: Path) -> str:
    return (work / "report.html").read_text(encoding="utf-8")


def test_a_page_says_how_far_it_is(tmp_path: Path) -> None:
    watch = UnderWay(tmp_path, minutes=60, calls=500)
    assert not list(tmp_path.iterdir()), "nothing is written before it begins"
    watch.counting(lambda: 123)
    with watch.step("questions"):
        watch.asked(Progress(done=40, total=90, eta=75.0))
        watch.write()
        said = page(tmp_path)
        assert (
            "40 of 90 requests, about 1 min 15 s left" in said and "123 calls of language models of at most 500" in said
        )
        assert "left of its budget" in said and 'http-equiv="refresh"' in said
        watch.read(Path("shelf/heart.pdf"), 3, 12)
        watch.write()
        assert "reading heart.pdf: page 3 of 12" in page(tmp_path)
    with watch.step("training"):
        watch.trained("specialist", 7, 20, {"loss": 0.5})
        watch.write()
        assert "specialist: 7 of 20 steps, loss 0.5000" in page(tmp_path)
        watch.finished("specialist", 12.5)
    assert watch.seconds["training: specialist"] == 12.5
    states = {one["name"]: one["state"] for one in json.loads((tmp_path / "progress.json").read_bytes())["steps"]}
    assert states["questions"] == states["training"] == "done" and states["measuring"] == ""


def test_a_stop_is_told_and_its_time_is_kept(tmp_path: Path) -> None:
    watch = UnderWay(tmp_path)
    with pytest.raises(KeyboardInterrupt), watch.step("questions"):
        raise KeyboardInterrupt
    assert "Stopped: KeyboardInterrupt. The same command goes on." in page(tmp_path)
    kept = json.loads((tmp_path / "progress.json").read_bytes())
    kept["steps"][0]["seconds"] = 100.0
    (tmp_path / "progress.json").write_text(json.dumps(kept))
    again = UnderWay(tmp_path)
    with again.step("questions"):
        pass
    assert 100 <= again.seconds["questions"] < 200


def test_no_call_is_made_when_the_time_is_spent(tmp_path: Path) -> None:
    assert not UnderWay(tmp_path).is_late() and UnderWay(tmp_path).until is None
    late = UnderWay(tmp_path, minutes=-1)
    assert late.is_late()
    with pytest.raises(BudgetSpent, match="the time is spent"):
        Meter(Budget(until=late.until)).reserve(Spent(calls=1))
    assert Meter(Budget(until=UnderWay(tmp_path, minutes=9).until)).reserve(Spent(calls=1)) is not None
