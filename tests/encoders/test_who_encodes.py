"""Who encodes the documents, and what is said about it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from suwen.encoders.who_encodes import (
    choose_encoder,
    encoder_for_good,
    load_document_encoder,
    own_encoder,
    tier_at_once,
)

# The pair is the retriever's tests' own: what comes inside the package may have any encoder.
sys.path.insert(0, str(Path(__file__).parents[1] / "retrieve"))

import small_pair

from suwen.encoders.pair import Pair
from suwen.encoders.probe import ProbeFailed
from suwen.encoders.space import ElsewhereDocument, Manifest, SpaceMismatch, load_manifest, save_manifest
from suwen.errors import SuwenError


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A pair whose tier ``static`` encodes its documents."""
    return Pair.load(small_pair.make_pair(tmp_path_factory.mktemp("pair") / "tiered", tiers=("static", "rough")))


def elsewhere(tiered: Pair, folder: Path) -> Pair:
    """The same as the light half of a larger pair."""
    shutil.copytree(tiered.path, folder)
    fields = load_manifest(folder).model_dump() | {"document": ElsewhereDocument(kind="elsewhere", name="big")}
    save_manifest(folder, Manifest.model_validate(fields))
    return Pair.load(folder)


def test_a_tier_that_is_its_own_document_encoder(tiered: Pair) -> None:
    choice = choose_encoder(tiered)
    assert choice.encoder.name == "static"
    assert "tier 'static'" in choice.said and "pair's own" in choice.said


def test_a_tier_as_asked(tiered: Pair) -> None:
    choice = choose_encoder(tiered, tier="rough")
    assert choice.encoder.name == "rough" and "'rough', as asked" in choice.said
    with pytest.raises(SuwenError, match="choose one of static, rough"):
        choose_encoder(tiered, tier="l12")


def test_a_light_pair_says_that_a_tier_stands_in(tiered: Pair, tmp_path: Path) -> None:
    choice = choose_encoder(elsewhere(tiered, tmp_path / "light"))
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
        choose_encoder(tiered, document_encoder=router_folder).encoder


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
        choose_encoder(Pair.load(other), document_encoder=bert_folder).encoder


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
        load_document_encoder(Pair.load(adapter_pair), base=str(other))


# -- for good: what a server does in the background -------------------------------------------------------------------


def test_without_a_document_encoder_documents_wait(
    tiered: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    pair = elsewhere(tiered, tmp_path / "light")
    assert encoder_for_good(pair) is None
    monkeypatch.setenv("SUWEN_BASE", "somewhere")
    assert encoder_for_good(pair) is None, "the pair holds no adapter"


def test_a_tier_of_its_own_is_at_hand(tiered: Pair) -> None:
    for named in (None, "own"):
        choice = encoder_for_good(tiered, document_encoder=named)
        assert choice is not None and choice.name == "static"
        assert choice.encoder.encode_documents(["骨折"]).shape == (1, tiered.space.dimension)


def test_torch_is_needed_for_what_is_named(tiered: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SuwenError, match=r"suwen\[train\]"):
        encoder_for_good(elsewhere(tiered, tmp_path / "light"), document_encoder="own")


def test_the_base_of_an_adapter_is_enough(
    adapter_pair: Path, base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    pair = Pair.load(adapter_pair)
    assert encoder_for_good(pair) is None
    choice = encoder_for_good(pair, base=str(base_folder))
    assert choice is not None and choice.encoder.encode_documents(["骨折"]).shape == (1, 24)


def test_who_encodes_at_once(tiered: Pair, adapter_pair: Path) -> None:
    assert (tier_at_once(tiered), own_encoder(tiered)) == ("static", "static")
    assert (tier_at_once(Pair.load(adapter_pair)), own_encoder(Pair.load(adapter_pair))) == ("l2", "document")


# -- the document encoder itself: what `encode` and a worker need -----------------------------------------------------


def test_something_must_be_named(static_pair: Path, adapter_pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    monkeypatch.setenv("SUWEN_PAIR", str(static_pair))
    with pytest.raises(SuwenError, match="holds no document encoder: give --document-encoder"):
        load_document_encoder(None)
    monkeypatch.setenv("SUWEN_PAIR", str(adapter_pair))
    with pytest.raises(SuwenError, match=r"holds an adapter over org/base.*--base or SUWEN_BASE"):
        load_document_encoder(None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SuwenError, match=r"suwen\[train\]"):
        load_document_encoder(None, "full-pair")


def test_a_full_pair_and_an_adapter_pair(router_folder: Path, adapter_pair: Path, base_folder: Path) -> None:
    assert load_document_encoder(None, router_folder).space == Pair.load(router_folder).space
    assert load_document_encoder(adapter_pair, base=str(base_folder)).space == Pair.load(adapter_pair).space


def test_the_pair_of_the_installation_needs_no_naming(
    adapter_pair: Path, base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUWEN_PAIR", str(adapter_pair))
    monkeypatch.setenv("SUWEN_BASE", str(base_folder))
    assert load_document_encoder(None).space == Pair.load(adapter_pair).space
