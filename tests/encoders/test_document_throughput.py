"""The throughput benchmark runs at a small size, tells the truth about vectors, and needs no search library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUN = """
import json, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.fixture(scope="module")
def beside():
    """Scripts import one another by their folder."""
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def shapes(beside):
    import encoder_shapes

    return encoder_shapes


@pytest.fixture(scope="module")
def tables(beside):
    import document_throughput_table

    return document_throughput_table


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, str(BENCHMARKS / "document_throughput.py"), "--tiny", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_way_gives_the_vectors_of_plain_transformers(tmp_path):
    out = tmp_path / "found.json"
    done = run("--documents", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert not {"faiss", "tantivy", "rjieba"} & set(json.loads(done.stdout.splitlines()[-1]))
    encoder, decoder = json.loads(out.read_text())["shapes"]
    assert {row["way"] for row in encoder["rows"]} == {"padded", "packed"}
    assert {row["way"] for row in decoder["rows"]} == {"padded", "packed", "fused", "compiled"}
    for shape in (encoder, decoder):
        assert shape["failed"] == shape["skipped"] == {} and shape["queries_per_second"] > 0
        assert shape["cosine_of_different_texts"] < 0.999  # or the cosines below would prove nothing
        for row in shape["rows"]:
            assert row["cosine_with_padded"]["least"] > 0.9999 and row["cosine_with_fp32"]["least"] > 0.9999
    calm = decoder["calm"]
    assert calm["way"] == "compiled" and calm["cosine_with_fp32"]["least"] > 0.9999 and "calm" not in encoder
    assert calm["cosine_of_different_texts"] < 0.9999
    assert calm["cosine_of_different_texts"] != decoder["cosine_of_different_texts"]  # the weights were others
    assert "| **compiled** |" in done.stdout
    assert not list(tmp_path.glob("*.part"))


def test_a_failed_compilation_leaves_the_uncompiled_way_and_the_reason(tmp_path, tables, capsys):
    out = tmp_path / "0.6B.json"
    done = run("--shapes", "0.6b", "--backend", "nonesuch", "--limit", "0", "--out", str(out))
    assert done.returncode == 1, done.stderr
    [shape] = json.loads(out.read_text())["shapes"]
    assert [row["way"] for row in shape["rows"]] == ["fused"] and shape["rows"][0]["documents"] == shape["documents"]
    assert list(shape["failed"]) == ["compiled"] and "nonesuch" in shape["failed"]["compiled"]
    assert set(shape["skipped"]) == {"padded", "packed"} and shape["queries_per_second"] > 0
    assert tables.print_merged([out, tmp_path / "8B.json"], None) == 1
    said = capsys.readouterr()
    assert "| **fused** |" in said.out and "0.6B compiled failed: after" in said.out and "8B.json" in said.err


def part(name: str, parameters: int, share: float, cosine: float = 0.9995, **other: object) -> dict[str, object]:
    """What a run of one shape with two ways leaves, at a ceiling of 700 TFLOP/s."""
    row = {"first_run_seconds": 21.0, "finite": True, "cosine_with_padded": {"least": 0.998, "mean": 0.9985}}
    rows = [
        row
        | {"way": way, "operations_per_second": share * 700e12, "documents_per_second": 100.0}
        | {"cosine_with_fp32": {"least": cosine, "mean": cosine}}
        for way in ("compiled", "padded")
    ]
    shape = {"name": name, "parameters": parameters, "decoder": True, "rows": rows, "failed": {}, "skipped": {}}
    near = {"least": cosine, "mean": cosine}
    shape["calm"] = {"way": "compiled"} | dict.fromkeys(
        ("cosine_with_fp32", "cosine_with_padded", "plain_with_fp32"), near
    )
    shape |= {"documents": 9, "mean_tokens": 400.0, "cosine_of_different_texts": 0.5, "queries_per_second": parameters}
    same = dict.fromkeys(("device", "torch", "transformers", "attention", "lengths"), "one")
    same |= {"tokens": 32768, "query_tokens": 32}
    return same | {"ceilings": {"1x1x1": 700e12}, "total_seconds": 60.0, "shapes": [shape]} | other


def test_parts_are_merged_under_the_highest_ceiling(tables):
    parts = [part("8B", 8, 0.7), part("4B", 4, 0.6, ceilings={"1x1x1": 700e12, "1x1x1 after": 800e12})]
    merged = tables.merge(parts)
    assert [shape["name"] for shape in merged["shapes"]] == ["4B", "8B"]
    assert merged["ceiling"] == 800e12 and merged["total_seconds"] == 120
    page = tables.page(merged)
    assert "| **8B** | **compiled** | **100.0** | **61.3%** | **60%, met** | **2.78** | **3.77** | **21** |" in page
    assert "| 8B | padded | 100.0 | 61.3% |  | 2.78 |  |  |" in page
    assert "| 4B | fresh | padded | 0.99950 | 0.99950 | 0.99800 | 0.99850 | met |" in page
    assert "| 4B | calm | compiled | 0.99950 | 0.99950 | 0.99950 | 0.99950 | met |" in page
    assert "| 8B | 8 | 0.5 |" in page  # queries of the smallest shape over this one's
    assert tables.passed(merged)


def test_it_says_from_how_many_documents_compiling_pays(tables):
    one = part("8B", 8, 0.7)
    rows = one["shapes"][0]["rows"]
    rows.append(rows[0] | {"way": "fused", "documents_per_second": 50.0})
    assert "8B: compiling pays from 2,100 documents on" in tables.remarks(tables.merge([one]))  # 21 s, a 100th s each
    rows[-1]["documents_per_second"] = 200.0
    assert "8B: compiling does not pay" in tables.remarks(tables.merge([one]))


def test_a_missed_target_or_cosine_is_called_that(tables):
    merged = tables.merge([part("8B", 8, 0.59, cosine=0.9989)])
    assert "**60%, missed**" in tables.page(merged) and "| missed |" in tables.page(merged)
    assert not tables.passed(merged)


def test_parts_of_different_machines_are_not_merged(tables):
    with pytest.raises(ValueError, match="differ in device"):
        tables.merge([part("8B", 8, 0.7), part("4B", 4, 0.6, device="another")])
    with pytest.raises(ValueError, match="no part"):
        tables.merge([])


def test_a_saved_result_replaces_the_last_one_whole(tables, tmp_path):
    out = tmp_path / "new" / "part.json"
    tables.save({"shapes": [1]}, out)
    tables.save({"shapes": [1, 2]}, out)
    assert json.loads(out.read_text()) == {"shapes": [1, 2]} and list(out.parent.iterdir()) == [out]


def test_the_published_shapes_have_the_published_sizes(shapes):
    found = {name: round(shape.parameters / 1e9, 2) for name, shape in shapes.SHAPES.items()}
    assert found == {"0.3B": 0.08, "0.6B": 0.44, "4B": 3.63, "8B": 6.95}


def test_work_is_that_of_the_model(shapes):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    shape = shapes.TINY["0.6B"]
    model = shapes.build(shape, "cpu", torch.float32)
    model.set_attn_implementation("eager")  # whose matrix products are counted in full, not only under the diagonal
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.ones((1, 50), dtype=torch.long))
    whole = 4 * 50**2 * shape.heads * shape.head_dim * shape.layers
    rotary = counter.get_total_flops() - whole - 2 * shape.parameters * 50
    assert shape.work(np.array([50])) == 2 * shape.parameters * 50 + whole / 2
    assert 0 <= rotary < 0.001 * counter.get_total_flops()


def test_lengths_are_cut_and_end_tokens_stand_last(shapes):
    texts = shapes.draw(20_000, np.random.default_rng(0))
    assert texts.lengths.max() == 512 and texts.lengths.min() >= 2
    assert (texts.flat[np.cumsum(texts.lengths) - 1] == shapes.END).all()
    uncut = np.random.default_rng(0).lognormal(np.log(470.9) - 0.7**2 / 2, 0.7, 20_000)
    assert abs(uncut.mean() - 470.9) < 10
    part = texts.take(np.array([3, 1]))
    assert len(part.flat) == texts.lengths[3] + texts.lengths[1] and list(part.lengths) == list(texts.lengths[[3, 1]])


def test_only_whole_rows_are_kept(shapes):
    texts = shapes.draw(100, np.random.default_rng(0))
    kept = shapes.whole_rows(texts, 2048)
    rows = list(shapes.groups(kept.lengths, 2048))
    assert all(2048 - 512 < kept.lengths[row].sum() <= 2048 for row in rows)
    assert len(kept.flat) == kept.lengths.sum() and 90 <= len(kept.lengths) < 100


def test_a_third_is_of_whole_rows(beside, shapes):
    import document_throughput

    texts = shapes.whole_rows(shapes.draw(100, np.random.default_rng(0)), 2048)
    rows = list(shapes.groups(texts.lengths, 2048))
    kept = document_throughput.third(texts, 2048)
    assert len(kept.lengths) == sum(len(row) for row in rows[: len(rows) // 3])
    assert (kept.flat == texts.flat[: len(kept.flat)]).all()
    two = document_throughput.third(kept.take(np.concatenate(rows[:3])), 2048)
    assert len(two.lengths) == len(rows[0]) + len(rows[1])
