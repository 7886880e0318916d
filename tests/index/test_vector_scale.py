"""The benchmark of ten million passages, on a few hundred: exact beside the files, and resumed where it was stopped."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DIMENSION = 32


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    module = importlib.import_module("vector_scale")
    for name, value in {"REAL": 40, "BATCH": 32, "DRAWS": 64, "SAVED": 100, "SIZES": (90, 500, 700)}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("os.fsync", lambda handle: None)  # which the script itself leaves like this
    return module


def prepared(folder: Path) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(1)
    base, queries, noise = (rng.standard_normal((count, DIMENSION)).astype(np.float32) for count in (40, 6, 64))
    for name, array in {"base": base, "queries": queries, "noise": noise, "mean": base.mean(axis=0)}.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def test_a_stopped_run_goes_on_to_the_same_files(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, resumed = prepared(tmp_path / "whole"), prepared(tmp_path / "resumed")
    script.build(whole, 700, DIMENSION)
    script.build(resumed, 500, DIMENSION)
    add, calls = script.Built.add, []

    def stops(built: Any, vectors: np.ndarray) -> None:
        calls.append(len(vectors))
        if len(calls) == 5:
            raise KeyboardInterrupt
        add(built, vectors)

    with monkeypatch.context() as patched:
        patched.setattr(script.Built, "add", stops)
        with pytest.raises(KeyboardInterrupt):
            script.build(resumed, 700, DIMENSION)
    assert 500 < script.Built(resumed).seen < 700
    script.build(resumed, 700, DIMENSION)
    for name in ("bits", "codes", "rows"):
        ours, theirs = ((folder / name).read_bytes()[4096:] for folder in (resumed, whole))  # headers name the folder
        assert ours == theirs and len(ours) >= 700
    tops = script.Built(whole).tops
    assert {size: top.tolist() for size, top in script.Built(resumed).tops.items()} == {
        size: top.tolist() for size, top in tops.items()
    }


def test_the_exact_best_are_those_of_all_vectors_at_once(script: Any, tmp_path: Path) -> None:
    work = prepared(tmp_path / "work")
    script.build(work, 700, DIMENSION)
    vectors = np.concatenate(list(script.batches(work, 0, 700)))
    scores = np.load(work / "queries.npy") @ vectors.T
    assert len(vectors) == 700
    for size, found in script.Built(work).tops.items():
        wanted = np.argsort(-scores[:, : int(size)], axis=1)[:, :10]
        assert np.array_equal(np.sort(found, axis=1), np.sort(wanted, axis=1))
    (row, *_) = script.measure(work)
    # So few are all rescored: what is missed is what int8 puts past the first 42.
    assert row["passages"] == 90 and row["recall@10"] == 1.0 and row["interval"] == [1.0, 1.0]
