"""The pair inside the package, as a user without a model of their own meets it."""

from __future__ import annotations

import numpy as np
import pytest

from suwen.encoders.pair import Pair, default_pair_path
from suwen.encoders.space import verify_files

LIMIT = 6_000_000

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


@pytest.fixture(scope="module")
def encoder():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SUWEN_PAIR", raising=False)
        pair = Pair.load(None)
    assert pair.path == default_pair_path()
    return pair.encoder()


def test_the_folder_is_whole_and_small_enough_to_ship():
    folder = default_pair_path()
    verify_files(folder, Pair.load(folder).manifest)
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) <= LIMIT
    assert "not medical advice" in (folder / "README.md").read_text(encoding="utf-8")


def test_documents_are_encoded_by_the_tier_itself():
    manifest = Pair.load(default_pair_path()).manifest
    assert manifest.document.model_dump() == {"kind": "tier", "tier": "static"}
    assert manifest.default_tier == "static"


@pytest.mark.parametrize(("query", "related", "unrelated"), TRIPLES)
def test_a_related_text_is_nearer_than_an_unrelated_one(encoder, query, related, unrelated):
    asked = encoder.encode_queries([query])[0]
    near, far = encoder.encode_documents([related, unrelated]) @ asked
    assert near > far + 0.05


def test_width_case_and_accents_do_not_matter(encoder):
    plain, odd = encoder.encode_queries(["维生素b12缺乏 sjogren", "维生素Ｂ１２缺乏 Sjögren"])
    assert np.allclose(plain, odd, atol=1e-6)


def test_a_chinese_word_is_one_token(encoder):
    assert encoder.count_tokens(["高血压", "糖尿病", "患者"]) == [1, 1, 1]


def test_odd_texts_have_unit_vectors(encoder):
    found = encoder.encode_documents(["", "，。！", "\U0001f600", "龘" * 9, "长" * 5_000])
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
