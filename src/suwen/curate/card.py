"""The statistics of assembled data sets, as in CARE's Table 7, and the cards that show them. Assembles nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suwen.corpora.collection import Collection
from suwen.corpora.training_rows import read_training_rows
from suwen.curate import CurateError
from suwen.encoders.pair import Pair

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
        query_length: Mean length of a query; the one who counts says in what.
        corpus: Documents; of a reranking, the mean number of candidates; None for an STS.
        document_length: Mean length of a document, its title included; None for an STS.
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


def statistics(source: Path, tokens: Callable[[str], int], split: str | None = None) -> Statistics:
    """The line of a collection, or of a file of training rows, with lengths in tokens.

    Args:
        source: A collection's folder, or training rows. Of rows, the distinct documents are the corpus.
        tokens: Counts the tokens of a text; see :func:`token_counter`.
        split: Only the queries that this split of a collection judges.
    """
    if source.is_dir():
        collection = Collection.open(source)
        texts: Iterable[str] = (document.content for document in collection.documents())
        asked, judged = [query.text for query in collection.queries(split)], collection.qrels(split)
        positives = mean(sum(grade > 0 for grade in own.values()) for own in judged.values())
    else:
        rows = list(read_training_rows(source))
        texts = dict.fromkeys(text for row in rows for text in row.pos + row.neg)
        asked, positives = [row.query for row in rows], mean(len(row.pos) for row in rows)
    split, kind = (split or "all", "retrieval") if source.is_dir() else ("train", "rows")
    lengths, length = [tokens(text) for text in texts], mean(map(tokens, asked))
    return Statistics(split, source.name, kind, len(asked), length, len(lengths), mean(lengths), positives)


def token_counter(name: str | None = None, pair: Path | None = None) -> Callable[[str], int]:
    """Counts the tokens of a text: by the pair's query tokenizer, or by an encoding of tiktoken.

    Args:
        name: An encoding such as ``cl100k_base``, CARE's; the pair's tokenizer when None.
        pair: The pair's folder; the usual pair when None.

    Raises:
        CurateError: tiktoken is not installed, knows no such encoding, or cannot load it.
    """
    if name is None:
        encoder = Pair.load(pair).encoder()
        return lambda text: encoder.count_tokens([text])[0]
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(name)
    except (ImportError, ValueError, OSError) as problem:
        fix = "pip install tiktoken; offline, put the encoding's file where TIKTOKEN_CACHE_DIR says"
        raise CurateError(
            f"the tokenizer {name!r} of tiktoken cannot be had ({str(problem).splitlines()[0]}): {fix}"
        ) from problem
    return lambda text: len(encoding.encode_ordinary(text))


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
