"""The data of a recipe: rows, which stay on disk, and unlabelled texts; refused where they touch the held-out set."""

from __future__ import annotations

import hashlib
import json
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.corpora.files import open_text
from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate.leakage import HeldOut, refuse_leaks
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.prompts import Form, Prompts
from suwen.errors import SuwenError
from suwen.training.loop.batches import Arrays, Ints, Lazy, Ragged, kept, opened

_SUFFIXES = (".jsonl", ".jsonl.gz")
UNSUPERVISED = "unsup-"
#: Rows of a shard: what a crash can cost, and what is held in memory as Python's objects at a time.
_SHARD_ROWS = 50_000
#: The lists of documents of a row, in the order of the fields of :class:`SourceRows`.
_LISTS = ("positives", "negatives", "hypothetical")
#: In the names of folders: another layout, or another number of rows in a shard, is another folder.
_FORMAT = 4
#: What is counted of rows that teach little or the wrong thing, and are trained on all the same.
_COUNTED = ("without_an_instruction", "positive_is_the_query", "positive_is_a_negative")


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
        return np.flatnonzero(np.fromiter((kind in kinds for kind in self.kinds), bool, len(self.kinds)))

    def drawn(self, limit: int | None, seed: int = 0) -> Texts:
        """As many of the texts as asked for, in their order; the same ones for the same seed."""
        if limit is None or limit >= len(self.texts):
            return self
        chosen = np.sort(np.random.default_rng((seed, 11)).choice(len(self.texts), limit, replace=False))
        return Texts([self.texts[place] for place in chosen], [self.kinds[place] for place in chosen])


class SourceRows(NamedTuple):
    """The rows of one source by the ids of their texts: each row's query, its positives and its negatives.

    ``hypothetical`` are the documents that were written for a row's query; their ids are among those of the documents.
    ``odd`` says of each row what of :data:`_COUNTED` it is.
    """

    queries: npt.NDArray[Any]
    positives: Ragged
    negatives: Ragged
    hypothetical: Ragged
    odd: npt.NDArray[np.bool_]

    def of(self, chosen: Ints) -> SourceRows:
        """Some of the rows."""
        positives, negatives, hypothetical = self.positives.of(chosen), self.negatives.of(chosen), self.hypothetical
        return SourceRows(self.queries[chosen], positives, negatives, hypothetical.of(chosen), self.odd[chosen])


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

    def counts(self) -> dict[str, int]:
        """How many rows are odd, by what is odd about them."""
        counted = np.sum([rows.odd.sum(axis=0) for rows in self.sources.values()], axis=0)
        return dict(zip(_COUNTED, counted.tolist(), strict=True))


def put(texts: Sequence[str], form: Form, instructions: Sequence[str | None], prompts: Prompts) -> Sequence[str]:
    """Texts as an encoder with these prompts is given them.

    Args:
        texts: The texts.
        form: The form of those without an instruction.
        instructions: For each text, the instruction it is put with in query form; None leaves it in ``form``. A prompt
            without a place for instructions stands as it is.
        prompts: The encoder's.
    """
    return Lazy(
        len(texts),
        lambda place: (
            (
                prompts.before(form)
                if (own := instructions[place]) is None
                else prompts.before("query", None if prompts.instruction is None else own)
            )
            + texts[place]
        ),
        (known := getattr(texts, "identity", "")) and f"{known} {form} {prompts!r}",
    )


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
    own = folder / f"rows-{_FORMAT}-{sha256_of(file)[:20]}{'' if prompts else '-no-prompts'}"
    # The mark comes last: what was refused, or cut short, is read again.
    if held_out is not None or not (own / "finished").exists():
        read = read_training_rows(file)
        rows = read if held_out is None else refuse_leaks(read, held_out, name=file.name)
        for number, part in enumerate(iter(lambda: list(islice(rows, _SHARD_ROWS)), [])):
            kept(own / f"{number:06d}", lambda _, part=part: _shard(part, prompts))  # type: ignore[misc]
        own.mkdir(parents=True, exist_ok=True)
        (own / "finished").touch()
    return sorted(own.glob("[0-9]*"))


def _shard(rows: Sequence[TrainingRow], prompts: bool) -> Arrays:
    """Rows as numbers, and each distinct text of theirs once: in a blob with offsets, with its hash and instruction."""
    made, queries, documents = Arrays(), dict[tuple[str, str | None], int](), dict[tuple[str, str | None], int]()
    asked, lists = array("i"), {name: list[list[int]]() for name in _LISTS}
    for row in rows:
        instruction = row.prompt if prompts else ""
        both_sides = instruction if row.type.startswith("symmetric") else None
        asked.append(queries.setdefault((row.query, instruction), len(queries)))
        for name, texts in zip(lists, (row.pos, row.neg, row.hypothetical), strict=True):
            lists[name].append([documents.setdefault((text, both_sides), len(documents)) for text in texts])
    instructions = np.unique([own for _, own in (*queries, *documents) if own is not None])
    made["asked"], made["instructions"] = np.array(asked), instructions
    odd = [(not row.prompt, row.query in row.pos, not set(row.pos).isdisjoint(row.neg)) for row in rows]
    made["odd"] = np.array(odd)
    codes = {own: code for code, own in enumerate(instructions.tolist())}
    made |= {name: np.fromiter(chain(*some), np.int32) for name, some in lists.items()}
    made |= {f"{name}-lengths": np.array([*map(len, some)]) for name, some in lists.items()}
    for side, known in (("query", queries), ("document", documents)):
        encoded = [text.encode("utf-8", "surrogatepass") for text, _ in known]
        made |= {
            side: np.frombuffer(b"".join(encoded), np.uint8),
            f"{side}-offsets": np.cumsum([0, *map(len, encoded)]),
            f"{side}-codes": np.array([codes.get(own, -1) for _, own in known], np.int32),
            f"{side}-words": np.array([hashlib.blake2b(text, digest_size=12).digest() for text in encoded], "S12"),
        }
    return made


def _joined(shards: Sequence[Path]) -> Arrays:
    """The rows of several shards, their texts numbered in the order in which the rows name them first."""

    def column(name: str) -> list[npt.NDArray[Any]]:
        # Copies: a mapped array keeps its file open, and there may be more shards than files may be.
        return [np.array(opened(shard)[name]) for shard in shards]

    made: Arrays = {"instructions": np.unique(np.concatenate(column("instructions")))}
    recoded = [np.append(np.searchsorted(made["instructions"], own), -1) for own in column("instructions")]
    for side, names in (("query", ("asked",)), ("document", _LISTS)):
        codes: Any = [new[old].astype(np.int32) for new, old in zip(recoded, column(f"{side}-codes"), strict=True)]
        made[f"{side}-starts"], codes = np.cumsum([0, *map(len, codes)]), np.concatenate(codes)
        numbers, words, first = _numbered(np.concatenate(column(f"{side}-words")), codes)
        made[f"{side}-places"], made[f"{side}-codes"], made["words"] = first, codes[first], words[first]
        split = np.split(numbers, made[f"{side}-starts"][1:-1])
        for name in names:
            made[name] = np.concatenate([ids[own] for ids, own in zip(split, column(name), strict=True)])
    made["odd"] = np.concatenate(column("odd"))
    for name in _LISTS:
        made[f"{name}-offsets"] = np.append(0, np.cumsum(np.concatenate(column(f"{name}-lengths"))))
    # By their words: what is right as a query is put is right as a document is.
    kinds, lengths = len(made["words"]) + 1, np.diff(made["positives-offsets"])
    right = np.unique(np.repeat(made["asked"].astype(np.int64), lengths) * kinds + made["words"][made["positives"]])
    starts = np.arange(len(made["query-places"]) + 1) * kinds
    made["right"], made["right-offsets"] = (right % kinds).astype(np.int32), np.searchsorted(right, starts)
    return made


def _numbered(words: npt.NDArray[Any], codes: npt.NDArray[np.int32]) -> tuple[Any, Any, Any]:
    """Number texts by their words with their instructions, in the order in which they come, and by their words alone.

    Also where each comes first. Written out, as ``np.unique`` takes twice the memory.
    """
    order = np.lexsort((codes, words))  # a stable sort: the first of those alike stays the first of them
    numbers, of_words = np.empty((2, len(order)), np.int32)
    words = words[order]  # the largest array: it is not held twice for longer than this takes
    fresh = np.append(True, words[1:] != words[:-1])
    of_words[order] = np.cumsum(fresh, dtype=np.int32)
    fresh[1:] |= np.diff(codes[order]) != 0
    ranks = np.argsort(np.argsort(first := order[fresh])).astype(np.int32)
    numbers[order] = np.repeat(ranks, np.diff(np.flatnonzero(np.append(fresh, True))))
    return numbers, of_words, np.sort(first)


#: A few stay open: texts are read from the first shard to the last.
_mapped = lru_cache(maxsize=8)(opened)


def _text(shards: Sequence[Path], side: str, starts: Ints, place: int) -> str:
    """The text of a side that stands at a place, counted through the shards, each of which starts at its own."""
    number = int(np.searchsorted(starts, place, "right")) - 1
    arrays, own = _mapped(shards[number]), place - int(starts[number])
    start, end = arrays[f"{side}-offsets"][own : own + 2]
    return bytes(arrays[side][start:end]).decode("utf-8", "surrogatepass")


def table_of(shards: Mapping[str, Sequence[Path]]) -> PairTable:
    """The rows of several sources, by the shards of each; their numbering is made once, and stays beside the shards."""
    every = [shard for some in shards.values() for shard in some]
    if not every:
        raise DataError(f"there are no rows in {', '.join(shards)}: name other sources, or check data.rows")
    own = every[0].parents[1] / f"table-{_FORMAT}-{fingerprint('/'.join(shard.parts[-2:]) for shard in every)[:20]}"
    found = kept(own, lambda _: _joined(every))
    instructions, bare = [*found["instructions"].tolist(), None], found["document-codes"] < 0

    def texts(side: str, some: Any = slice(None)) -> Lazy:
        starts, places = found[f"{side}-starts"], found[f"{side}-places"][some]
        return Lazy(
            len(places), lambda id_: _text(every, side, starts, int(places[id_])), f"{own.name} {side} {len(places)}"
        )

    def asked_with(side: str) -> Lazy:
        return Lazy(len(codes := found[f"{side}-codes"]), lambda id_: instructions[codes[id_]])

    def lists(name: str, start: int = 0, end: int | None = None) -> Ragged:
        return Ragged(found[name], found[f"{name}-offsets"][start : None if end is None else end + 1])

    ends = np.cumsum([0, *(sum(len(opened(shard)["asked"]) for shard in some) for some in shards.values())])
    return PairTable(
        texts("query"),
        asked_with("query"),
        texts("document"),
        asked_with("document"),
        np.flatnonzero(~bare),
        texts("document", slice(None) if bare.all() else bare),
        found["words"],
        lists("right"),
        {
            name: SourceRows(
                found["asked"][start:end],
                lists("positives", start, end),
                lists("negatives", start, end),
                lists("hypothetical", start, end),
                found["odd"][start:end],
            )
            for name, start, end in zip(shards, ends, ends[1:], strict=False)
        },
    )


def drawn_rows(table: PairTable, share: float) -> PairTable:
    """A share of each source's rows, whatever others there are; a smaller share's are among those of a larger one."""
    sources = {}
    for name, rows in table.sources.items():
        order = np.random.default_rng((zlib.crc32(name.encode()), 17)).permutation(len(rows.queries))
        chosen = np.sort(order[: max(2, round(share * len(order)))])
        sources[name] = rows.of(chosen)
    return replace(table, sources=sources)


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
