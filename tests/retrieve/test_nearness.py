"""Hybrid search by who encoded the documents: its weights, and what is moved up for being like the first hits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from naive import NaiveEngine
from small_pair import Counting

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.who_encodes import best_maker
from suwen.index import snapshot as snapshots
from suwen.retrieve.deep_ranking import hits_of, rank_deep
from suwen.retrieve.fuse import WEIGHTS_BY, fuse_hybrid
from suwen.retrieve.ranking import STEPS, search_legs
from suwen.retrieve.retriever import Index
from suwen.retrieve.wording import Wording

QUERY = "肾结石患者饮水检查尿液"
PARTS = ["肾结石", "血压", "头痛", "饮水", "疫苗", "骨折", "失眠", "尿液", "检查", "患者", "蛋白质", "咖啡"]


def documents(count: int) -> list[Document]:
    rng = np.random.default_rng(3)
    texts = ("".join(rng.choice(PARTS, rng.integers(3, 9))) + "。" for _ in range(count))
    return [Document(f"d{n:03}", text, "", {"n": n}) for n, text in enumerate(texts)]


def by_document_encoder(pair: Pair) -> Any:
    """The pair's tier under the name of a document encoder."""
    encoder = Counting(pair.encoder("static"))
    encoder.name = "document"
    return encoder


def filled(index: Index, count: int = 450) -> Index:
    index.add(documents(count), encoder=by_document_encoder(index.pair))
    return index


@pytest.fixture(scope="module")
def encoded(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.create(tmp_path_factory.mktemp("near") / "index", pair=pair) as made:
        yield filled(made)


def ids(hits: Any) -> list[str]:
    return [hit.id for hit in hits]


def plainly(index: Index, where: Any = None, *, moved: bool = True) -> list[str]:
    """The first hundred of the fusion, by what the engine holds, put together outside of a search."""
    with index.engine.snapshot() as view:
        vector = index.pair.encoder("static").encode_queries([QUERY])[0]
        weights = WEIGHTS_BY["document"]
        asked = Wording(QUERY, QUERY, {})
        legs = search_legs(view, index.freshness, asked, vector, "hybrid", STEPS[0], where, weights)
        rows, every = view.sample(10_000)
        known = dict(zip(rows.tolist(), every, strict=True))
        fused = fuse_hybrid(
            legs,
            100,
            weights,
            vectors=(lambda rows: np.array([known[row] for row in rows.tolist()])) if moved else None,
        )
        return [item.passage.id for item in view.fetch(fused.rows.tolist())]


def search(index: Index, k: int, **options: Any) -> Any:
    return index.search(QUERY, k, fold=False, synonyms=False, **options)


@pytest.mark.parametrize("where", [None, {"n": {"gte": 200}}, {"n": {"lt": 12}}], ids=["all", "half", "few"])
@pytest.mark.parametrize("limit", [20_000, 0], ids=["exact", "by sign bits"])
def test_what_is_near_the_first_hits_moves_up(
    encoded: Index, where: Any, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EXACT_LIMIT", limit)
    found = ids(search(encoded, 100, where=where))
    assert found == plainly(encoded, where)
    if where is None:
        assert found != plainly(encoded, moved=False), "else nothing is tested here"


def test_it_goes_through_the_contract_of_engines_alone(pair: Pair) -> None:
    other = filled(Index(NaiveEngine(pair.space.id, pair.space.dimension), pair))
    assert ids(search(other, 100)) == plainly(other) != plainly(other, moved=False)


def test_pages_are_cut_from_one_order(encoded: Index) -> None:
    whole = ids(search(encoded, 240))
    assert [id_ for offset in range(0, 240, 15) for id_ in ids(search(encoded, 15, offset=offset))] == whole
    ranking = rank_deep(encoded, QUERY, 240)
    assert ids(hits_of(encoded, ranking.rows.tolist(), ranking.scores.tolist())) == whole


def test_scores_fall_and_explanations_tell_the_weights(encoded: Index) -> None:
    found = search(encoded, 60, explain=True)
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert {tuple(hit.explanation.weights.items()) for hit in found} == {tuple(WEIGHTS_BY["document"].items())}
    given = {"dense": 1.0, "lexical": 2.0}
    assert search(encoded, 1, explain=True, weights=given)[0].explanation.weights == given


def test_confidence_does_not_depend_on_weights_that_are_asked_for(encoded: Index) -> None:
    usual = {hit.id: hit.confidence for hit in search(encoded, 100, weights=dict(WEIGHTS_BY["document"]))}
    other = {hit.id: hit.confidence for hit in search(encoded, 100, weights={"dense": 1.0, "lexical": 9.0})}
    both = usual.keys() & other.keys()
    assert len(both) > 20 and all(usual[id_] == other[id_] for id_ in both)


def test_weights_are_the_best_encoders_and_several_encoders_move_nothing(pair: Pair, tmp_path: Any) -> None:
    with Index.create(tmp_path / "index", pair=pair) as index:
        index.add(documents(30))
        with index.engine.snapshot() as view:
            assert index.freshness.vectors(view) is not None
            assert index.freshness.weights(view) is WEIGHTS_BY["static"]
        index.add(documents(40)[30:], encoder=by_document_encoder(pair))
        with index.engine.snapshot() as view:
            assert len(view.encoders) == 2 and index.freshness.vectors(view) is None
            assert index.freshness.weights(view) is WEIGHTS_BY["document"], "the best of them"


def test_what_makes_documents(pair: Pair) -> None:
    assert best_maker(pair, ["static"]) == "static"
    assert best_maker(pair, ["static", "document"]) == "document"
    assert best_maker(pair, []) == best_maker(pair, ["gone"]) == "transformer"
