"""Documents whose passages answer questions, and what a search of them finds by hand: for the tests of both engines."""

from __future__ import annotations

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.encoders.static import unit
from suwen.index.engine import EncodedDocument, Engine, Question

DIMENSION = 16


def document(number: int, encoder: str = "document", questions: bool = True) -> EncodedDocument:
    """A document of two passages; of its questions, three are of the first passage in documents of even number."""
    id_ = f"d{number:02d}"
    asked = [Question(0, f"{id_}怎么办{at}") for at in range(3 if number % 2 == 0 else 0)] + [Question(1, f"{id_}吗")]
    passages = [Passage(id_, at, f"{id_}第{at}段", 9 * at, 9 * at + 9) for at in range(2)]
    count = 2 + (len(asked) if questions else 0)
    made = unit(np.random.default_rng(number).standard_normal((count, DIMENSION)))
    about = Document(id_, "".join(passage.text for passage in passages), metadata={"half": number % 2})
    return EncodedDocument(about, passages, made, encoder, "1", "index", questions=asked if questions else ())


def best_by_hand(documents: list[EncodedDocument], query: np.ndarray) -> dict[str, float]:
    """Every passage's best score over its own vector and its questions'."""
    found: dict[str, float] = {}
    for one in documents:
        scores = one.vectors.astype(np.float16).astype(np.float32) @ query
        ordinals = [*(passage.ordinal for passage in one.passages), *(asked.ordinal for asked in one.questions)]
        for ordinal, score in zip(ordinals, scores.tolist(), strict=True):
            id_ = f"{one.document.id}#{ordinal}"
            found[id_] = max(found.get(id_, -9.0), score)
    return found


def check(engine: Engine, documents: list[EncodedDocument], where: dict[str, int] | None = None) -> None:
    """Searches give every passage once, by its best vector."""
    for seed in range(5):
        query = unit(np.random.default_rng(1000 + seed).standard_normal((1, DIMENSION)))[0]
        expected = best_by_hand(documents, query)
        with engine.snapshot() as view:
            rankings = [view.dense(query, 200, where), view.dense(query, 7, where)]
            rankings += [] if where else view.exact(query[None], 200)
            for ranking in rankings:
                ids = [item.passage.id for item in view.fetch(ranking.rows.tolist())]
                assert ids == sorted(expected, key=expected.__getitem__, reverse=True)[: len(ids)]
                assert len(ids) == min(len(expected), 200) or len(ids) == 7
                assert np.allclose(ranking.scores, [expected[id_] for id_ in ids], atol=2e-5)
