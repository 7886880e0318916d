"""The data of a recipe in memory: rows by source and unlabelled texts, refused where they touch the held-out set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from suwen.corpora.files import open_text
from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate.leakage import HeldOut, refuse_leaks
from suwen.errors import SuwenError
from suwen.training.loop.batches import Ints
from suwen.training.recipe.key_groups import Prompts

_SUFFIXES = (".jsonl", ".jsonl.gz")
UNSUPERVISED = "unsup-"


class DataError(SuwenError):
    """Training data that are missing or empty."""


@dataclass(frozen=True)
class Texts:
    """Unlabelled texts with the kind of each (query, answer, title, sentence, span, name…)."""

    texts: list[str]
    kinds: list[str]

    def of_kinds(self, kinds: Sequence[str] | None) -> Ints:
        """The positions of the texts of some kinds; of all where none are named."""
        if kinds is None:
            return np.arange(len(self.texts))
        if unknown := sorted(set(kinds) - set(self.kinds)):
            raise DataError(f"no text is of the kind {', '.join(unknown)}: the kinds are {sorted(set(self.kinds))}")
        wanted = set(kinds)
        return np.flatnonzero(np.fromiter((kind in wanted for kind in self.kinds), bool, len(self.kinds)))

    def drawn(self, limit: int | None, seed: int = 0) -> Texts:
        """As many of the texts as asked for, in their order; the same ones for the same seed."""
        if limit is None or limit >= len(self.texts):
            return self
        chosen = np.sort(np.random.default_rng((seed, 11)).choice(len(self.texts), limit, replace=False))
        return Texts([self.texts[place] for place in chosen], [self.kinds[place] for place in chosen])


@dataclass
class PairTable:
    """Rows of several sources with every distinct text once: rows hold the ids of the texts.

    Attributes:
        queries: What is encoded as a query.
        instructions: What each query's row asks for in its prompt; empty where it says nothing.
        documents: What is encoded as a document.
        sources: Per source, the row's query id, its positives and its negatives.
    """

    queries: list[str] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    sources: dict[str, list[tuple[int, list[int], list[int]]]] = field(default_factory=dict)
    #: Every document that is right for a query, over all its rows: none of them may serve as its negative.
    right: dict[int, Ints] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """Rows per source."""
        return {name: len(rows) for name, rows in self.sources.items()}

    def prompted(self, prompts: Prompts) -> list[str]:
        """The queries, each behind the prompt with its own instruction."""
        asked = zip(self.instructions, self.queries, strict=True)
        return [prompts.query_prompt(instruction) + query for instruction, query in asked]


def rows_folder_sources(folder: Path) -> dict[str, Path]:
    """The row files of a folder by source name."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: name that of the rows in data.rows, or its parent in data.root")
    files = {file.name.split(".")[0]: file for file in sorted(folder.iterdir()) if file.name.endswith(_SUFFIXES)}
    if not files:
        raise DataError(f"{folder} holds no training rows (*.jsonl or *.jsonl.gz): name the folder in data.rows")
    return files


def source_files(folder: Path, names: Sequence[str] | None, *, unsupervised: bool = False) -> dict[str, Path]:
    """The row files of some sources; of all labelled ones (or all unlabelled ones) where none are named."""
    files = rows_folder_sources(folder)
    if names is None:
        names = [name for name in files if name.startswith(UNSUPERVISED) == unsupervised]
    if unknown := sorted(set(names) - set(files)):
        raise DataError(f"{folder} has no source {', '.join(unknown)}: it has {', '.join(files)}")
    return {name: files[name] for name in names}


def read_source(file: Path, held_out: HeldOut | None) -> list[TrainingRow]:
    """Read the rows of a source, and refuse those that hit the held-out set.

    Raises:
        LeakageError: A row holds a text of the held-out set.
    """
    rows: Iterable[TrainingRow] = read_training_rows(file)
    return list(rows if held_out is None else refuse_leaks(rows, held_out, name=file.name))


def table_of(sources: dict[str, list[TrainingRow]], *, prompts: bool = True) -> PairTable:
    """Give every distinct text an id: a text is tokenised, encoded and masked once, by id."""
    table = PairTable()
    query_ids: dict[tuple[str, str], int] = {}
    document_ids: dict[str, int] = {}
    right: dict[int, set[int]] = {}

    def document(text: str) -> int:
        if (id_ := document_ids.setdefault(text, len(document_ids))) == len(table.documents):
            table.documents.append(text)
        return id_

    for name, rows in sources.items():
        kept = table.sources.setdefault(name, [])
        for row in rows:
            key = (row.query, row.prompt if prompts else "")
            if (query := query_ids.setdefault(key, len(query_ids))) == len(table.queries):
                table.queries.append(key[0])
                table.instructions.append(key[1])
            positives = [document(text) for text in row.pos]
            right.setdefault(query, set()).update(positives)
            kept.append((query, positives, [document(text) for text in row.neg]))
    table.right = {query: np.array(sorted(ids), np.int64) for query, ids in right.items()}
    return table


def read_texts(path: Path, held_out: HeldOut | None) -> Texts:
    """Read unlabelled texts (JSON lines with ``text`` and ``kind``), and refuse those of the held-out set."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: name the file of unlabelled texts in data.texts")
    texts, kinds = [], []
    with open_text(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                record = json.loads(line)
                text, kind = record["text"], record.get("kind", "text")
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f'{path}:{number} is not {{"text": …, "kind": …}} ({error}): correct that line'
                ) from error
            if isinstance(text, str) and text.strip():
                texts.append(text)
                kinds.append(str(kind))
    if not texts:
        raise DataError(f"{path} holds no text: name a file of unlabelled texts in data.texts")
    if held_out is not None:
        texts = list(refuse_leaks(texts, held_out, name=path.name))
    return Texts(texts, kinds)


def fingerprint(texts: Iterable[str]) -> str:
    """A hash of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
