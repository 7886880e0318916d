"""How an adaptation ends before its end; the whole way is in tests/cli/test_adapting.py."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

from small_pair import make_static_pair

from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.durable import write_json
from suwen.errors import Stopped
from suwen.training.adapting import QUESTIONS, OutOfTime, _train, by_document_encoder, measure, same_queries
from suwen.training.adapting_keys import Adaptation
from suwen.training.adapting_progress import UnderWay
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe_runner import train


@pytest.mark.parametrize(("minutes", "kind"), [(None, Stopped), (60.0, Stopped), (1e-9, OutOfTime)])
def test_a_training_that_is_ended_says_whether_the_time_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float | None, kind: type[Exception]
) -> None:
    """A signal ends it too, and then no budget is spent: there may be none."""
    write_json(tmp_path / "recipe-keys.json", [])
    ended = SimpleNamespace(complete=False, stopped="training stopped after step 3 because of the signal SIGTERM")
    monkeypatch.setattr("suwen.training.recipe_runner.train", lambda *_, **__: ended)
    wanted = Adaptation(Path("shelf"), tmp_path, recipe="cardioembed-tiny", minutes=minutes)
    with pytest.raises(kind, match=r"after step 3 .* run it again to go on") as stopped:
        _train(wanted, UnderWay(tmp_path, minutes), lambda _: None, None)
    assert ("minutes are spent" in str(stopped.value)) == (kind is OutOfTime)


def test_where_the_light_side_stayed_documents_by_the_document_encoder_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the light side alone nothing would have changed."""
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    run = train(load_recipe("cardioembed-mini"), tmp_path / "runs", device="cpu", dry_run=True).folder
    before = next(tmp_path.rglob("pair-tiny/pair"))
    documents = [
        Document(f"d{at}", text) for at, text in enumerate(["胃痛反酸怎么办", "高血压吃什么药", "flu vaccines"])
    ]
    asked, right = [Query("q0", "血压高")], [Qrel("q0", "d1", 1)]
    write_collection(tmp_path / "work" / QUESTIONS / "apart", documents, asked, {"test": right})
    wanted = Adaptation(Path("shelf"), tmp_path / "work", pair=str(before), base=str(before.parent / "base"))
    (task,) = measure(wanted, run / "export" / "model", lambda _: None)
    assert task.task == QUESTIONS
    for system in ("before", "after"):
        result = wanted.work / "results" / "adapted" / system / f"{QUESTIONS}.json"
        made = json.loads(result.read_text(encoding="utf-8"))["suwen"]["contract"]
        assert made["document"]["by"] == "document"
        assert system == "before" or made["query"]["by"] == "static"
    assert "SUWEN_BASE" not in os.environ
    # A pair whose tiers are others is measured by them, as it is served without a base.
    other = make_static_pair(tmp_path / "other")
    assert same_queries(str(before), run / "export" / "model") and not same_queries(
        str(other), run / "export" / "model"
    )
    with by_document_encoder(replace(wanted, pair=str(other)), run / "export" / "model"):
        assert "SUWEN_BASE" not in os.environ
    monkeypatch.setenv("SUWEN_BASE", "mine.gguf")
    with by_document_encoder(replace(wanted, base=None), run / "export" / "model"):
        assert os.environ["SUWEN_BASE"] == "mine.gguf"
    assert os.environ["SUWEN_BASE"] == "mine.gguf"
