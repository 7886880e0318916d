"""The sampler's loop against transformers' own ``generate``, and its draws against the distribution they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from suwen.llm import sampler
from suwen.llm.sampler import Sampling, sample

PROMPTS = [[5, 9, 14], [7], [3, 8, 8, 21, 40, 11, 6], [30, 2], [12, 13, 14, 15, 16]]


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_the_likeliest_tokens_are_those_of_generate(models, tmp_path: Path, kind: str) -> None:
    model = load(models.build_base(tmp_path, kind=kind))
    free = sample(model, PROMPTS, [1], Sampling(24))
    # Two tokens that do come up end rows at different places: rows must be dropped, and the others not moved.
    ends = sorted({free[0].ids[3], free[2].ids[10]})
    walked = sample(model, PROMPTS, ends, Sampling(24))
    assert walked == sampler._generate(model, PROMPTS, ends, Sampling(24))
    assert any(one.ended for one in walked) and all(not set(one.ids) & set(ends) for one in walked)


def test_scores_are_those_of_each_prompt_alone(models, tmp_path: Path) -> None:
    model = load(models.build_base(tmp_path))
    new = [[4, 9], [17, 6], [8, 8], [3, 3], [25, 7]]
    with torch.inference_mode():
        states = sampler._States(model, PROMPTS, room=3)
        found = [states.read(), states.step(torch.tensor([row[0] for row in new]))]
        states.keep(torch.tensor([0, 2, 4]))
        found.append(states.step(torch.tensor([new[row][1] for row in (0, 2, 4)])))
        for done, rows in ((0, range(5)), (1, range(5)), (2, (0, 2, 4))):
            for place, row in enumerate(rows):
                alone = model(torch.tensor([PROMPTS[row] + new[row][:done]])).logits[0, -1]
                torch.testing.assert_close(found[done][place], alone, rtol=1e-4, atol=1e-4)


def test_rows_that_do_not_fit_together_are_taken_in_turns(
    models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(models.build_base(tmp_path))
    together = sample(model, PROMPTS, [1], Sampling(9))
    monkeypatch.setattr(sampler, "_CPU_BYTES", 1)
    assert sample(model, PROMPTS, [1], Sampling(9)) == together


def test_another_architecture_goes_through_generate(models, tmp_path: Path) -> None:
    model = load(models.save_decoder(tmp_path))
    assert not sampler._walkable(model)
    drawn = sample(model, PROMPTS, [0], Sampling(6, temperature=0.7, top_p=0.9, top_k=20, min_p=0.01))
    assert len(drawn) == len(PROMPTS) and all(len(one.ids) <= 6 for one in drawn)


@pytest.mark.parametrize(
    ("how", "allowed"),
    [
        (Sampling(1, 1.0), {0, 1, 2, 3}),
        (Sampling(1, 1.0, top_k=2), {0, 1}),
        (Sampling(1, 1.0, top_p=0.6), {0, 1}),
        (Sampling(1, 1.0, top_p=0.4), {0}),
        (Sampling(1, 1.0, min_p=0.4), {0, 1}),
        (Sampling(1, 1.0, top_k=3, top_p=0.95), {0, 1, 2}),
    ],
)
def test_draws_come_as_often_as_they_are_likely(how: Sampling, allowed: set[int]) -> None:
    shares = torch.tensor([0.5, 0.3, 0.15, 0.05])
    torch.manual_seed(3)
    drawn = sampler._draw(shares.log().repeat(40_000, 1), how)
    found = torch.bincount(drawn, minlength=4) / len(drawn)
    wanted = torch.tensor([float(shares[at]) if at in allowed else 0.0 for at in range(4)])
    assert torch.allclose(found, wanted / wanted.sum(), atol=0.015)


def test_a_temperature_sharpens() -> None:
    torch.manual_seed(3)
    logits = torch.tensor([1.0, 0.0]).repeat(40_000, 1)
    share = float((sampler._draw(logits, Sampling(1, 0.5)) == 0).float().mean())
    assert share == pytest.approx(float(torch.sigmoid(torch.tensor(2.0))), abs=0.015)


@pytest.mark.parametrize("top_p", [0.3, 0.8, 0.999])
def test_a_share_of_the_probability_is_cut_alike_with_and_without_sorting_everything(
    top_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows from sharp to flat: the first eight of the latter hold far less than is asked for.
    scores = (
        torch.randn(6, 200, generator=torch.Generator().manual_seed(0))
        * torch.tensor([9.0, 5, 2, 1, 0.1, 0.01])[:, None]
    )
    how = Sampling(1, temperature=1.0, top_p=top_p)
    order = scores.softmax(-1).sort(-1, descending=True)
    kept = (order.values.cumsum(-1) - order.values < top_p).sum(-1)
    for first in (8, 1024):
        monkeypatch.setattr(sampler, "_FIRST", first)
        found = sampler._likeliest(scores.clone(), how)
        assert (found.isfinite().sum(-1) - kept).abs().max() <= 1, "a token at the edge may fall to either side"
        assert torch.equal(found[found.isfinite()], scores[found.isfinite()])
