from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.pair_files import verify_files
from suwen.encoders.probe import row_cosines, verify_probe
from suwen.encoders.prompts import Prompts
from suwen.encoders.side import ModelError, Side, load_model
from suwen.encoders.space import ElsewhereDocument, Manifest, Space, SpaceMismatch, load_manifest, save_manifest
from suwen.training.ship import exporting as module
from suwen.training.ship.exporting import ExportError, export
from suwen.training.ship.onnx_graph import quantise, quantise_rows, write_graph
from suwen.training.students.student_models import build_student, prune_layers
from suwen.training.students.student_tokenizer import DEFAULT_SIZE, train_tokenizer


@pytest.fixture(scope="module")
def router_light(router_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("router-light") / "pair"
    export(router_folder, out, precision="both")
    return out


def test_a_router_its_tier_and_the_document_encoder_are_one_pair(router_folder, router_light, models):
    from sentence_transformers import SentenceTransformer

    texts = [*models.TEXTS, "长" * 300]
    full = SentenceTransformer(str(router_folder), device="cpu")
    light = Pair.load(router_light)
    queries = light.encoder("l2-fp32").encode_queries(texts)
    assert row_cosines(queries, full.encode_query(texts)).min() >= 0.999
    documents = DocumentEncoder.load(router_folder, device="cpu").encode(texts)
    assert row_cosines(documents, full.encode_document(texts)).min() >= 0.999
    assert row_cosines(light.encoder("l2").encode_queries(texts), queries).mean() > 0.99
    assert light.space == load_manifest(router_folder).space


def test_the_light_pair_of_a_router_refers_to_its_document_side(router_folder, router_light):
    manifest = load_manifest(router_light)
    assert manifest.document == ElsewhereDocument(kind="elsewhere", name="tiny-full")
    assert manifest.tiers["l2"].prompts == Prompts(query="问: ", document="")
    assert verify_probe(DocumentEncoder.load(router_folder, device="cpu"), router_light) > 0.9999
    with pytest.raises(ModelError, match="full pair tiny-full"):
        DocumentEncoder.load(router_light)


def test_a_model_without_a_manifest_fixes_its_own_space(bert_folder, light_pair, models):
    manifest = load_manifest(light_pair)
    verify_files(light_pair, manifest)
    assert manifest.space == DocumentEncoder.load(bert_folder, device="cpu").space
    assert manifest.document.tier == "l2" and manifest.default_tier == "l2"
    assert manifest.tiers["l2"].layers == 2 and manifest.tiers["l2"].width == 32
    expected = DocumentEncoder.load(bert_folder, device="cpu").encode(models.TEXTS)
    found = Pair.load(light_pair).encoder("l2-fp32").encode_documents(models.TEXTS)
    assert row_cosines(found, expected).min() > 0.9999


def test_parity_is_measured_and_written_down(light_pair):
    tiers = load_manifest(light_pair).tiers
    assert tiers["l2-fp32"].parity["torch_min"] >= 0.999 and tiers["l2-fp32"].parity["texts"] > 32
    assert 0.9 < tiers["l2"].parity["int8_min"] <= tiers["l2"].parity["int8_mean"] < 1.0
    assert 0 < tiers["static"].parity["space_mean"] <= 1


def test_the_static_tier_is_nearer_to_the_space_than_chance(bert_folder, light_pair, models):
    texts = [f"{text} 5" for text in models.TEXTS]
    expected = DocumentEncoder.load(bert_folder, device="cpu").encode(texts)
    found = Pair.load(light_pair).encoder("static").encode_documents(texts)
    nearest = (found @ expected.T).argmax(axis=1)
    assert (nearest == np.arange(len(texts))).mean() > 0.8


def test_the_graph_takes_any_batch_and_length_and_is_small_in_int8(light_pair):
    pair = Pair.load(light_pair)
    graph = onnx.load(str(light_pair / "query" / "l2" / "model.onnx")).graph
    assert [node.name for node in graph.input] == ["input_ids", "attention_mask"]
    assert [node.name for node in graph.output] == ["sentence_embedding"]
    session = pair.encoder("l2-fp32")._session
    for batch, length in ((1, 1), (3, 7), (2, 48)):
        ids = np.ones((batch, length), np.int64)
        found = session.run(None, {"input_ids": ids, "attention_mask": ids})[0]
        assert found.shape == (batch, 24) and np.isfinite(found).all()
    sizes = [(light_pair / "query" / tier / "model.onnx").stat().st_size for tier in ("l2", "l2-fp32")]
    assert sizes[0] < sizes[1]


def test_padding_does_not_move_a_vector(light_pair):
    encoder = Pair.load(light_pair).encoder("l2-fp32")
    ids = encoder._tokens.ids("胃痛反酸")
    padded = np.array([[*ids, 0, 0, 0]])
    mask = np.array([[1] * len(ids) + [0, 0, 0]])
    found = encoder._session.run(None, {"input_ids": padded, "attention_mask": mask})[0]
    assert np.allclose(found, encoder.encode_documents(["胃痛反酸"]), atol=1e-5)


def test_the_tokenizer_file_carries_the_length(light_pair):
    content = json.loads((light_pair / "query" / "l2" / "tokenizer.json").read_text(encoding="utf-8"))
    assert content["truncation"]["max_length"] == 48 and content["padding"] is None


def test_a_cut_space_is_normalised_after_the_cut(bert_folder, tmp_path, models):
    export(bert_folder, tmp_path / "cut", dimension=8, precision="fp32", max_length=20)
    pair = Pair.load(tmp_path / "cut")
    assert (pair.space.dimension, pair.space.full_dimension) == (8, 24)
    assert pair.manifest.tiers["l2"].max_length == 20
    whole = DocumentEncoder.load(bert_folder, device="cpu").encode(["胃痛"])[:, :8]
    assert np.allclose(pair.encoder().encode_documents(["胃痛"]), whole / np.linalg.norm(whole), atol=1e-4)


def test_a_decoder_can_be_a_tier_too(decoder_folder, tmp_path, models):
    export(decoder_folder, tmp_path / "pair", precision="fp32", tier="deep")
    texts = [*models.TEXTS, "", "长" * 300]
    found = Pair.load(tmp_path / "pair").encoder("deep").encode_documents(texts)
    assert row_cosines(found, DocumentEncoder.load(decoder_folder, device="cpu").encode(texts)).min() > 0.9999


def student(bert_folder: Path, out: Path, space: Space) -> Path:
    """A query encoder alone, whose manifest names the space it is aligned to."""
    shutil.copytree(bert_folder, out)
    document = ElsewhereDocument(kind="elsewhere", name="tiny-full")
    save_manifest(out, Manifest(name="student", form="full", space=space, document=document))
    return out


def test_a_student_of_the_same_space_joins_a_pair_and_of_another_does_not(
    router_folder, router_light, bert_folder, tmp_path
):
    pair = shutil.copytree(router_light, tmp_path / "pair")
    space = load_manifest(router_folder).space
    report = export(student(bert_folder, tmp_path / "s", space), pair, tier="l2b", into=True)
    assert list(report.sizes) == ["l2b"] and report.manifest.tiers["l2b"].aligned_to == space.id
    assert Pair.load(pair).tiers == ["l2", "l2-fp32", "l2b"] and Pair.load(pair).default_tier == "l2"
    assert Pair.load(pair).encoder("l2b").encode_queries(["胃痛"]).shape == (1, 24)
    with pytest.raises(ExportError, match="already has a tier named l2b"):
        export(tmp_path / "s", pair, tier="l2b", into=True)
    with pytest.raises(SpaceMismatch, match="tiny-full"):
        export(bert_folder, pair, tier="l3", into=True)
    with pytest.raises(ExportError, match="holds no document encoder"):
        export(tmp_path / "s", tmp_path / "new", static=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pair", "s"], "nothing is left behind"


def test_a_static_query_route_becomes_a_static_tier(bert_folder, decoder_folder, tmp_path, models):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Router, StaticEmbedding

    bert, decoder = (load_model(folder, device="cpu")[0] for folder in (bert_folder, decoder_folder))
    static = StaticEmbedding(bert.tokenizer, embedding_dim=40)
    query = [static, Dense(40, 24, activation_function=None), Normalize()]
    router = Router({"query": query, "document": list(decoder)}, default_route=None, allow_empty_key=False)
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "full"))
    report = export(tmp_path / "full", tmp_path / "light")
    assert list(report.sizes) == ["static"] and report.manifest.tiers["static"].parity["torch_min"] > 0.99
    expected = SentenceTransformer(str(tmp_path / "full"), device="cpu").encode_query(list(models.TEXTS))
    found = Pair.load(tmp_path / "light").encoder().encode_queries(models.TEXTS)
    assert row_cosines(found, expected).min() > 0.99


@pytest.fixture(scope="module")
def students(router_folder, models, tmp_path_factory) -> Path:
    """Folders ``l4``, ``l2`` (pruned) and ``static``: aligned, so they say, to the space of the full pair."""
    import torch

    root = tmp_path_factory.mktemp("students")
    space = load_manifest(router_folder).space
    tokenizer = train_tokenizer(models.TEXTS, size=600)
    tokenizer.add_tokens([f"token-{number}" for number in range(2000)])  # enough for an int8 table
    l4 = build_student(tokenizer, layers=4, width=32, heads=4, dimension=24, max_length=40)
    static = build_student(tokenizer, kind="static", dimension=24)
    with torch.no_grad():
        static[0].form.normal_(generator=torch.Generator().manual_seed(0)).mul_(0.3)
    elsewhere = ElsewhereDocument(kind="elsewhere", name="tiny-full")
    for name, student in (("l4", l4), ("l2", prune_layers(l4, 2)), ("static", static)):
        student.save(str(root / name))
        save_manifest(root / name, Manifest(name=name, form="full", space=space, document=elsewhere))
    return root


def test_the_students_of_one_space_become_tiers_of_one_pair(students, router_folder, tmp_path, models):
    pair, texts = tmp_path / "pair", [*models.TEXTS, "", "Ａspirin 10⁹", "血压" * 300]
    export(students / "l4", pair, precision="both", name="tiny")
    export(students / "l2", pair, into=True)
    export(students / "static", pair, into=True, max_length=64)
    manifest = load_manifest(pair)
    verify_files(pair, manifest)
    assert list(manifest.tiers) == ["l4", "l4-fp32", "l2", "static"] and manifest.default_tier == "l4"
    assert {tier.aligned_to for tier in manifest.tiers.values()} == {load_manifest(router_folder).space.id}
    assert manifest.tiers["l2"].layers == 2 and manifest.tiers["l2"].prompts == Prompts(query="[Q]", document="[D]")
    for tier, folder, least in (
        ("l4-fp32", "l4", 0.99999),
        ("l4", "l4", 0.99),
        ("l2", "l2", 0.99),
        ("static",) * 2 + (0.999,),
    ):
        torch_side, encoder = load_model(students / folder, device="cpu")[0], Pair.load(pair).encoder(tier)
        cut = [text[:40] for text in texts] if tier == "static" else texts
        assert row_cosines(encoder.encode_queries(cut), torch_side.encode_query(cut)).min() > least
        assert row_cosines(encoder.encode_documents(cut), torch_side.encode_document(cut)).min() > least


def test_a_trained_static_tier_keeps_its_two_forms_without_prompts(students, tmp_path):
    tier = export(students / "static", tmp_path / "pair", max_length=64).manifest.tiers["static"]
    assert tier.prompts == Prompts() and tier.parity["torch_min"] > 0.999
    form = np.load(tmp_path / "pair" / "query" / "static" / "form.npy")
    assert form.shape == (2, 24) and np.abs(form[0] - form[1]).max() > 0.1


def test_a_students_token_table_is_int8_rows_and_its_matrices_are_per_channel(students, tmp_path):
    export(students / "l4", tmp_path / "pair")
    graph = onnx.load(str(tmp_path / "pair" / "query" / "l4" / "model.onnx")).graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    table = next(tensor for name, tensor in tensors.items() if name.endswith("word_embeddings.weight_int8"))
    assert table.data_type == onnx.TensorProto.INT8
    assert list(tensors[table.name.replace("_int8", "_scales")].dims) == [table.dims[0], 1]
    products = [node for node in graph.node if node.op_type in ("MatMulInteger", "DynamicQuantizeMatMul")]
    assert len(products) == 4 * 6 + 1, "four layers of six matrices, and the projection"
    scales = [tensor for name, tensor in tensors.items() if name.endswith("_scale") and len(tensor.dims) == 1]
    assert {tensor.dims[0] for tensor in scales} == {24, 32, 128}


def test_a_student_of_another_space_does_not_join(students, bert_folder, light_pair, tmp_path):
    pair = shutil.copytree(light_pair, tmp_path / "pair")
    for name in ("l4", "static"):
        with pytest.raises(SpaceMismatch, match=r"sp-.*tiny-light"):
            export(students / name, pair, tier="stranger", into=True)
    assert Pair.load(pair).tiers == Pair.load(light_pair).tiers
    assert sorted(file.name for file in tmp_path.iterdir()) == ["pair"]


@pytest.mark.long
@pytest.mark.parametrize(("layers", "most"), [(6, 16 * 2**20), (3, 11 * 2**20)])
def test_the_default_shape_fits_into_a_file_that_ships(models, tmp_path, layers, most):
    tokenizer = train_tokenizer(models.TEXTS, size=600)
    tokenizer.add_tokens([f"token-{number}" for number in range(DEFAULT_SIZE - tokenizer.get_vocab_size())])
    side = Side(build_student(tokenizer, layers=layers), "query")
    write_graph(side, tmp_path / "a.onnx", dimension=512, normalise=True)
    quantise(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").stat().st_size < most


def test_a_graph_that_is_not_the_model_is_refused_and_leaves_nothing(bert_folder, tmp_path, monkeypatch):
    def wrong_pooling(side, file, *, dimension, normalise):
        side.modules[1].pooling_mode = "cls"
        real(side, file, dimension=dimension, normalise=normalise)

    real = module.write_graph
    monkeypatch.setattr(module, "write_graph", wrong_pooling)
    with pytest.raises(ExportError, match="does not agree with torch"):
        export(bert_folder, tmp_path / "pair")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_taken_is_left_alone(bert_folder, light_pair, tmp_path):
    before = sorted(light_pair.rglob("*"))
    with pytest.raises(ExportError, match="exists"):
        export(bert_folder, light_pair)
    assert sorted(light_pair.rglob("*")) == before
    with pytest.raises(ModelError, match="too few"):
        export(bert_folder, tmp_path / "pair", static=True, texts=["胃痛"])
    assert list(tmp_path.iterdir()) == []


def test_a_stated_space_is_not_cut_in_passing(router_folder, tmp_path):
    with pytest.raises(ExportError, match="24 dimensions, which 8 would leave"):
        export(router_folder, tmp_path / "pair", dimension=8)


def test_rows_are_restored_to_half_a_step():
    rows = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    rows[3] = 0
    small, scales = quantise_rows(rows)
    assert small.dtype == np.int8 and scales.dtype == np.float32
    assert (np.abs(small * scales[:, None] - rows) <= scales[:, None] / 2 + 1e-7).all()


def test_big_tables_become_int8_rows(tmp_path):
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import InferenceSession

    table = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)
    table[7] *= 50  # one scale for the whole table would wipe out the rest
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["rows"], axis=0)],
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "a.onnx"))
    quantise(tmp_path / "a.onnx", tmp_path / "b.onnx")
    session = InferenceSession(str(tmp_path / "b.onnx"), providers=["CPUExecutionProvider"])
    ids = np.arange(3000)
    assert row_cosines(session.run(None, {"ids": ids})[0], table).min() > 0.9995
    assert (tmp_path / "b.onnx").stat().st_size < (tmp_path / "a.onnx").stat().st_size / 3
