from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.query import EncoderError
from suwen.encoders.space import DamagedPair, ManifestError


def test_the_argument_comes_before_the_environment(light_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("SUWEN_PAIR", str(tmp_path))
    assert Pair.load(light_pair).name == "tiny-light"
    with pytest.raises(ManifestError, match="from SUWEN_PAIR"):
        Pair.load()
    monkeypatch.setenv("SUWEN_PAIR", str(light_pair))
    assert Pair.load().path == light_pair
    assert Pair.load(light_pair / "suwen.json").path == light_pair


def test_the_default_pair_is_inside_the_package():
    assert default_pair_path().parts[-3:] == ("suwen", "models", "default")


def test_what_a_pair_says_of_itself(light_pair):
    pair = Pair.load(light_pair)
    assert pair.tiers == ["l2", "l2-fp32", "static"]
    assert (pair.default_tier, pair.fastest) == ("l2", "static")
    assert pair.encoder().name == "l2" and pair.encoder().dimension == pair.space.dimension == 24
    assert pair.encoder("static") is pair.encoder("static")


def test_an_unknown_tier_lists_the_known(light_pair):
    with pytest.raises(EncoderError, match="no tier 'l12': choose one of l2, l2-fp32, static"):
        Pair.load(light_pair).encoder("l12")


def test_a_full_pair_without_tiers_says_what_to_do(router_folder):
    with pytest.raises(EncoderError, match="suwen export"):
        Pair.load(router_folder).encoder()


def test_a_damaged_tier_is_found_when_it_is_used_and_others_work(light_pair, tmp_path):
    copy = shutil.copytree(light_pair, tmp_path / "pair")
    file = copy / "query" / "l2" / "model.onnx"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    pair = Pair.load(copy)
    assert pair.encoder("static").encode_queries(["胃痛"]).shape == (1, 24)
    with pytest.raises(DamagedPair, match=r"model\.onnx is damaged"):
        pair.encoder("l2")
    file.unlink()
    with pytest.raises(DamagedPair, match=r"model\.onnx is missing"):
        Pair.load(copy)


def test_a_hash_is_computed_again_when_the_file_changes(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    first = sha256_of(file)
    file.write_text("22")
    assert sha256_of(file) != first


def test_threads_may_share_a_pair(light_pair):
    pair = Pair.load(light_pair)
    alone = Pair.load(light_pair).encoder().encode_queries(["失眠"])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: pair.encoder().encode_queries(["失眠"]), range(16)))
    assert all(np.array_equal(vector, alone) for vector in found)


def test_serving_a_pair_imports_nothing_heavy(light_pair):
    script = (
        "import sys; from suwen.encoders.pair import Pair;"
        f"[Pair.load({str(light_pair)!r}).encoder(t).encode_queries(['胃痛']) for t in ('l2', 'static')];"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'onnx', 'pyarrow') if m in sys.modules])"
    )
    environment = {"PYTHONPATH": str(Path(sys.modules["suwen"].__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "[]", done.stderr
