"""The benchmark of BMRetriever's sizes runs at a small size, and its shapes are the published models'."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

#: Parameters outside the embedding, as the models' cards and files have them.
PUBLISHED = {"410M": 302_311_424, "1B": 805_736_448, "2B": 1_981_884_416, "7B": 6_979_588_096}


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import bmretriever_speed

    return bmretriever_speed


@pytest.mark.parametrize("size", PUBLISHED)
def test_a_size_has_the_parameters_of_its_model(speed, size):
    model = speed.build(*speed.SIZES[size], "meta")
    embedding = model.get_input_embeddings().weight.numel()
    assert sum(one.numel() for one in model.parameters()) - embedding == PUBLISHED[size]


def test_it_runs_and_sets_the_paper_beside(speed, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(speed, "ROUNDS", 2)
    monkeypatch.setattr(sys, "argv", ["x", "--tiny", "--device", "cpu", "--out", str(tmp_path / "found.json")])
    speed.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    # 166.2 and 51.8 of 471.2 documents per second, 28.6 and 58.6 of 14.6 ms.
    assert [(row[0].strip(), float(row[2]), float(row[4])) for row in rows] == [
        ("410M", 1.0, 1.0),
        ("2B", 0.353, 1.96),
        ("7B", 0.11, 4.01),
    ]
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["sizes"]
    assert all(one["documents_per_second"] > 0 and one["query_ms"] > 0 for one in found.values())
