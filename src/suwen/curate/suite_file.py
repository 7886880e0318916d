"""The suite file of an assembled benchmark, so that ``suwen bench run`` can measure on it at once. Runs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_METRICS = {
    "retrieval": ("ndcg@10", "recall@100", "map@10", "mrr@10", "hole@10"),
    "rerank": ("map@10", "mrr@10", "ndcg@10"),
    "sts": ("pearson", "spearman"),
}
_LAYOUTS = {"retrieval": "beir", "rerank": "beir", "sts": "pairs"}


class SuiteTask(NamedTuple):
    """A task of the suite: its kind, its folder beside the suite file, and how much it holds."""

    kind: str
    folder: str
    counts: Mapping[str, float]


def suite_text(name: str, tasks: Sequence[SuiteTask], *, language: str, licence: str) -> str:
    """The suite as TOML; paths are meant from the file's own folder."""
    head = (
        "# The benchmark in this folder, for `suwen bench run`.\n"
        f'name = {_quoted(name)}\ntitle = {_quoted(name)}\npaper = ""\nreference = ""\n\n'
        '[templates]\nquery = "{instruction}{text}"\ndocument = "{instruction}{text}"\n'
    )
    return head + "".join(_task(name, task, language, licence) for task in tasks)


def _task(name: str, task: SuiteTask, language: str, licence: str) -> str:
    counts = ", ".join(f"{key} = {value!r}" for key, value in task.counts.items())
    cosine = 'similarity = "cosine"\n' if task.kind == "sts" else ""
    return (
        f"\n[[tasks]]\nname = {_quoted(f'{name}-{task.folder}')}\nkind = {_quoted(task.kind)}\n"
        f'language = {_quoted(language)}\nmetrics = {json.dumps(_METRICS[task.kind])}\nsplit = "test"\n{cosine}'
        f"licence = {_quoted(licence)}\nlayouts = [{_quoted(_LAYOUTS[task.kind])}]\npath = {_quoted(task.folder)}\n"
        'get = "it lies beside this file; there is nothing to fetch"\n'
        'instruction = { query = "", document = "" }\nhub = { id = "", revision = "" }\n'
        f"counts = {{ {counts} }}\n"
    )


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, but for the raw DEL, which TOML forbids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
