"""A space of inner product from end to end: a token table that keeps its lengths, over the bundled sample."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from in_memory import folder_in_memory
from suwen.corpora.collection import Collection
from suwen.corpora.records import Document
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.space import ElsewhereDocument, Manifest, Space, TierDocument, save_manifest
from suwen.encoders.static import unit
from suwen.index import snapshot as snapshots
from suwen.index.engine import Reencoded
from suwen.retrieve.imported import ImportedVectors
from suwen.retrieve.ingest import IngestError
from suwen.retrieve.relevance import off_topic
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample

#: Not among the questions an index is calibrated with.
OFF_TOPIC = (
    "周末去杭州怎么坐高铁",
    "新买的手机充不进电",
    "如何申请护照",
    "who won the world cup in 1998",
    "股票开户流程",
)


def dot_pair(folder: Path, factor: float = 1.0) -> Pair:
    """The default pair's ``static`` tier as a pair of its own, whose vectors are not normalised."""
    default = Pair.load(default_pair_path()).manifest
    tier = default.tiers["static"]
    shutil.copytree(default_pair_path() / tier.path, folder / tier.path)
    for name in ("scales.npy", "form.npy"):
        np.save(folder / tier.path / name, np.float32(factor) * np.load(folder / tier.path / name))
    fields = default.space.alone.model_dump(exclude={"id", "adapter"}) | {"normalise": False, "similarity": "dot"}
    space = Space.mint(**fields)
    files = {name: hashlib.sha256((folder / tier.path / name).read_bytes()).hexdigest() for name in tier.files}
    tier = tier.model_copy(update={"aligned_to": space.id, "files": files})
    document = TierDocument(kind="tier", tier="static")
    tiers = {"static": tier}
    save_manifest(
        folder, Manifest(name="dot", form="light", space=space, tiers=tiers, default_tier="static", document=document)
    )
    return Pair.load(folder)


@pytest.fixture(scope="module")
def sample() -> Iterator[Index]:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=dot_pair(folder / "pair")) as index:
        index_sample(index)
        yield index


def test_scores_are_products_of_vectors_that_keep_their_lengths(sample: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sample.engine.similarity == "dot"
    encoder = sample.pair.encoder()
    query = encoder.encode_queries(["高血压吃什么药"])[0]
    with sample.engine.snapshot() as view:
        rows, stored = view.sample(10_000)
        contents = [item.passage.content for item in view.fetch(rows.tolist())]
    assert np.log(np.linalg.norm(stored, axis=1)).std() > 0.05
    wanted = np.sort(encoder.encode_documents(contents) @ query)[::-1][:5]
    for limit in (20_000, 0):
        monkeypatch.setattr(snapshots, "EXACT_LIMIT", limit)
        hits = sample.search("高血压吃什么药", 5, mode="dense")
        assert [hit.score for hit in hits] == pytest.approx(wanted.tolist(), rel=2e-3)


def test_the_signal_that_nothing_is_relevant(sample: Index, tmp_path: Path) -> None:
    queries = [query.text for query in Collection.open(sample_path()).queries()]
    asked = [*queries[:30], *OFF_TOPIC]
    said = [sample.search(query).relevant for query in asked]
    assert np.mean(said[:30]) >= 0.8
    assert sum(said[30:]) <= 2
    assert not set(OFF_TOPIC) & set(off_topic())
    # A space whose vectors are all a hundred times shorter says the same.
    with Index.create(tmp_path / "i", pair=dot_pair(tmp_path / "pair", 0.01)) as small:
        index_sample(small)
        assert np.mean(np.array(said) == [small.search(query).relevant for query in asked]) >= 0.95


def test_vectors_made_elsewhere_keep_their_lengths(sample: Index, tmp_path: Path) -> None:
    with sample.engine.snapshot() as view:
        rows, stored = view.sample(40)
        passages = [item.passage for item in view.fetch(rows.tolist())]
    (tmp_path / "ids.txt").write_text("".join(f"{passage.id}\n" for passage in passages), encoding="utf-8")
    stored[0] *= 50  # what is longest is not nearest to every text
    np.save(tmp_path / "v.npy", stored.astype(np.float16))
    given = ImportedVectors(tmp_path / "v.npy", tmp_path / "ids.txt", sample.pair, sample.pair.space.id)
    np.testing.assert_allclose(given.take(passages), stored, rtol=1e-3, atol=1e-4)
    given.close()
    np.save(tmp_path / "v.npy", np.roll(stored, 7, axis=0).astype(np.float16))
    other = ImportedVectors(tmp_path / "v.npy", tmp_path / "ids.txt", sample.pair, sample.pair.space.id)
    with pytest.raises(IngestError, match="nearest to their own vector"):
        other.take(passages)
    other.close()


# -- fresh documents beside encoded ones ------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path) -> Pair:
    """The pair with a document encoder of its own that is somewhere else: its tier stands in."""
    fields = dot_pair(tmp_path / "pair").manifest.model_dump()
    fields["document"] = ElsewhereDocument(kind="elsewhere", name="big")
    save_manifest(tmp_path / "pair", Manifest.model_validate(fields))
    return Pair.load(tmp_path / "pair")


def encode_for_good(index: Index, limit: int, factor: float = 20.0) -> None:
    """As a document encoder would: directions a little off the tier's, and lengths of its own."""
    rng, made = np.random.default_rng(0), []
    for one in index.waiting(limit):
        vectors = unit(index.pair.encoder().encode_documents(one.contents))
        turned = unit(vectors + 0.3 * np.roll(vectors, 1, axis=1))
        lengths = factor * np.exp(0.1 * rng.standard_normal((len(turned), 1)))
        made.append(Reencoded(one.id, one.version, (lengths * turned).astype(np.float32)))
    index.reencode(made)


def sample_documents(count: int) -> list[Document]:
    return list(islice(Collection.open(sample_path()).documents(), count))


def test_a_fresh_passage_has_the_tiers_direction_and_length_one(elsewhere: Pair, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", pair=elsewhere) as index:
        index.add(sample_documents(20))
        with index.engine.snapshot() as view:
            rows, stored = view.sample(100)
            contents = [item.passage.content for item in view.fetch(rows.tolist())]
        np.testing.assert_allclose(stored, unit(elsewhere.encoder().encode_documents(contents)), atol=1e-3)
        encode_for_good(index, 20)
        with index.engine.snapshot() as view:
            assert np.linalg.norm(view.sample(100)[1], axis=1).min() > 10, "encoded ones keep their lengths"


@pytest.mark.parametrize("factor", [20.0, 0.05])
@pytest.mark.parametrize("encoded", [12, 30, 160])
def test_fresh_passages_neither_vanish_nor_crowd_out_encoded_ones(
    elsewhere: Pair, tmp_path: Path, encoded: int, factor: float
) -> None:
    """Twelve are too few for a sample, so lengths alone are made to meet; of more the scores are calibrated."""
    documents = sample_documents(200)
    with Index.create(tmp_path / "i", pair=elsewhere) as index:
        index.add(documents[:encoded])
        encode_for_good(index, encoded, factor)
        index.add(documents[encoded : encoded + 40])
        assert bool(index.freshness.due()) is False
        fresh = {document.id for document in documents[encoded : encoded + 40]}
        hits = [index.search(document.text[:60], 10, mode="dense") for document in documents[: encoded + 40]]
    shares = [np.mean([hit.document_id in fresh for hit in found]) for found in hits]
    there = 40 / (encoded + 40)
    assert abs(np.mean(shares) - there) < 0.15
    own = [found.hits[0].document_id == document.id for found, document in zip(hits, documents, strict=False)]
    assert np.mean(own[encoded:]) > 0.6 and np.mean(own[:encoded]) > 0.6
