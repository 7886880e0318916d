"""Makes the files beside it, with suwen 0.1.0: ``PYTHONPATH=OLD/src python make.py OLD`` where OLD is its checkout.

Not for later releases: what they must open, resume and answer alike is what 0.1.0 itself wrote.
"""

# ruff: noqa: I001 (modules of 0.1.0, which later releases need not have)
from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import suwen
from suwen.cli.jury import jury_app
from suwen.cli.main import app
from suwen.corpora.collection import write_collection
from suwen.corpora.passages import split_document
from suwen.corpora.records import Document, Qrel, Query
from suwen.encoders.pair import Pair
from suwen.index.embedded import EmbeddedEngine
from suwen.retrieve.imported import ImportedVectors
from suwen.retrieve.ingest import ingest
from suwen.retrieve.retriever import Index
from suwen.training.recipe import load_recipe
from suwen.training.runner import train
from suwen.training.tiny_data import facts, write_tiny_data

HERE = Path(__file__).parent
QUERIES = (
    "高血压是怎么引起的",
    "糖尿病患者吃什么好",
    "痛风怎么预防",
    "孩子得了哮喘怎么护理",
    "肺炎挂什么科",
    "胃溃疡用药有哪些",
    "怀孕期间肝炎要紧吗",
    "胃炎 胃溃疡",
    "脂肪肝 HbA1c 检查",
    "今天天气怎么样",
)
TRAINING = {"steps": 4, "batch": 8, "learning_rate": 1e-3, "log_every": 1}
DEPARTMENTS = ("心内科", "内分泌科", "消化科")
#: Weights that nothing reads any more once their stage is finished: kept as zeros of the same length.
UNREAD = (
    "builtin/qwen2-tiny/model.safetensors",
    "joint/model/model.safetensors",
    "align-short/model/model.safetensors",
    "finetune/model/model.safetensors",
    "contrastive/model/model.safetensors",
)


def main(old: Path) -> None:
    """Make everything, in a folder of its own, so that every path in the files is relative."""
    assert suwen.__version__ == "0.1.0" and Path(suwen.__file__).is_relative_to(old.resolve()), suwen.__file__
    for room in ("retrieve", "llm", "jury"):
        sys.path.insert(0, str(old / "tests" / room))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        makers = {
            "index": make_index,
            "runs": make_runs,
            "jury": make_jury,
            "bench": make_bench,
            "default": make_default,
        }
        expected = {name: make() for name, make in makers.items()}
        lines = [f"{json.dumps(name)}: {lines_of(part)}" for name, part in expected.items()]
        (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        for name in ("index", "runs", "jury", "bench"):
            pack(Path(name))


def lines_of(part: dict[str, Any]) -> str:
    """An answer a line, so that a difference can be read."""
    small = {key: json.dumps(value, ensure_ascii=False) for key, value in part.items() if key != "answers"}
    answers = [json.dumps(one, ensure_ascii=False) for one in part.get("answers", ())]
    small |= {"answers": "[\n" + ",\n".join(answers) + "\n]"} if answers else {}
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {value}" for key, value in small.items()) + "\n}"


def pack(folder: Path) -> None:
    """A folder as an archive beside this file, without owners and times."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if Path(entry.name).name in ("lock", ".locks", "__pycache__") else entry

    for older in folder.rglob("step-000000002"):
        shutil.rmtree(older)
    for file in folder.rglob("*"):
        if file.suffix == ".png":
            file.unlink()
        elif any(file.match(pattern) for pattern in UNREAD):
            file.write_bytes(bytes(file.stat().st_size))
    with tarfile.open(HERE / f"{folder.name}.tar.xz", "w:xz") as archive:
        archive.add(folder, folder.name, filter=plain)


# -- an index ---------------------------------------------------------------------------------------------------------


def documents(start: int, end: int, note: str = "") -> list[Document]:
    """Facts of the small world as documents, some long enough for several passages, with metadata."""
    made = []
    for number, fact in enumerate(facts(12)[start:end], start):
        text = fact.answer + note + ("" if number % 7 else "".join(facts(12)[(number + 3) % 100].answer for _ in "abc"))
        year, department = 2000 + number % 20, DEPARTMENTS[number % 3]
        tags = ["fact", f"aspect{number % 10}"]
        made.append(Document(f"d{number:03}", text, fact.title, {"year": year, "department": department, "tags": tags}))
    return made


def make_index() -> dict[str, Any]:
    """Two sealed blocks and a tail, documents replaced, deleted, and waiting; freshness and calibration stored."""
    from small_pair import make_pair

    characters = "".join(
        sorted({c for d in documents(0, 120, "补充说明") for c in d.text + d.title} | set("".join(QUERIES)))
    )
    root = Path("index")
    make_pair(root / "pair", dimension=32, tiers=("static", "rough"), more=characters)
    manifest = json.loads((root / "pair" / "suwen.json").read_text(encoding="utf-8"))
    manifest["document"] = {"kind": "elsewhere", "name": "small"}
    (root / "pair" / "suwen.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=2), encoding="utf-8")
    pair = Pair.load(root / "pair")
    ready = vectors_of(pair, documents(0, 100))
    engine = EmbeddedEngine.create(root / "made", space=pair.space.id, dimension=pair.space.dimension, seal=40)
    engine.remember(pair="pair", pair_name=pair.name)
    with Index(engine, pair) as index:
        ingest(index, documents(0, 100), mirror=True, ready=ready, size=60, overlap=10)
        ingest(index, documents(100, 104), encoder=pair.encoder("static"))
    engine = EmbeddedEngine.open(root / "made", write=True, seal=6)
    with Index(engine, pair) as index:
        ingest(index, documents(10, 15, "补充说明"), encoder=pair.encoder("static"))
    say = ["--pair", str(root / "pair"), "--tier", "static"]
    write_lines(Path("more.jsonl"), documents(104, 108))
    run(app, "add", str(root / "made"), "more.jsonl", *say)
    run(app, "add", str(root / "made"), "--id", "note", "--title", "笔记", "--text", "痛风患者少吃海鲜，多喝水。", *say)
    run(app, "delete", str(root / "made"), "d020", "d021", "d042", "d102", "d011")
    with Index.open(root / "made", pair=root / "pair", write=True) as index:
        assert index.freshness.due(index.engine) == []
        index.calibrate()
    with Index.open(root / "made", pair=root / "pair") as index:
        return answers(index)


def vectors_of(pair: Pair, given: list[Document]) -> ImportedVectors:
    """Vectors as a document encoder elsewhere might have made them: near the tier's own, and not the same."""
    passages = [p for document in given for p in split_document(document, pair.count_tokens, 60, 10)]
    near = pair.encoder("static").encode_documents([passage.content for passage in passages])
    vectors = near + 0.15 * np.random.default_rng(5).standard_normal(near.shape)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save("vectors.npy", vectors.astype(np.float32))
    Path("ids.txt").write_text("".join(f"{passage.id}\n" for passage in passages), encoding="utf-8")
    return ImportedVectors(Path("vectors.npy"), Path("ids.txt"), pair, pair.space.id)


def answers(index: Index) -> dict[str, Any]:
    """What every leg answers, and what the index says of itself."""
    stats = index.engine.stats()
    backlog = index.engine.backlog("document")
    return {
        "space": index.pair.space.id,
        "documents": stats.documents,
        "passages": stats.passages,
        "deleted": stats.deleted,
        "encoders": dict(stats.encoders),
        "waiting": [backlog.documents, backlog.passages],
        "ids": list(index.engine.document_ids()),
        "answers": [answer(index, query, **asked) for query in QUERIES for asked in ASKED],
    }


ASKED: tuple[dict[str, Any], ...] = (
    {"mode": "dense"},
    {"mode": "dense", "tier": "rough"},
    {"mode": "lexical"},
    {"mode": "hybrid"},
    {"mode": "hybrid", "fusion": "ranks"},
    {"mode": "hybrid", "where": {"department": "心内科", "year": {"gte": 2005}}},
    {"mode": "hybrid", "per_document": True, "offset": 3},
)


#: What is kept of a hit.
HIT = ("id", "score", "encoder", "dense", "lexical", "highlights")


def answer(index: Index, query: str, **asked: Any) -> dict[str, Any]:
    """One search with everything it says but its timings."""
    results = index.search(query, 6, explain=True, highlights=True, **asked).as_dict()
    for hit in results["hits"]:
        why = hit.pop("explanation")
        hit |= {leg: [why[leg][key] for key in ("rank", "score", "value")] for leg in ("dense", "lexical") if why[leg]}
        hit["highlights"] = [[span["start"], span["end"], span["terms"]] for span in hit["highlights"]]
    hits = [[hit.get(key) for key in HIT] for hit in results["hits"]]
    told = {key: results[key] for key in ("tier", "relevant", "evidence")}
    return {"query": query, "asked": asked, **told, "hits": hits}


def make_default() -> dict[str, Any]:
    """What the default pair answers over the bundled sample collection."""
    run(app, "demo", "demo")
    with Index.open("demo") as index:
        asked = [{"mode": mode, "tier": tier} for mode in ("dense", "hybrid") for tier in ("static", "l6")]
        asked.append({"mode": "lexical"})
        queries = ("肾结石怎么判断酸性还是碱性", "打完胰岛素人突然发软冒虚汗", "should stone formers cut out calcium")
        answers = [answer(index, query, **one) for query in queries for one in asked]
        return {"space": index.pair.space.id, "name": index.pair.name, "answers": answers}


# -- a run folder -----------------------------------------------------------------------------------------------------


def recipe() -> dict[str, Any]:
    """A stage of every kind, as small as they go; the last one is stopped half way."""
    student = {"student": "student", "training": TRAINING}
    lora = {"rank": 4, "alpha": 8, "dropout": 0.0}
    rows = {"sources": ["consult", "titles"], "negatives": 1}
    document = {"base": "builtin:qwen2-tiny", "lora": lora, "dimensions": [64, 32], "max_length": 32, "rows": rows}
    stages = [
        {
            "stage": "document",
            **document,
            "prompts": {"query": "问：", "document": ""},
            "training": {**TRAINING, "seed": 0},
        },
        {"stage": "freeze", "start": "document", "rank": 3, "bits": 8},
        {"stage": "vectors", "start": "freeze", "rows": {"sources": ["consult", "titles"]}, "token_budget": 4096},
        {"stage": "align", "name": "align-static", "vectors": "vectors", **student, "student": "static"},
        {"stage": "retromae", **student},
        {"stage": "contrastive", "start": "retromae", **student},
        {"stage": "finetune", "start": "contrastive", "rows": rows, **student},
        {"stage": "align", "name": "align-short", "start": "retromae", "vectors": "vectors", **student},
        {
            "stage": "joint",
            "start": "align-short",
            "document": "freeze",
            "train_document": False,
            "rows": {"sources": ["consult"]},
            "negatives": 2,
            "mine": {"first_rank": 2, "last_rank": 20, "margin": 0.95, "count": 2},
            "keep_alignment": 1.0,
            "vectors": "vectors",
            **student,
        },
        {"stage": "export", "start": "freeze", "tiers": {"static": "align-static"}, "default_tier": "static"},
        {
            "stage": "align",
            "start": "retromae",
            "vectors": "vectors",
            **student,
            "training": {**TRAINING, "steps": 8, "checkpoint_every": 2},
        },
    ]
    shape = {"max_length": 16, "document_length": 24, "prompts": {"query": "[Q]", "document": "[D]"}}
    return {
        "name": "every-stage",
        "dimension": 32,
        "data": {
            "root": "runs/data",
            "rows": "${DATA}/rows",
            "texts": "${DATA}/texts.jsonl.gz",
            "held_out": "${DATA}/held-out.jsonl.gz",
        },
        "tokenizer": {"vocabulary": 400},
        "students": {
            "student": {"layers": 2, "width": 16, "heads": 2, "intermediate": 32, **shape},
            "static": {"kind": "static", **shape},
        },
        "stages": [{"name": stage["stage"], **stage} for stage in stages],
    }


def make_runs() -> dict[str, Any]:
    """Every stage finished but the last, which has a checkpoint at its fourth step of eight."""
    write_tiny_data(Path("runs/data"), conditions=4)
    file = Path("runs/recipe.yaml")
    file.write_text(yaml.safe_dump(recipe(), allow_unicode=True, sort_keys=False), encoding="utf-8")
    loaded, done = load_recipe(file), {"align": 0}

    def count(name: str, step: int, of: int, values: object) -> None:
        done[name] = step

    report = train(loaded, "runs", device="cpu", progress=count, stop=lambda: done["align"] >= 4)
    assert report.stopped and len(report.stages) == len(loaded.stages) - 1, report
    folder = Path("runs/every-stage/s0")
    assert list((folder / "align" / "checkpoints").iterdir()), "no checkpoint"
    journal = json.loads((folder / "stages.json").read_text(encoding="utf-8"))
    return {
        "keys": {name: stage["key"] for name, stage in journal.items()},
        "metrics": {stage.name: stage.metrics for stage in report.stages},
    }


# -- a jury -----------------------------------------------------------------------------------------------------------


def make_jury() -> dict[str, Any]:
    """A pool, votes of three judges, replies in the cache, a sample with an expert's labels, verdicts."""
    from court import judges
    from server import Server
    from small_pair import NOTES, make_pair

    asked = {
        "q1": ("高血压患者怎么吃", "低盐"),
        "q2": ("尿酸结石能溶解吗", "碱化"),
        "q3": ("孕妇能打流感疫苗吗", "孕妇"),
    }
    right = dict(asked.values())

    def opinion(model: str, query: str, passage: str) -> str:
        if right[query] in passage:
            return "S" if model == "one" else "A"
        return "A" if model == "kind" and "肾病" in passage else "D"

    root = Path("jury")
    make_pair(root / "pair", dimension=32)
    qrels = {"test": [Qrel("q1", "bp", 1), Qrel("q2", "sleep", 1), Qrel("q3", "flu", 1)]}
    notes = [Document(id_, text, title, metadata) for id_, title, text, metadata in NOTES]
    write_collection(root / "collection", notes, [Query(id_, text) for id_, (text, _) in asked.items()], qrels)
    os.environ["SUWEN_PAIR"] = str(root / "pair")
    with Server(judges(opinion), models=("one", "kind")) as server:
        write_config(root / "suwen.toml", server.url)
        run(jury_app, "pool", str(root / "collection"), str(root / "work"), "--depth", "4")
        voting = ("-j", "one", "-j", "kind", "-j", "kind:en", "--batch", "3", "--again", "0.5")
        run(jury_app, "judge", str(root / "work"), *voting, "--config", str(root / "suwen.toml"))
        calls = server.total
    write_config(root / "suwen.toml", "http://127.0.0.1:9/v1")
    run(jury_app, "consensus", str(root / "work"))
    shutil.copy(root / "work" / "verdicts.jsonl", root / "verdicts-before.jsonl")
    run(jury_app, "review", "sample", str(root / "work"), "--size", "12")
    label_sample(root / "work" / "review" / "sample.csv", root / "li.csv", right)
    run(jury_app, "review", "import", str(root / "work"), str(root / "li.csv"), "--reviewer", "li")
    run(jury_app, "consensus", str(root / "work"), "--reviewed")
    shutil.copy(root / "work" / "verdicts.jsonl", root / "verdicts-reviewed.jsonl")
    del os.environ["SUWEN_PAIR"]
    return {"calls": calls}


def write_config(file: Path, url: str) -> None:
    """Two models at one endpoint."""
    models = "".join(f'[llm.models.{n}]\nendpoint = "here"\nmodel = "{n}"\nprice_in = 1.0\n' for n in ("one", "kind"))
    file.write_text(
        f'[llm.endpoints.here]\nbase_url = "{url}"\nidentity = "here"\nbackoff = 0.01\nattempts = 1\n{models}',
        encoding="utf-8",
    )


def label_sample(blank: Path, filled: Path, right: dict[str, str]) -> None:
    """The expert's work."""
    with blank.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "positive" if right[row["query"]] in row["passage"] else "negative"
    with filled.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


# -- results of a benchmark -------------------------------------------------------------------------------------------


def make_bench() -> dict[str, Any]:
    """Results of two systems on a task of the jury's collection, with the vectors of one of them."""
    root = Path("bench")
    shutil.copytree("jury/collection", root / "collection")
    shutil.copytree("jury/pair", root / "pair")
    run(app, "bench", "scaffold", str(root / "suite.toml"), str(root / "collection"))
    text = (root / "suite.toml").read_text(encoding="utf-8")
    (root / "suite.toml").write_text(text.replace(str((root / "collection").resolve()), "collection"), encoding="utf-8")
    systems = ("-s", "bm25:words", "-s", f"pair:{root / 'pair'}")
    run(app, "bench", "run", str(root / "suite.toml"), *systems, "--out", str(root / "results"))
    return {}


# -- helpers ----------------------------------------------------------------------------------------------------------


def run(command: Any, *arguments: str) -> None:
    """Run a command of the old release in this process."""
    code = command(list(arguments), standalone_mode=False)
    assert not code, (arguments, code)


def write_lines(file: Path, given: list[Document]) -> None:
    """Documents as a source."""
    lines = [{"_id": d.id, "title": d.title, "text": d.text, **d.metadata} for d in given]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
