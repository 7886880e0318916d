"""A tier that adds another tier's vector to its own."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.encoders.blend import BlendedEncoder, made_of
from suwen.encoders.pair import Pair
from suwen.encoders.pair_files import verify_files
from suwen.encoders.space import DamagedPair, Manifest, load_manifest, save_manifest

STRANGE = ["", " ", "\0", "😀👩‍⚕️", "\ud83d", "NaN", "高" * 5000, "\n\t\r"]
FORMS = ("encode_queries", "encode_documents")


def blending(folder: Path, **blends: dict[str, float]) -> Manifest:
    """The manifest of a pair with blends; ``_`` in a tier's name stands for ``-``."""
    said = load_manifest(folder).model_dump()
    for tier, blend in blends.items():
        said["tiers"][tier.replace("_", "-")]["blend"] = blend
    return Manifest.model_validate(said)


@pytest.fixture(scope="module")
def plain(light_pair: Path) -> Pair:
    return Pair.load(light_pair)


@pytest.fixture(scope="module")
def pair(light_pair: Path) -> Pair:
    """``light_pair``, whose tier ``l2-fp32`` is three parts its own and one part ``static``."""
    return Pair(light_pair, blending(light_pair, l2_fp32={"static": 0.25}))


@pytest.mark.parametrize("form", FORMS)
def test_a_blend_is_the_weighted_mean_of_length_one(pair: Pair, plain: Pair, form: str, models) -> None:
    own, other = (getattr(plain.encoder(tier), form)(models.TEXTS) for tier in ("l2-fp32", "static"))
    mean = 0.75 * own + 0.25 * other
    found = getattr(pair.encoder("l2-fp32"), form)(models.TEXTS)
    assert found.dtype == np.float32
    assert np.allclose(found, mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-6)
    assert np.abs(found - own).max() > 0.01 and np.abs(found - other).max() > 0.01


def test_it_is_the_tier_to_all_who_ask(pair: Pair, plain: Pair, models) -> None:
    blended, own = pair.encoder("l2-fp32"), plain.encoder("l2-fp32")
    assert (blended.name, blended.dimension) == (own.name, own.dimension) == ("l2-fp32", 24)
    assert blended.count_tokens(models.TEXTS) == own.count_tokens(models.TEXTS)
    assert pair.space == plain.space and pair.tiers == plain.tiers


def test_the_other_tiers_and_a_pair_without_blends_are_as_before(pair: Pair, plain: Pair, models) -> None:
    for tier in ("l2", "static"):
        assert type(pair.encoder(tier)) is type(plain.encoder(tier))
        assert np.array_equal(
            pair.encoder(tier).encode_queries(models.TEXTS), plain.encoder(tier).encode_queries(models.TEXTS)
        )
    assert not any(isinstance(plain.encoder(tier), BlendedEncoder) for tier in plain.tiers)


def test_a_tier_is_loaded_once_however_many_ask_for_it(light_pair: Path) -> None:
    pair = Pair(light_pair, blending(light_pair, l2_fp32={"static": 0.5}))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: pair.encoder(("l2-fp32", "static")[n % 2]), range(16)))
    assert len({id(encoder) for encoder in found}) == 2
    assert found[0]._others[0][0] is pair.encoder("static")


@pytest.mark.parametrize("form", FORMS)
def test_a_text_alone_and_among_others_is_one_vector(pair: Pair, form: str, models) -> None:
    texts = [*models.TEXTS, *STRANGE]
    encode = getattr(pair.encoder("l2-fp32"), form)
    together, alone = encode(texts), np.concatenate([encode([text]) for text in texts])
    assert (together * alone).sum(axis=1).min() >= 0.999
    assert encode([]).shape == (0, 24)


_pairs: dict[Path, Pair] = {}


@settings(max_examples=30, deadline=None)
@given(
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=3),
    first=st.floats(0.01, 0.49),
    second=st.floats(0.01, 0.49),
)
def test_any_text_with_any_shares_is_the_mean_s_direction(light_pair, texts, first, second) -> None:
    plain = _pairs.setdefault(light_pair, Pair.load(light_pair))
    own, *others = (plain.encoder(tier) for tier in ("l2", "l2-fp32", "static"))
    shares = (1 - first - second, first, second)
    found = BlendedEncoder(own, list(zip(others, shares[1:], strict=True))).encode_queries(texts)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    parts = [encoder.encode_queries(texts) for encoder in (own, *others)]
    mean = sum(share * part for share, part in zip(shares, parts, strict=True))
    # The length of a mean is its parts' mean cosine to it, whatever the shares.
    along = [(found * part).sum(axis=1) for part in parts]
    weighted = sum(share * one for share, one in zip(shares, along, strict=True))
    assert np.allclose(weighted, np.linalg.norm(mean, axis=1), atol=1e-5)


def test_a_damaged_tier_is_named_by_whoever_blends_it_in(light_pair: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(light_pair, tmp_path / "pair")
    save_manifest(copy, blending(copy, l2_fp32={"static": 0.5}))
    verify_files(copy, load_manifest(copy))
    (copy / "query" / "static" / "scales.npy").write_bytes(b"other")
    pair = Pair.load(copy)
    with pytest.raises(DamagedPair, match=r"scales\.npy is damaged \(tier 'static'"):
        pair.encoder("l2-fp32")
    assert pair.encoder("l2").encode_queries(["胃痛"]).shape == (1, 24)


def test_the_fastest_tier_is_a_table_alone(light_pair: Path) -> None:
    assert Pair(light_pair, blending(light_pair, l2_fp32={"static": 0.5})).fastest == "static"
    assert Pair(light_pair, blending(light_pair, static={"l2-fp32": 0.5})).fastest == "l2"


def test_what_a_tier_is_made_of_tells_blends_apart(light_pair: Path) -> None:
    plain = load_manifest(light_pair)
    assert made_of(plain, "l2-fp32") == plain.tiers["l2-fp32"].files
    found = [made_of(blending(light_pair, l2_fp32={"static": share}), "l2-fp32") for share in (0.25, 0.5)]
    assert found[0] != found[1] and all(made.items() > plain.tiers["l2-fp32"].files.items() for made in found)
    assert set(plain.tiers["static"].files.values()) <= set(found[0].values())
