"""Batches depend on the seed and the step alone, and lose no row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.training.loop import batches
from suwen.training.loop.batches import BatchError, Lazy, OneSourceBatches, Ragged, Shuffled, chunks, kept, tokenise

RAGGED = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=7), min_size=1, max_size=12)


def tokens_of(texts: list[list[int]]) -> Ragged:
    ids = np.array([id_ for text in texts for id_ in text], np.int32)
    return Ragged(ids, np.cumsum([0, *map(len, texts)]))


@given(RAGGED, st.data())
def test_taken_texts_are_the_texts(texts, data):
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=20))
    flat, lengths = tokens_of(texts).take(np.array(rows))
    assert flat.tolist() == [id_ for row in rows for id_ in texts[row]]
    assert lengths.tolist() == [len(texts[row]) for row in rows]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60), st.one_of(st.none(), st.integers(1, 5)))
def test_chunks_cover_the_batch_within_both_budgets(lengths, budget, most):
    pieces = chunks(np.array(lengths, np.int64), budget, most)
    assert [place for piece in pieces for place in range(len(lengths))[piece]] == list(range(len(lengths)))
    for piece in pieces:
        assert sum(lengths[piece]) <= budget or piece.stop - piece.start == 1
        assert most is None or piece.stop - piece.start <= most
    for piece, after in pairwise(pieces):  # no piece but the first has room for one more
        assert sum(lengths[piece.stop - 1 : after.stop]) > budget or after.stop - after.start == most


def test_an_epoch_sees_every_text_once_and_the_next_in_another_order():
    order = Shuffled(12, 4, seed=3)
    epochs = [np.concatenate([order.rows(step) for step in range(start, start + 3)]) for start in (0, 3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_a_step_is_the_same_however_it_is_reached():
    walked, jumped = Shuffled(100, 7, seed=1), Shuffled(100, 7, seed=1)
    for step in range(40):
        walked.rows(step)
    assert jumped.rows(41).tolist() == walked.rows(41).tolist()


def test_one_text_is_no_batch():
    with pytest.raises(BatchError, match="1 texts are left"):
        Shuffled(1, 4, seed=0)


def test_every_batch_is_of_one_source_and_inside_it():
    batches = OneSourceBatches({"a": 10, "b": 25}, 4, seed=0)
    for step in range(3 * batches.per_epoch):
        found = batches.rows(step)
        assert found.positions.max() < {"a": 10, "b": 25}[found.source]
        assert 2 <= len(found.positions) <= 4


def test_a_limit_shows_other_rows_in_other_epochs():
    batches = OneSourceBatches({"big": 40}, 4, seed=0, limit=8)
    assert batches.per_epoch == 2
    seen = {row for step in range(10) for row in batches.rows(step).positions.tolist()}
    assert seen == set(range(40))


def test_weights_multiply_a_source():
    plain = OneSourceBatches({"a": 40, "b": 40}, 4, seed=0)
    weighted = OneSourceBatches({"a": 40, "b": 40}, 4, seed=0, weights={"a": 2.0})
    assert weighted.per_epoch == plain.per_epoch + 10


def test_an_unknown_weight_names_the_sources():
    with pytest.raises(BatchError, match="weights name c, but the sources are a, b"):
        OneSourceBatches({"a": 4, "b": 4}, 2, seed=0, weights={"c": 1.0})


class Letters:
    """Each letter is a token; counts what it was asked."""

    prompt, max_length, is_static = "", 9, False

    def __init__(self) -> None:
        self.backend, self.asked = self, []

    def to_str(self) -> str:
        return "letters"

    def ids(self, texts: list[str], *, max_length: int) -> list[list[int]]:
        self.asked += texts
        if "!" in texts:
            raise KeyboardInterrupt
        return [list(map(ord, text[:max_length])) for text in texts]


def test_tokens_are_made_once_and_what_was_cut_short_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "_SLICE", 2)
    side, texts = Letters(), ["ab", "c", "d", "!", "", "efg"]
    with pytest.raises(KeyboardInterrupt):
        tokenise(side, Lazy(6, texts.__getitem__, "six texts"), cache=tmp_path)
    assert side.asked == ["ab", "c", "d", "!"]
    texts[3] = "xy"
    for _ in range(2):  # the second time nothing is asked
        found = tokenise(side, Lazy(6, texts.__getitem__, "six texts"), cache=tmp_path)
        assert side.asked[4:] == ["d", "xy", "", "efg"], "the part that was finished is not made again"
        assert [bytes(found[row].tolist()).decode() for row in range(6)] == texts
    assert len(list(tmp_path.glob("tokens-*"))) == 1, "no parts are left"
    plain = tokenise(side, texts)
    assert plain.ids.tolist() == found.ids.tolist() and plain.offsets.tolist() == found.offsets.tolist()


def test_no_text_is_no_token(tmp_path):
    # Rows that are all symmetric leave no document in document form.
    for cache in (None, tmp_path):
        tokens = tokenise(Letters(), [], cache=cache)
        assert (tokens.ids.tolist(), tokens.offsets.tolist()) == ([], [0])


def test_texts_without_an_identity_are_told_apart_by_what_they_say(tmp_path):
    side = Letters()
    assert [tokenise(side, [text], cache=tmp_path).ids.tolist() for text in "ab"] == [[97], [98]]


def test_kept_arrays_are_mapped_and_not_made_when_the_making_fails(tmp_path):
    def fail(folder):
        np.save(folder / "half.npy", np.zeros(3))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path / "arrays", fail)
    made = kept(tmp_path / "arrays", lambda _: {"whole": np.arange(3)})
    assert made["whole"].tolist() == [0, 1, 2] and list(made) == ["whole"]
    assert not made["whole"].flags.writeable and isinstance(made["whole"].base.base, np.memmap)


def test_kept_arrays_come_back_alike_from_one_file_and_from_many(tmp_path, monkeypatch):
    given = {
        "words": np.array([b"a\0b", b""], "S12"),
        "names": np.array(["头痛", "x"]),
        "flags": np.array([True, False, True]),
        "numbers": np.arange(6, dtype=np.int64).reshape(3, 2),
        "none": np.zeros(0, np.int32),
    }
    for most, files in ((batches._SMALL, 1), (0, 5)):  # larger ones are kept in a file each, as all were at first
        monkeypatch.setattr(batches, "_SMALL", most)
        made = kept(tmp_path / str(most), lambda _: given)
        assert len(list((tmp_path / str(most)).iterdir())) == files
        assert {name: (array.dtype, array.tolist()) for name, array in made.items()} == {
            name: (array.dtype, array.tolist()) for name, array in given.items()
        }
        assert all(array.flags.aligned for array in made.values())


def test_a_lazy_sequence_gives_items_lists_and_arrays():
    lazy = Lazy(5, lambda place: place * 10)
    assert (lazy[1], lazy[-1], lazy[1:4], list(lazy)) == (10, 40, [10, 20, 30], [0, 10, 20, 30, 40])
    assert lazy[np.array([3, 0])].tolist() == [30, 0]
    with pytest.raises(IndexError):
        lazy[5]
