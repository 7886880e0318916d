from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.bench.vector_cache import VectorCache, VectorError, contract_hash


class Counting:
    """Encodes a text as its length and first code point, and remembers what it was asked."""

    def __init__(self, width: int = 2) -> None:
        self.asked: list[str] = []
        self.width = width

    def __call__(self, texts):
        self.asked += texts
        return np.asarray([[len(text), ord(text[0]) if text else 0][: self.width] for text in texts], np.float32)


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(max_size=6), min_size=1, max_size=12), size=st.integers(1, 5))
def test_the_cache_gives_what_the_encoder_gives(texts: list[str], size: int):
    with TemporaryDirectory() as folder:
        cache, first, second = VectorCache(folder, shard_size=size), Counting(), Counting()
        stored = cache.all({"model": 1}, texts, first)
        again = cache.all({"model": 1}, texts, second)
        assert np.array_equal(stored, Counting()(texts)) and np.array_equal(stored, again)
        assert second.asked == []


def test_only_the_shard_that_changed_is_encoded(tmp_path: Path):
    cache = VectorCache(tmp_path, shard_size=2)
    cache.all({"m": 1}, ["a", "bb", "ccc", "d"], Counting())
    after = Counting()
    assert cache.all({"m": 1}, ["a", "bb", "ccc", "EE"], after)[:, 0].tolist() == [1, 2, 3, 2]
    assert after.asked == ["ccc", "EE"]


def test_another_contract_shares_nothing(tmp_path: Path):
    cache, other = VectorCache(tmp_path), Counting()
    cache.all({"m": 1}, ["a"], Counting())
    cache.all({"m": 2}, ["a"], other)
    assert other.asked == ["a"]
    assert (tmp_path / contract_hash({"m": 2}) / "contract.json").read_text() == '{\n  "m": 2\n}'


def test_texts_cut_elsewhere_are_other_texts(tmp_path: Path):
    cache, other = VectorCache(tmp_path), Counting()
    cache.all({}, ["ab", "c"], Counting())
    cache.all({}, ["a", "bc"], other)
    assert other.asked == ["a", "bc"]


def test_a_failure_keeps_the_shards_before_it(tmp_path: Path):
    cache, seen = VectorCache(tmp_path, shard_size=1), Counting()

    def fails(texts):
        if texts == ["c"]:
            raise RuntimeError("out of memory")
        return seen(texts)

    with pytest.raises(RuntimeError):
        cache.all({}, ["a", "b", "c", "d"], fails)
    later = Counting()
    cache.all({}, ["a", "b", "c", "d"], later)
    assert (seen.asked, later.asked) == (["a", "b"], ["c", "d"])
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x93NUMPY\x01\x00"])
def test_a_damaged_shard_is_made_again(damage: bytes, tmp_path: Path):
    cache = VectorCache(tmp_path)
    cache.all({}, ["a"], Counting())
    next(tmp_path.rglob("*.npy")).write_bytes(damage)
    again = Counting()
    assert cache.all({}, ["a"], again).shape == (1, 2) and again.asked == ["a"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((1, 3)), r"2 texts gave an array of shape \(1, 3\)"),
        (np.zeros(2), "one vector per text"),
        (np.asarray([[1.0, 2.0], [np.nan, 1.0]]), "vector of text 1 is not finite"),
    ],
)
def test_what_is_no_vector_is_refused_and_not_stored(given, words: str, tmp_path: Path):
    with pytest.raises(VectorError, match=words):
        VectorCache(tmp_path).all({}, ["a", "b"], lambda _: given)
    assert not list(tmp_path.rglob("*.npy"))


def test_an_encoder_that_changes_its_width_is_refused(tmp_path: Path):
    widths = iter([2, 1])
    with pytest.raises(VectorError, match="2 and of 1 dimensions"):
        VectorCache(tmp_path, shard_size=1).all({}, ["a", "b"], lambda t: Counting(next(widths))(t))


def test_without_a_folder_nothing_is_kept():
    cache, twice = VectorCache(None), Counting()
    cache.all({}, ["a"], twice)
    cache.all({}, ["a"], twice)
    assert twice.asked == ["a", "a"]


def test_progress_counts_texts(tmp_path: Path):
    told = []
    VectorCache(tmp_path, shard_size=2).all({}, list("abc"), Counting(), lambda done, total: told.append((done, total)))
    assert told == [(2, 3), (3, 3)]


def test_an_empty_shard_is_refused(tmp_path: Path):
    with pytest.raises(VectorError, match="at least 1"):
        VectorCache(tmp_path, shard_size=0)
