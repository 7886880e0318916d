"""Questions in the cluster engine: further vectors of one hit, as the embedded engine has them, whatever searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from asked import DIMENSION, check, document
from naive import SPACE

import milvus_server
from postgres_server import new_address
from suwen.encoders.static import unit
from suwen.index.cluster import milvus, pgvector
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.cluster.place import Place
from suwen.index.copying import copy_index
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import DamagedIndex, IndexProblem, Question, Reencoded


@pytest.fixture(params=["pgvector", "pgvector's graph", "milvus"])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(pgvector, "EXACT_LIMIT", 10 if "graph" in request.param else 10_000)
    monkeypatch.setattr(milvus, "COMPARED", 5)
    return milvus_server.new_address() if request.param == "milvus" else new_address()


@pytest.fixture
def make(address: str) -> Iterator[Callable[[], ClusterEngine]]:
    made: list[ClusterEngine] = []

    def create() -> ClusterEngine:
        made.append(ClusterEngine.create(address, space=SPACE, dimension=DIMENSION))
        return made[-1]

    yield create
    for engine in made:
        engine.close()


def test_a_passage_is_one_hit_by_its_best_vector_and_stays_so(make, address: str, tmp_path: Path) -> None:
    engine, documents = make(), [document(number, questions=number != 5) for number in range(30)]
    plain = [document(number, questions=False) for number in range(30)]
    engine.add(plain[:20])
    check(engine, plain[:20])
    engine.add(documents[:3])
    check(engine, documents[:3] + plain[3:20])
    engine.add(documents)
    check(engine, documents)
    check(engine, documents[::2], {"half": 0})
    assert (engine.stats().questions, engine.stats().passages) == (74, 60)
    engine.delete(["d04", "d07"])
    del documents[7], documents[4]
    check(engine, documents)
    assert engine.stats().questions == 69 and engine.verify() == []
    engine.rebuild()
    check(engine, documents)
    assert engine.verify() == []
    engine.close()
    copy_index(address, tmp_path / "copied")
    copied = EmbeddedEngine.open(tmp_path / "copied", write=True)
    check(copied, documents)
    copied.close()
    again = ClusterEngine.open(address, write=True)
    with again.snapshot() as view:
        stored = view.document("d02")
        assert stored is not None and list(stored.questions) == list(document(2).questions)
        # A question is found by its vector, not by its words.
        assert len(view.lexical("怎么办", 9).rows) == 0
    again.close()


def test_questions_wait_for_the_document_encoder_with_their_passages(make) -> None:
    engine, documents = make(), [document(number, "static") for number in range(12)]
    engine.add(documents)
    (first, *_) = engine.waiting("document", 12)
    assert first.contents == ["d00第0段", "d00第1段", "d00怎么办0", "d00怎么办1", "d00怎么办2", "d00吗"]
    assert engine.reencode([Reencoded("d00", "1", documents[0].vectors[:2])], "document") == {"d00": "wrong"}
    made = unit(np.random.default_rng(99).standard_normal((6, DIMENSION)))
    assert engine.reencode([Reencoded("d00", "1", made)], "document") == {"d00": "stored"}
    check(engine, [documents[0]._replace(vectors=made), *documents[1:]])
    known = engine.stored_vectors("d00", "document")
    assert np.allclose(known["d00怎么办1"], made[3], atol=1e-3) and len(known) == 6
    # Each encoder's apart, as where their scores are mapped.
    with engine.snapshot() as view:
        ranked = view.dense(made[3], 24, scales={"nobody": (1.0, 0.0)})  # type: ignore[dict-item]
        assert len(set(ranked.rows.tolist())) == 24
        assert view.fetch(ranked.rows[:1].tolist())[0].passage.id == "d00#0"


def test_a_damaged_question_is_found_and_a_lost_one_is_given_back(make, address: str) -> None:
    engine, documents = make(), [document(number) for number in range(12)]
    engine.add(documents)
    engine.empty_searcher()
    with engine.snapshot() as view, pytest.raises(DamagedIndex, match="suwen rebuild"):
        view.dense(np.ones(DIMENSION, np.float32), 5)
    engine.close()
    engine = ClusterEngine.open(address, write=True)
    assert "lacked" in engine.healed
    check(engine, documents)
    with Place(address).connect() as connection:
        connection.execute("UPDATE questions SET checksum = checksum + 1 WHERE text = 'd03吗'")
        assert ["is damaged" in problem for problem in engine.verify()] == [True]
        connection.execute("UPDATE questions SET checksum = checksum - 1, passage = 99999 WHERE text = 'd03吗'")
        assert any("1 questions are of no passage" in problem for problem in engine.verify())
    engine.close()


def test_questions_that_cannot_be_stored_are_refused(make) -> None:
    engine, one = make(), document(0)
    with pytest.raises(IndexProblem, match="2 passages and 4 questions"):
        engine.add([one._replace(vectors=one.vectors[:2])])
    with pytest.raises(IndexProblem, match="PostgreSQL stores none"):
        engine.add([one._replace(questions=[Question(0, "a\0b")], vectors=one.vectors[:3])])
    assert engine.stats().documents == 0 and engine.verify() == []
