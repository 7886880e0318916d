"""InfoNCE against a plain numpy version, and its masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.losses.info_nce import InfoNCE, LossError, similarities, text_mask


def oracle(queries, documents, positives, temperature, masked=None) -> float:
    """The formula, query by query, in float64."""
    losses = []
    for row, positive in enumerate(positives):
        top = queries[row] @ documents[positive] / temperature
        total = 0.0
        for column in range(len(documents)):
            if column == positive or masked is None or not masked[row][column]:
                total += np.exp(queries[row] @ documents[column] / temperature - top)
        losses.append(np.log(total))
    return float(np.mean(losses))


def units(random: np.random.Generator, *shape: int) -> np.ndarray:
    vectors = random.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@st.composite
def batches(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, hard, width = draw(st.integers(1, 6)), draw(st.integers(0, 9)), draw(st.integers(2, 12))
    queries, documents = units(random, rows, width), units(random, rows + hard, width)
    positives = random.permutation(rows + hard)[:rows]
    return queries, documents, positives, random.integers(0, 5, size=rows + hard)


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


@given(batches(), st.sampled_from([0.02, 0.1, 1.0]))
def test_it_is_the_formula_with_duplicates_left_out_by_text(batch, temperature) -> None:
    queries, documents, positives, texts = batch
    q, d, p, t = tensors(queries, documents, positives, texts)
    loss = InfoNCE(temperature)
    assert loss(q, d, p).item() == pytest.approx(
        oracle(queries, documents, positives, temperature), rel=1e-9, abs=1e-12
    )
    masked = [[texts[positive] == text for text in texts] for positive in positives]
    found = loss(q, d, p, text_mask(t, p)).item()
    assert found == pytest.approx(oracle(queries, documents, positives, temperature, masked), rel=1e-9, abs=1e-12)


@given(batches(), st.sampled_from([0.02, 1.0]), st.sampled_from([0.5, 3.0]))
def test_other_right_documents_are_asked_for_against_the_negatives_alone(batch, temperature, weight) -> None:
    queries, documents, positives, texts = batch
    q, d, p, t = tensors(queries, documents, positives, texts)
    asked = []
    for row, positive in enumerate(positives):
        same = [column for column in range(len(documents)) if texts[column] == texts[positive]]
        others = [column for column in same if column != positive]
        # Each of them by itself: a batch of one query whose positive it is.
        each = [oracle(queries[row : row + 1], documents, [c], temperature, [np.isin(range(len(documents)), same)])
                for c in others]  # fmt: skip
        asked.append(np.mean(each) if each else 0.0)
    mask = text_mask(t, p)
    found = InfoNCE(temperature, others=weight)(q, d, p, mask) - InfoNCE(temperature)(q, d, p, mask)
    assert found.item() == pytest.approx(weight * np.mean(asked), rel=1e-6, abs=1e-9)


def test_a_mask_by_text_is_not_a_mask_by_similarity() -> None:
    random = np.random.default_rng(3)
    q, d = tensors(units(random, 2, 8), units(random, 4, 8))
    texts = torch.tensor([1, 2, 1, 3])
    d[3] = d[0]  # another text whose vector happens to be the positive's; the duplicate's vector (dropout) is not
    p = torch.tensor([0, 1])
    loss = InfoNCE(0.1)
    plain, by_text = loss(q, d, p), loss(q, d, p, text_mask(texts, p))
    by_similarity = loss(q, d, p, similarities(d[p], d) > 0.999)
    assert by_text.item() < plain.item()
    assert by_similarity.item() != pytest.approx(by_text.item(), rel=1e-3)
    # Without a duplicate the mask changes nothing.
    assert loss(q, d, p, text_mask(torch.arange(4), p)).item() == plain.item()


@given(batches())
def test_the_reverse_direction_is_the_formula_with_the_roles_exchanged(batch) -> None:
    queries, documents, positives, texts = batch
    q, d, p, t = tensors(queries, documents, positives, texts)
    shared = [[texts[a] == texts[b] for b in positives] for a in positives]
    rows = np.arange(len(queries))
    loss, mask = InfoNCE(0.1), text_mask(t, p)
    expected = oracle(documents[positives], queries, rows, 0.1, shared)
    assert loss.reverse(q, d, p, mask).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    parts = [loss.reverse(q, d, p, mask, own=slice(row, row + 1)).item() for row in rows]
    assert np.mean(parts) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_vectors_are_not_normalised_in_silence() -> None:
    q, d, p = 2 * torch.eye(2), torch.eye(2), torch.arange(2)
    assert InfoNCE(1.0)(q, d, p).item() == pytest.approx(np.log1p(np.exp(-2)))


def test_gradients_are_right_with_masked_columns_and_a_learnable_temperature() -> None:
    torch.manual_seed(0)
    q, d = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    p, mask = torch.tensor([0, 2, 4]), torch.zeros(3, 5, dtype=torch.bool)
    mask[0] = True  # every negative of the first query is masked: no loss, and no NaN
    temperature = torch.tensor(0.7, dtype=torch.float64)
    inputs = [one.requires_grad_() for one in (q, d, temperature)]
    assert torch.autograd.gradcheck(lambda q, d, t: InfoNCE(t)(q, d, p, mask), inputs)
    (grad,) = torch.autograd.grad(InfoNCE(0.1)(q, d, p, mask), q)
    assert torch.equal(grad[0], torch.zeros(4, dtype=torch.float64))


def test_scores_are_fp32_under_autocast() -> None:
    random = np.random.default_rng(0)
    queries, documents = units(random, 4, 64), units(random, 8, 64)
    q, d, p = torch.tensor(queries).float(), torch.tensor(documents).float(), torch.arange(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = InfoNCE(0.02)(q, d, p)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(oracle(queries, documents, range(4), 0.02), rel=1e-4)
    half = InfoNCE(0.02)(q.bfloat16().requires_grad_(), d.bfloat16(), p)
    rounded = oracle(q.bfloat16().double().numpy(), d.bfloat16().double().numpy(), range(4), 0.02)
    assert half.dtype == torch.float32 and half.item() == pytest.approx(rounded, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"documents": torch.zeros(4, 5)}, "add a projection"),
        ({"documents": torch.zeros(3)}, "one vector a row"),
        ({"queries": torch.zeros(0, 3)}, "at least one query"),
        ({"positives": torch.tensor([0])}, "one document column a query"),
        ({"positives": torch.tensor([0, 4])}, "offset by rank"),
        ({"same_text": torch.zeros(4, 2, dtype=torch.bool)}, "a row for each query"),
        ({"same_text": torch.zeros(2, 3, dtype=torch.bool)}, "a column for each document"),
    ],
)
def test_wrong_inputs_name_the_fix(change, fix) -> None:
    right = {
        "queries": torch.zeros(2, 3),
        "documents": torch.zeros(4, 3),
        "positives": torch.tensor([0, 1]),
        "same_text": torch.zeros(2, 4, dtype=torch.bool),
    }
    loss = InfoNCE()
    assert torch.isfinite(loss(**right))
    with pytest.raises(LossError, match=fix):
        loss(**(right | change))


def test_a_temperature_of_0_is_refused() -> None:
    with pytest.raises(LossError):
        InfoNCE(temperature=0.0)
