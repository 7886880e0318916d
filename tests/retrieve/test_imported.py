"""Vectors made elsewhere: taken when they fit, refused with the reason when they do not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from suwen.corpora.passages import split_document
from suwen.corpora.records import Document, Passage
from suwen.encoders.pair import Pair
from suwen.encoders.space import SpaceMismatch
from suwen.retrieve.imported import ImportedVectors
from suwen.retrieve.ingest import IngestError, IngestReport
from suwen.retrieve.retriever import Index


class Shipment(NamedTuple):
    """What a machine with a document encoder sends: a matrix, ids with digests, and the space."""

    folder: Path
    passages: list[Passage]
    matrix: np.ndarray

    def write(
        self, *, matrix: np.ndarray | None = None, ids: list[str] | None = None, space: str | None = None
    ) -> None:
        np.save(self.folder / "vectors.npy", self.matrix if matrix is None else matrix)
        lines = [f"{p.id}\t{hashlib.sha1(p.content.encode()).hexdigest()[:12]}" for p in self.passages]
        (self.folder / "ids.txt").write_text("".join(f"{line}\n" for line in (lines if ids is None else ids)))
        if space is not None:
            (self.folder / "vectors.json").write_text(json.dumps({"space": space}))

    def open(self, pair: Pair, space: str | None = None) -> ImportedVectors:
        return ImportedVectors(self.folder / "vectors.npy", self.folder / "ids.txt", pair, space)


@pytest.fixture
def shipment(pair: Pair, notes: list[Document], tmp_path: Path) -> Shipment:
    """Vectors near to the pair's own, as those of an aligned document encoder are."""
    passages = [p for note in notes for p in split_document(note, pair.count_tokens, 24, 0)]
    own = pair.encoder().encode_documents([p.content for p in passages])
    noisy = own + 0.05 * np.random.default_rng(0).standard_normal(own.shape)
    matrix = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float16)
    made = Shipment(tmp_path, passages, matrix)
    made.write(space=pair.space.id)
    return made


def take(index: Index, shipment: Shipment, notes: list[Document], space: str | None = None) -> IngestReport:
    ready = shipment.open(index.pair, space)
    return index.add(notes, mirror=True, ready=ready, size=24, overlap=0)


def refused(index: Index, shipment: Shipment, notes: list[Document], message: str) -> None:
    with pytest.raises(IngestError, match=message):
        take(index, shipment, notes)
    assert index.engine.stats().documents == 0


def test_vectors_are_taken_as_they_are(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    report = take(empty, shipment, notes)
    assert (report.added, report.encoded, report.encoder) == (len(notes), 0, "document")
    assert report.passages == len(shipment.passages)
    assert empty.engine.stats().encoders == {"document": len(shipment.passages)}
    stored = empty.engine.stored_vectors("stone", "document")
    for passage, vector in zip(shipment.passages, shipment.matrix, strict=True):
        if passage.document_id == "stone":
            np.testing.assert_array_equal(stored[passage.content], vector.astype(np.float32))
    hit = empty.search("尿酸结石", 1, explain=True)[0]
    assert hit.document_id == "stone"
    assert hit.explanation is not None and hit.explanation.encoder == "document"


def test_a_second_run_changes_nothing(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    take(empty, shipment, notes)
    assert take(empty, shipment, notes).unchanged == len(notes)


def test_float32_and_ids_without_digests_are_fine(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    shipment.write(matrix=shipment.matrix.astype(np.float32), ids=[p.id for p in shipment.passages])
    assert take(empty, shipment, notes).added == len(notes)


def test_rows_of_any_order_with_their_ids(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    order = np.random.default_rng(1).permutation(len(shipment.passages))
    shipment.write(matrix=shipment.matrix[order], ids=[shipment.passages[position].id for position in order])
    take(empty, shipment, notes)
    assert empty.search("尿酸结石", 1, mode="dense")[0].document_id == "stone"


def test_shuffled_rows_are_caught(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    shipment.write(matrix=np.roll(shipment.matrix, 3, axis=0))
    refused(empty, shipment, notes, "nearest to their own vector")


def test_another_models_vectors_are_caught(
    empty: Index, shipment: Shipment, notes: list[Document], foreign: Pair
) -> None:
    other = foreign.encoder().encode_documents([p.content for p in shipment.passages])
    shipment.write(matrix=other)
    refused(empty, shipment, notes, f"does not look like vectors of space {empty.pair.space.id}")


def test_a_changed_text_is_caught(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    changed = [notes[0]._replace(text=notes[0].text.replace("低盐", "高盐")), *notes[1:]]
    refused(empty, shipment, changed, "the text of passage 'bp#0' has changed")


def test_a_passage_without_a_vector(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    refused(
        empty,
        shipment,
        [*notes, Document("extra", "多出来的文档。")],
        "no vector for passage 'extra#0': encode the same",
    )


def test_the_wrong_dimension(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    shipment.write(matrix=shipment.matrix[:, :-1])
    refused(empty, shipment, notes, "48 columns")
    shipment.write(matrix=shipment.matrix.astype(np.float64))
    refused(empty, shipment, notes, "float16 or float32")
    shipment.write(matrix=shipment.matrix[0])
    refused(empty, shipment, notes, "48 columns")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers(empty: Index, shipment: Shipment, notes: list[Document], value: float) -> None:
    matrix = shipment.matrix.copy()
    matrix[-1, 5] = value
    shipment.write(matrix=matrix)
    refused(empty, shipment, notes, "NaN or infinite")


def test_vectors_that_are_not_normalised(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    matrix = shipment.matrix.copy()
    matrix[2] *= 3
    shipment.write(matrix=matrix)
    refused(empty, shipment, notes, f"{shipment.passages[2].id!r} has length 3.00.*renormalise")


def test_another_space(empty: Index, shipment: Shipment, notes: list[Document], foreign: Pair) -> None:
    shipment.write(space=foreign.space.id)
    with pytest.raises(SpaceMismatch, match=foreign.space.id):
        take(empty, shipment, notes)
    take(empty, shipment, notes, space=empty.pair.space.id)
    with pytest.raises(SpaceMismatch):
        take(empty, shipment, notes, space="sp-00000000000000000000")


def test_no_word_of_a_space(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    (shipment.folder / "vectors.json").unlink()
    refused(empty, shipment, notes, f"give --space ID .*{empty.pair.space.id}")
    for content in ("{", "[]", "{}"):
        (shipment.folder / "vectors.json").write_text(content)
        refused(empty, shipment, notes, "--space ID")


def test_ids_and_rows_of_different_runs(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    shipment.write(ids=[p.id for p in shipment.passages][:-1])
    refused(empty, shipment, notes, f"{len(shipment.passages) - 1} ids and .* {len(shipment.passages)} rows")
    shipment.write(ids=[p.id for p in shipment.passages[:-1]] + [shipment.passages[0].id])
    refused(empty, shipment, notes, "comes twice")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
def test_files_that_are_no_matrix(empty: Index, shipment: Shipment, notes: list[Document], content: bytes) -> None:
    (shipment.folder / "vectors.npy").write_bytes(content)
    refused(empty, shipment, notes, "numpy.save")


def test_an_archive_of_arrays_is_no_matrix(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    with (shipment.folder / "vectors.npy").open("wb") as file:
        np.savez(file, vectors=shipment.matrix)
    refused(empty, shipment, notes, "numpy.save")


def test_files_that_are_not_there(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    (shipment.folder / "ids.txt").write_bytes(b"\xff\xfe\x00")
    refused(empty, shipment, notes, "ids.txt cannot be read")
    (shipment.folder / "ids.txt").unlink()
    refused(empty, shipment, notes, "ids.txt cannot be read")
    (shipment.folder / "vectors.npy").unlink()
    refused(empty, shipment, notes, r"vectors\.npy: there is no such file")


def test_a_pickle_is_not_opened(empty: Index, shipment: Shipment, notes: list[Document]) -> None:
    np.save(shipment.folder / "vectors.npy", np.array([{"run": "me"}], dtype=object), allow_pickle=True)
    refused(empty, shipment, notes, "not a readable .npy matrix")
