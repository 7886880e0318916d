"""``suwen import`` and ``assemble``, and the verbs that encode documents by what they made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from suwen.bench.suite_tasks import scaffold_local
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
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


def test_released_weights_are_indexed_searched_and_measured_like_any(
    suwen: Suwen, models: ModuleType, source: Path, tmp_path: Path
) -> None:
    pair, index = tmp_path / "pair", tmp_path / "index"
    done = suwen("import", models.save_decoder(tmp_path / "BMRetriever-tiny"), pair, "--max-length", 48)
    assert done.code == 0, done.err
    assert "imported as bmretriever\n  last pooling, dot, at most 48 tokens, end token <|end|>" in done.out
    done = suwen("info", pair, "--json")
    assert done.json["similarity"] == "dot, not normalised" and "torch fp32" in done.json["tiers"][0]
    done = suwen("index", index, source, "--pair", pair)
    assert done.code == 0 and "the tier 'model', the pair's own" in done.out + done.err
    asked = ("search", index, "血压", "--mode", "dense", "-k", 3, "--json", "--pair", pair)
    first, other = suwen(*asked).json, suwen(*asked, "--instruction", "Given a drug, retrieve passages").json
    assert len(first["hits"]) == 3 and first["tier"] == "model"
    assert [hit["score"] for hit in first["hits"]] != [hit["score"] for hit in other["hits"]]
    encoder = Pair.load(pair).encoder()
    passages = encoder.encode_documents([f"{hit['title']}\n{hit['text']}" for hit in first["hits"] if hit["title"]])
    scores = [hit["score"] for hit in first["hits"] if hit["title"]]
    np.testing.assert_allclose(passages @ encoder.encode_queries(["血压"])[0], scores, rtol=5e-3)
    done = suwen("encode", source, "--pair", pair, "--out", tmp_path / "vectors")
    assert done.code == 0, done.err
    done = suwen("index", tmp_path / "again", source, "--pair", pair, "--vectors", tmp_path / "vectors" / "vectors.npy",
                 "--ids", tmp_path / "vectors" / "ids.txt")  # fmt: skip
    assert done.code == 0, done.err
    done = suwen("recall", index, "--json")
    assert done.code == 0 and done.json["recall"] == 1.0
    done = suwen("bench", "run", _suite(tmp_path), "-s", f"pair:{pair}", "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert 0 < done.json["systems"][0]["results"]["mine-test"]["ndcg@10"] <= 1
    done = suwen("export", pair, tmp_path / "light")
    assert done.code == 0, done.err
    assert load_manifest(tmp_path / "light").space.id == load_manifest(pair).space.id
    done = suwen("search", index, "血压", "--pair", tmp_path / "light", "--json")
    assert done.code == 0 and done.json["tier"] == "l2"


def test_import_asks_for_what_the_files_do_not_say(suwen: Suwen, models: ModuleType, tmp_path: Path) -> None:
    done = suwen(
        "import", models.save_bert(tmp_path / "bert"), tmp_path / "pair", "--query-prompt", "", "--pooling", "cls"
    )
    assert done.code == 1 and not (tmp_path / "pair").exists()
    assert "--similarity" in done.err and "--document-prompt" in done.err
    assert "--pooling" not in done.err and "--query-prompt" not in done.err


def _suite(folder: Path) -> Path:
    collection = folder / "mine"
    (collection / "qrels").mkdir(parents=True)
    rows = {"corpus": {"d1": "高血压患者应低盐饮食", "d2": "孕妇可以接种流感疫苗"}, "queries": {"q1": "血压高吃什么"}}
    for name, texts in rows.items():
        lines = (json.dumps({"_id": key, "text": text}, ensure_ascii=False) + "\n" for key, text in texts.items())
        (collection / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    (collection / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    scaffold_local(folder / "mine.toml", collection)
    return folder / "mine.toml"
