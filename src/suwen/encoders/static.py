"""The static tier: a vector is the weighted mean of its tokens' rows. A table lookup, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suwen.encoders.prompts import Form
from suwen.encoders.query import Encoder, EncoderError, Vectors
from suwen.encoders.space import DamagedPair, Tier
from suwen.encoders.tokens import Tokens


class StaticEncoder(Encoder):
    """A tier of kind ``static``.

    ``embeddings.npy`` holds the rows as int8 ``[vocabulary, dimension]`` and is memory-mapped; ``scales.npy`` holds for
    each row one float32 that restores it, with the token's weight folded in. ``form.npy`` (optional, float32
    ``[2, dimension]``) is added to the mean so that a text knows whether it is a query (row 0) or a document (row 1).

    Args:
        folder: The tier's folder.
        tier: What the manifest says of it.
        name: The tier's name.
        dimension: The space's dimension.
        normalise: Whether the space's vectors have length one.
    """

    def __init__(self, folder: Path, tier: Tier, *, name: str, dimension: int, normalise: bool = True) -> None:
        self.name, self.dimension, self._normalise = name, dimension, normalise
        self._prompts = tier.prompts
        self._tokens = Tokens(folder / "tokenizer.json", tier.max_length, special=False)
        # As a plain array over the mapped file: picking rows of a memmap takes twice as long.
        self._rows = np.asarray(_array(folder / "embeddings.npy", mapped=True))
        self._scales = _array(folder / "scales.npy")
        has_form = "form.npy" in tier.files
        self._form = _array(folder / "form.npy") if has_form else np.zeros((2, dimension), np.float32)
        shapes = (self._rows.shape[1:], self._scales.shape, self._form.shape)
        if shapes != ((dimension,), self._rows.shape[:1], (2, dimension)):
            raise EncoderError(
                f"tier {name!r}: embeddings {self._rows.shape}, scales {self._scales.shape} and form "
                f"{self._form.shape} do not fit a space of {dimension} dimensions: export the tier again"
            )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has, neither cut nor with special tokens."""
        return self._tokens.count(texts)

    def encode(self, texts: Sequence[str], *, form: Form = "document", instruction: str | None = None) -> Vectors:
        """Encode texts in the form of documents or of queries."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        prompt, added = self._prompts.before(form, instruction), self._form[("query", "document").index(form)]
        for position, text in enumerate(texts):
            ids = np.array(self._tokens.ids(prompt + text))
            vectors[position] = self._scales[ids] @ self._rows[ids].astype(np.float32) / len(ids) + added
        return unit(vectors) if self._normalise else vectors


def unit(vectors: Vectors) -> Vectors:
    """Rows scaled to length one. A row without direction becomes the diagonal, so that no NaN ever leaves here."""
    # What np.linalg.norm does, at a third of its cost: every query comes here twice.
    lengths = np.sqrt(np.add.reduce(vectors * vectors, axis=1, keepdims=True))
    if all(1e-12 <= length < np.inf for length in lengths[:, 0].tolist()):
        return np.asarray(vectors / lengths, dtype=np.float32)
    lost = (lengths < 1e-12) | ~np.isfinite(lengths)
    scaled = vectors / np.where(lost, 1.0, lengths)
    diagonal = np.float32(1.0 / np.sqrt(vectors.shape[1]))
    return np.where(lost, diagonal, scaled).astype(np.float32, copy=False)


def _array(file: Path, *, mapped: bool = False) -> Any:
    expected = np.int8 if mapped else np.float32
    try:
        array = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DamagedPair(f"{file} is not an array that can be read ({error}): export the tier again") from error
    if array.dtype != expected:
        raise DamagedPair(f"{file} holds {array.dtype}, not {np.dtype(expected)}: export the tier again")
    return array
