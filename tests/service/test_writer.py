"""The writer's thread and its encoder: in order, in short steps, and ended between two of them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.pair import Pair
from suwen.service.problems import Problem
from suwen.service.writer import InSteps, Writer

TEXTS = [f"第{number}句：多饮水。" for number in range(700)]


def test_vectors_are_those_of_one_go(static_pair: Path) -> None:
    encoder = Pair.load(static_pair).encoder()
    steps = InSteps(encoder, threading.Lock(), lambda: None, breath=True)
    np.testing.assert_array_equal(steps.encode_documents(TEXTS), encoder.encode_documents(TEXTS))
    assert steps.encode_documents([]).shape == (0, encoder.dimension)
    assert steps.count_tokens(TEXTS[:3]) == encoder.count_tokens(TEXTS[:3])


def test_it_stops_between_two_steps(static_pair: Path) -> None:
    encoder = Pair.load(static_pair).encoder()
    looks: list[int] = []

    def stop() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise Problem("stopping", "enough")

    with pytest.raises(Problem, match="enough"):
        InSteps(encoder, threading.Lock(), stop).encode_documents(TEXTS)
    assert len(looks) == 3


def test_steps_of_several_take_turns(static_pair: Path) -> None:
    encoder, turn = Pair.load(static_pair).encoder(), threading.Lock()
    at_work: list[int] = []

    class Counting:
        name, dimension = encoder.name, encoder.dimension

        def encode(self, texts: list[str], **options: object) -> np.ndarray:
            at_work.append(1)
            time.sleep(0.001)
            assert len(at_work) == 1, "two steps at once"
            at_work.pop()
            return np.zeros((len(texts), self.dimension), dtype=np.float32)

    def work(breath: bool) -> None:
        InSteps(Counting(), turn, lambda: None, breath=breath).encode(TEXTS)  # type: ignore[arg-type]

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_has_not_begun_when_it_gives_up_never_begins() -> None:
    writer, go, done = Writer(), threading.Event(), []
    first = writer.submit(lambda: (go.wait(60), done.append("first")))
    while not writer.busy_seconds():
        time.sleep(0.001)
    assert "in wait" in writer.at()
    second = writer.submit(lambda: done.append("second"))
    writer.give_up.set()
    go.set()
    first.result()
    with pytest.raises(Problem, match="nothing of this was stored"):
        second.result()
    assert done == ["first"] and writer.busy_seconds() == 0.0
    writer.pool.shutdown()
