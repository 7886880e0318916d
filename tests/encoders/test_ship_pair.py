"""``tools/ship_pair.py``: from an exported pair to the folder that comes inside the package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from suwen.corpora.sample_collection import sample_passages
from suwen.encoders.blend import made_of
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair import Pair
from suwen.encoders.probe import row_cosines
from suwen.encoders.space import Manifest, load_manifest, save_manifest, tier_sha256

CARD = Path(__file__).parents[2] / "tools" / "default_pair_card.md"
SHORT = "Research preview, not medical advice. Licence: none."
NUMBERS = {
    "training": {
        "command": "suwen train recipes/care-mini.yaml",
        "device": "one GPU",
        "minutes": 24,
        "seed": 0,
        "alignment_texts": "1,000",
        "base_form": "a GGUF file",
    },
    "measured": {
        "note": "One seed.",
        "tasks": [
            {"task": "consultation QA", "queries": "10", "l6": 42.10},
            {"task": "query-title", "queries": "20", "l6": 80.5},
        ],
        "kept_share": "0.96",
        "static_share": "0.91",
        "int8_points": 0.1,
        "speed": [{"tier": "static", "ms": "0.1"}],
    },
    "limits": "- One more limit.",
}


@pytest.fixture
def run(ship_pair: ModuleType, exported_pair: Path, base_folder: Path, tmp_path: Path):
    """Runs the program on the pair, or on another; gives the folder it was to write."""

    def call(
        card: str = SHORT,
        *,
        pair: Path = exported_pair,
        base: Path = base_folder,
        tiers: str = "static",
        blend=(),
        halfway=None,
        **json_,
    ):
        (tmp_path / "card.md").write_text(card, encoding="utf-8")
        (tmp_path / "numbers.json").write_text(json.dumps(json_), encoding="utf-8")
        asked = [pair, "--base", base, "--card", tmp_path / "card.md", "--numbers", tmp_path / "numbers.json"]
        asked += [part for one in blend for part in ("--blend", one)]
        asked += ["--halfway", halfway] if halfway else []
        ship_pair.main([*map(str, asked), "--tiers", tiers, "--out", str(tmp_path / "out"), "--device", "cpu"])
        return tmp_path / "out"

    return call


def test_what_is_written(shipped_pair: Path, exported_pair: Path) -> None:
    manifest, before = load_manifest(shipped_pair), load_manifest(exported_pair)
    assert list(manifest.tiers) == ["static"] and set(before.tiers) == {"l2", "static"}
    assert (manifest.default_tier, before.default_tier) == ("static", "l2")
    assert manifest.space == before.space and manifest.document == before.document
    assert "README.md" in manifest.licence and "not medical advice" in manifest.notes
    files = {file.relative_to(shipped_pair).as_posix() for file in shipped_pair.rglob("*") if file.is_file()}
    tier = {f"query/static/{name}" for name in manifest.tiers["static"].files}
    adapter = {"adapter/adapter.json", "adapter/adapter-01-of-01.safetensors"}
    sample = {"sample/vectors.npy", "sample/ids.txt", "sample/vectors.json"}
    assert files == {"suwen.json", "README.md", "probe.json", "probe.npy", *tier, *adapter, *sample}


def test_the_samples_vectors_are_the_document_encoders(shipped_pair: Path, base_folder: Path) -> None:
    stored = np.load(shipped_pair / "sample" / "vectors.npy")
    passages = sample_passages(Pair.load(shipped_pair).count_tokens)
    assert stored.dtype == np.float16 and stored.shape == (len(passages), 24)
    lines = (shipped_pair / "sample" / "ids.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in lines] == [passage.id for passage in passages]
    some = range(0, len(passages), 40)
    wanted = DocumentEncoder.load(shipped_pair, base=base_folder, device="cpu").encode(
        [passages[n].content for n in some]
    )
    assert np.abs(stored[list(some)] - wanted).max() < 1e-3
    told = json.loads((shipped_pair / "sample" / "vectors.json").read_text(encoding="utf-8"))
    assert told["space"] == load_manifest(shipped_pair).space.id and told["count"] == len(passages)


def test_the_samples_vectors_may_be_made_elsewhere(
    ship_pair: ModuleType, exported_pair: Path, base_folder: Path, shipped_pair: Path, tmp_path: Path, caplog
) -> None:
    asked = [str(exported_pair), "--base", str(base_folder), "--tiers", "static", "--device", "cpu"]
    asked += ["--vectors", str(tmp_path / "kept")]
    ship_pair.main([*asked, "--only-vectors"])
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    (tmp_path / "card.md").write_text(SHORT)
    caplog.clear()
    with caplog.at_level("INFO"):
        ship_pair.main([*asked, "--card", str(tmp_path / "card.md"), "--out", str(tmp_path / "out")])
    assert "finds a judged passage" in caplog.text
    assert "encoded 24 of" not in caplog.text
    taken = tmp_path / "out" / "sample"
    for name in ("vectors.npy", "ids.txt", "vectors.json"):
        assert (taken / name).read_bytes() == (tmp_path / "kept" / name).read_bytes()
    assert (taken / "ids.txt").read_bytes() == (shipped_pair / "sample" / "ids.txt").read_bytes()
    # Two runs of one model may differ in the last bit of fp16.
    assert np.allclose(np.load(taken / "vectors.npy"), np.load(shipped_pair / "sample" / "vectors.npy"), atol=2e-3)
    np.save(tmp_path / "kept" / "vectors.npy", -np.load(tmp_path / "kept" / "vectors.npy"))
    with pytest.raises(SystemExit, match="holds other vectors of the sample"):
        ship_pair.main([*asked, "--only-vectors"])


def test_the_card_of_the_default_pair_is_filled(run, exported_pair: Path) -> None:
    card = (run(CARD.read_text(encoding="utf-8"), **NUMBERS) / "README.md").read_text(encoding="utf-8")
    assert "{{" not in card and "}}" not in card
    assert "| consultation QA | 10 | 42.1 |\n" in card and "| static | 0.1 |" in card
    assert load_manifest(exported_pair).space.id in card and "org/base" in card and "24 minutes" in card
    assert "| `static` (default) |" in card and "- One more limit." in card
    for words in ("Research preview, not medical advice", "Apache-2.0", "CBLUE terms", "none stated", "GPL-3"):
        assert words in card


def test_what_is_missing_from_the_numbers_is_named_before_anything_is_encoded(run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"the card asks for training\.seed, measured\.tasks: add them"):
        run(SHORT + "{{ training.seed }} {{ measured.tasks }}", base=tmp_path / "no-such-base", training={})
    with pytest.raises(SystemExit, match="not the columns task, l6"):
        run(SHORT + "{{ t }}", t=[{"task": "a", "l6": 1}, {"task": "b"}])
    with pytest.raises(SystemExit, match=r"t is {}: give a text, a number, or a list"):
        run(SHORT + "{{ t }}", t={})


def test_numbers_stay_as_they_are_written(ship_pair: ModuleType) -> None:
    values = json.loads('{"a": {"b": 42.10}, "n": 7}', parse_float=str)
    assert ship_pair.fill("{{a.b}} {{ n }}", values) == "42.10 7"


def test_a_card_must_say_what_it_is(run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not say 'not medical advice'"):
        run("A research preview with a licence.")
    assert not (tmp_path / "out").exists()


def test_sizes_are_refused_with_the_numbers(run, ship_pair: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ship_pair, "ALL", 30_000)
        with pytest.raises(SystemExit, match=r"MB in all, over 0 \(.*tokenizer.json .* MB.*fewer --tiers"):
            run()
    monkeypatch.setattr(ship_pair, "LARGEST", 1000)
    with pytest.raises(SystemExit, match=r"query/static/.*over 0 MiB a file"):
        run()


def test_another_base_is_refused_and_what_was_there_stays(run, models: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("before")
    with pytest.raises(SystemExit, match="least cosine"):
        run(base=models.build_base(tmp_path / "other", seed=1))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["card.md", "numbers.json", "other", "out"]
    assert (tmp_path / "out" / "kept").read_text() == "before"


def test_what_was_there_is_replaced(run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("before")
    assert not (run() / "old").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["card.md", "numbers.json", "out"]
    assert Pair.load(tmp_path / "out").tiers == ["static"]


def test_a_tier_whose_queries_are_of_another_space_is_noticed(run) -> None:
    """The tier ``l2`` was never aligned: its manifest says it was, the sample's vectors say that it was not."""
    with pytest.raises(SystemExit, match="does not look like vectors of space"):
        run(tiers="l2")


def test_pairs_that_will_not_do(run, light_pair: Path, exported_pair: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no tier l6: choose among l2, static"):
        run(tiers="l6,static")
    with pytest.raises(SystemExit, match="holds no adapter"):
        run(pair=light_pair)
    broken = shutil.copytree(exported_pair, tmp_path / "broken")
    (broken / "query" / "static" / "scales.npy").write_bytes(b"other")
    with pytest.raises(SystemExit, match=r"scales\.npy is damaged"):
        run(pair=broken)
    (broken / "probe.npy").unlink()
    with pytest.raises(SystemExit, match=r"not whole .*probe\.npy"):
        run(pair=broken)
    with pytest.raises(SystemExit, match="no tier is left"):
        run(tiers=",")


def test_what_the_pair_says_of_itself_is_kept(ship_pair: ModuleType, exported_pair: Path, tmp_path: Path) -> None:
    said = load_manifest(exported_pair).model_dump() | {"licence": "of its own", "notes": "note"}
    save_manifest(tmp_path, Manifest.model_validate(said))
    found = ship_pair.chosen(load_manifest(tmp_path), ["static", "l2"])
    assert (found.licence, found.notes, found.default_tier, list(found.tiers)) == (
        "of its own",
        "note",
        "l2",
        ["static", "l2"],
    )


def test_a_blend_is_given_and_is_shipped(run, exported_pair: Path) -> None:
    out = run(SHORT + "\n{{ pair.tiers }}", tiers="l2,static", blend=["l2=static:0.9"])
    assert load_manifest(out).tiers["l2"].blend == {"static": 0.9}
    assert load_manifest(out).tiers["l2"].files == load_manifest(exported_pair).tiers["l2"].files
    assert "| 2 layers of 32 + 0.9 of `static` |" in (out / "README.md").read_text(encoding="utf-8")
    pair = Pair.load(out)  # l2 alone was never aligned (see above): what it finds, it finds by its blend
    cosines = (pair.encoder("l2").encode_queries(["胃痛"]) * pair.encoder("static").encode_queries(["胃痛"])).sum()
    assert 0.9 < cosines < 1


def test_a_blend_needs_all_its_tiers(ship_pair: ModuleType, run, exported_pair: Path) -> None:
    said = load_manifest(exported_pair).model_dump()
    said["tiers"]["l2"]["blend"] = {"static": 0.5}
    blended = Manifest.model_validate(said)
    assert ship_pair.chosen(blended, ["l2", "static"]).tiers["l2"].blend == {"static": 0.5}
    assert ship_pair.chosen(blended, ["l2", "static"], {"l2": {"static": 0.3}}).tiers["l2"].blend == {"static": 0.3}
    assert not ship_pair.chosen(blended, ["static"]).tiers["static"].blend
    with pytest.raises(ship_pair.ShipError, match="adds the vectors of static, which is not shipped: add it to --tier"):
        ship_pair.chosen(blended, ["l2"])
    for asked, words in (
        ("l6=static:0.5", "--blend names l6, which is not shipped"),
        ("static=l2:0.5", "adds the vectors of l2, which is not shipped"),
        ("static=static:0.5", "blends in itself"),
        ("static=l2", "write it as in --blend l6=static:0.5"),
        ("static", "write it as in --blend l6=static:0.5"),
        ("static=l2:much", "write it as in --blend l6=static:0.5"),
    ):
        with pytest.raises(SystemExit, match=words):
            run(blend=[asked])
    with pytest.raises(SystemExit, match="less than 1"):
        run(tiers="l2,static", blend=["l2=static:1.5"])


def test_blends_of_the_command_line(ship_pair: ModuleType) -> None:
    found = ship_pair.read_blends(["l6=static:0.4,l3:0.1", "l3-b=static:0.5"])
    assert found == {"l6": {"static": 0.4, "l3": 0.1}, "l3-b": {"static": 0.5}}
    assert ship_pair.read_blends([]) == {}


def test_documents_come_half_way_and_go_on_doing_so(
    run, exported_pair: Path, base_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(SHORT + "\n{{ pair.halfway }}", halfway="static:0.3")
    shipped, plain = load_manifest(out), load_manifest(exported_pair)
    assert shipped.space.alone == plain.space != shipped.space
    assert "0.3 of `static`" in (out / "README.md").read_text(encoding="utf-8")
    encoder = DocumentEncoder.load(out, base=base_folder, device="cpu")
    texts = [passage.content for passage in sample_passages(Pair.load(out).count_tokens)][:8]
    stored = np.load(out / "sample" / "vectors.npy").astype(np.float32)[:8]
    assert row_cosines(stored, encoder.encode(texts)).min() > 0.9999
    # Shipped once more.
    moved = out.rename(tmp_path / "moved")
    assert load_manifest(run(pair=moved)).space == shipped.space
    other = load_manifest(run(pair=moved, halfway="static:0.2")).space
    assert other.halfway.share == 0.2 and other.alone == plain.space
    for asked in ("static", "static:much"):
        with pytest.raises(SystemExit):
            run(halfway=asked)
        assert "--halfway TIER:SHARE" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no tier 'l6'"):
        run(halfway="l6:0.3")


def test_the_samples_vectors_may_be_another_pairs_of_the_same_document_encoder(
    ship_pair: ModuleType, exported_pair: Path, shipped_pair: Path, base_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "card.md").write_text(SHORT)
    asked = [str(exported_pair), "--sample-of", str(shipped_pair), "--card", str(tmp_path / "card.md")]
    asked += ["--tiers", "static", "--halfway", "static:0.5"]
    ship_pair.main([*asked, "--out", str(tmp_path / "out")])
    encoder = DocumentEncoder.load(tmp_path / "out", base=base_folder, device="cpu")
    some = sample_passages(Pair.load(tmp_path / "out").count_tokens)[:8]
    stored = np.load(tmp_path / "out" / "sample" / "vectors.npy")[:8]
    assert np.abs(stored - encoder.encode([passage.content for passage in some])).max() < 3e-3, "as it encodes them"
    with pytest.raises(SystemExit, match="name the pair with this document encoder"):
        ship_pair.main([*asked[:2], str(tmp_path / "out"), *asked[3:], "--out", str(tmp_path / "again")])
    with pytest.raises(SystemExit, match="another sample collection"):
        ship_pair.main([*asked[:-4], "--tiers", "l2,static", "--out", str(tmp_path / "again")])
    with pytest.raises(SystemExit):
        ship_pair.main([*asked, "--base", str(base_folder)])


def test_a_blend_may_be_of_queries_alone(ship_pair: ModuleType, exported_pair: Path) -> None:
    blends, plain = {"l2": {"static": 0.25}}, load_manifest(exported_pair)
    manifest = ship_pair.chosen(plain, ["l2", "static"], blends, False)
    assert manifest.tiers["l2"].blend == blends["l2"] and not manifest.tiers["l2"].blend_documents
    own, blended = (Pair(exported_pair, one).encoder("l2") for one in (plain, manifest))
    assert np.array_equal(own.encode_documents(["头疼"]), blended.encode_documents(["头疼"]))
    assert not np.array_equal(own.encode_queries(["头疼"]), blended.encode_queries(["头疼"]))
    both = ship_pair.chosen(plain, ["l2", "static"], blends)
    assert made_of(both, "l2") != made_of(manifest, "l2") != made_of(plain, "l2"), "vectors of one are not the other's"
    assert tier_sha256(manifest.tiers, "l2") == tier_sha256(plain.tiers, "l2") != tier_sha256(both.tiers, "l2")
