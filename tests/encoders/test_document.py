from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.probe import row_cosines
from suwen.encoders.side import ModelError, Side, document_files, load_model, mint_space
from suwen.encoders.space import Manifest, ModelDocument, Space, load_manifest, save_manifest


@pytest.fixture(scope="module")
def texts(models) -> list[str]:
    return [*models.TEXTS, "", "头", "\ud83d", "😀", "长" * 400, "".join(models.TEXTS)]


@pytest.fixture(scope="module")
def decoder(decoder_folder: Path) -> DocumentEncoder:
    return DocumentEncoder.load(decoder_folder, device="cpu")


@pytest.mark.parametrize("budget", [1, 70, 300, 100_000])
@pytest.mark.parametrize("name", ["decoder_folder", "bert_folder", "router_folder"])
def test_the_batch_does_not_change_a_vector(name, budget, texts, request):
    encoder = DocumentEncoder.load(request.getfixturevalue(name), device="cpu")
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    found = encoder.encode(texts, token_budget=budget)
    assert found.dtype == np.float32
    assert row_cosines(found, alone).min() > 1 - 1e-3
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["decoder_folder", "bert_folder", "router_folder"])
def test_it_agrees_with_sentence_transformers(name, models, request):
    from sentence_transformers import SentenceTransformer

    folder = request.getfixturevalue(name)
    expected = SentenceTransformer(str(folder), device="cpu").encode_document(list(models.TEXTS))
    found = DocumentEncoder.load(folder, device="cpu").encode(models.TEXTS)
    assert row_cosines(found, expected).min() > 0.99999


def test_the_query_form_puts_the_query_prompt_before_the_text(bert_folder):
    encoder = DocumentEncoder.load(bert_folder, device="cpu")
    assert encoder.space.prompts.query == "查询: "
    assert np.allclose(encoder.encode_queries(["胃痛"]), encoder.encode_documents(["查询: 胃痛"]), atol=1e-6)


def test_the_space_is_read_off_the_model(decoder, bert_folder):
    space = decoder.space
    assert (space.pooling, space.end_token, space.max_length) == ("last", "<|end|>", 64)
    assert (space.dimension, space.full_dimension, space.normalise, space.similarity) == (24, 24, True, "cosine")
    assert DocumentEncoder.load(bert_folder, device="cpu").space.pooling == "mean"


def test_loading_twice_gives_one_space(decoder, decoder_folder):
    assert DocumentEncoder.load(decoder_folder, device="cpu").space == decoder.space


def test_the_query_route_does_not_fix_the_space(router_folder):
    files = document_files(router_folder)
    assert files and all(name.startswith("document_") for name in files)


def with_space(folder: Path, out: Path, **changes) -> Path:
    """The model under a manifest that states another contract."""
    out.mkdir()
    (out / "model").symlink_to(folder)
    model, found = load_model(folder, device="cpu")
    minted = mint_space(model, found)
    space = Space.mint(**{**minted.model_dump(exclude={"id"}), **changes})
    document = ModelDocument(kind="sentence-transformers", path="model")
    save_manifest(out, Manifest(name="changed", form="full", space=space, document=document))
    return out


def test_a_cut_is_normalised_again(decoder, decoder_folder, models, tmp_path):
    cut = DocumentEncoder.load(with_space(decoder_folder, tmp_path / "cut", dimension=10), device="cpu")
    found, whole = cut.encode(models.TEXTS), decoder.encode(models.TEXTS)
    expected = whole[:, :10] / np.linalg.norm(whole[:, :10], axis=1, keepdims=True)
    assert found.shape[1] == 10 and np.allclose(found, expected, atol=1e-5)


def test_a_space_without_normalisation_keeps_the_lengths(decoder_folder, models, tmp_path):
    changes = {"normalise": False, "similarity": "dot", "dimension": 10}
    found = DocumentEncoder.load(with_space(decoder_folder, tmp_path / "raw", **changes), device="cpu")
    assert not np.allclose(np.linalg.norm(found.encode(models.TEXTS), axis=1), 1, atol=1e-3)


def test_an_end_token_is_appended_and_survives_the_cut(models, tmp_path, decoder):
    bare = models.build_decoder(tmp_path / "bare", end_token=False)
    side = Side(load_model(bare, device="cpu")[0], "document")
    assert side.end_token is None and side.ids([""]) != [[]]
    folder = with_space(bare, tmp_path / "ended", end_token="<|end|>")
    ended = DocumentEncoder.load(folder, device="cpu")
    ids = ended._side.ids(["胃痛", "长" * 500])
    assert [row[-1] for row in ids] == [0, 0] and len(ids[1]) == 64
    assert row_cosines(ended.encode(["胃痛", "长" * 500]), decoder.encode(["胃痛", "长" * 500])).min() > 0.99999
    without = DocumentEncoder.load(bare, device="cpu")
    assert row_cosines(without.encode(["胃痛"]), decoder.encode(["胃痛"]))[0] < 0.999


def test_an_end_token_the_tokenizer_does_not_know_is_refused(decoder_folder, tmp_path):
    folder = with_space(decoder_folder, tmp_path / "other", end_token="<|im_end|>")
    with pytest.raises(ModelError, match="not in the tokenizer"):
        DocumentEncoder.load(folder, device="cpu")


def test_progress_counts_to_the_end(decoder, models):
    calls: list[tuple[int, int]] = []
    decoder.encode(models.TEXTS, token_budget=100, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (len(models.TEXTS), len(models.TEXTS)) and len(calls) > 1
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_no_texts_no_rows(decoder):
    assert decoder.encode([]).shape == (0, 24)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bf16 says that it takes another way
def test_bf16_stays_near_fp32(decoder, decoder_folder, models):
    found = DocumentEncoder.load(decoder_folder, device="cpu", dtype="bf16").encode(models.TEXTS)
    assert row_cosines(found, decoder.encode(models.TEXTS)).min() > 0.99


def test_a_light_pair_says_where_its_documents_are_encoded(light_pair):
    with pytest.raises(ModelError, match="tier 'l2' encodes its documents"):
        DocumentEncoder.load(light_pair)


def test_pickled_weights_are_refused_until_the_line_that_is_told_has_run(decoder_folder, tmp_path):
    import torch
    from safetensors.torch import load_file

    folder = shutil.copytree(decoder_folder, tmp_path / "model")
    pickled = list(folder.rglob("model.safetensors"))  # of the model, and of a layer after it
    for weights in pickled:
        torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
        weights.unlink()
    for _ in pickled:
        with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle.*convert it with: python -c") as refused:
            load_model(folder)
        line = str(refused.value).partition("convert it with: python")[2]
        subprocess.run(f"{sys.executable}{line}", shell=True, check=True)
    load_model(folder)


def test_what_is_no_model_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="neither a folder nor a model"):
        DocumentEncoder.load("no-such/model")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        DocumentEncoder.load(tmp_path)


def test_a_router_in_a_full_pair_has_the_space_of_its_manifest(router_folder):
    encoder = DocumentEncoder.load(router_folder, device="cpu")
    assert encoder.space == load_manifest(router_folder).space and encoder.name == "tiny-full"
