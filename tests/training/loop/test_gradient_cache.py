"""Gradient caching gives the gradients of the plain way, with dropout, under autocast, in less memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from suwen.training.loop.gradient_cache import GradientCacheError, cached_backward
from suwen.training.losses.info_nce import InfoNCE


class Tower(nn.Module):
    """A small encoder with dropout and normalised vectors."""

    def __init__(self, seed: int, dropout: float = 0.2, width: int = 16) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.second = nn.Linear(6, width), nn.Linear(width, 8)
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        return functional.normalize(self.second(self.dropout(torch.tanh(self.first(rows)))), dim=-1)


def towers() -> tuple[Tower, Tower]:
    return Tower(1), Tower(2)


def chunks_of(pair: tuple[Tower, Tower], queries: list[Tensor], documents: list[Tensor]) -> list[Callable[[], Tensor]]:
    query, document = pair
    return [lambda part=part: query(part) for part in queries] + [
        lambda part=part: document(part) for part in documents
    ]


def contrastive(parts: int) -> Callable[[list[Tensor]], Tensor]:
    def loss(vectors: list[Tensor]) -> Tensor:
        queries, documents = torch.cat(vectors[:parts]), torch.cat(vectors[parts:])
        return InfoNCE(0.1)(queries, documents, torch.arange(len(queries), device=queries.device))

    return loss


def gradients(pair: tuple[Tower, Tower]) -> list[Tensor]:
    return [one.grad for tower in pair for one in tower.parameters()]


def batch(rows: int, hard: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=generator), torch.randn(rows + hard, 6, generator=generator)


@hypothesis_settings(max_examples=30)
@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_it_gives_the_loss_the_gradients_and_the_random_state_of_the_plain_way(rows, hard, left, right, seed) -> None:
    queries, documents = batch(rows, hard, seed)
    split = list(queries.split(left)), list(documents.split(right))
    plain, cached = towers(), towers()
    torch.manual_seed(seed)
    expected = contrastive(len(split[0]))([chunk() for chunk in chunks_of(plain, *split)])
    expected.backward()
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    found = cached_backward(chunks_of(cached, *split), contrastive(len(split[0])))
    assert torch.equal(torch.get_rng_state(), state)
    assert not found.requires_grad and found.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    for one, other in zip(gradients(cached), gradients(plain), strict=True):
        assert torch.linalg.norm(one - other) <= 1e-5 * torch.linalg.norm(other) + 1e-7


def test_dropout_matters_to_the_comparison() -> None:
    queries, documents = batch(6, 0)
    losses = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        losses.append(cached_backward(chunks_of(towers(), [queries], [documents]), contrastive(1)).item())
    assert losses[0] != losses[1]


def test_gradients_add_up_over_calls() -> None:
    queries, documents = batch(6, 2)
    pair = Tower(1, dropout=0.0), Tower(2, dropout=0.0)
    chunks = chunks_of(pair, list(queries.split(2)), [documents])
    cached_backward(chunks, contrastive(3))
    once = [one.clone() for one in gradients(pair)]
    cached_backward(chunks, contrastive(3))
    assert all(torch.allclose(one, 2 * other) for one, other in zip(gradients(pair), once, strict=True))


def test_under_autocast_no_weight_loses_its_gradient() -> None:
    queries, documents = batch(6, 2)
    split = list(queries.split(2)), list(documents.split(3))
    plain, cached = towers(), towers()
    torch.manual_seed(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = contrastive(3)([chunk() for chunk in chunks_of(plain, *split)])
    expected.backward()
    torch.manual_seed(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cached_backward(chunks_of(cached, *split), contrastive(3))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for one, other in zip(gradients(cached), gradients(plain), strict=True):
        # The order of bf16 sums differs: three chunks, each rounded, against one sum of the three.
        assert other.any() and torch.linalg.norm(one - other) <= 1e-2 * torch.linalg.norm(other)


class Held:
    """A tensor kept for the backward pass, counted while it lives."""

    live = 0
    peak = 0

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        size = tensor.numel()
        Held.live += size
        Held.peak = max(Held.peak, Held.live)
        weakref.finalize(self, Held.drop, size)

    @staticmethod
    def drop(size: int) -> None:
        Held.live -= size


def peak_of(work: Callable[[], object]) -> int:
    gc.collect()
    Held.live = Held.peak = 0
    with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
        work()
    return Held.peak


def test_one_chunks_graph_is_held_at_a_time() -> None:
    queries, documents = torch.randn(64, 6), torch.randn(64, 6)
    pair = Tower(1, width=256), Tower(2, width=256)
    split = list(queries.split(4)), list(documents.split(4))
    plain = peak_of(lambda: contrastive(16)([chunk() for chunk in chunks_of(pair, *split)]).backward())
    cached = peak_of(lambda: cached_backward(chunks_of(pair, *split), contrastive(16)))
    one = peak_of(lambda: pair[0](queries[:4]).sum().backward())
    on_vectors = peak_of(lambda: contrastive(1)([queries.clone().requires_grad_(), documents]).backward())
    assert cached <= (one + 2 * on_vectors) * 1.2
    assert cached < plain / 8


def test_a_frozen_tower_is_left_alone() -> None:
    queries, documents = batch(4, 0)
    pair = towers()
    pair[1].requires_grad_(False)
    cached_backward(chunks_of(pair, [queries], [documents]), contrastive(1))
    assert pair[0].first.weight.grad.any() and pair[1].first.weight.grad is None


@pytest.mark.parametrize(("used", "expected"), [((0, 1, 2), [2, 2, 1]), ((0, 1), [2, 2, 1]), ((2,), [1, 1, 1])])
def test_the_last_chunk_and_those_the_loss_does_not_use_are_encoded_once(used, expected) -> None:
    tower, calls = Tower(1), [0, 0, 0]

    def encode(number: int) -> Tensor:
        calls[number] += 1
        return tower(torch.full((2, 6), float(number)))

    chunks = [lambda number=number: encode(number) for number in range(3)]
    cached_backward(chunks, lambda vectors: sum(vectors[number].sum() for number in used))
    assert calls == expected


def test_wrong_chunks_and_losses_name_the_fix() -> None:
    tower, rows = Tower(1), iter((2, 3))
    with pytest.raises(GradientCacheError, match="pass at least one function"):
        cached_backward([], lambda vectors: vectors[0].sum())
    with pytest.raises(GradientCacheError, match="compute it from the list"):
        cached_backward([lambda: tower(torch.ones(2, 6))], lambda vectors: vectors[0].detach().sum())
    changing = [lambda: tower(torch.ones(next(rows), 6)), lambda: tower(torch.ones(2, 6))]
    with pytest.raises(GradientCacheError, match="fix its texts before"):
        cached_backward(changing, lambda vectors: vectors[0].sum())
    with pytest.raises(GradientCacheError, match="unfreeze an encoder"):
        cached_backward([lambda: tower(torch.ones(2, 6)).detach()], lambda vectors: vectors[0].sum())
