"""The stage ``vectors``: the teacher's vectors of every text, computed once for all students, epochs and variants."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suwen.durable import replacing
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.query import Vectors
from suwen.encoders.space import Form, SpaceMismatch
from suwen.encoders.vector_folder import encode_share, encode_to_folder
from suwen.training.context import Context
from suwen.training.loop.processes import in_first, wait_for_all, world
from suwen.training.measure import Measured, ndcg
from suwen.training.recipe.settings import FreezeStage, VectorsStage
from suwen.training.stages.documents import document_encoder
from suwen.training.students.student_tokenizer import token_texts
from suwen.training.tasks.row_negatives import nearest_documents
from suwen.training.tasks.row_tables import DataError, fingerprint, table_of

#: Texts per shard: large, so that texts of one length fill a batch, and still little to lose in a crash.
_SHARD = 50_000
#: Fewer texts than this are encoded before their encoder would be compiled.
_COMPILING_PAYS = 50_000
#: The folder of the vectors of every token of the students' vocabulary, in the order of their ids.
TOKENS = "tokens"


def run_vectors(context: Context, stage: VectorsStage) -> dict[str, float]:
    """Encode the unlabelled texts, the texts of the rows and the development tasks.

    Raises:
        DataError: The disk has no room for the vectors; nothing was computed.
    """
    tokens = token_texts(context.tokenizer()) if context.recipe.wants_tokens else []
    inputs = {"tokens": fingerprint(tokens)} if tokens else {}
    inputs |= context.data_hashes(texts=True, rows=True) | context.stage_hash(stage.start)
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    encoder = document_encoder(context, stage.start)
    texts = context.texts(stage.limit)
    jobs: dict[str, tuple[Form, list[str]]] = {}
    for form, kinds in (("query", stage.forms.query), ("document", stage.forms.document)):
        if kinds is None or kinds:
            jobs[form] = (form, [texts.texts[place] for place in texts.of_kinds(kinds)])  # type: ignore[assignment]
    if stage.rows is not None:
        sources = context.sources(stage.rows.sources)
        table = table_of(sources, prompts=stage.rows.prompts)
        jobs["rows-query"] = ("query", sorted(set(table.queries)))
        jobs["rows-document"] = ("document", table.documents)
    if tokens:
        jobs[TOKENS] = ("query", tokens)
    count = sum(len(found) for _, found in jobs.values())
    _check_disk(folder.path, count, encoder.dimension)
    # One that may still move is left alone: what is joined is only for encoding.
    if stage.compile and count >= _COMPILING_PAYS and isinstance(context.recipe.stage(stage.start), FreezeStage):
        encoder.compile(stage.token_budget)
    metrics: dict[str, float] = {}
    for name, (form, found) in jobs.items():
        _encode(context, encoder, folder.path / name, form, found, stage)
        metrics[f"texts.{name}"] = float(len(found))

    def finish() -> dict[str, float]:
        scores = _measure(context, encoder, folder.path / "measure", stage.token_budget)
        (folder.path / "space.json").write_text(json.dumps({"space": encoder.space.id}), encoding="utf-8")
        folder.finish(metrics | scores)
        return metrics | scores

    scores = in_first(finish)
    # Whoever needs it again loads it: students are trained next, and want the room.
    context.loaded.pop(f"encoder:{stage.start}", None)
    return scores or {}


def _encode(
    context: Context, encoder: DocumentEncoder, out: Path, form: Form, texts: Sequence[str], stage: VectorsStage
) -> None:
    def told(done: int, total: int) -> None:
        if context.progress is not None:
            context.progress(f"{stage.name}/{out.name}", done, total, {})

    pairs = [(str(number), text) for number, text in enumerate(texts)]
    form_encoder = encoder.in_form(form, token_budget=stage.token_budget)
    rank, size = world()
    if size > 1:  # each process encodes its share of the shards; the first makes one array of them
        encode_share(pairs, form_encoder, out, rank, size, shard_size=_SHARD)
        wait_for_all()
    in_first(lambda: encode_to_folder(pairs, form_encoder, out, shard_size=_SHARD, progress=told))


def _check_disk(folder: Path, count: int, dimension: int) -> None:
    needed = 2 * count * dimension * 2  # the shards, and the one array they become
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"the teacher's vectors of {count:,} texts need {needed / 2**30:.1f} GiB at {folder} and "
            f"{free / 2**30:.1f} are free: free some, choose another --out, or lower `limit` of the vectors stage"
        )


def _measure(context: Context, encoder: DocumentEncoder, out: Path, token_budget: int) -> dict[str, float]:
    """Vectors and scores of the development tasks with the document encoder on both sides."""
    out.mkdir(exist_ok=True)
    scores = {}
    for task in context.measures:
        sides = {"queries": task.data.queries, "documents": task.data.documents}
        for side, texts in sides.items():
            form: Form = "query" if side == "queries" else "document"
            found = encoder.encode(texts, form=form, token_budget=token_budget)
            np.save(out / f"{task.name}-{side}.npy", found.astype(np.float16))
        scores[task.name] = ndcg(
            task, stored(out, task, "queries"), stored(out, task, "documents"), device=context.device
        )
    if scores:
        scores["mean"] = float(np.mean(list(scores.values())))
    return {f"both sides.{name}": value for name, value in scores.items()}


def stored(folder: Path, task: Measured, side: str) -> Vectors:
    """The stored vectors of one side of a development task."""
    found: Vectors = np.load(folder / f"{task.name}-{side}.npy", allow_pickle=False)
    return found


class TeacherVectors:
    """What a finished vectors stage holds.

    Args:
        folder: The stage's folder.
        space: The id the vectors must be of, where one is known.

    Raises:
        SpaceMismatch: They are of another space.
    """

    def __init__(self, folder: Path, *, space: str | None = None) -> None:
        self.folder = folder
        if not (folder / "space.json").is_file():
            raise DataError(f"{folder} holds no teacher vectors: run its vectors stage first")
        self.space: str = json.loads((folder / "space.json").read_text(encoding="utf-8"))["space"]
        if space is not None and space != self.space:
            raise SpaceMismatch(space, self.space)

    def has(self, name: str) -> bool:
        """Whether there are vectors of that name (query, document, rows-query, rows-document, tokens)."""
        return (self.folder / name / "vectors.npy").is_file()

    def array(self, name: str) -> npt.NDArray[np.float16]:
        """Memory-mapped vectors."""
        if not self.has(name):
            raise DataError(
                f"{self.folder} has no {name} vectors: add the kinds to `forms` (or `rows`) of the vectors stage"
            )
        found: npt.NDArray[np.float16] = np.load(self.folder / name / "vectors.npy", mmap_mode="r", allow_pickle=False)
        return found

    def places(self, name: str, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of these texts among the vectors.

        Raises:
            DataError: A text has no vector.
        """
        known: dict[str, int] = {}
        for row, line in enumerate((self.folder / name / "ids.txt").read_text(encoding="utf-8").splitlines()):
            known.setdefault(line.rpartition("\t")[2], row)
        marks = [hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest()[:12] for text in texts]
        if missing := [text for text, mark in zip(texts, marks, strict=True) if mark not in known]:
            raise DataError(
                f"{len(missing)} texts have no {name} vector in {self.folder}, such as {missing[0][:40]!r}: give the "
                f"vectors stage the same rows and texts"
            )
        return np.array([known[mark] for mark in marks], np.int64)

    def documents(self) -> npt.NDArray[np.float16]:
        """All that has a document form: the documents of the rows, then the texts."""
        names = [name for name in ("rows-document", "document") if self.has(name)]
        return np.concatenate([self.array(name) for name in names or ["rows-document"]])

    def nearest(self, places: npt.NDArray[np.integer[Any]], count: int, *, device: str) -> npt.NDArray[np.int32]:
        """The nearest of all documents to some texts in query form, ``[texts, count]``; found once, and kept.

        Args:
            places: The rows of the texts among the ``query`` vectors.
            count: How many documents.
            device: Where to look for them.
        """
        named = hashlib.sha256(np.ascontiguousarray(places, np.int64).tobytes()).hexdigest()[:16]
        file = self.folder / "nearest" / f"{count}-of-{named}.npy"
        if not file.is_file():
            found = nearest_documents(self.array("query")[places], self.documents(), count, device=device)
            with replacing(file) as stream:
                np.save(stream, found)
        kept: npt.NDArray[np.int32] = np.load(file, allow_pickle=False)
        return kept

    def documents_of(self, task: Measured) -> Vectors:
        """The document vectors of a development task."""
        return stored(self.folder / "measure", task, "documents")


def measure_student(context: Context, vectors: TeacherVectors, encode: Any) -> dict[str, float]:
    """nDCG@10 of a student's queries over the teacher's documents."""
    from suwen.training.measure import measure

    return measure(context.measures, encode, vectors.documents_of, device=context.device)
