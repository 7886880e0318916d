"""The vector files and the approximate search over them: recall, filters, tombstones, and the pure functions below."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from suwen.index import bit_scan
from suwen.index import vectors as module
from suwen.index.bit_scan import binarise, nearest
from suwen.index.engine import DamagedIndex, Similarity
from suwen.index.vectors import VectorFiles, best, quantise

DIMENSION, COUNT = 64, 30_000


def clustered(rng: np.random.Generator, count: int, each: int) -> np.ndarray:
    """Unit vectors in clusters around a common direction, as text embeddings are."""
    common = rng.standard_normal(DIMENSION)
    centres = rng.standard_normal((-(-count // each), DIMENSION)) + common
    drawn = np.repeat(centres, each, axis=0)[:count] + 0.35 * rng.standard_normal((count, DIMENSION))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[VectorFiles, np.ndarray]:
    """Thirty thousand vectors in three appends; row ``i`` is numbered ``2 * i + 1``."""
    folder = tmp_path_factory.mktemp("files") / "gen-000001"
    folder.mkdir()
    vectors = clustered(np.random.default_rng(1), COUNT, 60)
    VectorFiles.create(folder, "an-index", DIMENSION)
    files = VectorFiles(folder, "an-index", DIMENSION, 0, vectors.mean(axis=0))
    for start in (0, 7, 20_000):
        end = {0: 7, 7: 20_000, 20_000: COUNT}[start]
        files.append(2 * np.arange(start, end) + 1, vectors[start:end])
        files = VectorFiles(folder, "an-index", DIMENSION, end, files.mean)
    return files, vectors


def queries(vectors: np.ndarray, count: int = 25) -> np.ndarray:
    rng = np.random.default_rng(2)
    drawn = vectors[rng.integers(0, len(vectors), count)] + 0.03 * rng.standard_normal((count, vectors.shape[1]))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


def recall(files: VectorFiles, vectors: np.ndarray, admitted: np.ndarray | None, dead: np.ndarray | None) -> float:
    """Recall@10 against exact search over what may come back; asserts that nothing else does."""
    allowed = np.ones(len(vectors), bool) if dead is None else ~dead
    if admitted is not None:
        allowed &= np.isin(2 * np.arange(len(vectors)) + 1, admitted)
    found = wanted = 0
    asked = queries(vectors)
    for query in asked:
        exact = np.flatnonzero(allowed)[np.argsort(-(vectors[allowed] @ query))[:10]]
        rows = files.search(query, 42, admitted, dead).rows
        positions = (rows - 1) // 2
        assert allowed[positions].all()
        assert len(np.unique(rows)) == len(rows) == min(42, int(allowed.sum()))
        top = positions[np.argsort(-(vectors[positions] @ query))[:10]]
        found, wanted = found + len(set(top) & set(exact)), wanted + len(exact)
    return found / wanted


def test_recall_of_the_bit_scan(held: tuple[VectorFiles, np.ndarray]) -> None:
    assert recall(*held, None, None) >= 0.99


def test_slices_of_the_scan_are_the_whole(
    held: tuple[VectorFiles, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, vectors = held
    dead = np.arange(COUNT) % 3 == 0
    whole = [files.search(query, 42, None, dead).rows.tolist() for query in vectors[:5]]
    monkeypatch.setattr(bit_scan, "SLICE", COUNT // 7)
    monkeypatch.setattr("suwen.encoders.cores.cores", lambda: 5)
    assert [files.search(query, 42, None, dead).rows.tolist() for query in vectors[:5]] == whole


@pytest.mark.parametrize("wanted", [1, 2, 3, 6])
def test_the_nearest_come_with_those_as_near_as_the_last(wanted: int) -> None:
    distances = np.array([5, 1, 3, 9, 3, 7], np.int32)
    found = nearest(distances, wanted).tolist()
    assert found == {1: [1], 2: [1, 2, 4], 3: [1, 2, 4], 6: [0, 1, 2, 3, 4, 5]}[wanted]


def test_of_many_copies_no_more_than_as_many_again_are_rescored() -> None:
    assert nearest(np.array([4, 4, 2, *[4] * 20], np.int32), 3).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("order", ["mixed", "ascending", "descending", "every 64th far", "all but every 64th far"])
@pytest.mark.parametrize("wanted", [1, 50, 700, 4999])
def test_the_nearest_are_those_of_a_plain_sort_whatever_a_sample_says(order: str, wanted: int) -> None:
    distances = np.random.default_rng(6).binomial(64, 0.4, 5000).astype(np.int32)
    if order.endswith("cending"):
        distances = np.sort(distances)[:: 1 if order == "ascending" else -1].copy()
    far = {"every 64th far": np.arange(5000) % 64 == 0, "all but every 64th far": np.arange(5000) % 64 != 0}
    distances[far.get(order, np.zeros(5000, bool))] += 64
    last = np.sort(distances)[wanted - 1]
    nearer, alike = np.flatnonzero(distances < last), np.flatnonzero(distances == last)
    plain = sorted([*nearer, *alike[: 2 * wanted - len(nearer)]])
    assert nearest(distances, wanted).tolist() == plain


@pytest.mark.parametrize("share", [0.001, 0.05, 0.9])
def test_recall_under_a_filter(
    held: tuple[VectorFiles, np.ndarray], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCORED_BYTES", 100 * 64)
    rng = np.random.default_rng(3)
    admitted = np.sort(rng.choice(2 * np.arange(COUNT) + 1, int(share * COUNT), replace=False))
    assert recall(*held, admitted, None) >= 0.99


@pytest.mark.parametrize("share", [0.3, 0.95, 0.9999])
def test_recall_beside_tombstones(held: tuple[VectorFiles, np.ndarray], share: float) -> None:
    dead = np.random.default_rng(4).random(COUNT) < share
    assert recall(*held, None, dead) >= 0.99


def test_recall_when_the_nearest_of_every_query_are_dead(held: tuple[VectorFiles, np.ndarray]) -> None:
    files, vectors = held
    dead = np.zeros(COUNT, bool)
    for query in queries(vectors):
        dead[np.argsort(-(vectors @ query))[:30]] = True
    assert recall(files, vectors, None, dead) >= 0.99


def test_a_filter_that_names_rows_the_files_do_not_hold(held: tuple[VectorFiles, np.ndarray]) -> None:
    files, vectors = held
    admitted = np.array([2, 3, 4, 2 * COUNT + 5])
    assert files.search(vectors[0], 10, admitted, None).rows.tolist() == [3]
    assert files.search(vectors[0], 10, np.array([2 * COUNT + 5]), None).rows.tolist() == []
    assert files.positions(np.array([0, 1, 2, 3, 2 * COUNT - 1, 2 * COUNT + 1])).tolist() == [0, 1, COUNT - 1]


def test_everything_dead(held: tuple[VectorFiles, np.ndarray]) -> None:
    files, vectors = held
    assert len(files.search(vectors[0], 10, None, np.ones(COUNT, bool)).rows) == 0


def test_files_of_another_index_generation_or_width(held: tuple[VectorFiles, np.ndarray]) -> None:
    files, _ = held
    for index_id, dimension, count in (
        ("other", DIMENSION, 5),
        ("an-index", 32, 5),
        ("an-index", DIMENSION, COUNT + 1),
    ):
        with pytest.raises(DamagedIndex, match="suwen rebuild"):
            VectorFiles(files.folder, index_id, dimension, count, files.mean)


def test_what_lies_past_the_watermark_means_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gen-000001"
    folder.mkdir()
    VectorFiles.create(folder, "i", DIMENSION)
    files = VectorFiles(folder, "i", DIMENSION, 0, np.zeros(DIMENSION, np.float32))
    vectors = clustered(np.random.default_rng(5), 20, 4)
    files.append(np.arange(10), vectors[10:])
    block = files.append(np.arange(6), vectors[:6])
    files = VectorFiles(folder, "i", DIMENSION, 6, files.mean)
    assert files.rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert files.check_block(block) == []
    assert files.check_block(block._replace(size=5)) == ["bits", "codes", "rows"]
    assert files.search(vectors[3], 1, None, None).rows.tolist() == [3]


FINITE = st.floats(-1, 1, width=32)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(arrays.arrays(np.float32, (5, 24), elements=FINITE))
def test_int8_codes_are_within_half_a_step(vectors: np.ndarray) -> None:
    scales, codes = quantise(vectors)
    assert codes.dtype == np.int8
    assert (np.abs(scales[:, None] * codes - vectors) <= 0.5001 * scales[:, None] + 1e-12).all()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(arrays.arrays(np.float32, (4, 13), elements=FINITE), arrays.arrays(np.float32, 13, elements=FINITE))
def test_bits_are_the_signs_around_the_mean(vectors: np.ndarray, mean: np.ndarray) -> None:
    bits = np.unpackbits(binarise(vectors - mean), axis=1)
    assert (bits[:, :13] == (vectors - mean > 0)).all()
    assert not bits[:, 13:].any()


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=30), st.integers(1, 35), st.randoms())
def test_best_sorts_by_score_then_row(scores: list[float], k: int, random: object) -> None:
    rows = np.arange(len(scores), dtype=np.int64)
    shuffled = np.random.default_rng(k).permutation(len(scores))
    got = best(rows[shuffled], np.array(scores, np.float32)[shuffled], k)
    wanted = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k]
    assert got.rows.tolist() == wanted
    assert got.scores.tolist() == [scores[row] for row in wanted]


def test_lengths_count_where_vectors_are_compared_by_inner_product(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    folder = tmp_path / "gen-000001"
    folder.mkdir()
    vectors = clustered(rng, COUNT, 60) * np.exp(0.5 * rng.standard_normal((COUNT, 1))).astype(np.float32)
    VectorFiles.create(folder, "i", DIMENSION, "dot")
    empty = VectorFiles(folder, "i", DIMENSION, 0, vectors.mean(axis=0), "dot")
    block = empty.append(2 * np.arange(COUNT) + 1, vectors)
    files = VectorFiles(folder, "i", DIMENSION, COUNT, empty.mean, "dot")
    assert files.check_block(block) == [] and files.check_block(block._replace(size=5)) == list(block.checksums)
    assert recall(files, vectors, None, None) >= 0.99
    assert recall(files, vectors, None, rng.random(COUNT) < 0.6) >= 0.99
    # Without the lengths, by sign bits alone, many of the best are missed.
    assert recall(VectorFiles(folder, "i", DIMENSION, COUNT, empty.mean), vectors, None, None) < 0.7
    (folder / "lengths").unlink()
    with pytest.raises(DamagedIndex, match="lengths is missing"):
        VectorFiles(folder, "i", DIMENSION, COUNT, empty.mean, "dot")


def filled(folder: Path, vectors: np.ndarray, similarity: Similarity) -> VectorFiles:
    """Files with these vectors, in rows with odd numbers."""
    folder.mkdir()
    mean = vectors.mean(axis=0)
    VectorFiles.create(folder, "i", DIMENSION, similarity)
    VectorFiles(folder, "i", DIMENSION, 0, mean, similarity).append(2 * np.arange(len(vectors)) + 1, vectors)
    return VectorFiles(folder, "i", DIMENSION, len(vectors), mean, similarity)


#: A few dimensions hold nearly all: of the mean, of the variance, of both; as a decoder's last states have them.
STATES = {"mean": (1, 60), "variance": (15, 0), "both": (15, 60)}


@pytest.mark.parametrize("kind", STATES)
def test_no_few_dimensions_outweigh_the_rest(tmp_path: Path, kind: str) -> None:
    rng, (scale, mean) = np.random.default_rng(11), STATES[kind]
    vectors = clustered(rng, COUNT, 60) * np.exp(0.1 * rng.standard_normal((COUNT, 1)))
    vectors[:, :3] = scale * vectors[:, :3] + mean * vectors.std()
    vectors = vectors.astype(np.float32)
    rng = np.random.default_rng(12)
    asked = vectors[rng.integers(0, COUNT, 25)] + 0.03 * rng.standard_normal((25, DIMENSION)).astype(np.float32)
    for similarity, least in (("dot", 0.98), ("cosine", 0.94)):
        if similarity == "cosine":
            vectors, asked = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, asked))
        files = filled(tmp_path / similarity, vectors, similarity)
        found = 0
        for query in asked:
            exact = np.argsort(-(vectors @ query))[:10]
            found += int(np.isin(2 * exact + 1, files.search(query, 42, None, None).rows).sum())
        assert found >= 10 * least * len(asked)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_files_of_an_older_release_are_read_and_grow_as_they_were(tmp_path: Path, similarity: Similarity) -> None:
    rng = np.random.default_rng(13)
    vectors = clustered(rng, COUNT, 60)
    if similarity == "dot":
        vectors = vectors * np.exp(0.3 * rng.standard_normal((COUNT, 1))).astype(np.float32)
    mean, half = vectors.mean(axis=0), COUNT // 2
    scales = np.abs(vectors).max(axis=1) / 127
    codes = np.zeros(COUNT, np.dtype([("scale", "<f4"), ("code", "i1", (DIMENSION,))]))
    codes["scale"], codes["code"] = scales, np.rint(vectors / scales[:, None])
    old = {"bits": np.packbits(vectors > mean, axis=1), "codes": codes, "rows": 2 * np.arange(COUNT) + 1}
    old |= {"lengths": np.linalg.norm(vectors - mean, axis=1).astype("<f4")} if similarity == "dot" else {}
    widths, folder = {"bits": 8, "codes": 68, "rows": 8, "lengths": 4}, tmp_path / "gen-000001"
    folder.mkdir()
    for kind, array in old.items():
        header = {"suwen": kind, "format": 1, "index": "i", "folder": "gen-000001", "width": widths[kind]}
        (folder / kind).write_bytes(json.dumps(header).encode().ljust(4096, b"\n") + array[:half].tobytes())
    files = VectorFiles(folder, "i", DIMENSION, half, mean, similarity)
    files.append(2 * np.arange(half, COUNT) + 1, vectors[half:])
    assert {kind: (folder / kind).read_bytes()[4096:] for kind in old} == {k: each.tobytes() for k, each in old.items()}
    assert recall(VectorFiles(folder, "i", DIMENSION, COUNT, mean, similarity), vectors, None, None) >= 0.99


_THREADS = """
import os, sys
from pathlib import Path
import numpy as np
from suwen.index.vectors import VectorFiles

rng, folder, similarity = np.random.default_rng(1), Path(sys.argv[1]), sys.argv[2]
vectors = rng.standard_normal((5000, 64)).astype(np.float32)
VectorFiles.create(folder, "id", 64, similarity)
files = VectorFiles(folder, "id", 64, 0, np.zeros(64, np.float32), similarity)
files.append(np.arange(1, 5001), vectors)
files = VectorFiles(folder, "id", 64, 5000, np.zeros(64, np.float32), similarity)
before = len(os.listdir("/proc/self/task"))
files.search(vectors[0], 10, None, None)
assert len(os.listdir("/proc/self/task")) == before, "a team of threads was made for one query"
"""


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_a_search_makes_no_threads_that_wait_for_one_another(tmp_path: Path, similarity: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    subprocess.run([sys.executable, "-c", _THREADS, str(tmp_path), similarity], check=True, env=environment)
