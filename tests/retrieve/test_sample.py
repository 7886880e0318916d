"""The sample collection in an index: by the document vectors a pair brings for it, or by a tier if they do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from suwen.corpora.sample_collection import sample_passages
from suwen.encoders.pair import Pair
from suwen.encoders.space import SpaceMismatch
from suwen.retrieve.imported import IngestError
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample, stored_vectors


@pytest.fixture
def damaged(shipped_pair: Path, tmp_path: Path) -> Callable[..., Pair]:
    """The shipped pair with a file of its ``sample/`` changed by a function of its bytes; None removes it."""

    def change(name: str, how: Callable[[bytes], bytes | None]) -> Pair:
        folder = shutil.copytree(shipped_pair, tmp_path / "changed")
        file = folder / "sample" / name
        if (content := how(file.read_bytes())) is None:
            file.unlink()
        else:
            file.write_bytes(content)
        return Pair.load(folder)

    return change


def index_of(pair: Pair, folder: Path) -> tuple[Index, str, str]:
    index = Index.create(folder / "index", pair=pair)
    report, said = index_sample(index)
    assert report.read == 360
    return index, said, report.encoder


def test_stored_vectors_are_used_and_the_queries_are_the_tiers(shipped_pair: Path, tmp_path: Path) -> None:
    pair = Pair.load(shipped_pair)
    index, said, encoder = index_of(pair, tmp_path)
    with index:
        assert encoder == "document" and said.startswith("asymmetric retrieval")
        assert "org/base with the pair's adapter" in said and "queries by the tier 'static'" in said
        passages = sample_passages(pair.count_tokens)
        assert index.engine.stats().encoders == {"document": len(passages)}
        stored = np.load(shipped_pair / "sample" / "vectors.npy").astype(np.float32)
        first = index.engine.stored_vectors(passages[0].document_id, "document")
        assert np.allclose(first[passages[0].content], stored[0], atol=1e-3)
        hits = index.search("肾结石怎么判断酸性还是碱性", explain=True)
        assert hits.tier == "static" and hits[0].explanation is not None and hits[0].explanation.encoder == "document"
        again = index_sample(index).report
        assert (again.unchanged, again.passages) == (360, 0)


def test_passages_a_tier_has_encoded_are_replaced(shipped_pair: Path, tmp_path: Path) -> None:
    from suwen.corpora.readers import read_documents
    from suwen.corpora.sample_collection import sample_path

    with Index.create(tmp_path / "index", pair=Pair.load(shipped_pair)) as index:
        index.add(read_documents(sample_path()), mirror=True)
        assert set(index.engine.stats().encoders) == {"static"}
        assert index_sample(index).report.reencoded == 360
        assert set(index.engine.stats().encoders) == {"document"}


def other_space(content: bytes) -> bytes:
    return json.dumps(json.loads(content) | {"space": "sp-" + "0" * 20}).encode()


def other_text(content: bytes) -> bytes:
    first, _, rest = content.partition(b"\n")
    return first.split(b"\t")[0] + b"\t0123456789ab\n" + rest


MISFITS = {
    "space": ("vectors.json", other_space, "they are of the space sp-00000000000000000000"),
    "text": ("ids.txt", other_text, "has changed since"),
    "ids": ("ids.txt", lambda content: None, "ids.txt cannot be read"),
    "rows": ("ids.txt", lambda content: content.partition(b"\n")[2], "they must be of one run"),
    "array": ("vectors.npy", lambda content: content[:200], "not a readable .npy matrix"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_vectors_that_do_not_fit_are_not_used(case: str, damaged: Callable[..., Pair], tmp_path: Path) -> None:
    name, how, why = MISFITS[case]
    pair = damaged(name, how)
    with pytest.raises((SpaceMismatch, IngestError), match=None if case == "space" else why):
        stored_vectors(pair, sample_passages(pair.count_tokens))
    index, said, encoder = index_of(pair, tmp_path)
    with index:
        assert encoder == "static" and set(index.engine.stats().encoders) == {"static"}
        assert said.startswith("documents are encoded by the tier 'static': ") and "do not fit" in said
        assert why.partition(":")[0] in said or case == "rows"


def test_an_index_of_other_passages_is_not_given_them(shipped_pair: Path, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", pair=Pair.load(shipped_pair)) as index:
        index.engine.remember(size=60, overlap=0)
        report, said = index_sample(index)
        assert report.encoder == "static" and "do not fit" in said


def test_a_pair_without_them_says_so(exported_pair: Path, pair: Pair, tmp_path: Path) -> None:
    index, said, encoder = index_of(Pair.load(exported_pair), tmp_path)
    index.close()
    assert encoder == "l2" and "brings no document vectors" in said
    index, said, encoder = index_of(pair, tmp_path / "own")
    index.close()
    assert encoder == "static" and "the pair's own for them" in said
