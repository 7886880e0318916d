"""The teacher's stored vectors: made by the stage ``vectors``, and read by those that learn from them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.prompts import Form, Prompts
from suwen.encoders.query import Vectors
from suwen.encoders.vector_folder import encode_share, encode_to_folder
from suwen.training.development_measure import Encode, Measured, measure, ndcg, with_mean
from suwen.training.loop.batches import Lazy, kept
from suwen.training.loop.processes import in_first, wait_for_all, world
from suwen.training.run_context import RunContext
from suwen.training.tasks.row_negatives import nearest_documents
from suwen.training.tasks.row_tables import DataError, PairTable
from suwen.training.tasks.towers import FrozenTower

if TYPE_CHECKING:
    from suwen.training.stages.vectors import VectorsStage

#: Texts per shard: large, so that texts of one length fill a batch, and still little to lose in a crash.
_SHARD = 50_000
#: Documents whose mean length is that of all.
_MEAN_OF = 20_000
#: The folder of the vectors of every token of the students' vocabulary, in the order of their ids.
TOKENS = "tokens"


class Job(NamedTuple):
    """Texts that are encoded into one folder: their form and, of queries, their instruction."""

    form: Form
    texts: Sequence[str]
    instruction: str = ""


def row_jobs(table: PairTable, prompts: Prompts) -> dict[str, Job]:
    """The texts of rows by folder: documents; queries, those of each instruction apart where the prompt takes one."""
    texts: dict[str, set[str]] = defaultdict(set)
    alike = ((table.documents[id_], table.document_instructions[id_] or "") for id_ in table.symmetric)
    for text, own in chain(zip(table.queries, table.instructions, strict=True), alike):
        texts[own if prompts.instruction else ""].add(text)
    jobs = {_rows_folder(own): Job("query", sorted(texts[own]), own) for own in sorted(texts)}
    return jobs | {"rows-document": Job("document", table.bare)}


def _rows_folder(instruction: str | None) -> str:
    """The folder of the texts of rows with an instruction, in query form; in document form where it is None."""
    if instruction is None:
        return "rows-document"
    return "rows-query" + (f"-{hashlib.sha1(instruction.encode()).hexdigest()[:8]}" if instruction else "")


def encode_texts(context: RunContext, encoder: DocumentEncoder, out: Path, job: Job, stage: VectorsStage) -> None:
    """Encode texts in a form into a folder; several processes share the work."""

    def report(done: int, total: int) -> None:
        if context.progress is not None:
            context.progress(f"{stage.name}/{out.name}", done, total, {})

    pairs = Lazy(len(job.texts), lambda number: (str(number), job.texts[number]))
    form_encoder = encoder.in_form(job.form, instruction=job.instruction or None, token_budget=stage.token_budget)
    rank, size = world()
    if size > 1:  # each process encodes its share of the shards; the first makes one array of them
        encode_share(pairs, form_encoder, out, rank, size, shard_size=_SHARD)
        wait_for_all()
    in_first(lambda: encode_to_folder(pairs, form_encoder, out, shard_size=_SHARD, progress=report))


def require_room(folder: Path, count: int, dimension: int) -> None:
    """Refuse to begin where the disk has no room for the vectors."""
    needed = 2 * count * dimension * 2  # the shards, and the one array they become
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"the teacher's vectors of {count:,} texts need {needed / 2**30:.1f} GiB at {folder} and "
            f"{free / 2**30:.1f} are free: free some, choose another --out, or lower `limit` of the vectors stage"
        )


def finish_vectors(context: RunContext, encoder: DocumentEncoder, folder: Path, token_budget: int) -> dict[str, float]:
    """Store and score the development tasks with the document encoder on both sides, and say of which space it is."""
    out, scores = folder / "measure", dict[str, float]()
    out.mkdir(exist_ok=True)
    for task in context.measures:
        queries = encoder.encode(task.data.queries, form="query", token_budget=token_budget).astype(np.float16)
        documents = encoder.encode(task.data.documents, token_budget=token_budget).astype(np.float16)
        np.save(_stored(out, task, "queries"), queries)
        np.save(_stored(out, task, "documents"), documents)
        scores[task.name] = ndcg(task, queries.astype(np.float32), documents.astype(np.float32))
    said = {"space": encoder.space.id, "similarity": encoder.space.similarity}
    (folder / "space.json").write_text(json.dumps(said), encoding="utf-8")
    return {f"both sides.{name}": value for name, value in with_mean(scores).items()}


def _stored(folder: Path, task: Measured, side: str) -> Path:
    """The file of the vectors of one side of a development task."""
    return folder / f"{task.name}-{side}.npy"


def vectors_of(context: RunContext, name: str) -> TeacherVectors:
    """The stored vectors of a document encoder, or of a vectors stage.

    Raises:
        DataError: No vectors stage has computed them.
    """
    for stage in context.recipe.giving("vectors"):
        if name in (stage.encoder_from, stage.name):
            return TeacherVectors(context.folder_of(stage.name))
    raise DataError(f"there are no vectors of {name!r}: put a vectors stage with `start: {name}` and `rows` after it")


def vectors_of_student(context: RunContext, name: str) -> TeacherVectors:
    """The stored vectors that the student of a stage was aligned to.

    Raises:
        DataError: It was aligned to none.
    """
    vectors = context.recipe.stage(name).vectors_from(context.recipe)
    if vectors is None:
        raise DataError(f"stage {name!r} was aligned to no space: export a tier from an align or joint stage")
    return TeacherVectors(context.folder_of(vectors))


class TeacherVectors:
    """What a finished vectors stage holds.

    Args:
        folder: The stage's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "space.json").is_file():
            raise DataError(f"{folder} holds no teacher vectors: run its vectors stage first")
        said = json.loads((folder / "space.json").read_text(encoding="utf-8"))
        self.space: str = said["space"]
        #: Whether vectors keep their lengths; students have length one all the same, as a query's changes no order.
        self.by_dot = said.get("similarity") == "dot"

    def has(self, name: str) -> bool:
        """Whether there are vectors of that name (query, document, rows-query, rows-document, tokens)."""
        return (self.folder / name / "vectors.npy").is_file()

    def array(self, name: str) -> npt.NDArray[np.float16]:
        """Memory-mapped vectors."""
        if not self.has(name):
            raise DataError(
                f"{self.folder} has no {name} vectors: add the kinds to `forms` (or `rows`) of the vectors stage"
            )
        return np.asarray(np.load(self.folder / name / "vectors.npy", mmap_mode="r", allow_pickle=False))

    def places(self, name: str, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of these texts among the vectors.

        Raises:
            DataError: A text has no vector.
        """
        with (self.folder / name / "ids.txt").open(encoding="utf-8") as lines:
            known = np.fromiter((int(line.rpartition("\t")[2], 16) for line in lines), np.int64)
        hashes = (hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts)
        marks = np.fromiter((int(mark[:12], 16) for mark in hashes), np.int64)
        order = np.argsort(known, kind="stable")  # the first of those alike comes first
        places: npt.NDArray[np.int64] = order[np.searchsorted(known[order], marks) % len(known)]
        if len(missing := np.flatnonzero(known[places] != marks)):
            raise DataError(
                f"{len(missing)} texts have no {name} vector in {self.folder}, such as {texts[missing[0]][:40]!r}: "
                f"give the vectors stage the same rows and texts"
            )
        return places

    def documents(self) -> npt.NDArray[np.float16]:
        """All that has a document form: the documents of the rows, then the texts."""
        names = [name for name in ("rows-document", "document") if self.has(name)]
        return np.concatenate([self.array(name) for name in names or ["rows-document"]])

    def targets(self, stored: Any, device: str) -> FrozenTower:
        """Vectors for students to land on: of length one, as students are."""
        return FrozenTower(stored, device, length="own" if self.by_dot else 1.0)

    def candidates(self, stored: Any, device: str) -> FrozenTower:
        """Documents for students to choose from: where they keep their lengths, of length one on the average.

        So a temperature means the same in every space.
        """
        if not self.by_dot:
            return FrozenTower(stored, device)
        some = np.asarray(stored[np.arange(0, len(stored), max(1, len(stored) // _MEAN_OF))], np.float32)
        return FrozenTower(stored, device, length=float(np.linalg.norm(some, axis=1).mean()))

    def nearest(
        self, form: Form, places: npt.NDArray[np.integer[Any]], count: int, *, device: str
    ) -> npt.NDArray[np.int32]:
        """The nearest of all documents to some texts in a form, ``[texts, count]``; found once, and kept.

        Args:
            form: The form of the texts.
            places: Their rows among the vectors of that form.
            count: How many documents.
            device: Where to look for them.
        """
        digest = hashlib.sha256(np.ascontiguousarray(places, np.int64).tobytes()).hexdigest()
        return kept(
            self.folder / "nearest" / f"{count}-of-{'' if form == 'query' else form + '-'}{digest[:16]}",
            lambda _: {"near": nearest_documents(self.array(form)[places], self.documents(), count, device=device)},
        )["near"]

    def documents_of(self, task: Measured) -> Vectors:
        """The document vectors of a development task."""
        return np.asarray(np.load(_stored(self.folder / "measure", task, "documents"), allow_pickle=False))

    def of_queries(self, table: PairTable) -> Lazy:
        """The vectors of a table's queries, each with its row's instruction."""
        return self._of_rows(table.queries, table.instructions)

    def of_documents(self, table: PairTable) -> Lazy:
        """The vectors of a table's documents; of those of symmetric rows, in query form."""
        return self._of_rows(table.documents, table.document_instructions)

    def _of_rows(self, texts: Sequence[str], instructions: Sequence[str | None]) -> Lazy:
        # Where the encoder's prompt takes no instruction, all are together.
        named = {
            own: name if own is None or self.has(name) else "rows-query"
            for own, name in ((own, _rows_folder(own)) for own in set(instructions))
        }
        names = sorted(set(named.values()))
        folders = np.fromiter((names.index(named[own]) for own in instructions), np.int16, len(texts))
        places = np.empty(len(texts), np.int64)
        for number, name in enumerate(names):
            ids = np.flatnonzero(folders == number)
            places[ids] = self.places(name, Lazy(len(ids), lambda row, ids=ids: texts[ids[row]]))  # type: ignore[misc]
        arrays = [self.array(name) for name in names]

        def vectors(ids: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
            found = np.empty((len(ids), arrays[0].shape[1]), arrays[0].dtype)
            for number, array in enumerate(arrays):
                own = folders[ids] == number
                found[own] = array[places[ids[own]]]
            return found

        return Lazy(len(texts), vectors)

    def measure(self, context: RunContext, encode: Encode) -> dict[str, float]:
        """nDCG@10 of a student's queries over the teacher's documents."""
        return measure(context.measures, encode, self.documents_of)
