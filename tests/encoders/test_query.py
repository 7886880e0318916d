from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.encoders.pair import Pair
from suwen.encoders.query import EncoderError, OnnxEncoder
from suwen.encoders.space import DamagedPair

STRANGE = ["", " ", "\0", "😀👩‍⚕️", "\ud83d", "a\ud83d\ude00b", "́́́", "NaN", "高" * 5000, "؟مرحبا", "\n\t\r"]


@pytest.fixture(scope="module")
def pair(light_pair: Path) -> Pair:
    return Pair.load(light_pair)


@pytest.mark.parametrize("tier", ["l2", "l2-fp32", "static"])
def test_strange_texts_give_unit_vectors(pair, tier):
    encoder = pair.encoder(tier)
    for encode in (encoder.encode_queries, encoder.encode_documents):
        vectors = encode(STRANGE)
        assert vectors.dtype == np.float32 and vectors.shape == (len(STRANGE), pair.space.dimension)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("tier", ["l2", "l2-fp32", "static"])
def test_a_megabyte_of_text_is_cut_not_refused(pair, tier, models):
    long = "".join(models.TEXTS) * 2_000
    assert len(long.encode()) > 1_000_000
    vectors = pair.encoder(tier).encode_queries([long, long + "尾巴"])
    assert np.array_equal(vectors[0], vectors[1])


@pytest.mark.parametrize("tier", ["l2", "l2-fp32", "static"])
def test_a_text_alone_and_among_others_is_one_vector(pair, tier, models):
    texts = [*models.TEXTS, *STRANGE, "短"]
    encoder = pair.encoder(tier)
    for encode in (encoder.encode_queries, encoder.encode_documents):
        together, alone = encode(texts), np.concatenate([encode([text]) for text in texts])
        assert (together * alone).sum(axis=1).min() >= 0.999


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(st.text(max_size=60), max_size=4))
def test_any_text_has_a_finite_vector(light_pair, texts):
    vectors = _shared(light_pair).encode_queries(texts)
    assert vectors.shape == (len(texts), 24) and np.isfinite(vectors).all()


_pairs: dict[Path, Pair] = {}


def _shared(folder: Path):
    return _pairs.setdefault(folder, Pair.load(folder)).encoder("l2")


def test_the_form_changes_the_vector(pair):
    encoder = pair.encoder("l2-fp32")
    query, document = encoder.encode_queries(["高血压"])[0], encoder.encode_documents(["高血压"])[0]
    assert query @ document < 0.9999
    assert np.allclose(query, encoder.encode_documents(["查询: 高血压"])[0], atol=1e-6)


def test_truncation_keeps_the_end_token(pair):
    tokens = pair.encoder("l2")._tokens
    ids = tokens.ids("血压 " * 500)
    assert len(ids) == pair.manifest.tiers["l2"].max_length
    assert ids[0] == 2 and ids[-1] == 3, "[CLS] and [SEP] of the tokenizer"


def test_counts_are_of_the_whole_text_without_special_tokens(pair):
    count = pair.encoder("l2").count_tokens
    assert count(["", "高血压", "高血压 " * 300, "\ud83d胃"]) == [0, 3, 900, 1]
    assert pair.count_tokens(["高血压"]) == pair.encoder("static").count_tokens(["高血压"]) == [3]


def test_no_texts_no_rows(pair):
    for tier in pair.tiers:
        assert pair.encoder(tier).encode_queries([]).shape == (0, 24)
        assert pair.count_tokens([]) == []


def test_a_graph_of_another_width_is_refused(pair):
    tier = pair.manifest.tiers["l2"]
    with pytest.raises(EncoderError, match="24 dimensions, its space has 32"):
        OnnxEncoder(pair.path / tier.path, tier, name="l2", dimension=32)


def test_files_that_are_not_what_they_should_be_are_named(pair, tmp_path):
    tier = pair.manifest.tiers["l2"]
    shutil.copytree(pair.path / tier.path, tmp_path / "l2")
    (tmp_path / "l2" / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(DamagedPair, match=r"model\.onnx is not an ONNX graph"):
        OnnxEncoder(tmp_path / "l2", tier, name="l2", dimension=24)
    (tmp_path / "l2" / "tokenizer.json").write_text("{}")
    with pytest.raises(DamagedPair, match=r"tokenizer\.json is not a tokenizer"):
        OnnxEncoder(tmp_path / "l2", tier, name="l2", dimension=24)


def test_threads_do_not_change_the_vector(pair):
    for threads in (None, 2):
        other = pair.encoder("l2", threads=threads)
        assert np.allclose(other.encode_queries(["胃痛"]), pair.encoder("l2").encode_queries(["胃痛"]), atol=1e-5)
