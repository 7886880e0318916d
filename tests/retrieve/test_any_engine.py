"""An index over another engine than the embedded one: everything it does goes through the contract."""

from __future__ import annotations

import numpy as np
import pytest
from naive import NaiveEngine
from small_pair import NOTES

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.space import SpaceMismatch
from suwen.index.engine import IndexProblem, Reencoded
from suwen.index.opening import create_engine, index_exists, open_engine
from suwen.retrieve.ingest import IngestError, OneStep
from suwen.retrieve.retriever import Index

DOCUMENTS = [Document(f"n{n}", f"{NOTES[n % 10][2]}编号{n}。", NOTES[n % 10][1], {"year": 2000 + n}) for n in range(90)]


@pytest.fixture
def index(tiered: Pair) -> Index:
    return Index(NaiveEngine(tiered.space.id, tiered.space.dimension), tiered)


def test_documents_go_in_are_found_and_go_out(index: Index) -> None:
    report = index.add(DOCUMENTS[:10])
    assert (report.added, report.encoded, report.encoder) == (10, 10, "static")
    assert index.add(DOCUMENTS[:10]).unchanged == 10
    results = index.search("高血压患者低盐饮食", 3, where={"year": {"lt": 2008}}, highlights=True, explain=True)
    assert len(results) == 3 and results.relevant
    assert results[0].explanation is not None and results[0].explanation.space == index.pair.space.id
    assert list(index.ids("n3", 2)) == ["n4", "n5"]
    stored = index.document("n4")
    assert stored is not None and stored.text == DOCUMENTS[4].text
    assert index.delete(["n4", "nobody"]) == 1
    assert index.document("n4") is None and index.stats().documents == 9
    assert "n4" not in {hit.document_id for hit in index.search(DOCUMENTS[4].text, 9)}


def test_an_index_mirrors_a_source(index: Index) -> None:
    index.add(DOCUMENTS[:5], mirror=True)
    index.add([Document("mine", "手工添加的文档。")])
    report = index.add(DOCUMENTS[2:6], mirror=True, prune=True)
    assert (report.added, report.unchanged, report.removed) == (1, 3, 2)
    assert list(index.ids()) == ["mine", "n2", "n3", "n4", "n5"]
    with pytest.raises(IngestError, match="comes twice"):
        index.add([DOCUMENTS[7], DOCUMENTS[7]])
    assert index.add([DOCUMENTS[8], DOCUMENTS[8]], duplicates="last").changed == 0


def test_fresh_documents_wait_and_are_compared(index: Index, tiered: Pair) -> None:
    index.add(DOCUMENTS, encoder=tiered.encoder("rough"), step=OneStep(1000))
    assert index.backlog().documents == 90
    waiting = index.waiting(80, skip={"n0"})
    encoder = tiered.encoder("static")
    made = [Reencoded(one.id, one.version, encoder.encode_documents(one.contents)) for one in waiting]
    assert set(index.reencode(made).values()) == {"stored"}
    assert index.backlog().documents == 10
    assert index.freshness.due() == ["rough"]
    index.add([Document("new", "痛风患者少吃海鲜。")], encoder=tiered.encoder("rough"))
    assert index.freshness.due() == [], "adding makes the sample where no server does"
    assert index.calibrated()
    query = np.asarray(encoder.encode_queries(["高血压"])[0])
    assert set(index.freshness.scales(["static", "rough"], query)) == {"rough"}


def test_an_engine_of_another_space_is_refused(tiered: Pair) -> None:
    with pytest.raises(SpaceMismatch):
        Index(NaiveEngine("sp-other", tiered.space.dimension), tiered)


@pytest.mark.parametrize("address", ["milvus://host", "redis://host/0"])
def test_an_address_without_an_engine_is_refused(address: str) -> None:
    for call in (open_engine, index_exists, lambda given: create_engine(given, space="sp", dimension=4)):
        with pytest.raises(IndexProblem, match=f"no engine for {address.split(':')[0]}:// addresses"):
            call(address)
