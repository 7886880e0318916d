"""Vectors that come from a worker: read, and checked before any of them is stored. Stores nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from suwen.encoders.probe import LEAST_COSINE, row_cosines
from suwen.encoders.space import Space
from suwen.index.engine import Reencoded, Vectors
from suwen.service.problems import Problem
from suwen.service.request_checks import LONGEST_ID, Part, check_count

#: How far from length 1 a vector may be: fp16 keeps three digits.
_UNEVEN = 0.01


class Result(Part):
    """The vectors of one document."""

    id: str = Field(min_length=1, max_length=LONGEST_ID)
    version: str = Field(description="As leased: the document must still have it.")
    vectors: str = Field(description="Base64 of the passages' vectors, row by row, little-endian.")
    dtype: Literal["float16", "float32"] = "float16"


class Proof(Part):
    """What the worker's encoder makes of a text whose vector the server knows."""

    number: int = Field(ge=0, description="Which of the probe's texts it is: the one that came with the lease.")
    vector: str = Field(description="Base64 of its vector, little-endian.")
    dtype: Literal["float16", "float32"] = "float16"


def check_proof(proof: Proof | None, stored: Vectors, wanted: int | None, space: Space) -> None:
    """Raise ``wrong_vectors`` unless a worker's encoder gives a probe text the vector that the space gives it.

    Args:
        proof: What the worker sent.
        stored: The vectors of the probe's texts; without any there is nothing to prove.
        wanted: Which text the lease asked for; any will do for a lease that has ended.
        space: The index's.
    """
    if not len(stored):
        return
    if proof is None or proof.number >= len(stored) or wanted not in (None, proof.number):
        raise Problem(
            "wrong_vectors",
            "the vector of the text that came with the lease is missing: send it as probe (a worker of this release "
            "does, upgrade yours)",
            param="probe",
        )
    vector = _vectors(proof.vector, proof.dtype, space, "probe.vector")
    cosine = float(row_cosines(vector[:1], stored[proof.number : proof.number + 1])[0])
    if len(vector) != 1 or cosine < LEAST_COSINE:
        raise Problem(
            "wrong_vectors",
            f"the worker's encoder is not the space's: it gives text {proof.number} of the probe a vector whose cosine "
            f"with "
            f"the right one is {cosine:.3f}, under {LEAST_COSINE}. Check its weights, prompt and pooling",
            param="probe",
        )


def decoded(results: Sequence[Result], space: Space, most: int) -> list[Reencoded]:
    """The vectors of a request, checked: nothing of it is stored when one of them is wrong."""
    check_count(len(results), most, "results")
    seen: set[str] = set()
    made = []
    for number, one in enumerate(results):
        if one.id in seen:
            raise Problem("duplicate_id", f"the id {one.id!r} is twice in this request", param=f"results.{number}.id")
        seen.add(one.id)
        made.append(
            Reencoded(one.id, one.version, _vectors(one.vectors, one.dtype, space, f"results.{number}.vectors"))
        )
    return made


def _vectors(text: str, dtype: str, space: Space, param: str) -> Vectors:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Problem("wrong_vectors", f"{param} is not base64", param=param) from None
    kind = np.dtype(dtype).newbyteorder("<")
    if not data or len(data) % (space.dimension * kind.itemsize):
        raise Problem(
            "wrong_vectors",
            f"{param} has {len(data)} bytes: a row is {space.dimension} numbers of {kind.itemsize} bytes",
            param=param,
        )
    vectors = np.frombuffer(data, dtype=kind).reshape(-1, space.dimension).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise Problem("wrong_vectors", f"{param} holds a value that is not finite: encode again", param=param)
    lengths = np.linalg.norm(vectors, axis=1)
    if space.normalise and np.abs(lengths - 1).max() > _UNEVEN:
        worst = float(lengths[np.abs(lengths - 1).argmax()])
        raise Problem(
            "wrong_vectors",
            f"{param} has a vector of length {worst:.3f}: the space's have length 1, cut and renormalise them",
            param=param,
        )
    return vectors
