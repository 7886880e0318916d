from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tokenizers import Tokenizer, models, pre_tokenizers

from suwen.encoders.prompts import Prompts
from suwen.encoders.query import EncoderError
from suwen.encoders.space import DamagedPair, Tier
from suwen.encoders.static import StaticEncoder, unit

WORDS = {"[UNK]": 0, "fever": 1, "cough": 2, "query": 3}


def write_tier(folder: Path, *, form: bool = False, rows=None, prompts: Prompts | None = None) -> StaticEncoder:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = np.array([[1, 1], [127, 0], [0, 127], [0, -127]], np.int8) if rows is None else rows
    np.save(folder / "embeddings.npy", rows)
    np.save(folder / "scales.npy", np.array([1, 1 / 127, 3 / 127, 1 / 127], np.float32))
    if form:
        np.save(folder / "form.npy", np.array([[0, 0], [0, 1]], np.float32))
    names = ["tokenizer.json", "embeddings.npy", "scales.npy", *(["form.npy"] if form else [])]
    tier = Tier(
        kind="static",
        path="query/static",
        files=dict.fromkeys(names, "0" * 64),
        prompts=prompts or Prompts(),
        max_length=4,
        precision="int8",
        aligned_to="sp-" + "0" * 20,
    )
    return StaticEncoder(folder, tier, name="static", dimension=2)


def test_a_vector_is_the_weighted_mean_of_its_rows(tmp_path):
    encoder = write_tier(tmp_path)
    found = encoder.encode_queries(["fever", "fever cough", "cough fever"])
    assert np.allclose(found[0], [1, 0])
    assert np.allclose(found[1], np.array([1, 3]) / np.sqrt(10)), "cough weighs three times as much"
    assert np.array_equal(found[1], found[2])


def test_the_form_is_added_to_the_mean(tmp_path):
    encoder = write_tier(tmp_path, form=True)
    assert np.allclose(encoder.encode_queries(["fever"]), [[1, 0]])
    assert np.allclose(encoder.encode_documents(["fever"]), np.array([[1, 1]]) / np.sqrt(2))


def test_a_prompt_is_part_of_the_text(tmp_path):
    encoder = write_tier(tmp_path, prompts=Prompts(query="query "))
    assert np.allclose(encoder.encode_queries(["fever"]), np.array([[1, -1]]) / np.sqrt(2))
    assert np.allclose(encoder.encode_documents(["fever"]), [[1, 0]])


def test_texts_without_a_known_token_are_the_unknown_row(tmp_path):
    found = write_tier(tmp_path).encode_queries(["", "   ", "zzz", "zzz yyy"])
    assert np.allclose(found, np.full((4, 2), np.sqrt(0.5)))


def test_rows_that_cancel_out_still_give_a_unit_vector(tmp_path):
    rows = np.array([[0, 0], [127, 0], [0, 127], [-127, 0]], np.int8)
    found = write_tier(tmp_path, rows=rows).encode_queries(["fever query", ""])
    assert np.allclose(np.linalg.norm(found, axis=1), 1)


def test_the_length_cuts(tmp_path):
    found = write_tier(tmp_path).encode_queries(["fever fever fever fever cough cough"])
    assert np.allclose(found, [[1, 0]])


def test_files_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(EncoderError, match="do not fit a space of 2"):
        write_tier(tmp_path, rows=np.ones((4, 3), np.int8))
    with pytest.raises(DamagedPair, match="holds float32, not int8"):
        write_tier(tmp_path, rows=np.ones((4, 2), np.float32))
    with pytest.raises(DamagedPair, match="not an array"):
        write_tier(tmp_path, rows=np.array([{"a": 1}], dtype=object))


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(-1e6, 1e6, width=32)))
def test_unit_always_gives_length_one(vectors):
    assert np.allclose(np.linalg.norm(unit(vectors), axis=1), 1, atol=1e-4)
