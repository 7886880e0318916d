"""Documents that come half-way to a tier: their vectors, the space they make, and who carries it."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suwen.bench.dense_systems import PairSystem
from suwen.corpora.records import Document
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.halfway import Meeting, come_halfway, set_halfway, stand_alone
from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.probe import MET, ProbeFailed, probe_texts, read_probe, read_stored_probe, row_cosines, verify_probe
from suwen.encoders.side import ModelError
from suwen.encoders.space import Manifest, ManifestError, SpaceMismatch, load_manifest, save_manifest
from suwen.encoders.static import unit
from suwen.encoders.vector_folder import encode_to_folder
from suwen.encoders.who_encodes import described, load_document_encoder
from suwen.retrieve.retriever import Index
from suwen.service.document_worker import Worker
from suwen.service.worker_api import _probe

SHARE = 0.4


@pytest.fixture(scope="module")
def met(adapter_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``adapter_pair`` whose documents come half-way to its tier ``l2``."""
    out = tmp_path_factory.mktemp("met") / "pair"
    shutil.copytree(adapter_pair, out)
    set_halfway(out, "l2", SHARE)
    return out


@pytest.fixture(scope="module")
def encoder(met: Path, base_folder: Path) -> DocumentEncoder:
    return DocumentEncoder.load(met, base=base_folder, device="cpu")


def changed(folder: Path, to: Path, **update: object) -> Path:
    """A copy of a pair with another manifest, written as it is: nobody checks it."""
    shutil.copytree(folder, to)
    said = json.loads((to / "suwen.json").read_text(encoding="utf-8"))
    (to / "suwen.json").write_text(json.dumps(said | update), encoding="utf-8")
    return to


# -- the space ------------------------------------------------------------------------------------------------------


def test_the_default_pair_keeps_its_id_and_its_bytes(tmp_path: Path) -> None:
    """What older versions wrote has the same id, and is written without a key that they would refuse."""
    manifest = load_manifest(default_pair_path())
    save_manifest(tmp_path, manifest)
    again = json.loads((tmp_path / "suwen.json").read_text(encoding="utf-8"))
    assert again == json.loads((default_pair_path() / "suwen.json").read_text(encoding="utf-8"))
    if manifest.space.halfway is None:
        assert "halfway" not in again["space"] and manifest.space.alone is manifest.space
    assert load_manifest(tmp_path).space.id == manifest.space.fingerprint()


def test_an_id_of_a_space_before_there_was_such_a_thing() -> None:
    """The id of the pair that came with the package when documents stayed where they were put."""
    from suwen.encoders.space import Space

    fields = {
        "base": {"sha256": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"},
        "adapter": {"sha256": "bfedec57a0434a3046bd5e4cb2e2213d555f0817de51e918a43f01ce4816e356"},
        "prompts": {"query": "查询：", "document": ""},
        "pooling": "last",
        "end_token": "<|im_end|>",
        "max_length": 192,
        "dimension": 512,
        "full_dimension": 1536,
    }
    assert Space.mint(**fields).id == "sp-581df3fad4acfaae5ab4"


def test_tier_share_and_files_are_part_of_the_id(adapter_pair: Path, met: Path) -> None:
    plain, halved = load_manifest(adapter_pair), load_manifest(met)
    ids = {come_halfway(plain, "l2", share).space.id for share in (0.2, SHARE)} | {plain.space.id}
    tier = plain.tiers["l2"]
    for other in (
        {"max_length": 16},
        {"prompts": {"query": "", "document": "[D]"}},
        {"files": tier.files | {"a": "0" * 64}},
    ):
        said = plain.model_dump()
        said["tiers"]["l2"] |= other
        ids.add(come_halfway(Manifest.model_validate(said), "l2", SHARE).space.id)
    assert len(ids) == 6 and halved.space.id in ids
    assert stand_alone(halved) == plain and halved.space.alone == plain.space
    assert {tier.aligned_to for tier in halved.tiers.values()} == {halved.space.id}
    assert come_halfway(halved, "l2", 0.2).space == come_halfway(plain, "l2", 0.2).space


def test_what_cannot_come_half_way_is_told(adapter_pair: Path, light_pair: Path) -> None:
    manifest = load_manifest(adapter_pair)
    with pytest.raises(ManifestError, match=r"no tier 'l6' .* it has l2"):
        come_halfway(manifest, "l6", 0.3)
    with pytest.raises(ManifestError, match="cannot come half-way"):
        come_halfway(manifest, "l2", 1.5)
    with pytest.raises(ManifestError, match="nobody to come half-way"):
        come_halfway(load_manifest(light_pair), "l2", 0.3)


def test_the_tier_cannot_be_changed_under_the_documents(met: Path, tmp_path: Path) -> None:
    tiers = json.loads((met / "suwen.json").read_text(encoding="utf-8"))["tiers"]
    with pytest.raises(ManifestError, match=r"as it was.* put it back"):
        load_manifest(changed(met, tmp_path / "short", tiers={"l2": tiers["l2"] | {"max_length": 8}}))
    with pytest.raises(ManifestError, match="which is not among the tiers"):
        load_manifest(changed(met, tmp_path / "gone", tiers={}, default_tier=None, form="full"))


# -- the vectors ----------------------------------------------------------------------------------------------------


def test_documents_come_half_way_and_queries_stay(encoder: DocumentEncoder, met: Path, models) -> None:
    texts = [*models.TEXTS, "高血压" * 60, ""]
    own, theirs = encoder.alone.encode(texts), Pair.load(met).encoder("l2").encode_documents(texts)
    found = encoder.encode(texts)
    assert np.allclose(found, unit(own + SHARE * theirs), atol=1e-5) and found.dtype == np.float32
    assert np.abs(found - own).max() > 0.01 and encoder.alone.space.id != encoder.space.id
    assert np.array_equal(encoder.encode_queries(texts), encoder.alone.encode_queries(texts))
    assert np.array_equal(encoder.in_form("query").encode(texts), encoder.encode_queries(texts))
    assert np.allclose(np.concatenate([encoder.encode([text]) for text in texts]), found, atol=1e-4)
    assert encoder.encode([]).shape == (0, 24)


def test_a_space_and_its_encoder_agree_on_it(encoder: DocumentEncoder, met: Path) -> None:
    manifest = load_manifest(met)
    said = {"name": "x", "settings": encoder.settings}
    with pytest.raises(ModelError, match="for the space"):
        DocumentEncoder(encoder._side, manifest.space, **said)
    with pytest.raises(ModelError, match="for the space"):
        DocumentEncoder(encoder._side, manifest.space.alone, **said, meeting=Meeting.open(met, manifest))


def test_shards_in_several_processes_come_half_way_too(encoder: DocumentEncoder, models, tmp_path: Path) -> None:
    texts = [(str(number), text) for number, text in enumerate(models.TEXTS)]
    out = encode_to_folder(texts, encoder, tmp_path / "vectors", shard_size=4, workers=2)
    stored = np.load(out / "vectors.npy").astype(np.float32)
    assert row_cosines(stored, encoder.encode(list(models.TEXTS))).min() > 0.9999
    assert json.loads((out / "vectors.json").read_text(encoding="utf-8"))["space"] == encoder.space.id
    alone = np.load(encode_to_folder(texts, encoder.alone, tmp_path / "alone", workers=2) / "vectors.npy")
    assert row_cosines(alone.astype(np.float32), encoder.alone.encode(list(models.TEXTS))).min() > 0.9999


# -- the probe ------------------------------------------------------------------------------------------------------


def test_the_probe_has_the_document_encoders_own_vectors_and_those_that_are_stored(
    encoder: DocumentEncoder, met: Path, adapter_pair: Path
) -> None:
    texts, own = read_probe(met)
    assert np.array_equal(own, read_probe(adapter_pair)[1])
    assert row_cosines(read_stored_probe(met, encoder.space)[1], encoder.encode(texts)).min() > 0.9999
    assert np.array_equal(read_stored_probe(met, encoder.space.alone)[1], read_probe(adapter_pair)[1])
    assert verify_probe(encoder, met) > 0.999


def test_another_base_fails_the_probe(met: Path, models, tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="is not the document encoder"):
        DocumentEncoder.load(met, base=models.build_base(tmp_path / "other", seed=1), device="cpu")


def test_a_tier_that_gives_other_vectors_here_fails_it_too(encoder: DocumentEncoder, met: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(met, tmp_path / "pair")
    stored = np.load(copied / MET)
    np.save(copied / MET, np.roll(stored, 1, axis=0))
    with pytest.raises(ProbeFailed, match="the document encoder is right, but"):
        verify_probe(encoder, copied)


# -- who carries it -------------------------------------------------------------------------------------------------


def test_the_full_pair_is_of_the_same_space(
    met: Path, base_folder: Path, encoder: DocumentEncoder, models, tmp_path
) -> None:
    from suwen.training.ship.assembling import assemble
    from suwen.training.ship.exporting import export

    full = tmp_path / "full"
    assert assemble(met, base_folder, full, device="cpu").cosine > 0.999
    assert load_manifest(full).space == load_manifest(met).space
    texts = list(models.TEXTS)
    again = load_document_encoder(Pair.load(met), full)
    assert row_cosines(again.encode(texts), encoder.encode(texts)).min() > 0.9999
    # What is exported of it anew has other tiers, and so the document encoder's space by itself.
    assert export(full, tmp_path / "light", precision="fp32").manifest.space == load_manifest(met).space.alone


def test_another_tier_is_added_in_the_same_space(met: Path, bert_folder: Path, tmp_path: Path) -> None:
    from suwen.encoders.space import ElsewhereDocument
    from suwen.training.ship.exporting import export

    pair, student = shutil.copytree(met, tmp_path / "pair"), shutil.copytree(bert_folder, tmp_path / "student")
    space = load_manifest(met).space
    elsewhere = ElsewhereDocument(kind="elsewhere", name="tiny")
    save_manifest(student, Manifest(name="s", form="full", space=space.alone, document=elsewhere))
    export(student, pair, tier="more", precision="fp32", into=True)
    added = load_manifest(pair)
    assert added.space == space and list(added.tiers) == ["l2", "more"]


def test_both_sides_by_the_document_encoder_alone_stay_measurable(
    met: Path, adapter_pair: Path, base_folder: Path, encoder: DocumentEncoder, models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUWEN_BASE", str(base_folder))
    both, alone, tier = (PairSystem.open("", str(met), name)[0] for name in ("document", "document-alone", "l2"))
    before = PairSystem.open("", str(adapter_pair), "document")[0]
    texts = list(models.TEXTS)
    assert np.allclose(alone.encode(texts, None, "document"), before.encode(texts, None, "document"), atol=1e-6)
    for side in ("query", "document"):
        assert alone.contract(None, side) == before.contract(None, side), "so its cached vectors are found again"
    for system in (both, tier):
        assert np.allclose(system.encode(texts, None, "document"), encoder.encode(texts), atol=1e-6)
    assert both.contract(None, "document") == tier.contract(None, "document") != before.contract(None, "document")
    assert [system.name for system in (both, alone)] == ["pair:tiny#document", "pair:tiny#document-alone"]


def test_an_index_from_before_is_searched_and_added_to_where_it_is(
    met: Path, adapter_pair: Path, base_folder: Path, tmp_path: Path
) -> None:
    """A release may let the documents of the same encoders come half-way: what is there stays searchable."""
    notes = [Document(str(number), text) for number, text in enumerate(probe_texts()[:12])]
    with Index.create(tmp_path / "index", pair=adapter_pair) as index:
        index.add(notes, encoder=load_document_encoder(index.pair, base=str(base_folder)))
    old, new = Pair.load(adapter_pair), Pair.load(met)
    with Index.open(tmp_path / "index", pair=met, write=True) as index:
        assert index.pair.space.id == old.space.id != new.space.id
        found = index.search(probe_texts()[0], mode="dense")
        again = load_document_encoder(index.pair, base=str(base_folder))
        assert again.space.id == old.space.id and again.meeting is None
        index.add([Document("new", "血压高要少吃盐")], encoder=again)
    with Index.open(tmp_path / "index", pair=adapter_pair) as index:
        before = index.search(probe_texts()[0], mode="dense")
    assert [hit.document_id for hit in found[:3]] == [hit.document_id for hit in before if hit.document_id != "new"][:3]


def test_an_index_of_the_new_space_is_refused_by_the_old_pair_with_the_command_that_helps(
    met: Path, adapter_pair: Path, tmp_path: Path
) -> None:
    Index.create(tmp_path / "index", pair=met).close()
    with pytest.raises(SpaceMismatch, match="suwen index NEW-FOLDER SOURCES"):
        Index.open(tmp_path / "index", pair=adapter_pair)


def test_people_are_told(met: Path) -> None:
    assert described(Pair.load(met)).endswith("half-way to the tier l2 (share 0.4)")


def test_a_worker_is_held_to_what_the_index_stores(
    met: Path, adapter_pair: Path, encoder: DocumentEncoder, tmp_path: Path
) -> None:
    """The probe that a server gives is of documents as its index has them: come half-way, or from before they did."""
    for name, built_with, own in (("new", met, encoder.space.id), ("old", adapter_pair, encoder.space.alone.id)):
        Index.create(tmp_path / name, pair=built_with).close()
        with Index.open(tmp_path / name, pair=met) as index:
            asked = _probe(index)
            assert asked["space"] == own

            class Server:
                def get(self, path: str, asked: Any = asked) -> Any:
                    return asked

            worker = Worker(Server(), encoder)  # type: ignore[arg-type]
            worker.check()
            assert worker._encoder.space.id == own
            wrong = asked | {"vectors": base64.b64encode(np.zeros((len(asked["texts"]), 24), "<f4")).decode()}
            with pytest.raises(ProbeFailed):
                Worker(type("Other", (), {"get": lambda self, path, wrong=wrong: wrong})(), encoder).check()
