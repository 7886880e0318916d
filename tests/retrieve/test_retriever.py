"""Searching as users do: modes, tiers, filters, pages, explanations, and queries nobody should have typed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_pair import make_pair

import suwen
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.query import EncoderError
from suwen.encoders.space import SpaceMismatch
from suwen.errors import SuwenError
from suwen.index.filters import FilterError
from suwen.retrieve.fuse import GROWTH, POWER, TYPICAL
from suwen.retrieve.ranking import DEEPEST, LONGEST_QUERY, Mode, SearchError
from suwen.retrieve.results import Hit
from suwen.retrieve.retriever import Index

QUERY = "碱化尿液治疗尿酸结石"


def ids(hits: Any) -> list[str]:
    return [hit.id for hit in hits]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_every_mode_finds_the_answer(index: Index, mode: Any) -> None:
    found = index.search(QUERY, 3, mode=mode)
    assert found[0].document_id == "stone"
    assert (found.mode, found.query, len(found)) == (mode, QUERY, 2 if mode == "lexical" else 3)
    assert found.tier == (None if mode == "lexical" else "static")
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_a_hit_is_a_stretch_of_its_document(index: Index, notes: list[Document]) -> None:
    texts = {note.id: note for note in notes}
    for hit in index.search("患者应定期检查", 20):
        note = texts[hit.document_id]
        assert note.text[hit.start : hit.end] == hit.text
        assert (hit.title, hit.metadata) == (note.title, note.metadata)
        assert hit.id.startswith(f"{hit.document_id}#")


def test_dense_scores_are_cosines(index: Index) -> None:
    encoder = index.pair.encoder()
    query = encoder.encode_queries([QUERY])[0]
    for hit in index.search(QUERY, 5, mode="dense"):
        passage = encoder.encode_documents([f"{hit.title}\n{hit.text}"])[0]
        assert hit.score == pytest.approx(float(passage @ query), abs=2e-3)


def legs(index: Index, query: str, k: int = 100) -> dict[str, dict[str, int]]:
    return {
        mode: {hit.id: rank for rank, hit in enumerate(index.search(query, k, mode=mode), start=1)}
        for mode in ("dense", "lexical")
    }


WEIGHED = pytest.mark.parametrize("weights", [{"dense": 1.0, "lexical": 1.0}, {"dense": 0.3, "lexical": 2.0}])


@WEIGHED
def test_hybrid_is_the_mean_of_what_the_two_are_worth(index: Index, weights: dict[str, float]) -> None:
    # Fewer passages than are read: every one has a cosine, and those without a word of the query no BM25 score.
    with index.engine.snapshot() as snapshot:
        most = snapshot.lexical(QUERY, 100).most
    assert most is not None
    cosines = {hit.id: hit.score for hit in index.search(QUERY, 100, mode="dense", fold=False, synonyms=False)}
    found_words = index.search(QUERY, 100, mode="lexical", fold=False, synonyms=False)
    shares = {hit.id: (hit.score / most) ** POWER * (most / TYPICAL) ** GROWTH for hit in found_words}
    found = index.search(QUERY, 100, weights=weights, fold=False, synonyms=False)
    assert set(ids(found)) == set(cosines)
    worths = [{"dense": cosines[hit.id], "lexical": shares.get(hit.id, 0.0)} for hit in found]
    wanted = [sum(weights[leg] * worth[leg] for leg in weights) / sum(weights.values()) for worth in worths]
    # A hit may have been moved for being like the first ones: it has the score of its place.
    assert [hit.score for hit in found] == pytest.approx(sorted(wanted, reverse=True), abs=5e-5)


@WEIGHED
def test_hybrid_by_reciprocal_ranks(index: Index, weights: dict[str, float]) -> None:
    ranks = legs(index, QUERY)
    found = index.search(QUERY, 50, weights=weights, fusion="ranks")
    assert set(ids(found)) == set(ranks["dense"]) | set(ranks["lexical"])
    for hit in found:
        wanted = sum(weights[leg] / (60 + ranks[leg][hit.id]) for leg in weights if hit.id in ranks[leg])
        assert hit.score == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("fusion", "whole"), [("scores", 4.0), ("ranks", 1.0)])
def test_explanations_add_up_to_the_scores(index: Index, fusion: Any, whole: float) -> None:
    found, sums = index.search(QUERY, 50, weights={"dense": 1, "lexical": 3}, explain=True, fusion=fusion), []
    for hit in found:
        why = hit.explanation
        assert why is not None and why.fusion == fusion
        legs = (("dense", why.dense), ("lexical", why.lexical))
        sums.append(sum(why.weights[name] * leg.value for name, leg in legs if leg) / whole)
    # In their order: a hit that was moved has the score of its place.
    assert [hit.score for hit in found] == pytest.approx(sorted(sums, reverse=True), abs=3e-6)


def test_an_unknown_fusion(index: Index) -> None:
    with pytest.raises(SearchError, match="fusion 'magic' is unknown: use scores, ranks"):
        index.search(QUERY, fusion="magic")  # type: ignore[arg-type]


def test_a_weight_of_zero_leaves_one_leg(index: Index) -> None:
    dense = index.search(QUERY, 10, mode="dense")
    assert ids(index.search(QUERY, 10, weights={"dense": 1.0, "lexical": 0.0})) == ids(dense)
    assert ids(index.search(QUERY, 10, weights={"dense": 2.5})) == ids(dense)
    lexical = index.search(QUERY, 10, mode="lexical")
    assert ids(index.search(QUERY, 10, weights={"lexical": 1.0})) == ids(lexical)


@pytest.mark.parametrize(
    "weights", [{"dense": np.nan}, {"dense": -1}, {"dense": np.inf}, {"sparse": 1.0}, {"dense": 0, "lexical": 0}, {}]
)
def test_weights_that_mean_nothing(index: Index, weights: dict[str, float]) -> None:
    with pytest.raises(SearchError, match="weights"):
        index.search(QUERY, weights=weights)


def test_explanations_say_what_happened(index: Index) -> None:
    found = index.search(QUERY, 50, tier="rough", explain=True, weights={"dense": 1, "lexical": 3})
    dense = index.search(QUERY, 50, mode="dense", tier="rough", explain=True)
    lexical = index.search(QUERY, 50, mode="lexical", explain=True)
    by_dense = {hit.id: (rank, hit.score) for rank, hit in enumerate(dense, start=1)}
    by_words = {hit.id: (rank, hit.score) for rank, hit in enumerate(lexical, start=1)}
    for hit in found:
        why = hit.explanation
        assert why is not None
        assert (why.mode, why.space, why.tier, why.encoder) == ("hybrid", index.pair.space.id, "rough", "static")
        assert (why.dense.rank, why.dense.score) == by_dense[hit.id] if why.dense else hit.id not in by_dense
        assert (why.lexical.rank, why.lexical.score) == by_words[hit.id] if why.lexical else hit.id not in by_words
        assert (why.weights, why.fusion) == ({"dense": 1.0, "lexical": 3.0}, "scores")
    assert dense[0].explanation is not None and dense[0].explanation.lexical is None
    assert lexical[0].explanation is not None and lexical[0].explanation.tier is None
    assert lexical[0].explanation.fusion is None and lexical[0].explanation.weights == {}
    assert index.search(QUERY, 1)[0].explanation is None


def test_a_tier_per_request(index: Index) -> None:
    static, rough = (index.search(QUERY, 20, mode="dense", tier=tier) for tier in ("static", "rough"))
    assert (static.tier, rough.tier) == ("static", "rough")
    assert [hit.score for hit in static] != [hit.score for hit in rough]
    assert static[0].document_id == rough[0].document_id
    with pytest.raises(EncoderError, match="no tier 'l12': choose one of static, rough"):
        index.search(QUERY, tier="l12")


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_filters(index: Index, mode: Any) -> None:
    found = index.search("患者 inhaler 应定期", 50, mode=mode, where={"lang": "en"})
    assert {hit.document_id for hit in found} <= {"stroke", "asthma"} and len(found) > 0
    found = index.search("患者应定期检查", 50, mode=mode, where={"year": {"gte": 2022}, "lang": ["zh", "fr"]})
    assert {hit.document_id for hit in found} <= {"stone", "sugar", "flu", "kidney"} and len(found) > 0
    assert len(index.search(QUERY, 9, mode=mode, where={"lang": []})) == 0
    with pytest.raises(FilterError, match="the fields are lang, year"):
        index.search(QUERY, mode=mode, where={"language": "zh"})
    with pytest.raises(FilterError, match="no document has the field"):
        index.search(QUERY, mode=mode, where={"lang' OR 1=1 --": "zh"})


def test_one_hit_per_document(index: Index) -> None:
    every = index.search("患者应定期检查尿液", 50)
    found = index.search("患者应定期检查尿液", 50, per_document=True)
    best: dict[str, Hit] = {}
    for hit in every:
        best.setdefault(hit.document_id, hit)
    assert ids(found) == ids(best.values())
    assert len(every) > len(found)


def test_the_last_page_is_short_and_the_next_one_empty(index: Index) -> None:
    total = index.engine.stats().passages
    assert len(index.search(QUERY, 10, mode="dense", offset=total - 3)) == 3
    assert len(index.search(QUERY, 10, mode="dense", offset=total)) == 0
    assert len(index.search(QUERY, DEEPEST)) == total


# -- highlights and notes -------------------------------------------------------------------------------------------


def test_highlights_point_into_the_text(index: Index) -> None:
    found = index.search("尿酸结石多饮水", 10, highlights=True)
    assert found[0].highlights
    for hit in found:
        for one in hit.highlights:
            assert hit.text[one.start : one.end] == one.text
            for start, end in one.terms:
                assert one.start <= start < end <= one.end
    words = {hit.text[start:end] for hit in found for one in hit.highlights for start, end in one.terms}
    assert {"尿酸结石", "饮水"} & words or {"结石"} & words
    assert index.search("尿酸结石", 1)[0].highlights == ()


def test_a_dense_hit_without_shared_words_has_its_nearest_sentence(index: Index) -> None:
    hit = index.search("眠失不 咖", 1, mode="dense", highlights=True)[0]
    assert hit.document_id == "sleep"
    (one,) = hit.highlights
    assert one.terms == () and one.text in hit.text


def test_a_long_query_is_cut_and_the_caller_told(index: Index) -> None:
    found = index.search("结石" * LONGEST_QUERY, 3)
    assert found.notes == (f"the query was cut to its first {LONGEST_QUERY} characters",)
    assert found[0].document_id == "stone"
    assert index.search("结石").notes == ()


# -- bad queries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("query", ["", "   ", "\n\t\u3000", "\x00\x01\x1b", "😀🎉", "?!。，", "\ud83d", "\u200b"])
def test_queries_without_a_word_are_refused(index: Index, query: str, mode: Any) -> None:
    with pytest.raises(SearchError, match="no letter or digit"):
        index.search(query, mode=mode)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize(
    "query",
    [
        "结石😀",
        "\x00结\x1b石\x00",
        "结石 \ud83d",
        "结石: 7.5% (",
        "结石 AND (",
        '"结石',
        "结石 " * 500_000,
        "结石\n\n尿液",
    ],
    ids=["emoji", "control", "surrogate", "colon", "operator", "quote", "a megabyte", "lines"],
)
def test_odd_queries_are_answered(index: Index, query: str, mode: Any) -> None:
    found = index.search(query, 3, mode=mode, highlights=True, explain=True)
    assert found[0].document_id == "stone"


def test_a_megabyte_of_one_word(index: Index) -> None:
    for query in ("a" * 1_000_000, "结" * 1_000_000, "1" * 1_000_000):
        assert len(index.search(query, 3, mode="dense", highlights=True)) == 3
        index.search(query, 3, mode="lexical")


@pytest.mark.parametrize(("k", "offset"), [(0, 0), (-1, 0), (10, -1), (1_000_000, 0), (1, DEEPEST), (-5, 10)])
def test_sizes_that_cannot_be(index: Index, k: int, offset: int) -> None:
    with pytest.raises(SearchError, match=f"k is {k} and offset {offset}: .* at most {DEEPEST}"):
        index.search(QUERY, k, offset=offset)


def test_an_unknown_mode(index: Index) -> None:
    with pytest.raises(SearchError, match="use hybrid, dense, lexical"):
        index.search(QUERY, mode="sparse")  # type: ignore[arg-type]


def test_results_are_plain_json(index: Index) -> None:
    found = index.search(QUERY, 3, highlights=True, explain=True)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    told = json.loads(json.dumps(found.as_dict()), parse_constant=refuse)
    assert [hit["id"] for hit in told["hits"]] == ids(found)
    assert set(told["timings"]) == {"encode", "search", "total"}
    assert told["timings"]["total"] >= told["timings"]["encode"] + told["timings"]["search"] - 0.01


# -- opening --------------------------------------------------------------------------------------------------------


@pytest.fixture
def built(pair: Pair, notes: list[Document], tmp_path: Path) -> Path:
    with Index.create(tmp_path / "index", pair=pair) as made:
        made.add(notes)
    return tmp_path / "index"


def test_a_pair_of_another_space_is_refused(built: Path, pair: Pair, foreign: Pair) -> None:
    with pytest.raises(SpaceMismatch) as caught:
        Index.open(built, pair=foreign)
    for part in (pair.space.id, pair.name, foreign.space.id, foreign.name, "--pair"):
        assert part in str(caught.value)
    with pytest.raises(SpaceMismatch):
        suwen.open(built, pair=foreign.path)


def test_another_pair_of_the_same_space_is_welcome(built: Path, tiered: Pair) -> None:
    with suwen.open(built, pair=tiered) as opened:
        assert opened.search(QUERY, tier="rough")[0].document_id == "stone"


def test_the_pair_an_index_was_built_with_is_found_again(
    built: Path, foreign: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUWEN_PAIR", raising=False)
    with suwen.open(built) as opened:
        assert opened.pair.name == "small"
    monkeypatch.setenv("SUWEN_PAIR", str(foreign.path))
    with pytest.raises(SpaceMismatch):
        suwen.open(built)


def test_a_pair_that_has_moved_away(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = make_pair(tmp_path / "moved", name="moved")
    with Index.open(built, pair=moved, write=True) as opened:
        opened.engine.remember(pair=str(tmp_path / "nowhere"))
    monkeypatch.setenv("SUWEN_PAIR", str(moved))
    with suwen.open(built) as opened:
        assert opened.pair.name == "moved"


def test_errors_leave_the_index_free(built: Path, foreign: Pair, pair: Pair) -> None:
    with pytest.raises(SpaceMismatch):
        Index.open(built, pair=foreign, write=True)
    Index.open(built, pair=pair, write=True).close()


def test_a_damaged_index_says_so_at_every_door(built: Path, pair: Pair) -> None:
    (built / "truth.db").write_bytes(b"nonsense" * 2000)
    with pytest.raises(SuwenError, match="restore a backup"):
        Index.open(built, pair=pair)


def test_what_is_added_is_found_at_once(built: Path, pair: Pair) -> None:
    with Index.open(built, pair=pair, write=True) as writer, Index.open(built, pair=pair) as reader:
        writer.add([Document("new", "阿司匹林可预防心肌梗死。", "阿司匹林")])
        for opened in (writer, reader):
            assert opened.search("阿司匹林心肌梗死", 1)[0].document_id == "new"
        writer.engine.delete(["new"])
        for opened in (writer, reader):
            assert "new" not in {hit.document_id for hit in opened.search("阿司匹林心肌梗死", 100)}


def test_eight_threads_search_while_one_adds(built: Path, pair: Pair) -> None:
    import threading

    problems: list[BaseException] = []
    stop = threading.Event()
    with Index.open(built, pair=pair, write=True) as index:

        def ask(mode: Any) -> None:
            try:
                while not stop.is_set():
                    found = index.search(QUERY, 5, mode=mode, highlights=True, explain=True)
                    assert found[0].document_id == "stone"
                    assert len(found) == 5 or mode == "lexical"
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=ask, args=(mode,)) for mode in ("hybrid", "dense", "lexical", "hybrid") * 2]
        for thread in threads:
            thread.start()
        try:
            for number in range(12):
                index.add([Document(f"n{number}-{part}", f"编号{number}的文档{part}。") for part in range(3)])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert problems == []


def test_hybrid_answers_survive_a_rebuild(built: Path, pair: Pair) -> None:
    import shutil

    queries = ["结石", "血压高怎么办", "stroke help", "患者应定期检查", "失眠 咖啡"]

    def answers(index: Index) -> list[list[str]]:
        modes: tuple[Mode, ...] = ("dense", "lexical", "hybrid")
        return [ids(index.search(query, 10, mode=mode)) for query in queries for mode in modes]

    with Index.open(built, pair=pair) as index:
        before = answers(index)
    for folder in built.glob("gen-*"):
        shutil.rmtree(folder)
    with Index.open(built, pair=pair, write=True) as index:
        index.engine.rebuild()
        assert answers(index) == before


def test_an_empty_index_finds_nothing_relevant(empty: Index) -> None:
    for mode in ("hybrid", "dense", "lexical"):
        found = empty.search("结石", mode=mode, highlights=True, explain=True)  # type: ignore[arg-type]
        assert (len(found), found.relevant) == (0, False)


def test_the_truth_is_not_written_by_a_search(built: Path, pair: Pair) -> None:
    def sequence() -> int:
        truth = sqlite3.connect(built / "truth.db")
        try:
            return int(truth.execute("SELECT value FROM meta WHERE key = 'sequence'").fetchone()[0])
        finally:
            truth.close()

    before = sequence()
    with Index.open(built, pair=pair) as index:
        index.search(QUERY, highlights=True, explain=True)
    assert sequence() == before
