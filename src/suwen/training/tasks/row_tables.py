"""The data of a recipe: rows, which stay on disk, and unlabelled texts; refused where they touch the held-out set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.corpora.files import open_text
from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate.leakage import HeldOut, refuse_leaks
from suwen.encoders.space import Form, Prompts, sha256_of
from suwen.errors import SuwenError
from suwen.training.loop.batches import Ints, Lazy, Ragged, kept
from suwen.training.tasks.row_shards import FORMAT, SHARD_ROWS, joined, shard_of, shard_text

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


class SourceRows(NamedTuple):
    """The rows of one source by the ids of their texts: each row's query, its positives and its negatives."""

    queries: npt.NDArray[Any]
    positives: Ragged
    negatives: Ragged

    @property
    def first_positives(self) -> npt.NDArray[Any]:
        """The first positive of each row."""
        return self.positives.ids[self.positives.offsets[:-1]]


@dataclass
class PairTable:
    """Rows of several sources with every distinct text once: rows hold the ids of the texts. All is read from disk.

    Attributes:
        queries: What is encoded as a query.
        instructions: What each query's row asks for in its prompt; empty where it says nothing.
        documents: What is encoded as a document.
        document_instructions: For each document, the instruction it is put with as a query is; None for one in document
            form.
        symmetric: The documents of symmetric rows, which are put as queries are, with the row's instruction.
        bare: The documents in document form: all but those of symmetric rows.
        words: The number of each document's words: documents that differ in their instruction alone share it.
        right: The words that are right for a query, over all its rows: no document of them may serve as its negative.
        sources: The rows per source.
    """

    queries: Sequence[str]
    instructions: Sequence[str]
    documents: Sequence[str]
    document_instructions: Sequence[str | None]
    symmetric: Ints
    bare: Sequence[str]
    words: npt.NDArray[Any]
    right: Ragged
    sources: dict[str, SourceRows]

    def sizes(self) -> dict[str, int]:
        """Rows per source."""
        return {name: len(rows.queries) for name, rows in self.sources.items()}

    def as_queries(self) -> Iterator[tuple[str, str]]:
        """Every text in query form, with its instruction."""
        yield from zip(self.queries, self.instructions, strict=True)
        yield from ((self.documents[id_], self.document_instructions[id_] or "") for id_ in self.symmetric.tolist())


def put(texts: Sequence[str], form: Form, instructions: Sequence[str | None], prompts: Prompts) -> Sequence[str]:
    """Texts as an encoder with these prompts is given them.

    Args:
        texts: The texts.
        form: The form of those without an instruction.
        instructions: For each text, the instruction it is put with in query form; None leaves it in ``form``. A prompt
            without a place for instructions stands as it is.
        prompts: The encoder's.
    """
    takes = prompts.instruction is not None

    def one(place: int) -> str:
        own = instructions[place]
        return (prompts.before(form) if own is None else prompts.before("query", own if takes else None)) + texts[place]

    known = getattr(texts, "identity", "")
    return Lazy(len(texts), one, known and f"{known} {form} {prompts!r}")


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


def read_source(file: Path, held_out: HeldOut | None, folder: Path, *, prompts: bool = True) -> list[Path]:
    """The shards of a file of rows, made where they are not there yet; rows that hit the held-out set are refused.

    Args:
        file: The rows.
        held_out: What they are checked against; None where they have been.
        folder: Where shards are kept; runs over the same file share them.
        prompts: Whether rows keep the instructions they name.

    Raises:
        LeakageError: A row holds a text of the held-out set.
    """
    own = folder / f"rows-{FORMAT}-{sha256_of(file)[:20]}{'' if prompts else '-no-prompts'}"
    # The mark comes last: what was refused, or cut short, is read again.
    if held_out is not None or not (own / "finished").is_file():
        rows: Iterator[TrainingRow] = read_training_rows(file)
        rows = rows if held_out is None else refuse_leaks(rows, held_out, name=file.name)
        for number, part in enumerate(iter(lambda: list(islice(rows, SHARD_ROWS)), [])):
            kept(own / f"{number:06d}", lambda _, part=part: shard_of(part, prompts=prompts))
        (own / "finished").touch()
    return sorted(own.glob("[0-9]*"))


def table_of(shards: Mapping[str, Sequence[Path]], folder: Path) -> PairTable:
    """The rows of several sources by text ids; the table is made once.

    Args:
        shards: The shards of each source.
        folder: Where tables are kept.
    """
    every = [shard for some in shards.values() for shard in some]
    named = json.dumps({name: [str(shard.relative_to(folder)) for shard in some] for name, some in shards.items()})
    own = folder / f"table-{FORMAT}-{hashlib.sha256(named.encode()).hexdigest()[:20]}"
    found = kept(own, lambda _: joined(every))
    instructions = [*found["instructions"].tolist(), None]

    def texts(side: str, places: npt.NDArray[Any]) -> Lazy[str]:
        starts, known = found[f"{side}-starts"], f"{own.name} {side} {len(places)}"
        return Lazy(len(places), lambda id_: shard_text(every, side, starts, int(places[id_])), known)

    def own_instructions(side: str) -> Lazy[Any]:
        return Lazy(len(codes := found[f"{side}-codes"]), lambda id_: instructions[codes[id_]])

    ends = np.cumsum([0, *(sum(len(np.load(shard / "asked.npy", "r")) for shard in some) for some in shards.values())])
    sources = {
        name: SourceRows(
            found["asked"][start:end],
            *(Ragged(found[kind], found[f"{kind}-offsets"][start : end + 1]) for kind in ("positives", "negatives")),
        )
        for name, start, end in zip(shards, ends, ends[1:], strict=False)
    }
    form = found["document-codes"] < 0
    places = found["document-places"]
    return PairTable(
        texts("query", found["query-places"]),
        own_instructions("query"),
        texts("document", places),
        own_instructions("document"),
        np.flatnonzero(~form),
        texts("document", places if form.all() else places[form]),
        found["words"],
        Ragged(found["right"], found["right-offsets"]),
        sources,
    )


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
