"""Fresh passages beside encoded ones: comparable scores from a sample of the index, and no step back to fresh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_pair import NOTES, Counting, make_pair

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.space import ElsewhereDocument, Manifest, load_manifest, save_manifest
from suwen.encoders.who_encodes import own_encoder, state
from suwen.index import embedded
from suwen.index.engine import Reencoded
from suwen.retrieve.freshness import Calibration, Freshness
from suwen.retrieve.ingest import OneStep
from suwen.retrieve.retriever import Index


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def two_sides(rng: np.random.Generator, count: int, shift: float, dimension: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the same texts by two encoders, of which one draws everything towards a direction of its own."""
    texts = rng.standard_normal((count, dimension))
    towards = shift * np.ones(dimension)
    return unit(texts + 0.5 * rng.standard_normal(texts.shape)), unit(texts + towards)


# -- the measure ------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), shift=st.floats(0, 1), count=st.integers(64, 400))
def test_the_best_of_the_sample_meet(seed: int, shift: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    encoded, fresh = two_sides(rng, count, shift)
    calibration = Calibration.fit(encoded, fresh, fresh[:50])
    assert 0.5 <= calibration.slope <= 2.0
    query = unit(rng.standard_normal((1, 32)))[0]
    scale = calibration.scale(query)
    best = max(2, count // 100)
    mapped = np.sort(scale.slope * (fresh @ query) + scale.offset)[-best:].mean()
    assert mapped == pytest.approx(np.sort(encoded @ query)[-best:].mean(), abs=1e-4)


def test_fresh_passages_are_no_longer_favoured() -> None:
    """Half of the texts are fresh and their encoder favours the query: by plain scores they take the whole top."""
    rng = np.random.default_rng(0)
    encoded, fresh = two_sides(rng, 4000, 0.6)
    queries = unit(rng.standard_normal((60, 32)) + 0.6)
    flags = rng.random(4000) < 0.5
    calibration = Calibration.fit(encoded[~flags][:1000], fresh[~flags][:1000], fresh[~flags][:250])
    shares = []
    for mapped in (False, True):
        found = 0.0
        for query in queries:
            scale = calibration.scale(query) if mapped else (1.0, 0.0)
            scores = np.where(flags, scale[0] * (fresh @ query) + scale[1], encoded @ query)
            found += flags[np.argsort(-scores)[:10]].mean() / len(queries)
        shares.append(found)
    assert shares[0] > 0.75
    assert abs(shares[1] - flags.mean()) < 0.05


def test_equal_encoders_need_no_scale() -> None:
    vectors = unit(np.random.default_rng(1).standard_normal((200, 16)))
    scale = Calibration.fit(vectors, vectors, vectors).scale(vectors[3])
    assert scale == pytest.approx((1.0, 0.0), abs=1e-6)


def test_texts_that_are_all_alike_are_no_trouble() -> None:
    same = np.tile(unit(np.ones((1, 8))), (80, 1))
    assert Calibration.fit(same, same, same).scale(same[0]) == pytest.approx((1.0, 0.0), abs=1e-5)


# -- states -----------------------------------------------------------------------------------------------------------


def test_who_encodes_for_good(tiered: Pair, tmp_path: Path) -> None:
    assert own_encoder(tiered) == "static"
    assert (state(tiered, "static"), state(tiered, "rough"), state(tiered, "document")) == ("encoded", "fresh", "fresh")
    folder = with_document_side(make_pair(tmp_path / "pair"))
    pair = Pair.load(folder)
    assert own_encoder(pair) == "document"
    assert (state(pair, "document"), state(pair, "static")) == ("encoded", "fresh")


def with_document_side(folder: Path) -> Path:
    """The pair, with a document encoder of its own that is somewhere else."""
    fields = load_manifest(folder).model_dump() | {"document": ElsewhereDocument(kind="elsewhere", name="big")}
    save_manifest(folder, Manifest.model_validate(fields))
    return folder


# -- an index with both -----------------------------------------------------------------------------------------------


@pytest.fixture
def asymmetric(tmp_path: Path) -> Pair:
    """A pair whose document encoder is elsewhere; its tier ``static`` stands in."""
    return Pair.load(with_document_side(make_pair(tmp_path / "pair")))


def folder_of(index: Index) -> Path:
    return Path(index.engine.address)


def reencode(index: Index, limit: int = 1000) -> int:
    """What a document encoder would do: vectors near the tier's, turned a little the same way."""
    waiting = index.waiting(limit)
    tier, made = index.pair.encoder(), []
    for one in waiting:
        vectors = tier.encode_documents(one.contents)
        made.append(Reencoded(one.id, one.version, unit(vectors + 0.3 * np.roll(vectors, 1, axis=1))))
    index.reencode(made)
    return len(made)


def notes(count: int) -> list[Document]:
    return [Document(f"n{n}", f"{NOTES[n % 10][2]}编号{n}。", NOTES[n % 10][1]) for n in range(count)]


@pytest.fixture
def mixed(asymmetric: Pair, tmp_path: Path) -> Iterator[Index]:
    """Two hundred encoded notes, and twenty that just came."""
    with Index.create(tmp_path / "index", pair=asymmetric) as index:
        index.add(notes(200))
        reencode(index)
        index.add([Document(f"new{n}", f"{NOTES[n % 10][2]}新编号{n}。") for n in range(20)], step=OneStep(1000))
        yield index


def test_what_came_is_fresh_then_encoded(asymmetric: Pair, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", pair=asymmetric) as index:
        report = index.add([Document("a", "布洛芬可缓解疼痛。")])
        assert report.encoder == "static"
        (hit,) = index.search("布洛芬", 1)
        assert (hit.document_id, hit.encoder) == ("a", "static")
        backlog = index.backlog()
        assert backlog.documents == 1 and backlog.oldest is not None
        assert reencode(index) == 1
        (hit,) = index.search("布洛芬", 1)
        assert (hit.document_id, hit.encoder) == ("a", "document")
        assert index.backlog() == (0, 0, None)


def test_the_same_text_again_stays_encoded(asymmetric: Pair, tmp_path: Path) -> None:
    documents = notes(3)
    with Index.create(tmp_path / "index", pair=asymmetric) as index:
        index.add(documents)
        reencode(index)
        counting = Counting(asymmetric.encoder())
        report = index.add(documents, encoder=counting)
        assert (report.unchanged, report.changed, counting.texts) == (3, 0, [])
        assert set(index.engine.stats().encoders) == {"document"}
        documents[1] = documents[1]._replace(text="全新的内容。")
        report = index.add(documents)
        assert (report.unchanged, report.changed) == (2, 1)
        assert index.engine.known(["n1"])["n1"].encoder == "static"


def test_the_same_text_again_stays_encoded_whoever_encoded_it_first(tiered: Pair, tmp_path: Path) -> None:
    documents = notes(3)
    with Index.create(tmp_path / "index", pair=tiered) as index:
        index.add(documents)
        assert index.engine.backlog(own_encoder(tiered)).documents == 0
        report = index.add(documents, encoder=tiered.encoder("rough"))
        assert (report.unchanged, report.changed) == (3, 0)
        report = index.add(documents, encoder=tiered.encoder("rough"), keep=False)
        assert (report.unchanged, report.changed, report.reencoded) == (0, 0, 3)
        report = index.add(documents, encoder=tiered.encoder("static"))
        assert report.reencoded == 3 and index.engine.backlog("static").documents == 0


def test_a_sample_of_the_index_is_encoded_twice_and_kept(mixed: Index, asymmetric: Pair) -> None:
    engine, kept = mixed.engine, mixed.freshness
    assert kept.scales(["document", "static"], np.zeros(48, np.float32)) == {}
    assert kept.due() == ["static"]
    assert kept.prepare("static", 100) == 100
    assert kept.due(100) == []
    query = asymmetric.encoder().encode_queries(["高血压"])[0]
    scale = kept.scales(["document", "static"], query)["static"]
    assert scale.slope * 0.9 + scale.offset != pytest.approx(0.9)
    assert kept.scales(["static"], query) == {}, "where all are fresh, all are alike"
    again = Freshness(engine, asymmetric)
    assert again.scales(["document", "static"], query) == {"static": scale}


def test_a_sample_grows_without_encoding_anything_twice(mixed: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, tier = mixed.freshness, mixed.pair.encoder()
    kept.prepare("static", 70)
    plain, given = tier.encode_documents, []
    monkeypatch.setattr(tier, "encode_documents", lambda texts: (given.extend(texts), plain(texts))[1])
    size = kept.prepare("static", 150)
    assert 130 <= size <= 150
    assert 0 < len(given) < size


def test_searches_use_it_before_they_cut(mixed: Index, asymmetric: Pair) -> None:
    mixed.freshness.prepare("static", 200)
    query = "高血压患者低盐饮食"
    vector = asymmetric.encoder().encode_queries([query])[0]
    scale = mixed.freshness.scales(["document", "static"], vector)["static"]
    results = mixed.search(query, 220, mode="dense", explain=True)
    stored = {}
    for id_ in [*(f"n{n}" for n in range(200)), *(f"new{n}" for n in range(20))]:
        name = mixed.engine.known([id_])[id_].encoder
        (cosine,) = (float(found @ vector) for found in mixed.engine.stored_vectors(id_, name).values())
        stored[id_] = cosine if name == "document" else scale.slope * cosine + scale.offset
    assert len(results) == 220
    for hit in results:
        assert hit.score == pytest.approx(stored[hit.document_id], abs=2e-5)
    assert [hit.score for hit in results] == sorted((hit.score for hit in results), reverse=True)


def test_what_is_relevant_is_measured_anew_once_passages_are_encoded(asymmetric: Pair, tmp_path: Path) -> None:
    """The tier's documents score higher than the document encoder's: held against the old measure, nothing would do."""
    with Index.create(tmp_path / "index", pair=asymmetric) as index:
        index.add(notes(200))
        assert index.calibrated()
        before = index.search("碱化尿液可溶解尿酸结石", mode="dense")
        reencode(index, 80)
        assert index.calibrated(), "until the two kinds can be compared, plain scores are most like the fresh ones"
        index.freshness.prepare("static", 80)
        assert not index.calibrated()
        after = index.search("碱化尿液可溶解尿酸结石", mode="dense")
        assert (before.relevant, after.relevant) == (True, True)
        index.calibrate()
        assert index.calibrated()
        assert index.search("碱化尿液可溶解尿酸结石", mode="dense").evidence == after.evidence


def test_the_sample_asks_some_of_its_texts_as_queries(mixed: Index) -> None:
    for count in (70, 100):  # the second enlarges the first
        mixed.freshness.prepare("static", count)
    with np.load(folder_of(mixed) / "freshness-static.npz") as stored:
        rows, asked = stored["rows"], stored["asked"].astype(np.float32)
    with mixed.engine.snapshot() as snapshot:
        texts = [item.passage.content for item in snapshot.fetch(rows.tolist())]
    assert len(rows) == len(set(rows.tolist())) == len(asked) == 100
    np.testing.assert_allclose(asked, mixed.pair.encoder("static").encode_queries(texts), atol=1e-3)


# -- a sample that is not there, or not to be used ------------------------------------------------------------------


def test_too_few_encoded_passages_say_nothing(asymmetric: Pair, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", pair=asymmetric) as index:
        index.add(notes(60))
        reencode(index, 50)
        assert index.freshness.due() == []
        assert len(index.search("高血压", 60)) == 60


def ruin(file: Path, how: str) -> None:
    if how == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "an older one":
        with np.load(file) as found:
            kept = {name: value for name, value in found.items() if name != "asked"}
        np.savez(file, **kept)
    elif how == "nan":
        with np.load(file) as found:
            kept = dict(found)
        np.savez(file, **(kept | {"encoded": np.full_like(kept["encoded"], np.nan)}))
    else:
        file.unlink()


@pytest.mark.parametrize("how", ["cut", "empty", "nan", "gone", "an older one"])
def test_a_damaged_sample_is_made_again(mixed: Index, how: str) -> None:
    mixed.freshness.prepare("static", 100)
    ruin(folder_of(mixed) / "freshness-static.npz", how)
    again = Freshness(mixed.engine, mixed.pair)
    assert again.due(100) == ["static"]
    assert again.prepare("static", 100) == 100
    assert again.due(100) == []


def test_a_tier_that_was_trained_anew_needs_another_sample(mixed: Index, tmp_path: Path) -> None:
    mixed.freshness.prepare("static", 100)
    folder = tmp_path / "retrained"
    shutil.copytree(mixed.pair.path, folder)
    fields = load_manifest(folder).model_dump()
    fields["tiers"]["static"]["files"]["tokenizer.json"] = "0" * 64
    save_manifest(folder, Manifest.model_validate(fields))
    other = Freshness(mixed.engine, Pair.load(folder, verify=False))
    assert other.due(100) == ["static"]


def test_a_folder_that_cannot_be_written_keeps_it_in_memory(
    mixed: Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(embedded, "write_bytes", full)
    assert mixed.freshness.prepare("static", 100) == 100
    assert "could not write" in caplog.text
    assert mixed.freshness.due(100) == []
    assert [file.name for file in folder_of(mixed).glob("*freshness*")] == []


def test_a_server_that_stops_gives_up(mixed: Index) -> None:
    asked = iter([False, False, True])
    assert mixed.freshness.prepare("static", 100, stop=lambda: next(asked)) == 0
    assert not (folder_of(mixed) / "freshness-static.npz").exists()


def test_a_tier_ahead_of_its_first_document(asymmetric: Pair, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", pair=asymmetric) as index:
        index.add(notes(80))
        reencode(index)
        assert index.freshness.due() == []
        assert index.freshness.due(ahead=True) == ["static"]
