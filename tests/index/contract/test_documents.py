"""Documents in and out, and what a snapshot holds still: the same of every engine."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from engines import Making
from naive import encoded, ids_of, unit

from suwen.corpora.records import Document, Passage
from suwen.index.engine import EncodedDocument, IndexProblem, Known, Scale, all_ids, need
from suwen.index.recall import measure_recall

RNG = np.random.default_rng(7)


def test_an_upsert_replaces_the_whole_document(make: Making) -> None:
    engine = make(documents=4)
    engine.add([encoded("d1", ["改写后的唯一一段 zebra"], unit(RNG, 1, 16), {"year": 1999})])
    assert sorted(ids_of(engine)) == ["d0#0", "d0#1", "d1#0", "d2#0", "d2#1", "d3#0", "d3#1"]
    assert ids_of(engine, text="zebra") == ["d1#0"]
    assert "d1#1" not in ids_of(engine, text="第二段 number1")
    assert engine.stats().documents == 4


def test_fetch_gives_back_what_was_stored(make: Making) -> None:
    engine = make(documents=0)
    metadata = {"year": 2021, "科室": ["心内科", "急诊"], "checked": True, "score": 1.5}
    engine.add([encoded("文档/1 #x", ["第一段。", "second part"], unit(RNG, 2, 16), metadata, title="标题")])
    with engine.snapshot() as view:
        first, second = view.fetch(sorted(view.dense(np.ones(16, np.float32), 2).rows.tolist()))
    assert first.passage == ("文档/1 #x", 0, "第一段。", 0, 4, "标题")
    assert second.passage == ("文档/1 #x", 1, "second part", 5, 16, "标题")
    assert first.metadata == metadata
    assert first.encoder == "static"


def test_delete_counts_only_what_was_there(make: Making) -> None:
    engine = make(documents=3)
    assert engine.delete(["d0", "nobody", "d2"]) == 2
    assert engine.delete(["d0"]) == 0
    assert sorted(ids_of(engine)) == ["d1#0", "d1#1"]
    assert engine.stats().deleted == 4


def test_digests_and_ids_by_origin(make: Making) -> None:
    engine = make(documents=2)
    engine.add([encoded("mirror", ["一"], unit(RNG, 1, 16))._replace(origin="index", digest="abc")])
    known = engine.known(["mirror", "d0", "nobody"])
    assert known == {"mirror": Known("abc", "static"), "d0": Known("digest-d0", "static")}
    assert engine.ids(origin="index") == ["mirror"]
    assert engine.ids() == ["d0", "d1", "mirror"]
    assert engine.ids("d0", 1) == ["d1"]


def test_stored_vectors_are_those_of_one_encoder(make: Making) -> None:
    engine = make(documents=1)
    vectors = unit(RNG, 2, 16)
    engine.add([encoded("two", ["甲", "乙"], vectors, title="题")])
    found = engine.stored_vectors("two", "static")
    assert set(found) == {"题\n甲", "题\n乙"}
    np.testing.assert_allclose(found["题\n乙"], vectors[1], atol=1e-3)
    assert engine.stored_vectors("two", "document") == {}


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.full((1, 16), np.nan, np.float32), "NaN"),
        (np.full((1, 16), np.inf, np.float32), "NaN"),
        (np.full((1, 16), 1e6, np.float32), "too large"),
        (np.ones((1, 15), np.float32), r"\(1, 16\), not \(1, 15\)"),
        (np.ones((2, 16), np.float32), r"\(1, 16\), not \(2, 16\)"),
    ],
)
def test_bad_vectors_are_refused_and_nothing_is_stored(make: Making, vectors: np.ndarray, message: str) -> None:
    engine = make(documents=1)
    good = encoded("good", ["好"], unit(RNG, 1, 16))
    with pytest.raises(IndexProblem, match=message):
        engine.add([good, encoded("bad", ["坏"], np.zeros((1, 16)))._replace(vectors=vectors)])
    assert engine.stats().documents == 1


def test_bad_ids_are_refused(make: Making) -> None:
    engine = make(documents=0)
    one = encoded("same", ["一"], unit(RNG, 1, 16))
    with pytest.raises(IndexProblem, match="twice in one call"):
        engine.add([one, one])
    with pytest.raises(IndexProblem, match="empty id"):
        engine.add([encoded("", ["一"], unit(RNG, 1, 16))])
    assert engine.stats().documents == 0


@pytest.mark.parametrize("metadata", [{"n": 10**30}, {"n": float("nan")}, {"n": [1, float("inf")]}, {"n": -(10**19)}])
def test_numbers_that_are_hard_to_hold_do_not_break_an_add(make: Making, metadata: dict[str, float]) -> None:
    engine = make(documents=1)
    engine.add([encoded("odd", ["数字"], unit(RNG, 1, 16), metadata)])
    assert "odd#0" in ids_of(engine)
    with engine.snapshot() as view:
        rows = view.dense(np.ones(16, np.float32), 9, {"year": 2000}).rows
        assert len(rows) == 2


def test_a_snapshot_holds_still(make: Making) -> None:
    engine = make(documents=6)
    if not engine.abilities.consistent:
        pytest.skip("its snapshots do not hold still")
    looked, changed = threading.Event(), threading.Event()
    seen: list[list[str]] = []

    def look() -> None:
        with engine.snapshot() as view:
            looked.set()
            changed.wait(300)
            for ranking in (view.dense(np.ones(16, np.float32), 99), view.lexical("编号", 99)):
                seen.append(sorted(item.passage.id for item in view.fetch(ranking.rows.tolist())))

    thread = threading.Thread(target=look)
    thread.start()
    looked.wait(300)
    engine.delete(["d0"])
    engine.add([encoded("late", ["编号 late"], unit(RNG, 1, 16))])
    now = ids_of(engine)
    changed.set()
    thread.join()
    assert seen[0] == sorted(f"d{number}#{part}" for number in range(6) for part in (0, 1))
    assert seen[1] == [f"d{number}#0" for number in range(6)]
    assert "late#0" in now and "d0#0" not in now


def test_a_document_comes_back_whole(make: Making) -> None:
    engine = make(documents=3)
    text = "第一段。第二段，带着空白。  末尾"
    parts = [(0, 4), (2, 13), (15, 17)]
    passages = [Passage("whole", n, text[start:end], start, end, "题") for n, (start, end) in enumerate(parts)]
    document = Document("whole", text, "题", {"year": 2024})
    engine.add([EncodedDocument(document, passages, unit(RNG, 3, 16), "static", "v1")])
    with engine.snapshot() as view:
        stored = view.document("whole")
        assert view.document("nobody") is None
    assert stored is not None
    assert (stored.id, stored.title, stored.metadata, stored.digest) == ("whole", "题", {"year": 2024}, "v1")
    assert [item.passage for item in stored.passages] == passages
    assert stored.text == text


def test_ids_a_page_at_a_time(make: Making) -> None:
    engine = make(documents=12)
    every = sorted(f"d{number}" for number in range(12))
    assert engine.ids(limit=5) == every[:5]
    assert engine.ids(every[4], 5) == every[5:10]
    assert list(all_ids(engine, "d5")) == every[every.index("d5") + 1 :]


def test_what_a_reader_may_not_do(make: Making) -> None:
    engine = make(documents=1)
    reader = make.again(engine)
    for call in (
        lambda: reader.add([encoded("x", ["一"], unit(RNG, 1, 16))]),
        lambda: reader.delete(["d0"]),
        lambda: reader.remember(size=1),
        lambda: reader.reencode([], "document"),
    ):
        with pytest.raises(IndexProblem, match="write=True"):
            call()
    assert sorted(ids_of(reader)) == ["d0#0", "d0#1"]


def test_a_closed_engine_answers_nothing(make: Making) -> None:
    engine = make(documents=1)
    engine.close()
    engine.close()
    with pytest.raises(IndexProblem, match="closed"):
        ids_of(engine)
    with pytest.raises(IndexProblem):
        engine.add([encoded("x", ["一"], unit(RNG, 1, 16))])


def test_settings_are_remembered(make: Making) -> None:
    engine = make(documents=0)
    engine.remember(size=120, pair_name="小")
    engine.remember(size=100)
    assert make.again(engine).settings() == {"size": 100, "pair_name": "小"}


def test_settings_are_remembered_with_documents_or_not_at_all(make: Making) -> None:
    engine = make(documents=0)
    engine.add([encoded("x", ["一"], unit(RNG, 1, 16))], {"done": "x"})
    assert engine.settings()["done"] == "x"
    wrong = encoded("z", ["二"], unit(RNG, 1, 16))._replace(vectors=unit(RNG, 2, 16))
    with pytest.raises(IndexProblem):
        engine.add([wrong], {"done": "z"})
    engine.add([], {"more": 1})
    engine.add([])
    assert make.again(engine).settings() == {"done": "x", "more": 1}


def test_blobs_are_kept_and_replaced(make: Making) -> None:
    engine = make(documents=0)
    assert engine.get_blob("sample.npz") is None and engine.blob_version("sample.npz") is None
    engine.put_blob("sample.npz", b"one")
    before = engine.blob_version("sample.npz")
    reader = make.again(engine)
    assert (reader.get_blob("sample.npz"), reader.blob_version("sample.npz")) == (b"one", before)
    reader.put_blob("sample.npz", b"two")
    assert engine.get_blob("sample.npz") == b"two" and engine.blob_version("sample.npz") != before


def test_an_empty_index_answers_with_nothing(make: Making) -> None:
    engine = make(documents=0)
    assert ids_of(engine) == ids_of(engine, text="高血压") == engine.ids() == []
    with engine.snapshot() as view:
        assert (view.last_row, list(view.encoders), view.count("static", 5)) == (0, [], 0)
        assert len(view.sample(5)[0]) == 0
    assert engine.stats()[:3] == (0, 0, 0)


def test_what_is_there_is_counted(make: Making) -> None:
    engine = make(documents=4)
    engine.add([encoded("big", ["一", "二"], unit(RNG, 2, 16))._replace(encoder="document")])
    with engine.snapshot() as view:
        before = view.last_row
        assert sorted(view.encoders) == ["document", "static"]
        assert (view.count("static", 99), view.count("static", 3), view.count("document", 99)) == (8, 3, 2)
        rows, vectors = view.sample(99, "document")
        assert [item.passage.document_id for item in view.fetch(rows.tolist())] == ["big", "big"]
        assert vectors.shape == (2, 16) and len(view.sample(4)[0]) == 4
    stats = engine.stats()
    assert (stats.documents, stats.passages, stats.dimension, stats.encoders) == (
        5,
        10,
        16,
        {"document": 2, "static": 8},
    )
    assert list(stats.fields) == ["lang", "year"] and stats.space == engine.space
    engine.delete(["big"])
    assert engine.stats().encoders == {"static": 8}
    engine.add([encoded("late", ["三"], unit(RNG, 1, 16))])
    with engine.snapshot() as view:
        assert view.last_row > before


def test_scores_of_one_encoder_are_mapped_before_the_best_are_chosen(make: Making) -> None:
    engine = make(documents=6)
    query = unit(RNG, 1, 16)[0]
    engine.add([encoded("other", ["别的"], -query[None, :])._replace(encoder="document")])
    with engine.snapshot() as view:
        assert view.fetch(view.dense(query, 1).rows.tolist())[0].passage.document_id != "other"
        mapped = view.dense(query, 1, scales={"document": Scale(2.0, 5.0)})
        assert view.fetch(mapped.rows.tolist())[0].passage.document_id == "other"
        np.testing.assert_allclose(mapped.scores, [3.0], atol=1e-2)
        plain = view.dense(query, 99, {"year": {"gte": 2000}}, {"document": Scale(2.0, 5.0)})
        assert plain.rows.tolist() == view.dense(query, 99, {"year": {"gte": 2000}}).rows.tolist()


def test_an_engine_says_what_it_lacks(make: Making) -> None:
    engine = make(documents=3)
    if engine.abilities.exact:
        assert measure_recall(engine, 4, 3) == (1.0, 3, 4)
    for ability in ("consistent", "exact", "upkeep", "backup"):
        if getattr(engine.abilities, ability):
            need(engine, ability)
        else:
            with pytest.raises(IndexProblem, match=f"lacks: {ability}"):
                need(engine, ability)
