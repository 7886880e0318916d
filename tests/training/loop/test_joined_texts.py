"""Pairs of texts whose ids are put together: the same as of the joined text, cut ones too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.corpora.training_rows import TrainingRow
from suwen.encoders.pair import Pair
from suwen.encoders.side import Side
from suwen.training.cross_encoders import candidates, read_apart, sizes
from suwen.training.loop.batches import tokenise
from suwen.training.students.tier_weights import open_tier
from suwen.training.students.two_texts import TEMPLATE

MOST, CHARACTERS = 48, 24
TEXT = st.text(st.sampled_from("胃痛高血压 \n\tab3.,-'é你𠀀😀[]QDSEPCLS"), max_size=70)


@pytest.fixture(scope="module")
def side() -> Side:
    return Side(open_tier(Pair.load(), "l6"), "document")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(TEXT, TEXT, st.lists(TEXT, min_size=1, max_size=4)), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_ids_are_those_of_the_joined_text(side: Side, rows: list, order, tmp_path_factory) -> None:
    lists = [TrainingRow(query, (right,), tuple(wrong)) for query, right, wrong in rows]
    cache = tmp_path_factory.mktemp("tokens")
    made = read_apart(lists, side, CHARACTERS, MOST, cache)
    assert made is not None and len(made) == sum(sizes(lists))
    places = np.arange(len(made))
    order.shuffle(places)
    whole = tokenise(side, [*candidates(lists, TEMPLATE, CHARACTERS), "another"], prompt="", max_length=MOST)
    (ids, lengths), (expected, own) = made.take(places), whole.take(places)
    assert lengths.tolist() == own.tolist() == made.lengths(places).tolist()
    assert ids.tolist() == expected.tolist()
    assert made.full(places) == whole.full(places)


def test_a_query_that_leaves_no_room_is_not_read_apart(side: Side, tmp_path: Path) -> None:
    rows = [TrainingRow("3.1 " * 20, ("少吃盐",), ("多喝水",))]
    assert read_apart(rows, side, 80, MOST, tmp_path) is None
