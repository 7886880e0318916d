"""CardioEmbed's training: an adapter over a base in 8 bits, averages with the base, and the specialist as a pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suwen.encoders.adapter import add_up, load_adapter
from suwen.encoders.base_model import load_base, round_base
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.space import load_manifest
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe_runner import train

SHORT = tuple(f"stages.{name}.training.steps=2" for name in ("specialist", "align", "joint"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny recipe from its triplets to its light pair, two steps a stage."""
    return train(load_recipe("cardioembed-tiny", SHORT), tmp_path_factory.mktemp("runs"), device="cpu").folder


def test_a_base_in_eight_bits_is_near_and_smaller_and_lets_gradients_through(run: Path) -> None:
    folder = next((run.parents[1] / "builtin").glob("qwen2-tiny"))
    plain, rounded = (load_base(folder, device="cpu", max_length=32) for _ in range(2))
    round_base(rounded)
    layer = rounded[0].model.layers[0].mlp.up_proj.weight
    assert layer.dtype == torch.int8 and layer.nbytes * 4 == plain[0].model.layers[0].mlp.up_proj.weight.nbytes
    texts = ["高血压怎么办", "the flu vaccine is safe"]
    before, after = plain.encode(texts), rounded.encode(texts)
    assert (before * after).sum(axis=1).min() > 0.995 and np.abs(before - after).max() > 0
    value = rounded[0].model.layers[0].mlp.up_proj(torch.ones(1, 64, requires_grad=True)).sum()
    value.backward()


def test_the_adapter_learns_over_eight_bits_and_the_manifest_says_so(run: Path) -> None:
    assert all(up.abs().max() > 0 for _, up in load_adapter(run / "specialist" / "model" / "adapter").values())
    for folder in (run / "freeze" / "model", run / "export" / "model"):
        assert "8 bits" in load_manifest(folder).notes
    config = json.loads((run / "specialist" / "config.json").read_text(encoding="utf-8"))
    assert config["base_bits"] == 8 and config["training"]["schedule"] == "cosine"
    pair = Pair.load(run / "export" / "model")
    assert pair.encoder("static").encode_queries(["高血压怎么办"]).shape == (1, 32)


def test_the_average_is_part_of_the_way_and_its_curve_is_measured(run: Path) -> None:
    whole, part = (load_adapter(run / name / "model" / "adapter") for name in ("specialist", "average"))
    for name, (down, up) in whole.items():
        torch.testing.assert_close(part[name].up @ part[name].down, 0.8 * (up @ down), rtol=5e-3, atol=1e-5)
    lines = (run / "average" / "curves.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "0", "0.5", "1"] and (
        run / "average" / "curves.png"
    ).is_file()
    frozen = load_adapter(run / "freeze" / "model" / "adapter")
    name = next(iter(frozen))
    torch.testing.assert_close(
        frozen[name].up @ frozen[name].down, part[name].up @ part[name].down, rtol=0.1, atol=1e-3
    )
    base = json.loads((run / "specialist" / "config.json").read_text(encoding="utf-8"))["base"]
    assert DocumentEncoder.load(run / "freeze" / "model", base=base, device="cpu").encode(["胃痛"]).shape == (1, 32)


def test_adapters_add_up(run: Path) -> None:
    one, other = (load_adapter(run / name / "model" / "adapter") for name in ("specialist", "average"))
    both = add_up([(one, 0.3), (other, 0.5)])
    for name, (down, up) in both.items():
        torch.testing.assert_close(
            up @ down, 0.3 * one[name].up @ one[name].down + 0.5 * other[name].up @ other[name].down
        )


def test_a_specialist_goes_on_with_the_adapter_of_a_pair(run: Path, tmp_path: Path) -> None:
    export, base = run / "export" / "model", next((run.parents[1] / "builtin").glob("qwen2-tiny"))
    sets: list[Any] = [*SHORT, "stages.specialist.training.steps=0", "data.measure=null", "stages.average.curve=[]"]
    sets += [f"stages.specialist.pair={export}", f"stages.specialist.base={base}", f"stages.average.pair={export}"]
    folder = train(load_recipe("cardioembed-tiny", sets), tmp_path, device="cpu", only=["specialist", "average"]).folder
    before, after, average = (
        load_adapter(path / "adapter")
        for path in (export, folder / "specialist" / "model", folder / "average" / "model")
    )
    for name, (down, up) in before.items():
        torch.testing.assert_close(after[name].up @ after[name].down, up @ down, rtol=1e-2, atol=1e-4)
        torch.testing.assert_close(average[name].up @ average[name].down, up @ down, rtol=1e-2, atol=1e-4)
    with pytest.raises(RecipeError, match="prompts: not those of"):
        load_recipe("cardioembed-tiny", [*sets, "stages.specialist.prompts={query: 'q: ', document: ''}"])


def test_documents_learn_to_be_found_by_a_student_that_stays(tmp_path: Path) -> None:
    asks = "students.asks={base: 'builtin:bert-tiny', max_length: 32, prompts: {query: '[Q]', document: '[D]'}}"
    sets = (*SHORT, asks, "data.measure=null", "stages.average.curve=[]")

    def adapter(name: str, *more: str) -> torch.Tensor:
        recipe = load_recipe("cardioembed-tiny", (*sets, f"name={name}", *more))
        folder = train(recipe, tmp_path, device="cpu", only=["specialist"]).folder
        found = load_adapter(folder / "specialist" / "model" / "adapter")
        return torch.cat([(up @ down).flatten() for down, up in found.values()])

    alone = adapter("alone")
    beside = adapter("beside", "stages.specialist.asked_by=asks")
    halfway = adapter("halfway", "stages.specialist.asked_by=asks", "stages.specialist.halfway=0.7")
    assert not torch.equal(alone, beside) and not torch.equal(beside, halfway)
    kept = adapter("again", "stages.specialist.asked_by=asks", "stages.specialist.halfway=0.7")
    torch.testing.assert_close(kept, halfway)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("stages.specialist.asked_by=statik", "unknown student 'statik'; did you mean 'static'"),
        ("stages.specialist.asked_by=static", "'static' begins with no model; say `students.static.base"),
        ("stages.specialist.halfway=0.5", "to nobody; say `asked_by: STUDENT`"),
        ("stages.average.of={specialist: 1.2}", "at most 1 in all"),
        ("data.measure=null", "nothing to measure it on"),
        ("stages.specialist.base_bits=4", "base_bits"),
    ],
)
def test_what_is_refused(change: str, told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        load_recipe("cardioembed-tiny", [change])
