"""The statistics of assembled data sets, as in CARE's Table 7, and the cards that show them. Assembles nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HEADINGS = (
    "Split",
    "Data set",
    "Type",
    "Queries",
    "Avg. query",
    "Corpus / cand.",
    "Avg. document",
    "Avg. pos. / share",
)


@dataclass(frozen=True)
class Statistics:
    """One line of the table.

    Attributes:
        split: ``train`` or ``test``.
        name: The data set.
        kind: ``retrieval``, ``rerank``, ``sts`` or ``rows``.
        queries: Queries, or pairs of an STS.
        query_length: Mean characters of a query.
        corpus: Documents; of a reranking, the mean number of candidates; None for an STS.
        document_length: Mean characters of a document; None for an STS.
        positive: Mean positives of a query; of an STS, the share of positive pairs.
    """

    split: str
    name: str
    kind: str
    queries: int
    query_length: float
    corpus: float | None
    document_length: float | None
    positive: float

    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        corpus = (
            "-" if self.corpus is None else f"{self.corpus:,.2f}" if self.kind == "rerank" else f"{self.corpus:,.0f}"
        )
        length = "-" if self.document_length is None else f"{self.document_length:.2f}"
        positive = f"{100 * self.positive:.2f}%" if self.kind == "sts" else f"{self.positive:.2f}"
        return (
            self.split,
            self.name,
            self.kind,
            f"{self.queries:,}",
            f"{self.query_length:.2f}",
            corpus,
            length,
            positive,
        )


def mean(values: Iterable[float]) -> float:
    """The mean; 0 of nothing.

    >>> mean([1, 2, 6]), mean([])
    (3.0, 0.0)
    """
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def table(lines: Sequence[Statistics]) -> str:
    """The statistics as a Markdown table."""
    rows = [_HEADINGS, ("---", "---", "---", *["---:"] * 5), *(line.cells() for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def card(
    name: str,
    lines: Sequence[Statistics],
    *,
    language: str,
    licence: str,
    funnel: Mapping[str, Any],
    settings: Mapping[str, Any],
    made: Sequence[str],
) -> str:
    """The card of a whole benchmark, with the front matter that dataset hubs read.

    Args:
        name: The benchmark's name.
        lines: Its statistics.
        language: ``zh`` or ``en``.
        licence: Under what terms it may be used.
        funnel: What came in and what was left, step by step.
        settings: What it was made with.
        made: How it was made, one sentence each.
    """
    front = (
        f"---\npretty_name: {json.dumps(name, ensure_ascii=False)}\nlanguage:\n- {language}\n"
        "task_categories:\n- text-retrieval\n- sentence-similarity\ntags:\n- medical\n---\n"
    )
    said = "\n".join(f"- {sentence}" for sentence in made)
    counted = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in funnel.items())
    return (
        f"{front}\n# {name}\n\nLicence: {licence}\n\n## How it was made\n\n{said}\n\n"
        f"Settings: `{json.dumps(dict(settings), ensure_ascii=False, sort_keys=True)}`\n\n"
        f"| step | count |\n| --- | ---: |\n{counted}\n\n"
        f"## Statistics\n\nLengths are in characters, the title included.\n\n{table(lines)}\n"
        "## Use\n\nMeasure a system with `suwen bench run suite.toml -s SYSTEM`, beside this file. "
        "Not for diagnosis or treatment.\n"
    )


def front_matter(parts: Mapping[str, Mapping[str, str]]) -> str:
    """The README of a task's folder: which file is which, as MTEB's loaders ask for it.

    Args:
        parts: By name (``corpus``, ``queries``, ``default``), the file of each split.
    """
    lines = ["---", "configs:"]
    for name, files in parts.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, path in files.items():
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---", ""])
