"""Posts, deletions, leases, results and restarts in any order: no document is lost, doubled or written over."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from small_pair import make_pair

from in_memory import new_folder, remove
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.space import ElsewhereDocument, Manifest, load_manifest, save_manifest
from suwen.index.engine import Reencoded, Waiting
from suwen.retrieve.retriever import Index

IDS = st.sampled_from([f"d{number}" for number in range(5)])
TEXTS = st.sampled_from(
    ["骨折后应固定患肢。", "失眠者睡前不宜饮咖啡。", "每年秋季接种流感疫苗。" * 8, "布洛芬可缓解疼痛。"]
)


class Kept(NamedTuple):
    """What the index must say of a document."""

    text: str
    state: str


def signature(texts: list[str]) -> np.ndarray:
    """The vectors the document encoder gives these very texts: those of another text are others."""
    made = [np.random.default_rng(crc32(text.encode())).standard_normal(48) for text in texts]
    return np.asarray([vector / np.linalg.norm(vector) for vector in made], dtype=np.float32)


class Interleaved(RuleBasedStateMachine):
    """One index and a worker that may be slow: it answers a lease whenever it likes, or never."""

    @initialize()
    def create(self) -> None:
        self.place = new_folder()
        folder = make_pair(self.place / "pair")
        fields = load_manifest(folder).model_dump() | {"document": ElsewhereDocument(kind="elsewhere", name="big")}
        save_manifest(folder, Manifest.model_validate(fields))
        self.pair = Pair.load(folder)
        self.index = Index.create(self.place / "index", pair=self.pair)
        self.model: dict[str, Kept] = {}
        self.leased: list[Waiting] = []

    @rule(id_=IDS, text=TEXTS)
    def post(self, id_: str, text: str) -> None:
        known = self.model.get(id_)
        report = self.index.add([Document(id_, text)], size=24, overlap=0)
        if known is not None and known.text == text:
            assert report.unchanged == 1
        else:
            assert report.added + report.changed == 1
            self.model[id_] = Kept(text, "fresh")

    @rule(id_=IDS)
    def delete(self, id_: str) -> None:
        assert self.index.engine.delete([id_]) == (self.model.pop(id_, None) is not None)

    @rule(most=st.integers(1, 4))
    def lease(self, most: int) -> None:
        held = {one.id for one in self.leased}
        self.leased += self.index.engine.waiting("document", most, held)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data: st.DataObject, again: bool) -> None:
        one = data.draw(st.sampled_from(self.leased))
        made = Reencoded(one.id, one.version, signature(one.contents))
        (outcome,) = self.index.engine.reencode([made], "document").values()
        known = self.model.get(one.id)
        if known is None:
            assert outcome == "gone"
        elif "".join(one.contents) != known.text:
            assert outcome == "stale"
        else:
            assert outcome == ("done" if known.state == "encoded" else "stored")
            self.model[one.id] = known._replace(state="encoded")
        if not again:
            self.leased.remove(one)

    @precondition(lambda self: self.leased)
    @rule()
    def forget_the_leases(self) -> None:
        self.leased.clear()

    @rule(compact=st.booleans())
    def restart(self, compact: bool) -> None:
        if compact:
            self.index.engine.compact()
        folder = self.index.engine.folder
        self.index.close()
        self.index = Index.open(folder, pair=self.pair, write=True)

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def everything_is_there_once_and_can_be_found(self) -> None:
        with self.index.engine.snapshot() as snapshot:
            assert self.index.engine.ids() == sorted(self.model)
            for id_, known in self.model.items():
                stored = snapshot.document(id_)
                assert stored is not None
                assert "".join(item.passage.text for item in stored.passages) == known.text
                encoder = "static" if known.state == "fresh" else "document"
                assert {item.encoder for item in stored.passages} == {encoder}
                made = self.index.engine.stored_vectors(id_, encoder)
                texts = list(made)
                if encoder == "document":
                    np.testing.assert_allclose(np.array([made[text] for text in texts]), signature(texts), atol=1e-3)
            everything = snapshot.dense(np.ones(48, np.float32) / 48**0.5, 999)
            found = [item.passage.id for item in snapshot.fetch(everything.rows.tolist())]
        assert len(found) == len(set(found))
        assert {id_.partition("#")[0] for id_ in found} == set(self.model)
        waiting = {id_ for id_, known in self.model.items() if known.state == "fresh"}
        assert {one.id for one in self.index.engine.waiting("document", 99)} == waiting
        assert self.index.engine.backlog("document").documents == len(waiting)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            assert self.index.engine.verify() == []
            self.index.close()
            remove(self.place)


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
