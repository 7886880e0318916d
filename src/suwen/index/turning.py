"""Vectors in other axes, so that no few dimensions outweigh the rest. Lengths and inner products stay as they are.

Sign bits and int8 codes treat all dimensions alike, which a decoder's last states are not: of Qwen2.5-Coder-0.5B's, on
200 abstracts, a few have forty times the variance of the middle one, and the mean makes up 0.98 of the squared length.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from suwen.index.engine import Vectors


def turned(vectors: Vectors) -> Vectors:
    """One vector or many, each dimension spread over as many others as the largest power of two allows.

    Signs are changed that were drawn once and for all, then a Hadamard matrix is applied: to the first dimensions and,
    where their number is no power of two, once more to the last.

    >>> turned(np.array([8, 0, 0, 0], np.float32))
    array([-4., -4., -4., -4.], dtype=float32)
    """
    dimension = vectors.shape[-1]
    width = 1 << (dimension.bit_length() - 1)
    signs, made = _signs(dimension), vectors
    for number, start in enumerate(sorted({0, dimension - width})):
        made = made * signs[number]
        made[..., start : start + width] = _spread(made[..., start : start + width])
    return np.asarray(made, dtype=np.float32)


def _spread(vectors: Vectors) -> Vectors:
    """By the Hadamard matrix, which is the Kronecker product of two smaller ones: far fewer products."""
    left, right = _factors(vectors.shape[-1])
    pairs = vectors.reshape(*vectors.shape[:-1], len(left), len(right))
    made = np.asarray(left @ pairs @ right, dtype=np.float32).reshape(vectors.shape)
    return made / np.float32(vectors.shape[-1] ** 0.5)


@lru_cache(maxsize=8)
def _factors(width: int) -> tuple[Vectors, Vectors]:
    made = [np.ones((1, 1), dtype=np.float32)] * 2
    for step in range(width.bit_length() - 1):
        one = made[step % 2]
        made[step % 2] = np.block([[one, one], [one, -one]])
    return made[0], made[1]


@lru_cache(maxsize=8)
def _signs(dimension: int) -> Vectors:
    drawn = hashlib.shake_256(b"suwen").digest((2 * dimension + 7) // 8)
    bits = np.unpackbits(np.frombuffer(drawn, np.uint8), count=2 * dimension)
    return np.where(bits == 1, 1, -1).astype(np.float32).reshape(2, dimension)
