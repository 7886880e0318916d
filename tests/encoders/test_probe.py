from __future__ import annotations

import shutil

import numpy as np
import pytest

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.probe import ProbeFailed, probe_texts, verify_probe, write_probe
from suwen.encoders.space import DamagedPair, SpaceMismatch


def test_the_probe_is_32_different_texts():
    assert len(probe_texts()) == len(set(probe_texts())) == 32


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bf16 says that it takes another way
def test_the_source_and_its_bf16_form_pass(bert_folder, light_pair):
    assert verify_probe(DocumentEncoder.load(bert_folder, device="cpu"), light_pair) > 0.9999
    assert verify_probe(DocumentEncoder.load(bert_folder, device="cpu", dtype="bf16"), light_pair) >= 0.995
    assert verify_probe(Pair.load(light_pair).encoder("l2-fp32"), light_pair) > 0.9999


def test_another_model_of_the_same_width_fails(decoder_folder, light_pair):
    with pytest.raises(ProbeFailed, match="not the document encoder of tiny-light"):
        verify_probe(DocumentEncoder.load(decoder_folder, device="cpu"), light_pair)


def test_another_width_is_another_space(light_pair):
    class Wide:
        space = Pair.load(light_pair).space.model_copy(update={"dimension": 99})
        name = "wide"

        def encode_documents(self, texts: list[str]) -> np.ndarray:
            raise AssertionError("never asked")

    with pytest.raises(SpaceMismatch, match="wide"):
        verify_probe(Wide(), light_pair)


def test_a_folder_without_a_probe_is_named(light_pair, tmp_path):
    copy = shutil.copytree(light_pair, tmp_path / "pair")
    (copy / "probe.npy").unlink()
    with pytest.raises(DamagedPair, match="no probe"):
        verify_probe(Pair.load(copy).encoder(), copy)
    with pytest.raises(ProbeFailed, match="2 vectors for 32 texts"):
        write_probe(copy, np.zeros((2, 24), np.float32))
