"""Results to compare and report: a hand-written collection, really run with BM25, the default pair, and a bad run."""

from __future__ import annotations

import json
from pathlib import Path

import suwen
from suwen.bench.suite_runner import run_suite
from suwen.bench.suite_tasks import scaffold_local

PAIR = f"pair:{Path(suwen.__file__).parent / 'models' / 'default'}"
DOCUMENTS = {
    "d1": "高血压患者应低盐饮食并定期测量血压<script>document.title = 1</script>",
    "d2": "糖尿病的早期症状包括多饮多尿和体重下降",
    "d3": "孕妇可以接种流感疫苗",
    "d4": "胃痛反酸可能是慢性胃炎",
    "d5": "Aspirin lowers the risk of a second heart attack",
    "d6": "慢性肾病患者要限制蛋白质的摄入",
    "d7": "感冒多由病毒引起，抗生素没有用处",
    "d8": "骨质疏松的老人要补钙和维生素D",
}
QUERIES = {
    "q1": "血压高的人<b>怎么吃</b> & 怎么动",
    "q2": "糖尿病有什么症状",
    "q3": "怀孕能打流感疫苗吗",
    "q4": "胃里反酸是怎么回事",
    "q5": "which drug after a heart attack",
    "q6": "肾不好少吃什么",
    "q7": "伤风要不要吃消炎药",
    "q8": "骨头变脆补什么",
}


def write_collection(folder: Path) -> Path:
    """The collection in BEIR's layout: each query is answered by the passage of its number."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        rows = [json.dumps({"_id": key, "text": text}, ensure_ascii=False) for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    judged = [f"{query}\td{query[1:]}\t1" for query in QUERIES]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return folder


def run_both(folder: Path) -> Path:
    """Run three systems on a suite of one's own and on a task of a shipped suite; the folder of results."""
    collection = write_collection(folder / "小集")
    scaffold_local(folder / "mine.toml", collection)
    # Whatever the encoder is, this differs from it on every query; and a run made elsewhere has no latency.
    ids = list(DOCUMENTS)
    wrong = [f"{query} Q0 {ids[number - 1]} 1 1.0 wrong" for number, query in enumerate(QUERIES)]
    (folder / "wrong.trec").write_text("\n".join(wrong) + "\n")
    systems = ["bm25:words", PAIR, f"wrong=run:{folder / 'wrong.trec'}"]
    done = run_suite(folder / "mine.toml", systems, out=folder / "out")
    assert done.complete
    data = {"MedExamRetrieval": collection}
    assert run_suite("cmirb", systems, out=folder / "out", data=data, tasks=["MedExamRetrieval"]).complete
    return folder / "out"
