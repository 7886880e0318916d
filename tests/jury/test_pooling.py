"""Pools over a real index of hand-written notes."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from small_pair import NOTES, make_pair

from suwen.corpora.collection import write_collection
from suwen.corpora.files import BadRecord
from suwen.corpora.records import Document, Qrel, Query
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import (
    PoolProblem,
    Retriever,
    check_queries,
    index_collection,
    open_retrievers,
    pool_queries,
    read_pool,
    write_pool,
)
from suwen.jury.texts import Texts
from suwen.jury.verdicts import JuryProblem
from suwen.retrieve.retriever import Index

QUERIES = [Query("q1", "高血压患者怎么吃"), Query("q2", "尿酸结石能溶解吗"), Query("q3", "孕妇能打流感疫苗吗")]


@pytest.fixture
def collection(tmp_path):
    documents = [Document(id_, text, title) for id_, title, text, _ in NOTES]
    qrels = {"test": [Qrel("q1", "bp", 1), Qrel("q2", "stone", 1), Qrel("q3", "sleep", 1), Qrel("q3", "flu", 0)]}
    return write_collection(tmp_path / "collection", documents, QUERIES, qrels)


@pytest.fixture
def work(collection, tmp_path):
    pair = make_pair(tmp_path / "pair", tiers=("static", "rough"))
    folder = JuryFolder(tmp_path / "work")
    index_collection(collection, folder.index, pair=pair)
    return folder


def pooled(work, collection, specs, **more):
    with ExitStack() as stack:
        retrievers = open_retrievers(specs, work.index, stack)
        return write_pool(work.pool, work.texts, collection, retrievers, **({"depth": 3} | more))


def test_the_pool_is_the_union_with_who_found_what_where(work, collection):
    found = pooled(work, collection, ["lexical", "dense:static", "dense:rough"])
    queries = list(read_pool(work.pool))
    assert [(one.id, one.text) for one in queries] == [(query.id, query.text) for query in QUERIES]
    assert found.queries == 3 and found.pairs == sum(len(one.candidates) for one in queries)
    for query in queries:
        ids = [one.passage_id for one in query.candidates]
        assert len(set(ids)) == len(ids) and 3 <= len(ids) <= 9
        for name in ("lexical", "dense:static", "dense:rough"):
            ranks = sorted(by.rank for one in query.candidates for by in one.found if by.retriever == name)
            assert ranks == list(range(1, len(ranks) + 1)) and (name == "lexical" or len(ranks) == 3)
    best = next(one for one in queries[0].candidates if one.passage_id == "bp")
    assert {by.retriever: by.rank for by in best.found}["lexical"] == 1 and min(by.rank for by in best.found) == 1
    assert sum(found.alone.values()) == sum(len(c.found) == 1 for q in queries for c in q.candidates)


def test_texts_lie_beside_the_pool_with_their_titles(work, collection):
    found = pooled(work, collection, ["lexical"])
    with Texts(work.texts) as texts:
        assert len(texts) == found.passages
        assert texts.get(["bp"])["bp"] == "高血压\n高血压患者应低盐饮食。每天早晚测量血压。血压突然升高要及时就医。"
        with pytest.raises(JuryProblem, match="lacks the text of nowhere"):
            texts.get(["nowhere"])


def test_the_originals_of_a_benchmark_can_be_added(work, collection):
    pooled(work, collection, ["lexical"], depth=1, originals=True, split="test")
    third = list(read_pool(work.pool))[2]
    added = next(one for one in third.candidates if one.passage_id == "sleep")
    assert [by.retriever for by in added.found] == ["qrels"]


def test_a_split_and_the_first_queries_alone(work, collection):
    assert pooled(work, collection, ["lexical"], queries=2).queries == 2
    assert pooled(work, collection, ["dense"], split="test", depth=2).pairs == 6


def test_a_second_index_of_another_pair_joins_in(work, collection, tmp_path):
    other = tmp_path / "other"
    index_collection(collection, other, pair=make_pair(tmp_path / "second", seed=3, name="second"))
    pooled(work, collection, ["dense", f"dense@{other}"])
    names = {by.retriever for query in read_pool(work.pool) for one in query.candidates for by in one.found}
    assert names == {"dense", f"dense@{other}"}


def test_indexing_twice_changes_nothing(work, collection, tmp_path):
    pooled(work, collection, ["lexical", "dense"])
    before = work.pool.read_bytes()
    index_collection(collection, work.index, pair=tmp_path / "pair")
    pooled(work, collection, ["lexical", "dense"])
    assert work.pool.read_bytes() == before


def test_what_another_collection_left_in_the_index_is_gone(work, collection, tmp_path):
    few = write_collection(tmp_path / "few", [Document("only", "只有这一篇。")], QUERIES, {})
    index_collection(few, work.index, pair=tmp_path / "pair")
    with Index.open(work.index, pair=tmp_path / "pair") as index:
        assert list(index.ids()) == ["only"]


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ([], "no queries"),
        ([Query("a", "x"), Query("a", "y")], "ids come more than once: a"),
        ([Query("a", "ＨbA1c 高"), Query("b", "hba1c 高")], "word for word: b"),
    ],
)
def test_no_queries_and_duplicate_ones_are_errors(queries, words):
    with pytest.raises(PoolProblem, match=words):
        check_queries(queries)


def test_queries_of_one_text_can_be_kept():
    check_queries([Query("a", "同样"), Query("b", "同样")], "keep")
    with pytest.raises(PoolProblem, match="ids"):
        check_queries([Query("a", "x"), Query("a", "x")], "keep")


def test_a_pool_of_nothing_leaves_no_file(work, collection):
    nobody = Retriever("nobody", lambda query, depth: [])
    with pytest.raises(PoolProblem, match="empty"):
        write_pool(work.pool, work.texts, collection, [nobody], depth=3)
    assert not work.pool.exists() and not work.texts.exists()
    with pytest.raises(PoolProblem, match="suwen jury pool"):
        list(read_pool(work.pool))


def test_a_query_that_finds_nothing_is_left_out_and_named(work, collection):
    some = Retriever("some", lambda query, depth: [("bp", 1.0)] if "高血压" in query else [])
    found = write_pool(work.pool, work.texts, collection, [some], depth=3)
    assert found.empty == ["q2", "q3"] and [one.id for one in read_pool(work.pool)] == ["q1"]


@pytest.mark.parametrize(
    ("hits", "words"), [([("bp", 1.0), ("bp", 0.5)], "twice"), ([("elsewhere", 1.0)], "another collection")]
)
def test_a_retriever_of_another_collection_or_with_doubles_is_noticed(work, collection, hits, words):
    with pytest.raises(JuryProblem, match=words):
        write_pool(work.pool, work.texts, collection, [Retriever("odd", lambda query, depth: hits)], depth=3)
    assert not work.pool.exists()


def test_retrievers_that_cannot_be_are_told(work):
    with ExitStack() as stack:
        for spec in ("bm25", "dense:static@", ":l6"):
            with pytest.raises(PoolProblem, match="MODE"):
                open_retrievers([spec], None if "@" in spec else work.index, stack)
    with pytest.raises(PoolProblem, match="at least one retriever"):
        list(pool_queries(QUERIES, [], 3))
    with pytest.raises(PoolProblem, match="named twice"):
        list(pool_queries(QUERIES, [Retriever("a", lambda q, k: [])] * 2, 3))


def test_a_query_without_a_word_is_named(work):
    with ExitStack() as stack:
        retrievers = open_retrievers(["lexical"], work.index, stack)
        with pytest.raises(PoolProblem, match="query 'odd'"):
            list(pool_queries([Query("odd", "？！")], retrievers, 3))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"query_id": "q"}',
        '{"query_id": "q", "query": "x", "candidates": []}',
        '{"query_id": "q", "query": "x", "candidates": [{"passage_id": "p"}, {"passage_id": "p"}]}',
    ],
)
def test_a_bad_line_of_a_pool_is_told(tmp_path, line):
    (tmp_path / "pool.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises((PoolProblem, BadRecord), match=r"pool\.jsonl:1"):
        list(read_pool(tmp_path / "pool.jsonl"))


def test_a_query_pooled_twice_is_told(tmp_path):
    line = '{"query_id": "q", "query": "x", "candidates": [{"passage_id": "p"}]}\n'
    (tmp_path / "pool.jsonl").write_text(line * 2, encoding="utf-8")
    with pytest.raises(PoolProblem, match="pooled before"):
        list(read_pool(tmp_path / "pool.jsonl"))
