"""Questions that passages answer: further vectors of one hit, the same as brute force however they are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from asked import DIMENSION, check, document
from naive import SPACE

from suwen.encoders.static import unit
from suwen.index import snapshot, vectors
from suwen.index.copying import copy_index
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import IndexProblem, Question, Reencoded


@pytest.fixture(params=["every vector", "by sign bits"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], EmbeddedEngine]:
    if request.param == "by sign bits":
        monkeypatch.setattr(snapshot, "EXACT_LIMIT", 0)
        monkeypatch.setattr(vectors, "SCORED_BYTES", 0)
    return lambda: EmbeddedEngine.create(tmp_path / "index", space=SPACE, dimension=DIMENSION, seal=8)


def test_a_passage_is_one_hit_by_its_best_vector_and_stays_so(
    make: Callable[[], EmbeddedEngine], tmp_path: Path
) -> None:
    engine, documents = make(), [document(number, questions=number != 5) for number in range(30)]
    plain = [document(number, questions=False) for number in range(30)]
    engine.add(plain[:20])
    check(engine, plain[:20])
    assert (engine.stats().questions, engine.stats().format) == (0, 1)
    engine.add(documents[:3])  # the first questions, while nothing else changes
    check(engine, documents[:3] + plain[3:20])
    engine.add(documents)
    check(engine, documents)
    check(engine, documents[::2], {"half": 0})
    assert (engine.stats().questions, engine.stats().passages, engine.stats().format) == (74, 60, 3)
    engine.delete(["d04", "d07"])
    del documents[7], documents[4]
    check(engine, documents)
    assert engine.stats().questions == 69
    for work in (engine.compact, engine.rebuild, lambda: engine.backup(tmp_path / "kept")):
        work()
        check(engine, documents)
        assert engine.verify() == []
    engine.close()
    EmbeddedEngine.restore(tmp_path / "kept", tmp_path / "restored")
    copy_index(tmp_path / "index", tmp_path / "copied")
    for folder in ("index", "restored", "copied"):
        engine = EmbeddedEngine.open(tmp_path / folder, write=True, seal=8)
        check(engine, documents)
        assert engine.verify() == []
        with engine.snapshot() as view:
            stored = view.document("d02")
            assert stored is not None and list(stored.questions) == list(document(2).questions)
        engine.close()


def test_questions_wait_for_the_document_encoder_with_their_passages(make: Callable[[], EmbeddedEngine]) -> None:
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
    engine.close()


def test_a_damaged_question_is_found_and_told_whose_it_is(make: Callable[[], EmbeddedEngine]) -> None:
    engine = make()
    engine.add([document(number) for number in range(12)])
    with engine._truth.writing() as transaction:
        transaction.execute("UPDATE questions SET checksum = checksum + 1 WHERE text = 'd03吗'")
    assert any("'d03' is damaged" in problem for problem in engine.verify())
    engine.add([document(3)])
    with engine._truth.writing() as transaction:
        transaction.execute("UPDATE questions SET row = 99999 WHERE text = 'd03吗'")
    assert any("1 questions are of no passage" in problem for problem in engine.verify())
    engine.close()


def test_questions_that_cannot_be_stored_are_refused(make: Callable[[], EmbeddedEngine]) -> None:
    engine, one = make(), document(0)
    with pytest.raises(IndexProblem, match="2 passages and 4 questions"):
        engine.add([one._replace(vectors=one.vectors[:2])])
    with pytest.raises(IndexProblem, match="of a passage it has not"):
        engine.add([one._replace(questions=[Question(7, "吗")], vectors=one.vectors[:3])])
    assert engine.stats().documents == 0
    engine.close()
