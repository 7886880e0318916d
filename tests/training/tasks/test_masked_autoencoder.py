from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.encoders.side import Side
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.tasks.masked_autoencoder import RetroMAE, RetroMAEError, mask_tokens, visible_to_decoder


def dice(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def tokenizer(models):
    return train_tokenizer(models.TEXTS, size=600)


@pytest.fixture
def student(tokenizer):
    return build_student(tokenizer, layers=2, width=32, heads=4, dimension=24, max_length=40)


def batch(student, texts):
    side = Side(student, "query")
    rows = [torch.tensor(row) for row in side.ids([side.prompt + text for text in texts])]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids, (ids != 0).long()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.floats(0.01, 0.99), st.integers(0, 99))
def test_each_text_hides_its_share_and_never_nothing(counts, ratio, seed):
    ordinary = torch.arange(max(counts) + 2)[None, :] <= torch.tensor(counts)[:, None]
    ordinary[:, 0] = False
    masked = mask_tokens(ordinary, ratio, dice(seed))
    assert not (masked & ~ordinary).any()
    for count, hidden in zip(counts, masked.sum(dim=1).tolist(), strict=True):
        assert hidden == (0 if count == 0 else max(1, round(count * ratio)))
    assert torch.equal(masked, mask_tokens(ordinary, ratio, dice(seed)))


def test_masks_change_from_one_step_to_the_next():
    ordinary = torch.ones(4, 20, dtype=torch.bool)
    generator = dice()
    assert not torch.equal(mask_tokens(ordinary, 0.3, generator), mask_tokens(ordinary, 0.3, generator))


def test_the_decoder_sees_the_sentence_and_some_others_but_never_itself():
    ordinary = torch.ones(8, 30, dtype=torch.bool)
    ordinary[:, 0] = ordinary[:, -5:] = False
    seen = visible_to_decoder(ordinary, 0.5, dice())
    assert seen[:, :, 0].all()
    assert not seen[:, range(1, 30), range(1, 30)].any() and not seen[:, :, -5:].any()
    assert 0.45 < seen[:, :, 1:25].float().mean() < 0.55
    assert not torch.equal(seen[:, 1], seen[:, 2]), "each position draws its own"


def test_the_loss_falls_on_a_tiny_corpus(student, models):
    torch.set_num_threads(1)
    model, generator = RetroMAE(student), dice()
    ids, attention = batch(student, models.TEXTS)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    curve = []
    for _ in range(60):
        found = model.loss(ids, attention, generator)
        assert torch.equal(found["loss"], found["encoder"] + found["decoder"])
        found["loss"].backward()
        optimiser.step()
        optimiser.zero_grad()
        curve.append({name: float(value.detach()) for name, value in found.items()})
    for part in ("encoder", "decoder"):
        assert curve[-1][part] < 0.75 * curve[0][part], (part, curve[0], curve[-1])


def test_the_same_dice_give_the_same_loss_and_gradients(student, models):
    ids, attention = batch(student, models.TEXTS)
    found = []
    for seed in (1, 1, 2):
        model = RetroMAE(copy.deepcopy(student))
        loss = model.loss(ids, attention, dice(seed))["loss"]
        loss.backward()
        found.append((float(loss.detach()), model.encoder.embeddings.word_embeddings.weight.grad.clone()))
    assert found[0][0] == found[1][0] != found[2][0] and torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("texts", [["痛"], ["", "痛"], [""], ["吗", "a"]])
def test_very_short_texts_give_a_loss_that_is_a_number(student, texts):
    model = RetroMAE(student)
    ids, attention = batch(student, texts)
    for seed in range(5):
        found = model.loss(ids, attention, dice(seed))
        found["loss"].backward()
        assert all(torch.isfinite(value) for value in found.values())
        assert (float(found["encoder"].detach()) > 0) == any(texts), "a text of one token hides it"
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


def test_padding_and_neighbours_do_not_move_the_loss_of_a_text(student):
    model = RetroMAE(student).eval()
    ids, attention = batch(student, ["血压高吗"])
    wide = torch.nn.functional.pad(ids, (0, 7)), torch.nn.functional.pad(attention, (0, 7))
    with torch.no_grad():
        seen = visible_to_decoder(attention.bool(), 0.5, dice())
        narrow = model.decode(model.encode(ids, attention)[:, 0], ids, seen)
        seen = torch.nn.functional.pad(seen, (0, 7, 0, 7))
        seen[:, :, 0] = True
        padded = model.decode(model.encode(*wide)[:, 0], wide[0], seen)
    assert torch.allclose(narrow, padded[:, : ids.shape[1]], atol=1e-5)


def test_the_decoder_leans_on_the_sentence_vector(student, models, monkeypatch):
    torch.set_num_threads(1)
    model, generator = RetroMAE(student), dice()
    ids, attention = batch(student, models.TEXTS)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        model.loss(ids, attention, generator)["loss"].backward()
        optimiser.step()
        optimiser.zero_grad()
    real = model.decode
    with torch.no_grad():
        whole = model.loss(ids, attention, dice(5))
        monkeypatch.setattr(model, "decode", lambda sentence, *rest: real(torch.zeros_like(sentence), *rest))
        without = model.loss(ids, attention, dice(5))
    assert torch.equal(whole["encoder"], without["encoder"])
    assert without["decoder"] > whole["decoder"] + 0.2


def test_a_student_that_pools_by_the_mean_is_read_by_the_mean(tokenizer, monkeypatch):
    student = build_student(tokenizer, layers=1, width=32, heads=4, dimension=24, max_length=40, pooling="mean")
    model = RetroMAE(student).eval()
    ids, attention = batch(student, ["血压高吗", "发烧"])
    read = []
    real = model.decode
    monkeypatch.setattr(model, "decode", lambda sentence, *rest: read.append(sentence) or real(sentence, *rest))
    seen = []
    whole = model.encode
    monkeypatch.setattr(model, "encode", lambda *given: seen.append(whole(*given)) or seen[-1])
    with torch.no_grad():
        model.loss(ids, attention, dice())
    for row, length in enumerate(attention.sum(dim=1)):
        assert torch.allclose(read[0][row], seen[0][row, :length].mean(dim=0), atol=1e-5), "padding is no part of it"


def test_the_encoder_in_training_is_the_students_own(student, models):
    names = set(student.state_dict())
    before = {name: value.clone() for name, value in student.state_dict().items()}
    model = RetroMAE(student)
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())
    model.loss(*batch(student, models.TEXTS), dice())["loss"].backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    after = student.state_dict()
    assert set(after) == names, "nothing was added to the student"
    assert not torch.equal(
        after["0.model.embeddings.word_embeddings.weight"], before["0.model.embeddings.word_embeddings.weight"]
    )
    assert torch.equal(after["2.linear.weight"], before["2.linear.weight"]), "the projection has no part in it"


def test_only_special_tokens_are_left_alone(student):
    model = RetroMAE(student)
    assert sorted(model.special.tolist()) == list(range(7))


def test_a_model_that_cannot_be_masked_is_refused(tokenizer, decoder_folder):
    from suwen.encoders.side import load_model

    with pytest.raises(RetroMAEError, match="static student"):
        RetroMAE(build_student(tokenizer, kind="static", dimension=8))
    with pytest.raises(RetroMAEError, match="transformer encoder"):
        RetroMAE(load_model(decoder_folder, device="cpu")[0])
