"""Targets for a student that needs no language model: where texts land once they are fused with what is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from suwen.corpora.tabular import records
from suwen.durable import new_folder
from suwen.encoders.document import DocumentEncoder
from suwen.hyde.fusion import fuse
from suwen.training.loop.processes import in_first
from suwen.training.run_context import RunContext
from suwen.training.stages.rewrites import TEXTS
from suwen.training.tasks.row_tables import DataError
from suwen.training.teacher_vectors import Job, encode_texts

if TYPE_CHECKING:
    from suwen.training.stages.vectors import VectorsStage

#: The folders of the texts' own vectors in query form, and of those of their hypothetical documents.
PLAIN, BESIDE = "plain-query", "hypothetical"
_AT_ONCE = 16_384


def fuse_texts(context: RunContext, encoder: DocumentEncoder, folder: Path, job: Job, stage: VectorsStage) -> None:
    """Write the fused vectors of texts in query form, in their order; a text without a document keeps its own.

    Args:
        context: The run.
        encoder: Of the space.
        folder: The stage's, which holds the texts' own vectors in ``PLAIN``.
        job: The texts.
        stage: Says who wrote the documents, and the weight of a text among its own.
    """
    file = context.model_of(str(stage.hypothetical)) / TEXTS
    if not file.is_file():
        raise DataError(f"{file} does not exist: name a rewrites stage without `queries`, whose queries are the texts")
    written = {one["query"]: one["hypothetical"] for _, one in records(file, "jsonl")}
    owned = [(place, text) for place, query in enumerate(job.texts) for text in written.get(query, ())]
    if not owned:
        raise DataError(f"none of the texts has a document in {file}: write for the kinds of `forms.query`")
    encode_texts(context, encoder, folder / BESIDE, Job("document", [text for _, text in owned]), stage)
    in_first(lambda: None if (folder / "query").is_dir() else _write(folder, np.array([at for at, _ in owned]), stage))


def _write(folder: Path, owners: np.ndarray[tuple[int], np.dtype[np.int64]], stage: VectorsStage) -> None:
    own = np.load(folder / PLAIN / "vectors.npy", mmap_mode="r", allow_pickle=False)
    beside = np.load(folder / BESIDE / "vectors.npy", mmap_mode="r", allow_pickle=False)
    with new_folder(folder / "query") as out:
        for name in ("ids.txt", "vectors.json"):
            shutil.copyfile(folder / PLAIN / name, out / name)
        fused = np.lib.format.open_memmap(out / "vectors.npy", "w+", own.dtype, own.shape)
        for start in range(0, len(own), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            first, last = np.searchsorted(owners, (start, start + _AT_ONCE))
            part = np.asarray(own[rows], np.float32)
            others = np.asarray(beside[first:last], np.float32)
            fused[rows] = fuse(part, others, (owners[first:last] - start).tolist(), weight=stage.weight)
        fused.flush()
