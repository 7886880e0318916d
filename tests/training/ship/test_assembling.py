from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.base_model import load_base
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.probe import ProbeFailed, row_cosines
from suwen.encoders.space import DamagedPair, SpaceMismatch, load_manifest
from suwen.training.ship.assembling import AssembleError, assemble
from suwen.training.ship.exporting import export
from suwen.training.ship.freezing import FreezeError


@pytest.fixture(scope="module")
def light(adapter_pair: Path) -> Path:
    return adapter_pair


@pytest.fixture(scope="module")
def base(base_folder: Path) -> Path:
    return base_folder


@pytest.fixture(scope="module")
def student(bert_folder: Path) -> Path:
    return bert_folder


@pytest.fixture(scope="module")
def full(light, base, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("full") / "pair"
    made = assemble(light, base, out, device="cpu")
    assert made.cosine > 0.9999 and made.queries == "document encoder" and made.path == out
    return out


def test_the_full_pair_is_of_the_same_space_and_gives_its_vectors(full, light, base, models):
    one, other = load_manifest(light), load_manifest(full)
    assert (one.space, one.name, one.tiers) == (other.space, other.name, other.tiers)
    assert (other.form, other.document.kind, other.document.path) == ("full", "sentence-transformers", ".")
    texts = [*models.TEXTS, "高血压" * 50]
    expected = DocumentEncoder.load(light, base=base, device="cpu").encode(texts)
    assert row_cosines(DocumentEncoder.load(full, device="cpu").encode(texts), expected).min() > 0.99999


def test_it_loads_in_sentence_transformers_with_both_prompts(full, light, base, models):
    from sentence_transformers import SentenceTransformer

    encoder, plain = DocumentEncoder.load(light, base=base, device="cpu"), SentenceTransformer(str(full), device="cpu")
    texts = list(models.TEXTS)
    assert row_cosines(plain.encode_document(texts), encoder.encode_documents(texts)).min() > 0.99999
    assert row_cosines(plain.encode_query(texts), encoder.encode_queries(texts)).min() > 0.99999
    assert plain.encode_query(texts).shape[1] == 24


def test_it_serves_as_the_light_pair_does(full, light):
    one, other = Pair.load(light), Pair.load(full)
    assert np.array_equal(one.encoder().encode_queries(["胃痛"]), other.encoder().encode_queries(["胃痛"]))


def test_it_can_be_exported_again_into_the_same_space(full, tmp_path):
    report = export(full, tmp_path / "again", tier="big", precision="fp32")
    assert report.manifest.space == load_manifest(full).space
    assert report.manifest.tiers["big"].parity["torch_min"] > 0.999


def test_a_query_encoder_takes_the_query_route(light, base, student, models, tmp_path):
    from sentence_transformers import SentenceTransformer

    made = assemble(light, base, tmp_path / "full", query=student, device="cpu")
    assert made.queries == "query encoder" and made.manifest.document.kind == "router"
    routed = SentenceTransformer(str(tmp_path / "full"), device="cpu")
    texts = list(models.TEXTS)
    alone = SentenceTransformer(str(student), device="cpu")
    assert np.allclose(routed.encode_query(texts), alone.encode_query(texts), atol=1e-5)
    expected = DocumentEncoder.load(light, base=base, device="cpu").encode(texts)
    assert row_cosines(routed.encode_document(texts), expected).min() > 0.99999
    assert row_cosines(DocumentEncoder.load(tmp_path / "full", device="cpu").encode(texts), expected).min() > 0.99999


def test_a_gguf_file_of_the_base_will_do(light, base, models, tmp_path):
    made = assemble(light, models.write_gguf(base, tmp_path / "base.gguf"), tmp_path / "full", device="cpu")
    assert made.cosine > 0.9999


def test_half_precision_passes_the_probe(light, base, tmp_path):
    from safetensors import safe_open

    assert assemble(light, base, tmp_path / "full", device="cpu", dtype="bf16").cosine > 0.995
    with safe_open(tmp_path / "full" / "model.safetensors", framework="pt") as weights:
        assert {str(weights.get_tensor(name).dtype) for name in weights.keys()} == {"torch.bfloat16"}  # noqa: SIM118


def test_a_wrong_base_leaves_nothing(light, models, tmp_path):
    other = models.build_base(tmp_path / "other", seed=1)
    with pytest.raises(ProbeFailed, match=r"use the base the pair names"):
        assemble(light, other, tmp_path / "full", device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_does_not_fit_is_refused(light, full, base, student, models, router_folder, tmp_path, monkeypatch):
    with pytest.raises(FreezeError, match="exists"):
        assemble(light, base, full)
    with pytest.raises(AssembleError, match="no adapter"):
        assemble(full, base, tmp_path / "out")
    with pytest.raises(SpaceMismatch):
        assemble(light, base, tmp_path / "out", query=router_folder, device="cpu")
    with pytest.raises(AssembleError, match="64 dimensions"):
        assemble(light, base, tmp_path / "out", query=_wide(base, tmp_path / "wide"), device="cpu")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 20, 0, 1 << 20))
    with pytest.raises(AssembleError, match=r"GiB and .* free: make room"):
        assemble(light, base, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def _wide(base: Path, folder: Path) -> Path:
    load_base(base, device="cpu").save(str(folder))
    return folder


def test_a_pair_that_lost_a_file_is_refused(light, base, tmp_path):
    shutil.copytree(light, tmp_path / "pair")
    (tmp_path / "pair" / "probe.npy").unlink()
    with pytest.raises(AssembleError, match=r"probe\.npy is missing"):
        assemble(tmp_path / "pair", base, tmp_path / "out", device="cpu")
    shutil.copyfile(light / "probe.npy", tmp_path / "pair" / "probe.npy")
    (tmp_path / "pair" / "query" / "l2" / "tokenizer.json").write_text("{}")
    with pytest.raises(DamagedPair, match="damaged"):
        assemble(tmp_path / "pair", base, tmp_path / "out", device="cpu")
