from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.side import Side, load_model
from suwen.training.students.student_models import (
    StudentError,
    build_student,
    first_layers,
    init_from_vectors,
    prune_layers,
    with_projection,
)
from suwen.training.students.student_tokenizer import SPECIAL, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(models):
    return train_tokenizer(models.TEXTS, size=300)


@pytest.fixture
def tiny(tokenizer):
    return build_student(tokenizer, layers=4, width=32, heads=4, dimension=24, max_length=20, seed=3)


def vectors(student, texts, form="query"):
    side = Side(student, form)
    with torch.inference_mode():
        return side.embed(side.ids([side.prompt + text for text in texts])).numpy()


def test_a_student_gives_unit_vectors_of_the_space_and_knows_the_form(tiny, models):
    queries, documents = vectors(tiny, models.TEXTS), vectors(tiny, models.TEXTS, "document")
    assert queries.shape == (len(models.TEXTS), 24)
    assert np.allclose(np.linalg.norm(queries, axis=1), 1, atol=1e-5)
    assert (np.abs(queries - documents).max(axis=1) > 1e-3).all()
    assert np.allclose(tiny.encode_query(list(models.TEXTS)), queries, atol=1e-5)
    assert np.allclose(tiny.encode_document(list(models.TEXTS)), documents, atol=1e-5)


def test_weights_depend_on_the_seed_alone(tokenizer, tiny):
    shape = {"layers": 4, "width": 32, "heads": 4, "dimension": 24, "max_length": 20}
    torch.manual_seed(99)
    before = torch.get_rng_state()
    again, other = build_student(tokenizer, **shape, seed=3), build_student(tokenizer, **shape, seed=4)
    assert torch.equal(torch.get_rng_state(), before), "the caller's dice are left alone"
    states = [student.state_dict() for student in (tiny, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["2.linear.weight"], states[2]["2.linear.weight"])


def test_mean_pooling_is_the_mean_of_the_states(tokenizer):
    shape = {"layers": 1, "width": 32, "heads": 4, "dimension": 24, "max_length": 20, "seed": 3}
    student = build_student(tokenizer, **shape, pooling="mean")
    side = Side(student, "query")
    given = features(student, "血压")
    with torch.inference_mode():
        mean = side.modules[0].model(**given).last_hidden_state[0].mean(dim=0)
        expected = torch.nn.functional.normalize(side.modules[2].linear(mean), dim=-1)
    assert np.allclose(vectors(student, ["血压"])[0], expected.numpy(), atol=1e-5)
    assert not np.allclose(vectors(student, ["血压"]), vectors(build_student(tokenizer, **shape), ["血压"]), atol=1e-2)


def test_dropout_is_on_while_it_learns_and_off_afterwards(tokenizer):
    student = build_student(tokenizer, layers=1, width=32, heads=4, dimension=24, max_length=20, dropout=0.5)
    student.train()
    assert not np.allclose(vectors(student, ["血压"]), vectors(student, ["血压"]))
    student.eval()
    assert np.array_equal(vectors(student, ["血压"]), vectors(student, ["血压"]))


def test_a_long_text_is_cut_to_the_length_and_keeps_its_ends(tiny):
    side = Side(tiny, "query")
    ids = side.ids([side.prompt + "血压" * 100])[0]
    assert side.max_length == len(ids) == 20 and (ids[0], ids[1], ids[-1]) == (2, 5, 3)
    assert np.isfinite(vectors(tiny, ["血压" * 100, ""])).all()


@pytest.mark.parametrize("kind", ["transformer", "static"])
def test_a_saved_student_is_the_same_when_it_is_loaded(kind, tokenizer, models, tmp_path):
    student = build_student(
        tokenizer, kind=kind, layers=1, width=32, heads=2, dimension=24, projection=True, max_length=20
    )
    student.save(str(tmp_path / "s"), create_model_card=False)
    loaded, _ = load_model(tmp_path / "s", device="cpu")
    texts = [*models.TEXTS, "", "Ａspirin 10⁹", "血压" * 100]
    for form in ("query", "document"):
        side, other = Side(student, form), Side(loaded, form)
        prompted = [side.prompt + text for text in texts]
        assert other.prompt == side.prompt in ("[Q]", "[D]")
        assert other.ids(prompted) == side.ids(prompted) and other.max_length == side.max_length
        assert np.array_equal(vectors(student, texts, form), vectors(loaded, texts, form))
    files = {file.suffix for file in (tmp_path / "s").rglob("*") if file.is_file()}
    assert files == {".json", ".safetensors"}


def test_shapes_that_do_not_fit_are_refused(tokenizer, bert_folder):
    with pytest.raises(StudentError, match="5 heads"):
        build_student(tokenizer, width=32, heads=5)
    with pytest.raises(StudentError, match="give it a projection"):
        build_student(tokenizer, layers=1, width=32, heads=4, dimension=24, projection=False)
    with pytest.raises(StudentError, match=r"lacks \[Q\], \[D\]"):
        build_student(Tokenizer.from_file(str(bert_folder / "tokenizer.json")))
    narrow = build_student(tokenizer, layers=1, width=24, heads=4, dimension=24, projection=False)
    assert vectors(narrow, ["血压"]).shape == (1, 24)


def by_hand(student, layers, text):
    """The student's vector of a text, passing some of its layers one after the other."""
    side = Side(student, "query")
    transformer, _, dense, _ = side.modules
    ids = torch.tensor(side.ids([side.prompt + text]))
    with torch.inference_mode():
        states = transformer.model.embeddings(input_ids=ids)
        for place in layers:
            states = transformer.model.encoder.layer[place](states)
        return torch.nn.functional.normalize(dense.linear(transformer.model.LayerNorm(states)[:, 0])).numpy()


@pytest.mark.parametrize(("keep", "layers"), [(2, [0, 3]), (4, [0, 1, 2, 3]), (1, [0])])
def test_pruning_keeps_the_chosen_layers_and_the_old_student(tiny, tmp_path, keep, layers):
    whole = by_hand(tiny, range(4), "血压")
    pruned = prune_layers(tiny, keep)
    assert np.allclose(vectors(pruned, ["血压"]), by_hand(tiny, layers, "血压"), atol=1e-5)
    pruned.save(str(tmp_path / "p"), create_model_card=False)
    loaded, _ = load_model(tmp_path / "p", device="cpu")
    assert np.array_equal(vectors(loaded, ["血压"]), vectors(pruned, ["血压"]))
    with torch.no_grad():
        pruned[0].model.embeddings.word_embeddings.weight.zero_()
    assert np.allclose(vectors(tiny, ["血压"]), whole, atol=1e-5), "the old student is a student of its own"


@pytest.mark.parametrize("keep", [-1, 0, 5])
def test_layers_that_are_not_there_cannot_be_kept(tiny, keep):
    with pytest.raises(StudentError, match=r"keep|kept"):
        prune_layers(tiny, keep)


def test_the_first_layers_of_a_decoder_are_a_query_encoder(decoder_folder, models, tmp_path):
    decoder, _ = load_model(decoder_folder, device="cpu")
    expected = DocumentEncoder.load(decoder_folder, device="cpu").encode(models.TEXTS)
    count = decoder[0].model.config.num_hidden_layers
    assert np.allclose(vectors(first_layers(decoder, count), models.TEXTS), expected, atol=1e-5)
    shrunk = first_layers(decoder, 1)
    assert shrunk[0].model.config.num_hidden_layers == len(shrunk[0].model.layers) == 1
    assert np.abs(vectors(shrunk, models.TEXTS) - expected).max() > 1e-3
    shrunk.save(str(tmp_path / "s"), create_model_card=False)
    loaded, _ = load_model(tmp_path / "s", device="cpu")
    assert np.array_equal(vectors(loaded, models.TEXTS), vectors(shrunk, models.TEXTS))
    assert len(decoder[0].model.layers) == count
    with pytest.raises(StudentError, match="take 1 to that many"):
        first_layers(decoder, count + 1)


def test_a_static_student_has_no_layers_to_prune(tokenizer):
    with pytest.raises(StudentError, match="no layers"):
        prune_layers(build_student(tokenizer, kind="static", dimension=8), 1)


def test_a_projection_leads_to_another_width(tiny, models):
    wide = with_projection(tiny, 40)
    found = vectors(wide, models.TEXTS)
    assert found.shape[1] == 40 and np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    linear = wide[3].linear
    with torch.inference_mode():
        before = tiny[2].linear(tiny[1](tiny[0](features(tiny, "血压")))["sentence_embedding"])
        expected = torch.nn.functional.normalize(linear(before)).numpy()
    assert np.allclose(vectors(wide, ["血压"]), expected, atol=1e-5)


def test_a_projection_may_start_as_the_cut_of_nested_vectors(tiny, models):
    whole, cut = vectors(tiny, models.TEXTS), vectors(with_projection(tiny, 10, start="cut"), models.TEXTS)
    assert np.allclose(cut, whole[:, :10] / np.linalg.norm(whole[:, :10], axis=1, keepdims=True), atol=1e-5)
    assert np.abs(vectors(with_projection(tiny, 10), models.TEXTS) - cut).max() > 1e-2


def features(student, text):
    side = Side(student, "query")
    ids = torch.tensor(side.ids([side.prompt + text]))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_a_table_starts_from_the_teachers_vectors(tokenizer, tiny):
    count = tokenizer.get_vocab_size()
    given = np.random.default_rng(0).normal(size=(count, 16)).astype(np.float32) + 3
    table = tiny[0].model.embeddings.word_embeddings.weight
    before = table.detach().clone()
    init_from_vectors(tiny, given)
    unit = given / np.linalg.norm(given, axis=1, keepdims=True)
    centred = unit - unit.mean(axis=0)
    special = len(SPECIAL)
    found = table.detach().numpy()[special:, :16]
    gram, expected = found @ found.T, centred[special:] @ centred[special:].T
    assert np.allclose(gram / np.trace(gram), expected / np.trace(expected), atol=1e-5), "angles are the teacher's"
    assert 0.5 < float(table.detach().std() / before.std()) < 2 and not table[0].any()
    assert torch.equal(table[:, 16:], before[:, 16:]), "columns the teacher has no word for keep their dice"
    assert torch.equal(table[:special], before[:special]), "what a teacher makes of [CLS] means nothing"


def test_a_wide_teacher_is_cut_to_its_main_components(tokenizer, tiny):
    count = tokenizer.get_vocab_size()
    rng = np.random.default_rng(0)
    given = rng.normal(size=(count, 4)) @ rng.normal(size=(4, 90)) + 0.001 * rng.normal(size=(count, 90))
    init_from_vectors(tiny, given.astype(np.float32))
    table = tiny[0].model.embeddings.word_embeddings.weight.detach().numpy()[len(SPECIAL) :]
    spread = np.linalg.svd(table, compute_uv=False)
    assert spread[3] > 20 * spread[4]


def test_a_static_table_starts_centred_and_weighted(tokenizer):
    student = build_student(tokenizer, kind="static", dimension=24)
    count = tokenizer.get_vocab_size()
    given = np.random.default_rng(0).normal(size=(count, 24)).astype(np.float32) + 1
    counts = np.zeros(count, np.int64)
    counts[10] = 1000
    form = np.random.default_rng(1).normal(size=(2, 24)).astype(np.float32)
    init_from_vectors(student, given, counts=counts, form=form)
    unit = given / np.linalg.norm(given, axis=1, keepdims=True)
    rows = student[0].embedding.weight.detach().numpy()
    assert np.allclose(rows[11], unit[11] - unit.mean(axis=0), atol=1e-5)
    assert np.allclose(rows[10], (unit[10] - unit.mean(axis=0)) * 0.001 / 1.001, atol=1e-5)
    assert np.allclose(student[0].form.detach().numpy(), form)


def test_vectors_of_another_shape_are_refused(tokenizer, tiny):
    with pytest.raises(StudentError, match="7 vectors for"):
        init_from_vectors(tiny, np.ones((7, 4), np.float32))
    static = build_student(tokenizer, kind="static", dimension=8)
    with pytest.raises(StudentError, match="cannot start rows of 8"):
        init_from_vectors(static, np.ones((tokenizer.get_vocab_size(), 4), np.float32))
