"""``suwen assemble``, and the verbs that encode documents with an adapter over its base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.space import load_manifest

Suwen = Callable[..., Any]


def test_assemble_makes_a_pair_that_indexes_by_itself(
    suwen: Suwen, adapter_pair: Path, base_folder: Path, source: Path, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    done = suwen("assemble", adapter_pair, "--base", base_folder, "--out", full, "--device", "cpu")
    assert done.code == 0, done.err
    assert load_manifest(adapter_pair).space.id in done.out and "queries by the document encoder" in done.out
    done = suwen("index", tmp_path / "index", source, "--pair", full)
    assert done.code == 0 and "pair's document encoder" in done.out + done.err


def test_assemble_tells_in_json(suwen: Suwen, adapter_pair: Path, base_folder: Path, tmp_path: Path) -> None:
    done = suwen("assemble", adapter_pair, "--base", base_folder, "--out", tmp_path / "full", "--json")
    assert done.json["space"] == load_manifest(adapter_pair).space.id and done.json["probe"] > 0.9999


def test_assemble_refuses_another_base(suwen: Suwen, adapter_pair: Path, models: ModuleType, tmp_path: Path) -> None:
    other = models.build_base(tmp_path / "other", seed=1)
    done = suwen("assemble", adapter_pair, "--base", other, "--out", tmp_path / "full")
    assert done.code == 1 and "least cosine" in done.err and not (tmp_path / "full").exists()


def test_encode_takes_an_adapter_with_its_base(
    suwen: Suwen, adapter_pair: Path, base_folder: Path, source: Path, tmp_path: Path
) -> None:
    asked = ("encode", source, "--pair", adapter_pair, "--out", tmp_path / "vectors")
    done = suwen(*asked, "--document-encoder", adapter_pair)
    assert done.code == 1 and "--base or SUWEN_BASE" in done.err
    done = suwen(*asked)
    assert done.code == 1 and "suwen assemble" in done.err and "SUWEN_BASE" in done.err
    done = suwen(*asked, "--base", base_folder)
    assert done.code == 0, done.err
    found = np.load(tmp_path / "vectors" / "vectors.npy")
    encoder = DocumentEncoder.load(adapter_pair, base=base_folder, device="cpu")
    assert found.shape[1] == encoder.dimension and np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-2)
