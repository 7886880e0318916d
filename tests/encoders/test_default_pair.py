"""The pair inside the package, as a user without a model of their own meets it; whatever its weights are."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from suwen.corpora.sample_collection import sample_passages
from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.pair_files import sha256_of_files, verify_files
from suwen.encoders.space import AdapterDocument
from suwen.encoders.static import unit
from suwen.encoders.who_encodes import choose_encoder
from suwen.retrieve.sample import FOLDER, stored_vectors

#: What a package may carry: all files together, and any one of them.
ALL, LARGEST = 45_000_000, 16 << 20

TRIPLES = [
    ("高血压患者平时要注意什么", "血压偏高的病人饮食应当清淡少盐", "孩子牙齿长得不整齐要不要矫正"),
    ("感冒发烧怎么办", "发热时多喝水，体温超过38.5度可服退烧药", "骨折以后多久可以拆石膏"),
    ("糖尿病能吃水果吗", "血糖控制平稳时，糖尿病人可以适量吃苹果", "白内障手术需要住院几天"),
    ("What are the symptoms of asthma?", "Asthma causes wheezing and coughing", "A cast comes off once the bone heals"),
    (
        "how is kidney failure treated",
        "Dialysis replaces the failing kidneys",
        "Sunscreen protects the skin of the face",
    ),
    ("高血压", "Hypertension", "Fracture of forearm"),
    ("Pneumonia", "肺炎", "青光眼"),
]


def default_pair() -> Pair:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SUWEN_PAIR", raising=False)
        return Pair.load(None)


@pytest.fixture(scope="module")
def pair() -> Pair:
    found = default_pair()
    assert found.path == default_pair_path()
    return found


@pytest.fixture(scope="module", params=default_pair().tiers)
def encoder(pair, request):
    return pair.encoder(request.param)


def test_both_scripts_are_read_alike(encoder):
    for simple, traditional in (("高血压患者吃什么药", "高血壓患者吃什麼藥"), ("儿童发烧头痛", "兒童發燒頭痛")):
        np.testing.assert_array_equal(encoder.encode_queries([simple]), encoder.encode_queries([traditional]))
        np.testing.assert_array_equal(encoder.encode_documents([simple]), encoder.encode_documents([traditional]))
        assert encoder.count_tokens([simple]) == encoder.count_tokens([traditional])


def test_every_file_is_the_one_the_manifest_names(pair):
    verify_files(pair.path, pair.manifest)
    assert {tier.aligned_to for tier in pair.manifest.tiers.values()} == {pair.space.id}


def test_a_transformer_blended_with_a_table_and_a_table_alone(pair):
    assert (pair.tiers, pair.default_tier, pair.fastest) == (["l6", "static"], "l6", "static")
    l6, static = pair.manifest.tiers["l6"], pair.manifest.tiers["static"]
    assert (l6.kind, l6.precision, l6.layers, l6.blend) == ("onnx", "int8", 6, {"static": 0.25})
    assert (static.kind, static.precision, static.blend) == ("static", "int8", {})
    plain = Pair(pair.path, pair.manifest.model_copy(update={"tiers": {**pair.manifest.tiers, "l6": _alone(l6)}}))
    own, table = (plain.encoder(tier).encode_queries(["布洛芬伤肾吗"]) for tier in ("l6", "static"))
    assert np.allclose(pair.encoder().encode_queries(["布洛芬伤肾吗"]), unit(0.75 * own + 0.25 * table), atol=1e-6)
    own, found = (it.encoder().encode_documents(["布洛芬伤肾吗"]) for it in (plain, pair))
    assert np.array_equal(own, found), "of queries alone"


def _alone(tier):
    return tier.model_copy(update={"blend": {}, "blend_documents": True})


def test_it_is_small_enough_to_ship(pair):
    sizes = {file.name: file.stat().st_size for file in pair.path.rglob("*") if file.is_file()}
    assert sum(sizes.values()) <= ALL
    assert [name for name, size in sizes.items() if size > LARGEST] == []


def test_the_card_says_what_it_is(pair):
    card = (pair.path / "README.md").read_text(encoding="utf-8")
    for words in ("research preview", "not medical advice", "licence", "apache-2.0", "none stated", "## limits"):
        assert words in card.lower()
    assert "{{" not in card and pair.name in card and pair.space.id in card
    sources = re.split(r"^Sources of the training text", card, flags=re.M)[1]
    assert len(re.findall(r"^\| [^-].* \| .+ \|$", sources, re.M)) > 10
    assert pair.manifest.licence and "research preview" in pair.manifest.notes.lower()


def test_the_adapter_comes_with_its_probe_and_the_samples_vectors(pair):
    document = pair.manifest.document
    assert isinstance(document, AdapterDocument) and document.base == pair.space.base.hub_id
    names = [file.name for file in (pair.path / document.path).glob("*.safetensors")]
    assert pair.space.adapter is not None
    assert sha256_of_files(pair.path / document.path, names) == pair.space.adapter.sha256
    assert np.load(pair.path / "probe.npy").shape == (32, pair.space.dimension)
    assert json.loads((pair.path / FOLDER / "vectors.json").read_text(encoding="utf-8"))["space"] == pair.space.id
    stored_vectors(pair, sample_passages(pair.count_tokens)).close()


def test_without_the_base_the_default_tier_encodes_documents_and_says_how_to_do_better(pair, monkeypatch):
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    choice = choose_encoder(pair)
    assert choice.encoder.name == "l6"
    assert "searched at once" in choice.said and f"SUWEN_BASE naming {pair.space.base.hub_id}" in choice.said


@pytest.mark.parametrize(("query", "related", "unrelated"), TRIPLES)
def test_a_related_text_is_nearer_than_an_unrelated_one(encoder, query, related, unrelated):
    asked = encoder.encode_queries([query])[0]
    near, far = encoder.encode_documents([related, unrelated]) @ asked
    assert near > far


def test_width_case_and_accents_do_not_matter(encoder):
    plain, odd = encoder.encode_queries(["维生素b12缺乏 sjogren", "维生素Ｂ１２缺乏 Sjögren"])
    assert np.allclose(plain, odd, atol=1e-6)


def test_a_chinese_word_is_at_most_a_token_a_character(encoder):
    words = ["高血压", "糖尿病", "患者"]
    assert all(1 <= count <= len(word) for word, count in zip(words, encoder.count_tokens(words), strict=True))


def test_odd_texts_have_unit_vectors(encoder):
    found = encoder.encode_documents(["", "，。！", "\U0001f600", "龘" * 9, "长" * 5_000])
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
