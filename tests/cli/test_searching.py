"""search, info and recall."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suwen.encoders.space import Manifest, load_manifest, save_manifest

Suwen = Callable[..., Any]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_search_as_json(suwen: Suwen, index: Path, mode: str) -> None:
    done = suwen("search", index, "碱化尿液 尿酸结石", "-k", 3, "--mode", mode, "--explain", "--json")
    assert done.code == 0
    told = done.json
    assert (told["mode"], told["hits"][0]["document_id"]) == (mode, "stone")
    hit = told["hits"][0]
    assert hit["explanation"]["mode"] == mode
    for mark in hit["highlights"]:
        assert hit["text"][mark["start"] : mark["end"]] == mark["text"]


def test_search_for_people(suwen: Suwen, index: Path) -> None:
    done = suwen("search", index, "尿酸结石", "-k", 2, "--explain", "--tier", "rough")
    assert done.code == 0
    assert "  1. 肾结石" in done.out and "stone#" in done.out
    assert "dense rank 1" in done.out and "encoded by static" in done.out
    assert "2 hits, hybrid, tier rough; encode " in done.err


def test_filters_pages_and_documents(suwen: Suwen, index: Path) -> None:
    def found(*options: object) -> list[str]:
        return [hit["id"] for hit in suwen("search", index, "患者应定期检查", "--json", *options).json["hits"]]

    assert {id_.split("#")[0] for id_ in found("--where", "lang=en", "-k", 50)} <= {"stroke", "asthma"}
    assert {id_.split("#")[0] for id_ in found("--where", "year>=2023", "--where", "lang=zh|fr")} <= {"sugar", "flu"}
    assert {id_.split("#")[0] for id_ in found("--where", "year=2022")} == {"stone", "kidney"}
    assert {id_.split("#")[0] for id_ in found("--where", "year=2022 AND NOT lang is missing")} == {"stone", "kidney"}
    assert not {"stone", "kidney"} & {id_.split("#")[0] for id_ in found("--where", "year!=2022", "-k", 50)}
    whole = found("-k", 9)
    assert [*found("-k", 4), *found("-k", 5, "--offset", 4)] == whole
    documents = [id_.split("#")[0] for id_ in found("--per-document", "-k", 10)]
    assert len(documents) == len(set(documents)) == 10


def test_hits_in_the_order_of_a_field_with_counts(suwen: Suwen, index: Path) -> None:
    done = suwen("search", index, "患者应定期检查", "--json", "--sort", "-year", "--facet", "lang", "-k", 50)
    years = [hit["metadata"]["year"] for hit in done.json["hits"] if "year" in hit["metadata"]]
    assert years == sorted(years, reverse=True)
    counts = {one["value"]: one["count"] for one in done.json["facets"]["lang"]["values"]}
    assert counts["en"] == 2
    assert "lang: zh (" in suwen("search", index, "患者应定期检查", "--facet", "lang").out


def test_weights(suwen: Suwen, index: Path) -> None:
    def found(*options: object) -> list[str]:
        return [hit["id"] for hit in suwen("search", index, "检查肾功能", "--json", *options).json["hits"]]

    assert found("--lexical-weight", 0) == found("--mode", "dense")


def test_nothing_relevant_is_three(suwen: Suwen, index: Path) -> None:
    done = suwen("search", index, "qwxz zkjv", "--mode", "lexical")
    assert done.code == 3
    assert "nothing relevant was found" in done.err
    as_json = suwen("search", index, "qwxz zkjv", "--mode", "lexical", "--json")
    assert as_json.code == 3 and as_json.json["relevant"] is False and as_json.json["hits"] == []


def test_a_misspelt_index_gets_the_nearest_name(suwen: Suwen, index: Path) -> None:
    done = suwen("search", f"{index}x", "咳嗽")
    assert done.code == 1 and f"did you mean {index}? Else create one with" in done.err
    assert "did you mean" not in suwen("search", index.with_name("其他"), "咳嗽").err


def test_a_query_needs_no_quotes(suwen: Suwen, index: Path) -> None:
    found = suwen("search", index, "how", "to", "treat a", "cough", "-k", "1", "--json")
    assert found.json["query"] == "how to treat a cough"


def test_what_holds_an_index_or_is_in_one_is_told_from_one(suwen: Suwen, index: Path, tmp_path: Path) -> None:
    assert f"did you mean {index}? Else" in suwen("search", index.parent, "咳嗽").err
    assert f"did you mean {index}? Else" in suwen("search", index / "truth.db", "咳嗽").err
    (tmp_path / "notes.txt").write_text("咳嗽三天。", encoding="utf-8")
    told = suwen("search", tmp_path / "notes.txt", "咳嗽").err
    assert f"create one with 'suwen index FOLDER {tmp_path / 'notes.txt'}'" in told


def test_a_filter_that_admits_nothing_is_named(suwen: Suwen, index: Path) -> None:
    done = suwen("search", index, "患者应定期检查", "--where", "lang=xx")
    assert done.code == 3
    assert "nothing relevant was found: no passage meets the filter" in done.err and "follow" not in done.err


def test_names_come_from_a_file_of_any_encoding_or_from_none(suwen: Suwen, index: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes("氯吡格雷, 小白片, 血小板抑制药物\n".encode("gb18030"))
    assert suwen("synonyms", index, tmp_path / "names.txt", "--json").json["groups"] == 1
    kept = (index / "synonyms.txt").read_bytes()
    (index / "synonyms.txt").write_bytes(b"\xb0\xa2")
    assert "give it anew with 'suwen synonyms" in suwen("synonyms", index).err
    (index / "synonyms.txt").write_bytes(kept)
    missing = suwen("synonyms", index, tmp_path / "nmaes.txt")
    assert missing.code == 1 and f"did you mean {tmp_path / 'names.txt'}?" in missing.err
    (tmp_path / "names.txt").write_bytes(b"")
    assert suwen("synonyms", index, tmp_path / "names.txt", "--json").json["groups"] == 0


def test_long_passages_are_shortened_for_people_only(suwen: Suwen, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("发烧咳嗽感冒反酸" * 45)
    suwen("index", tmp_path / "new", tmp_path / "long.txt", "--size", 400)
    shown = suwen("search", tmp_path / "new", "发烧咳嗽感冒反酸", "-k", 1)
    assert "…" in shown.out
    told = suwen("search", tmp_path / "new", "发烧咳嗽感冒反酸", "-k", 1, "--json").json
    assert told["hits"][0]["text"].count("发烧") == 45


def test_a_query_that_was_cut_is_said(suwen: Suwen, index: Path) -> None:
    done = suwen("search", index, "结石" * 5000)
    assert "cut to its first 8192 characters" in done.err.replace("\n", " ")


def test_info_of_an_index(suwen: Suwen, index: Path) -> None:
    told = suwen("info", index, "--json").json
    assert (told["documents"], told["fields"], told["dimension"]) == (10, "lang, year", 48)
    assert told["space"].startswith("sp-") and "small" in told["pair"]
    assert told["passage size"] == "24 tokens, 0 overlap"
    assert told["encoded by"] == [f"static: {told['passages']} passages"]
    shown = suwen("info", index)
    assert shown.code == 0
    assert told["space"] in shown.out and "small" in shown.out
    assert all(key in shown.out for key in told)


def test_info_of_a_pair(suwen: Suwen, small: Path) -> None:
    for arguments in ([small], [small / "suwen.json"], []):
        told = suwen("info", *arguments, "--json").json
        assert told["pair"] == "small" and told["dimension"].startswith("48")
        assert told["tiers"][0].startswith("static (default)") and told["tiers"][1].startswith("rough")
        assert told["documents"] == "encoded by the tier static"
    assert "static (default): static int8" in suwen("info", small).out


def test_info_of_a_pair_with_an_adapter_and_a_blend(
    suwen: Suwen, adapter_pair: Path, light_pair: Path, tmp_path: Path
) -> None:
    told = suwen("info", adapter_pair, "--json").json["documents"]
    assert told.startswith("encoded by org/base with the pair's adapter") and "SUWEN_BASE" in told
    folder = shutil.copytree(light_pair, tmp_path / "blended")
    fields = load_manifest(folder).model_dump()
    fields["tiers"]["l2-fp32"]["blend"] = {"static": 0.25}
    save_manifest(folder, Manifest.model_validate(fields | {"default_tier": "l2-fp32"}))
    tiers = suwen("info", folder, "--json").json["tiers"]
    assert [tier.partition(":")[0] for tier in tiers] == ["l2", "l2-fp32 (0.25 static) (default)", "static"]


def test_long_lines_stay_whole_for_programs(suwen: Suwen, index: Path) -> None:
    assert any(str(index) in line for line in suwen("info", index).out.splitlines())


def test_recall(suwen: Suwen, index: Path) -> None:
    told = suwen("recall", index, "--queries", 5, "-k", 3, "--json").json
    assert told == {"recall": 1.0, "k": 3, "queries": 5}
    assert suwen("recall", index).out.startswith("recall@10 1.0000 against exact search")
