"""Documents shared out among threads: the same vectors, in the same order."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from suwen.encoders.cores import OnAllCores, cores, in_bulk
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors

TEXTS = [f"第{number}位患者血压偏高，应低盐饮食" * (1 + number % 7) for number in range(45)]


@pytest.mark.parametrize("workers", [None, 1, 2, 3, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 45])
def test_the_vectors_are_those_of_the_encoder_itself(workers: int | None, count: int) -> None:
    encoder = Pair.load().encoder("l6")
    shared = OnAllCores(encoder, workers)
    assert (shared.name, shared.dimension) == (encoder.name, encoder.dimension)
    np.testing.assert_array_equal(shared.encode_documents(TEXTS[:count]), encoder.encode_documents(TEXTS[:count]))
    np.testing.assert_array_equal(shared.encode_queries(TEXTS[:count]), encoder.encode_queries(TEXTS[:count]))
    assert shared.count_tokens(TEXTS[:count]) == encoder.count_tokens(TEXTS[:count])


class Together:
    """Encodes only while as many others do: alone it waits for ever."""

    name, dimension = "together", 1

    def __init__(self, count: int) -> None:
        self.met = threading.Barrier(count, timeout=300)

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        self.met.wait()
        return np.array([[float(text)] for text in texts], np.float32)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        raise AssertionError

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        raise AssertionError


def test_several_texts_are_encoded_at_once() -> None:
    texts = [str(number) for number in range(12)]
    found = OnAllCores(Together(3), 3).encode_documents(texts)
    assert found[:, 0].tolist() == [float(text) for text in texts]


def test_an_error_of_one_thread_is_everyones() -> None:
    with pytest.raises(ValueError, match="could not convert string to float: 'x'"):
        OnAllCores(Together(2), 2).encode_documents(["1", "2", "3", "x"])


def test_a_graph_is_shared_out_and_a_table_is_not() -> None:
    pair = Pair.load()
    assert isinstance(in_bulk(pair), OnAllCores) and in_bulk(pair).name == "l6"
    assert in_bulk(pair, "static") is pair.encoder("static")


def test_there_is_a_core() -> None:
    assert cores() >= 1
