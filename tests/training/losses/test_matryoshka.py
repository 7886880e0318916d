"""The Matryoshka average against a plain numpy version."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.info_nce import InfoNCE, LossError, text_mask
from suwen.training.losses.matryoshka import Matryoshka, cut
from suwen.training.losses.squared_l2 import SquaredL2


def oracle(queries, documents, positives, dimensions, temperature) -> float:
    found = []
    for m in dimensions:
        q = queries[:, :m] / np.linalg.norm(queries[:, :m], axis=1, keepdims=True)
        d = documents[:, :m] / np.linalg.norm(documents[:, :m], axis=1, keepdims=True)
        scores = q @ d.T / temperature
        found.append(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(q)), positives]))
    return float(np.mean(found))


@given(
    st.integers(1, 5), st.integers(0, 4), st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_it_is_the_mean_over_widths_of_vectors_cut_then_renormalised(rows, hard, dimensions, seed) -> None:
    random = np.random.default_rng(seed)
    queries, documents = random.normal(size=(rows, 12)), random.normal(size=(rows + hard, 12))
    positives = np.arange(rows)
    q, d, p = (torch.from_numpy(array) for array in (queries, documents, positives))
    found = Matryoshka(tuple(dimensions))(InfoNCE(0.2), q, d, positives=p).item()
    assert found == pytest.approx(oracle(queries, documents, positives, dimensions, 0.2), rel=1e-9, abs=1e-12)


def test_cutting_alone_would_be_another_loss() -> None:
    torch.manual_seed(0)
    q, d = torch.nn.functional.normalize(torch.randn(2, 4, 16), dim=-1)
    p = torch.arange(4)
    cut_only = InfoNCE(0.1)(q[:, :4], d[:, :4], p)
    assert Matryoshka((4,))(InfoNCE(0.1), q, d, positives=p).item() != pytest.approx(cut_only.item(), rel=1e-2)
    assert torch.allclose(torch.linalg.vector_norm(cut(q, 4), dim=-1), torch.ones(4))


def test_it_carries_the_mask_and_takes_other_losses() -> None:
    torch.manual_seed(1)
    q, d, p = torch.randn(2, 8), torch.randn(3, 8), torch.arange(2)
    mask = text_mask(torch.tensor([0, 1, 0]), p)
    average = Matryoshka((2, 8))
    assert average(InfoNCE(0.1), q, d, positives=p, same_text=mask) < average(InfoNCE(0.1), q, d, positives=p)
    each = [SquaredL2()(cut(q, m), cut(d[:2], m)).item() for m in (2, 8)]
    assert average(SquaredL2(), q, d[:2]).item() == pytest.approx(sum(each) / 2)
    expected = sum(InfoNCE(0.1).reverse(cut(q, m), cut(d, m), p).item() for m in (2, 8)) / 2
    assert average(InfoNCE(0.1).reverse, q, d, positives=p).item() == pytest.approx(expected)


def test_half_precision_is_normalised_in_fp32() -> None:
    vectors = torch.randn(3, 64).bfloat16()
    assert cut(vectors, 32).dtype == torch.float32
    assert torch.allclose(torch.linalg.vector_norm(cut(vectors, 32), dim=-1), torch.ones(3), atol=1e-6)


def test_wrong_widths_name_the_fix() -> None:
    with pytest.raises(LossError, match="take 16 out"):
        Matryoshka((4, 16))(SquaredL2(), torch.zeros(1, 8), torch.zeros(1, 8))
    for dimensions in ((), (4, 4), (0,)):
        with pytest.raises(LossError, match="at least one width"):
            Matryoshka(dimensions)


def test_vectors_that_keep_their_lengths_are_only_cut():
    queries, documents = torch.randn(3, 8), 5 * torch.randn(3, 8)
    places = torch.arange(3)
    loss = Matryoshka((4, 8), normalise=False)(InfoNCE(1.0), queries, documents, positives=places)
    alone = [InfoNCE(1.0)(queries[:, :m], documents[:, :m], places) for m in (4, 8)]
    torch.testing.assert_close(loss, sum(alone) / 2)
    assert not torch.allclose(loss, Matryoshka((4, 8))(InfoNCE(1.0), queries, documents, positives=places))
