"""The text of a suite file for collections of one's own, to measure on with ``suwen bench run``. Runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_SIMILARITY = ("positive_similarity", "positive_similarity_deviation")
_METRICS = {
    "retrieval": ("ndcg@10", "recall@100", "map@10", "mrr@10", "hole@10"),
    "rerank": ("map@10", "mrr@10", "ndcg@10"),
    "sts": ("pearson", "spearman"),
    "paraphrase": ("accuracy@1", "accuracy@5", "accuracy@10", "mrr", *_SIMILARITY),
}
_LAYOUTS = {"retrieval": "beir", "rerank": "beir", "sts": "pairs", "paraphrase": "triplets"}


class SuiteTask(NamedTuple):
    """A task of the suite: its kind, its folder (from the suite file's own), how much it holds, its split and name.

    Its language is the suite's where it has none of its own.
    """

    kind: str
    folder: str
    counts: Mapping[str, float] = {}
    split: str = "test"
    name: str = ""
    language: str = ""


def suite_text(name: str, tasks: Sequence[SuiteTask], *, language: str = "zh", licence: str = "your own") -> str:
    """The suite as TOML, with remarks for whoever edits it."""
    head = (
        "# For `suwen bench run`. Every key is explained by the shipped suites; add [[averages]] to report means.\n"
        f'name = {_quoted(name)}\ntitle = {_quoted(name)}\npaper = ""\nreference = ""\n\n'
        '[templates]\nquery = "{instruction}{text}"\ndocument = "{instruction}{text}"\n'
    )
    return head + "".join(_task(name, task, task.language or language, licence) for task in tasks)


def _task(name: str, task: SuiteTask, language: str, licence: str) -> str:
    counts = ", ".join(f"{key} = {value!r}" for key, value in task.counts.items())
    cosine = 'similarity = "cosine"\n' if task.kind in ("sts", "paraphrase") else ""
    return (
        f"\n[[tasks]]\nname = {_quoted(task.name or f'{name}-{task.folder}')}\n"
        f"kind = {_quoted(task.kind)}  # retrieval, rerank, sts or paraphrase\n"
        f"language = {_quoted(language)}  # zh or en\n"
        f"metrics = {json.dumps(_METRICS[task.kind])}  # the first is the main one\n"
        f"split = {_quoted(task.split)}\n{cosine}licence = {_quoted(licence)}\n"
        f"layouts = [{_quoted(_LAYOUTS[task.kind])}]\npath = {_quoted(task.folder)}\n"
        'get = "a local folder; there is nothing to fetch"\n'
        'instruction = { query = "", document = "" }  # what your encoder wants before its texts, if anything\n'
        f'hub = {{ id = "", revision = "" }}\ncounts = {{ {counts} }}\n'
    )


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, but for the raw DEL, which TOML forbids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
