"""Supervised fine-tuning: the loss of the answers alone, whole or in pieces, and what a step changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from suwen.encoders.adapter import apply_lora
from suwen.errors import SuwenError
from suwen.llm.local_model import LocalModel
from suwen.training.recipe.key_groups import Training
from suwen.training.tasks.answer_task import AnswerTask
from suwen.training.tasks.merged_lora import MergedLora

SAID = [("高血压怎么办", "少吃盐，多运动。"), ("flu", "Rest and drink."), ("失眠", "早睡。"), ("骨折", "固定六周。")]


def task(model: LocalModel, trained: torch.nn.Module, **settings: object) -> AnswerTask:
    made = [model.example([{"role": "user", "content": asked}], answer, 96) for asked, answer in SAID]
    examples = [one for one in made if one is not None]
    training = Training(steps=1, batch=4, learning_rate=1e-3, **settings)
    return AnswerTask(model.model, trained, examples, training, seed=0)


def test_the_loss_is_of_the_answers_alone_in_pieces_as_whole(models, tmp_path: Path) -> None:
    model = LocalModel.load(models.build_base(tmp_path), device="cpu")
    torch.manual_seed(0)
    body = model.model.base_model
    apply_lora(body, rank=2, alpha=4)
    whole = task(model, body)
    lost, count = 0.0, 0
    for prompt, answer in whole.examples:
        scores = model.model(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
        lost -= sum(float(scores[len(prompt) + at - 1, id_]) for at, id_ in enumerate(answer))
        count += len(answer)
    assert float(whole.step(0)["loss"]) == pytest.approx(lost / count, rel=1e-4)
    gradients = [one.grad.clone() for one in body.parameters() if one.requires_grad]
    assert any(one.abs().max() > 0 for one in gradients)
    body.zero_grad()
    pieces = task(model, body, token_budget=24)
    assert float(pieces.step(0)["loss"]) == pytest.approx(lost / count, rel=1e-4)
    for one, before in zip((p for p in body.parameters() if p.requires_grad), gradients, strict=True):
        torch.testing.assert_close(one.grad, before, rtol=1e-3, atol=1e-6)


def test_a_merged_adapter_learns_and_leaves_the_base_as_it_was(models, tmp_path: Path) -> None:
    model = LocalModel.load(models.build_base(tmp_path), device="cpu")
    before = {name: one.detach().clone() for name, one in model.model.named_parameters()}
    for one in model.model.parameters():
        one.requires_grad_(False)
    apply_lora(model.model.base_model, rank=2, alpha=4)
    merged = MergedLora(model.model.base_model)
    own = task(model, merged)
    optimiser = torch.optim.AdamW(merged.parameters(), lr=0.02)
    losses = []
    for _ in range(12):
        losses.append(float(own.step(0)["loss"]))
        optimiser.step()
        optimiser.zero_grad()
    assert losses[-1] < 0.8 * losses[0]
    merged.restore()
    for name, one in model.model.named_parameters():
        assert torch.equal(one, before[name]), f"{name} is not what it was"


def test_an_answer_that_is_too_long_is_no_example_and_one_alone_is_refused(models, tmp_path: Path) -> None:
    model = LocalModel.load(models.build_base(tmp_path), device="cpu")
    asked = [{"role": "user", "content": "高血压"}]
    assert model.example(asked, "少吃盐。" * 60, 96) is None
    one = model.example(asked, "少吃盐。", 96)
    assert one is not None and one[1][-1] == model.tokenizer.eos_token_id
    training = Training(steps=1, batch=4, learning_rate=1e-3)
    with pytest.raises(SuwenError, match="1 answers are left"):
        AnswerTask(model.model, model.model, [one], training, seed=0)


def test_examples_do_not_write_the_vocabulary_down_again(models, tmp_path: Path, monkeypatch) -> None:
    model = LocalModel.load(models.build_base(tmp_path), device="cpu")

    def whole_vocabulary() -> dict[str, int]:
        raise AssertionError("150,000 tokens of a real model, for each of thousands of examples")

    monkeypatch.setattr(model.tokenizer, "get_vocab", whole_vocabulary)
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    assert model.example([{"role": "user", "content": "高血压"}], "少吃盐。", 96) is not None
