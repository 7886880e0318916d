from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.adapter import adapter_sha256, apply_adapter, read_factors, save_adapter
from suwen.encoders.base_model import base_hash, load_base
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.probe import ProbeFailed, row_cosines
from suwen.encoders.prompts import Prompts
from suwen.encoders.query import EncoderError
from suwen.encoders.side import ModelError
from suwen.encoders.space import DamagedPair, load_manifest
from suwen.training.ship.exporting import ExportError, export
from suwen.training.ship.freezing import FreezeError, dress, freeze

PROMPTS = Prompts(query="问：", document="")


@pytest.fixture(scope="module")
def base(base_folder: Path) -> Path:
    return base_folder


@pytest.fixture(scope="module")
def trained(models, base):
    return models.train_lora(load_base(base, device="cpu", max_length=32))


@pytest.fixture(scope="module")
def frozen(trained, base, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("frozen") / "pair"
    options = {"dimension": 24, "prompts": PROMPTS, "max_length": 32, "hub_id": "org/base"}
    space = freeze(read_factors(trained), base, out, name="tiny", rank=3, device="cpu", **options).space
    merged = apply_adapter(load_base(base, device="cpu", max_length=32), out / "adapter")
    dress(merged, space).save(str(out / "merged"))
    return out


def test_the_contract_says_what_was_frozen(frozen, base):
    manifest = load_manifest(frozen)
    space = manifest.space
    assert (manifest.name, manifest.document.kind, manifest.document.base) == ("tiny", "adapter", "org/base")
    assert (space.base.hub_id, space.base.sha256) == ("org/base", base_hash(base))
    assert space.adapter.sha256 == adapter_sha256(frozen / "adapter")
    assert (space.pooling, space.end_token, space.max_length) == ("last", "<|end|>", 32)
    assert (space.dimension, space.full_dimension, space.normalise) == (24, 64, True)
    assert space.prompts == PROMPTS


def test_what_was_frozen_says_how_it_comes_to_serve(frozen, tmp_path):
    bare = Path(shutil.copytree(frozen, tmp_path / "bare", ignore=shutil.ignore_patterns("merged")))
    way = r"over org/base.*`suwen assemble \S+bare --base PATH --out FULL`.*"
    with pytest.raises(EncoderError, match=way + "`suwen export FULL LIGHT`"):
        Pair.load(bare).encoder()
    with pytest.raises(ExportError, match=way + "export FULL"):
        export(bare, tmp_path / "light")
    assert not (tmp_path / "light").exists()


def test_what_ships_is_what_fixes_the_space(frozen, base, trained, models):
    texts = list(models.TEXTS)
    shipped = apply_adapter(load_base(base, device="cpu", max_length=32), frozen / "adapter").encode(texts)[:, :24]
    found = DocumentEncoder.load(frozen, base=base, device="cpu").encode(texts)
    assert row_cosines(found, shipped).min() > 0.99999
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert row_cosines(found, trained.encode(texts)[:, :24]).max() < 0.9999  # it was cut to rank 3 and rounded


@pytest.mark.parametrize("packing", ["F32", "Q8_0"])
def test_another_form_of_the_base_passes_the_probe(packing, frozen, base, models, tmp_path):
    gguf = models.write_gguf(base, tmp_path / "base.gguf", packing=packing)
    assert base_hash(gguf) != load_manifest(frozen).space.base.sha256
    texts = list(models.TEXTS)
    one, other = (DocumentEncoder.load(frozen, base=source, device="cpu") for source in (base, gguf))
    assert row_cosines(one.encode(texts), other.encode(texts)).min() > 0.995
    assert one.space == other.space


def test_another_base_is_refused_by_the_probe(frozen, models, decoder_folder, tmp_path):
    other = models.build_base(tmp_path / "other", seed=1)
    with pytest.raises(ProbeFailed, match=r"0\.995"):
        DocumentEncoder.load(frozen, base=other, device="cpu")
    assert DocumentEncoder.load(frozen, base=other, device="cpu", check=False).dimension == 24
    with pytest.raises(ModelError, match="another base"):
        DocumentEncoder.load(frozen, base=decoder_folder, device="cpu")


def test_without_a_probe_only_the_very_file_will_do(frozen, base, models, tmp_path):
    import shutil

    shutil.copytree(frozen, tmp_path / "pair", ignore=shutil.ignore_patterns("probe.*"))
    assert DocumentEncoder.load(tmp_path / "pair", base=base, device="cpu").dimension == 24
    gguf = models.write_gguf(base, tmp_path / "base.gguf")
    with pytest.raises(ModelError, match="has no probe"):
        DocumentEncoder.load(tmp_path / "pair", base=gguf, device="cpu")


def test_the_base_may_be_named_by_the_environment(frozen, base, tmp_path, monkeypatch):
    import shutil

    shutil.copytree(frozen, tmp_path / "pair", ignore=shutil.ignore_patterns("merged"))
    with pytest.raises(ModelError, match=r"suwen assemble .* --base PATH"):
        DocumentEncoder.load(tmp_path / "pair", device="cpu")
    monkeypatch.setenv("SUWEN_BASE", str(base))
    encoder = DocumentEncoder.load(tmp_path / "pair", device="cpu")
    assert encoder.settings.base == str(base)


def test_an_adapter_that_was_changed_is_refused(frozen, base, trained, tmp_path):
    import shutil

    shutil.copytree(frozen, tmp_path / "pair")
    shutil.rmtree(tmp_path / "pair" / "adapter")
    save_adapter(read_factors(trained), tmp_path / "pair" / "adapter")
    with pytest.raises(DamagedPair, match="not the adapter"):
        DocumentEncoder.load(tmp_path / "pair", base=base, device="cpu")


def test_the_merged_model_needs_no_base_and_works_in_sentence_transformers(frozen, base, models):
    from sentence_transformers import SentenceTransformer

    texts = [*models.TEXTS, "高血压" * 50]
    expected = DocumentEncoder.load(frozen, base=base, device="cpu")
    assert row_cosines(DocumentEncoder.load(frozen, device="cpu").encode(texts), expected.encode(texts)).min() > 0.99999
    plain = SentenceTransformer(str(frozen / "merged"), device="cpu")
    assert plain.encode_document(texts).shape == (len(texts), 24)
    assert row_cosines(plain.encode_document(texts), expected.encode(texts)).min() > 0.99999
    assert row_cosines(plain.encode_query(texts), expected.encode(texts, form="query")).min() > 0.99999


def test_a_base_in_a_folder_is_named_without_its_path(frozen, trained, base, models, tmp_path):
    options = {"dimension": 24, "prompts": PROMPTS, "max_length": 32, "device": "cpu"}
    space = freeze(read_factors(trained), base, tmp_path / "again", name="again", rank=3, bits=16, **options).space
    texts = list(models.TEXTS)
    again = DocumentEncoder.load(tmp_path / "again", base=base, device="cpu")
    assert row_cosines(again.encode(texts), DocumentEncoder.load(frozen, device="cpu").encode(texts)).min() > 0.999
    assert space.id != load_manifest(frozen).space.id
    assert load_manifest(tmp_path / "again").document.base == base.name  # no path of this machine


def test_freezing_again_mints_the_same_space(frozen, trained, base, tmp_path):
    options = {"dimension": 24, "prompts": PROMPTS, "max_length": 32, "hub_id": "org/base", "device": "cpu"}
    again = freeze(read_factors(trained), base, tmp_path / "again", name="n", rank=3, **options)
    assert again.space == load_manifest(frozen).space and again.settings.base == str(base)


def test_a_failure_leaves_nothing_and_a_taken_folder_is_refused(
    frozen, trained, base, models, decoder_folder, tmp_path
):
    with pytest.raises(FreezeError, match="exists"):
        freeze(read_factors(trained), base, frozen, name="tiny")
    with pytest.raises(ModelError):
        freeze(read_factors(trained), decoder_folder, tmp_path / "out", name="tiny", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_a_space_of_inner_product_keeps_lengths(trained, base, models, tmp_path):
    out, options = tmp_path / "pair", {"dimension": 24, "max_length": 32, "bits": 16}
    space = freeze(read_factors(trained), base, out, name="dot", device="cpu", normalise=False, **options).space
    assert (space.normalise, space.similarity, load_manifest(out).space.id) == (False, "dot", space.id)
    encoder = DocumentEncoder.load(out, base=base, device="cpu")
    bare = apply_adapter(load_base(base, device="cpu", max_length=32, normalise=False), out / "adapter")
    wanted = bare.encode(list(models.TEXTS))
    np.testing.assert_allclose(encoder.encode(list(models.TEXTS)), wanted[:, :24], rtol=1e-4, atol=1e-4)
    assert np.linalg.norm(wanted, axis=1).std() > 0.01
    dress(bare, space).save(str(tmp_path / "merged"))
    from sentence_transformers import SentenceTransformer

    merged = SentenceTransformer(str(tmp_path / "merged"), device="cpu")
    assert merged.similarity_fn_name == "dot"
    np.testing.assert_allclose(merged.encode_document(list(models.TEXTS)), wanted[:, :24], rtol=1e-4, atol=1e-4)
