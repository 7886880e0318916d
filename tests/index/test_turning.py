"""Other axes: what stays and what spreads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from suwen.index import turning
from suwen.index.turning import turned


@pytest.mark.parametrize("dimension", [1, 2, 3, 8, 13, 64, 512, 768, 896, 1000, 1536])
def test_lengths_and_products_stay_and_dimensions_spread(dimension: int) -> None:
    vectors = np.random.default_rng(dimension).standard_normal((20, dimension)).astype(np.float32)
    made = turned(vectors)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made @ made.T, vectors @ vectors.T, atol=1e-3 * dimension**0.5)
    np.testing.assert_allclose([turned(vector) for vector in vectors], made, atol=1e-5)
    axes = turned(np.eye(dimension, dtype=np.float32))
    np.testing.assert_allclose(axes @ axes.T, np.eye(dimension), atol=1e-5)
    # Of one dimension no other holds more than a small share.
    assert np.abs(axes).max() <= 3 * dimension**-0.5 or dimension < 64


def test_of_a_power_of_two_it_is_the_hadamard_matrix_after_changes_of_sign() -> None:
    drawn = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    signs = turning._signs(32)[0]
    np.testing.assert_allclose(turned(drawn), (drawn * signs) @ hadamard(32) / 32**0.5, atol=1e-5)


def test_the_signs_are_the_same_in_every_release() -> None:
    assert turning._signs(12)[0].tolist() == [-1, -1, 1, 1, 1, 1, 1, -1, 1, -1, 1, 1]
