"""SL-HyDE's stages: the loop turns on a small world, its rounds end by themselves, and bad input is counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from suwen.corpora.training_rows import read_training_rows
from suwen.encoders.adapter import load_adapter
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe_runner import train
from suwen.training.run_context import ROWS
from suwen.training.teacher_vectors import TeacherVectors


def told(folder: Path, stage: str) -> dict[str, float]:
    said: dict[str, float] = json.loads((folder / stage / "metrics.json").read_text(encoding="utf-8"))
    return said


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All stages on a writer that knows nothing, two steps each."""
    return train(load_recipe("sl-hyde-tiny"), tmp_path_factory.mktemp("runs"), device="cpu", dry_run=True).folder


def test_a_round_that_gains_nothing_ends_the_rounds_and_what_comes_after_goes_on(tried: Path) -> None:
    assert told(tried, "round-1")["stopped"] == 1.0
    for name in ("chosen-2", "generator-2", "written-2", "retriever-2"):
        assert told(tried, name)["skipped"] == 1.0 and not (tried / name / "model").exists()
    last = told(tried, "round-2")
    assert (last["stopped"], last["gain"], last["score"]) == (1.0, 0.0, told(tried, "start")["score"])
    assert not (tried / "round-2" / "model" / "generator").exists(), "the start had no adapter"
    assert "mean" in told(tried, "distilled-joint")


def test_what_is_of_no_use_is_counted_and_its_query_stays_in_the_rows(tried: Path) -> None:
    written, rows = told(tried, "written"), list(read_training_rows(tried / "written" / "model" / ROWS))
    assert written["asked"] == len(rows) == written["rows"]
    assert sum(bool(row.hypothetical) for row in rows) == written.get("kept", 0.0) < len(rows)
    assert sum(one for key, one in written.items() if key in ("endless", "empty", "language", "echo", "loop")) > 0
    assert len(load_adapter(tried / "generator" / "model" / "adapter")) == 14


def test_texts_with_a_document_have_the_fused_vector_as_their_target(tried: Path) -> None:
    vectors = TeacherVectors(tried / "fused")
    plain, fused = vectors.array("plain-query"), vectors.array("query")
    moved = np.abs(plain.astype(np.float32) - fused.astype(np.float32)).max(1) > 1e-3
    beside = {json.loads(line)["query"] for line in _lines(tried / "beside" / "model" / "texts.jsonl.gz")}
    assert len(plain) == len(fused) and 0 < moved.sum() <= len(beside) < len(plain)
    lengths = np.linalg.norm(fused.astype(np.float32), axis=1)
    assert np.allclose(lengths, 1, atol=2e-3)


def test_a_stage_says_what_it_needs() -> None:
    with pytest.raises(RecipeError, match="exactly one of them"):
        load_recipe("sl-hyde-tiny", ["stages.queries.model=small"])
    with pytest.raises(RecipeError, match="`choose` needs `queries`"):
        load_recipe("sl-hyde-tiny", ["stages.chosen.queries=null"])
    with pytest.raises(RecipeError, match="stage of kind queries"):
        load_recipe("sl-hyde-tiny", ["stages.retriever.rewrites=queries"])
    with pytest.raises(RecipeError, match="have no effect with `rewrites`"):
        load_recipe("sl-hyde-tiny", ["stages.retriever.rows.sources=[consult]"])


@pytest.mark.parametrize("name", ["sl-hyde", "sl-hyde-mini"])
def test_every_variant_fits_together(name: str) -> None:
    for variant in load_recipe(name).variants:
        assert load_recipe(name, variant=variant).stages


def _lines(file: Path) -> list[str]:
    import gzip

    return gzip.decompress(file.read_bytes()).decode().splitlines()
