"""Who encodes the documents, and what is said about it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from suwen.encoders.pair import Pair
from suwen.encoders.probe import ProbeFailed
from suwen.encoders.space import ElsewhereDocument, Manifest, SpaceMismatch, load_manifest, save_manifest
from suwen.errors import SuwenError
from suwen.retrieve.encoding import choose_encoder, load_document_encoder


def test_a_tier_that_is_its_own_document_encoder(tiered: Pair) -> None:
    choice = choose_encoder(tiered)
    assert choice.encoder.name == "static"
    assert "tier 'static'" in choice.said and "pair's own" in choice.said


def test_a_tier_as_asked(tiered: Pair) -> None:
    choice = choose_encoder(tiered, tier="rough")
    assert choice.encoder.name == "rough" and "'rough', as asked" in choice.said
    with pytest.raises(SuwenError, match="choose one of static, rough"):
        choose_encoder(tiered, tier="l12")


def test_a_light_pair_says_that_it_makes_do(tiered: Pair, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "light"
    shutil.copytree(tiered.path, folder)
    fields = load_manifest(folder).model_dump() | {"document": ElsewhereDocument(kind="elsewhere", name="big")}
    save_manifest(folder, Manifest.model_validate(fields))
    choice = choose_encoder(Pair.load(folder))
    assert choice.encoder.name == "static"
    assert "aligned query encoder" in choice.said and "does not hold the document encoder" in choice.said


def test_both_is_too_many(tiered: Pair) -> None:
    with pytest.raises(SuwenError, match="choose one"):
        choose_encoder(tiered, tier="static", document_encoder="somewhere")


def test_a_document_encoder_without_torch(tiered: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SuwenError, match=r"pip install 'suwen\[train\]'"):
        choose_encoder(tiered, document_encoder="somewhere")


def test_a_document_encoder_of_another_space(tiered: Pair, router_folder: Path) -> None:
    with pytest.raises(SpaceMismatch, match=tiered.space.id):
        choose_encoder(tiered, document_encoder=router_folder)


def test_the_document_side_of_a_full_pair(router_folder: Path) -> None:
    pair = Pair.load(router_folder)
    choice = choose_encoder(pair)
    assert choice.encoder.name == "document"
    assert "pair's document encoder" in choice.said
    assert choice.encoder.encode_documents(["高血压", "糖尿病"]).shape == (2, pair.space.dimension)


def test_a_document_encoder_is_held_to_the_pairs_probe(light_pair: Path, bert_folder: Path, tmp_path: Path) -> None:
    """The space's id says what it should be; the probe's vectors say what it is."""
    assert choose_encoder(Pair.load(light_pair), document_encoder=bert_folder).encoder.name == "document"
    other = shutil.copytree(light_pair, tmp_path / "other")
    np.save(other / "probe.npy", -np.load(other / "probe.npy"))
    with pytest.raises(ProbeFailed, match="least cosine"):
        choose_encoder(Pair.load(other), document_encoder=bert_folder)


def test_an_adapter_needs_its_base(adapter_pair: Path, base_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair.load(adapter_pair)
    choice = choose_encoder(pair)
    assert choice.encoder.name == "l2" and "SUWEN_BASE does not name the base" in choice.said
    monkeypatch.setenv("SUWEN_BASE", str(base_folder))
    choice = choose_encoder(pair)
    assert choice.encoder.name == "document" and "pair's document encoder" in choice.said
    assert choice.encoder.encode_documents(["高血压"]).shape == (1, 24)


def test_a_wrong_base_of_an_adapter_is_refused(adapter_pair: Path, models: ModuleType, tmp_path: Path) -> None:
    other = models.build_base(tmp_path / "other", seed=1)
    with pytest.raises(ProbeFailed, match="least cosine"):
        load_document_encoder(adapter_pair, Pair.load(adapter_pair), base=str(other))
