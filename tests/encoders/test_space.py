from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.encoders import space as module
from suwen.encoders.pair_files import sha256_of, sha256_of_files, verify_files
from suwen.encoders.prompts import InstructionRefused, Prompts
from suwen.encoders.space import (
    DamagedPair,
    Manifest,
    ManifestError,
    Space,
    SpaceMismatch,
    Tier,
    TierDocument,
    load_manifest,
    save_manifest,
    schema_text,
)
from suwen.errors import SuwenError

WORDS = st.text(st.characters(blacklist_characters="{}", blacklist_categories=["Cs"]), max_size=8)
FIELDS = {"base": {"sha256": "a" * 64}, "pooling": "cls", "max_length": 64, "dimension": 8, "full_dimension": 16}


def a_space(**changes) -> Space:
    return Space.mint(**{**FIELDS, **changes})


def a_manifest(folder: Path, space: Space | None = None, **tier_changes) -> Manifest:
    space = space or a_space()
    (folder / "query" / "l2").mkdir(parents=True, exist_ok=True)
    files = {}
    for name in ("model.onnx", "tokenizer.json"):
        (folder / "query" / "l2" / name).write_text(f"the contents of {name}")
        files[name] = sha256_of(folder / "query" / "l2" / name)
    fields = {
        "kind": "onnx",
        "path": "query/l2",
        "files": files,
        "max_length": 64,
        "precision": "int8",
        "aligned_to": space.id,
    }
    return Manifest(
        name="tiny",
        form="light",
        space=space,
        tiers={"l2": Tier(**{**fields, **tier_changes})},
        default_tier="l2",
        document=TierDocument(kind="tier", tier="l2"),
    )


def test_equal_contents_have_one_id_and_the_hub_id_is_not_contents():
    assert a_space().id == a_space().id == a_space(base={"sha256": "a" * 64, "hub_id": "Qwen/Qwen3-4B"}).id


def test_the_id_does_not_change_between_versions():
    assert a_space().id == "sp-55b1eb01689b883e963c"


@pytest.mark.parametrize(
    "change",
    [
        {"base": {"sha256": "b" * 64}},
        {"adapter": {"sha256": "c" * 64}},
        {"prompts": {"query": "q: "}},
        {"prompts": {"document": "q: "}},
        {"pooling": "last"},
        {"end_token": "<|end|>"},
        {"max_length": 65},
        {"dimension": 7},
        {"full_dimension": 17},
        {"normalise": False},
        {"similarity": "dot"},
    ],
)
def test_whatever_fixes_the_space_changes_the_id(change):
    assert a_space(**change).id != a_space().id


@given(query=st.text(max_size=20), dimension=st.integers(1, 16), normalise=st.booleans())
def test_a_minted_space_survives_its_own_json(query, dimension, normalise):
    minted = a_space(prompts={"query": query}, dimension=dimension, normalise=normalise)
    assert Space.model_validate_json(minted.model_dump_json()) == minted


def test_mint_says_what_is_wrong():
    with pytest.raises(ManifestError, match="pooling"):
        a_space(pooling="max")
    with pytest.raises(ManifestError, match="wider than full_dimension"):
        a_space(dimension=17)


def test_a_manifest_is_read_back_as_it_was_written(tmp_path):
    manifest = a_manifest(tmp_path)
    assert save_manifest(tmp_path, manifest) == tmp_path / "suwen.json"
    assert load_manifest(tmp_path) == load_manifest(tmp_path / "suwen.json") == manifest
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["suwen.json"]


def edited(tmp_path: Path, edit) -> Path:
    content = a_manifest(tmp_path).model_dump(mode="json")
    edit(content)
    (tmp_path / "suwen.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda content: content["space"].update(dimension=4), "does not match the contents"),
        (lambda content: content["space"].pop("pooling"), "space.pooling"),
        (lambda content: content.update(extra=1), "extra"),
        (lambda content: content.update(default_tier="l9"), "l9.*not among the tiers"),
        (lambda content: content.update(default_tier=None), "needs a default_tier"),
        (lambda content: content.update(document={"kind": "tier", "tier": "l9"}), "document names the tier"),
        (lambda content: content["tiers"]["l2"].update(aligned_to="sp-" + "0" * 20), "aligned to sp-000"),
        (lambda content: content["tiers"]["l2"].update(path="../elsewhere"), "inside the model folder"),
        (lambda content: content["tiers"]["l2"].update(path="/etc"), "inside the model folder"),
        (lambda content: content["tiers"]["l2"].update(path="a\\..\\b"), "inside the model folder"),
        (lambda content: content["tiers"]["l2"]["files"].pop("tokenizer.json"), "lacks tokenizer.json"),
        (lambda content: content["tiers"]["l2"]["files"].pop("model.onnx"), "exactly one .onnx"),
        (lambda content: content["tiers"]["l2"]["files"].update({"../x": "0" * 64}), "inside the model folder"),
    ],
)
def test_a_wrong_manifest_is_refused_with_the_file_and_the_key(tmp_path, edit, complaint):
    with pytest.raises(ManifestError, match=f"(?s){tmp_path}.*{complaint}"):
        load_manifest(edited(tmp_path, edit))


def blended(tmp_path: Path, **blends: dict[str, float]) -> dict:
    """A manifest of tiers ``l2`` (which encodes the documents), ``l6`` and ``static`` in all but kind."""
    content = a_manifest(tmp_path).model_dump(mode="json")
    tier = content["tiers"]["l2"]
    content["tiers"] = {name: {**tier, "blend": blends.get(name, {})} for name in ("l2", "l6", "static")}
    return content


def test_a_blend_is_read_back_and_no_blend_is_not_written(tmp_path):
    manifest = Manifest.model_validate(blended(tmp_path, l6={"static": 0.5, "l2": 0.25}))
    save_manifest(tmp_path, manifest)
    assert load_manifest(tmp_path) == manifest
    assert manifest.tiers["l6"].blend == {"static": 0.5, "l2": 0.25}
    written = json.loads((tmp_path / "suwen.json").read_text(encoding="utf-8"))["tiers"]
    assert [name for name, tier in written.items() if "blend" in tier] == ["l6"]
    assert manifest.space.id == a_space().id, "the space is the document encoder's"


@pytest.mark.parametrize(
    ("blends", "complaint"),
    [
        ({"l6": {"l6": 0.5}}, "tier 'l6' blends in itself: remove it"),
        ({"l6": {"l9": 0.5}}, r"blends in 'l9', which is not among the tiers \(l2, l6, static\): name one"),
        ({"l6": {"static": 0.5}, "static": {"l2": 0.5}}, "blends in 'static', which blends others in: name the tiers"),
        ({"l2": {"static": 0.5}}, "encodes the documents and so fixes the space: remove its blend"),
        ({"l6": {"static": 0.5, "l2": 0.5}}, "leaves nothing to this one: lower the weights"),
        ({"l6": {"static": 0.0}}, "tiers.l6.blend.static.*greater than 0"),
        ({"l6": {"static": 1.0}}, "tiers.l6.blend.static.*less than 1"),
        ({"l6": {"Static": 0.5}}, "tiers.l6.blend.Static"),
    ],
)
def test_a_blend_that_cannot_be_is_refused(tmp_path, blends, complaint):
    (tmp_path / "suwen.json").write_text(json.dumps(blended(tmp_path, **blends)), encoding="utf-8")
    with pytest.raises(ManifestError, match=complaint):
        load_manifest(tmp_path)


def test_vectors_of_any_length_are_not_blended(tmp_path):
    space = a_space(normalise=False, similarity="dot")
    content = blended(tmp_path, l6={"static": 0.5}) | {"space": space.model_dump()}
    for tier in content["tiers"].values():
        tier["aligned_to"] = space.id
    with pytest.raises(ValueError, match="have no common length: remove blend"):
        Manifest.model_validate(content)


@given(shares=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=2))
def test_shares_leave_something_to_the_tier_or_are_refused(tmp_path_factory, shares):
    others = dict(zip(("static", "l2"), shares, strict=False))
    content = blended(tmp_path_factory.getbasetemp(), l6=others)
    if sum(shares) < 1:
        assert Manifest.model_validate(content).tiers["l6"].blend == others
    else:
        with pytest.raises(ValueError, match="leaves nothing"):
            Manifest.model_validate(content)


def test_a_newer_format_is_refused_by_its_number(tmp_path):
    with pytest.raises(ManifestError, match=r"format 2, newer than 1.*upgrade"):
        load_manifest(edited(tmp_path, lambda content: content.update(format=2, unknown="x")))


def test_missing_and_malformed_files_are_told_apart(tmp_path):
    with pytest.raises(ManifestError, match="does not exist"):
        load_manifest(tmp_path)
    (tmp_path / "suwen.json").write_text("{")
    with pytest.raises(ManifestError, match="cannot be read as JSON"):
        load_manifest(tmp_path)
    (tmp_path / "suwen.json").write_text("[]")
    with pytest.raises(ManifestError, match="the manifest"):
        load_manifest(tmp_path)


def test_a_failed_save_leaves_the_old_manifest(tmp_path, monkeypatch):
    save_manifest(tmp_path, a_manifest(tmp_path))
    before = (tmp_path / "suwen.json").read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        save_manifest(tmp_path, a_manifest(tmp_path).model_copy(update={"name": "other"}))
    assert (tmp_path / "suwen.json").read_bytes() == before
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def test_verify_files_names_the_missing_and_the_damaged(tmp_path):
    manifest = a_manifest(tmp_path)
    verify_files(tmp_path, manifest)
    file = tmp_path / "query" / "l2" / "model.onnx"
    file.write_text("the contents of model.onnX")
    with pytest.raises(DamagedPair, match=r"model\.onnx is damaged"):
        verify_files(tmp_path, manifest)
    verify_files(tmp_path, manifest, contents=False)
    verify_files(tmp_path, manifest, tiers=[])
    file.unlink()
    with pytest.raises(DamagedPair, match=r"model\.onnx is missing"):
        verify_files(tmp_path, manifest, contents=False)


def test_one_hash_of_several_files_depends_on_names_and_contents_only(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    whole = sha256_of_files(tmp_path, ["a", "b"])
    assert whole == sha256_of_files(tmp_path, ["b", "a"]) != sha256_of_files(tmp_path, ["a"])
    (tmp_path / "a").rename(tmp_path / "c")
    assert sha256_of_files(tmp_path, ["b", "c"]) != whole


def test_a_mismatch_names_both_spaces_and_the_fix():
    error = SpaceMismatch("sp-1", "sp-2", needed_name="care-zh", got_name="m3e")
    assert isinstance(error, SuwenError) and (error.needed, error.got) == ("sp-1", "sp-2")
    for part in ("sp-1 (care-zh)", "sp-2 (m3e)", "--pair", "suwen index NEW-FOLDER SOURCES"):
        assert part in str(error)


def test_the_stored_schema_is_current():
    stored = Path(module.__file__).with_name("suwen.schema.json").read_text(encoding="utf-8")
    assert stored == schema_text(), "write it again: suwen.encoders.space.schema_text()"


# -- instructions ---------------------------------------------------------------------------------------------------


@given(WORDS, WORDS, WORDS, WORDS.filter(bool))
def test_a_prompt_is_filled_with_the_instruction_that_was_brought_or_the_default_one(before, after, default, own):
    prompts = Prompts.filled(f"{before}{{instruction}}{after}", "文：", default)
    assert prompts.before("query") == prompts.query == before + default + after
    assert prompts.before("query", own) == before + own + after
    assert prompts.before("document") == "文："
    assert "{" not in prompts.model_dump_json().removeprefix("{").replace('"instruction":{', "")
    assert Prompts.model_validate_json(prompts.model_dump_json()) == prompts


def test_an_instruction_without_a_place_is_refused():
    with pytest.raises(InstructionRefused, match="has no place for an instruction: leave it out"):
        Prompts(query="问：").before("query", "找资料")
    with pytest.raises(InstructionRefused):
        Prompts.filled("{instruction}：").before("document", "找资料")


def test_a_place_for_an_instruction_is_part_of_the_space_and_its_absence_is_not_written():
    plain = Prompts(query="任务：找资料\n")
    assert plain.model_dump() == {"query": "任务：找资料\n", "document": ""}
    placed = Prompts.filled("任务：{instruction}\n", "", "找资料")
    assert placed.query == plain.query
    assert a_space(prompts=plain).id != a_space(prompts=placed).id
    with pytest.raises(ManifestError, match="does not begin and end as its place"):
        a_space(prompts={"query": "别的", "document": "", "instruction": {"before": "任务：", "after": "\n"}})
