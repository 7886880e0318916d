"""A suite of one task whose queries name nothing of what its documents say."""

from __future__ import annotations

import json
from pathlib import Path

SAYS = {"甲": "高血压患者应低盐饮食并定期测量血压。", "乙": "糖尿病的早期症状包括多饮多尿和体重下降。"}
SUITE = """
name = "two"
title = "Two"
paper = ""
reference = ""

[templates]
query = "{text}"
document = "{text}"

[[tasks]]
name = "t"
kind = "retrieval"
language = "zh"
metrics = ["ndcg@10"]
split = "test"
licence = "none"
layouts = ["beir"]
path = "t"
get = "made by the test"
hyde = "t2p"
instruction = { query = "", document = "" }
hub = { id = "", revision = "" }
counts = {}
"""


def make_suite(root: Path) -> Path:
    """Write the collection and its suite; the suite's file."""
    folder = root / "t"
    (folder / "qrels").mkdir(parents=True)
    other = ["孕妇可以接种流感疫苗", "骨折以后多久可以下地走路", "失眠和焦虑常常同时出现"]
    texts = [*SAYS.values(), *other]
    documents = [{"_id": f"d{at}", "title": "", "text": text} for at, text in enumerate(texts)]
    queries = [{"_id": f"q{at}", "text": query} for at, query in enumerate(SAYS)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\n", "utf-8")
    (root / "two.toml").write_text(SUITE, "utf-8")
    return root / "two.toml"
