"""What release 0.1.0 wrote opens, resumes and answers alike: files of that release lie in ``data/written-by-0.1.0``."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from in_memory import folder_in_memory

sys.path.insert(0, str(Path(__file__).parent / "llm"))

from server import Server

import suwen

WRITTEN = Path(__file__).parent / "data" / "written-by-0.1.0"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text(encoding="utf-8"))
#: Ids of documents that 0.1.0 added by a tier, replaced and deleted.
WAITING, REPLACED, DELETED = "d105", "d012", "d020"
Command = Callable[..., Any]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is the working folder too: the paths in the files are relative, as a user's are."""
    with folder_in_memory() as folder:
        monkeypatch.chdir(folder)
        yield folder


@pytest.fixture
def unpack(place: Path) -> Callable[[str], Path]:
    """Unpacks one of the archives into the working folder."""

    def unpacked(name: str) -> Path:
        with tarfile.open(WRITTEN / f"{name}.tar.xz") as archive:
            archive.extractall(place, filter="data")
        return Path(name)

    return unpacked


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``suwen ARGUMENTS --json`` and gives what it printed."""
    from suwen.cli.main import run

    def call(*arguments: object) -> Any:
        monkeypatch.setattr(sys, "argv", ["suwen", *map(str, arguments), "--json"])
        capfd.readouterr()
        code: Any = 0
        try:
            run()
        except SystemExit as end:
            code = end.code or 0
        said = capfd.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return call


@pytest.fixture
def index(unpack: Callable[[str], Path]) -> Path:
    """The index folder: sealed blocks, a tail, documents replaced, deleted and waiting; its pair is beside it."""
    return unpack("index") / "made"


@pytest.fixture
def pair(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pair of the index, as every command finds it."""
    monkeypatch.setenv("SUWEN_PAIR", str(index.parent / "pair"))
    return index.parent / "pair"


def contents(folder: Path) -> dict[str, str]:
    """Every file of a folder but locks, by the hash of its bytes."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and "lock" not in file.name]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


#: Scores are told to five digits, and another processor may round the last of them the other way.
WITHIN = 1.5e-5


def check(searched: suwen.Index, one: dict[str, Any], *, within: float) -> None:
    """One search by meaning gives what 0.1.0 gave: the hits, and their scores. Words are weighed otherwise since."""
    asked = {"synonyms": False, "fold": False, **one["asked"]}
    results = searched.search(one["query"], len(one["hits"]) or 6, explain=True, highlights=True, **asked)
    if results.mode != "dense":
        before = {id_: dense[1] for id_, _, _, dense, *_ in one["hits"] if dense}
        now = {hit.id: hit.explanation.dense.score for hit in results if hit.explanation.dense}
        shared = before.keys() & now.keys()
        assert [now[id_] for id_ in shared] == pytest.approx([before[id_] for id_ in shared], abs=within), one
        return
    assert results.tier == one["tier"], one
    assert [hit.id for hit in results] == [id_ for id_, *_ in one["hits"]], one
    for hit, (_, score, encoder, dense, lexical, highlights) in zip(results, one["hits"], strict=True):
        assert hit.encoder == encoder and hit.score == pytest.approx(score, abs=within)
        for leg, (before, now) in {
            "dense": (dense, hit.explanation.dense),
            "lexical": (lexical, hit.explanation.lexical),
        }.items():
            assert (before is None) == (now is None), leg
            if now is not None:
                assert [now.rank, now.score] == pytest.approx(before[:2], abs=within), (leg, one)
        assert [[span.start, span.end, list(map(list, span.terms))] for span in hit.highlights] == highlights


@pytest.mark.parametrize("write", [False, True])
def test_an_index_opens_without_being_rebuilt(
    index: Path, pair: Path, write: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="suwen")
    derived, sample = contents(index / "gen-000001"), contents(index)["freshness-static.npz"]
    with suwen.open(index, pair=pair, write=write) as opened:
        assert opened.pair.space.id == EXPECTED["index"]["space"]
        assert opened.search("痛风怎么预防").hits
    assert [folder.name for folder in index.glob("gen-*")] == ["gen-000001"]
    assert contents(index / "gen-000001") == derived
    assert contents(index)["freshness-static.npz"] == sample
    # A server that another test left behind may still write the line of its last request.
    assert not [record for record in caplog.records if not record.name.startswith("suwen.service")]


def test_an_index_gives_the_same_hits_and_scores_of_each_leg(index: Path, pair: Path) -> None:
    with suwen.open(index, pair=pair) as opened:
        for one in EXPECTED["index"]["answers"]:
            check(opened, one, within=WITHIN)


def test_an_index_holds_what_it_held(index: Path, pair: Path, command: Command) -> None:
    told, expected = command("info", index), EXPECTED["index"]
    assert command("verify", index)["ok"]
    for key in ("documents", "passages", "deleted", "space"):
        assert told[key] == expected[key]
    assert told["encoded by"] == [f"{name}: {count} passages" for name, count in expected["encoders"].items()]


def test_an_index_can_be_written(index: Path, pair: Path, command: Command) -> None:
    def first(query: str, *more: object) -> str:
        return command("search", index, query, *more)["hits"][0]["document_id"]

    before = command("info", index)
    assert first("痛风患者少吃海鲜") == "note"
    command("add", index, "--id", "new", "--title", "蜂蜜", "--text", "婴儿不宜吃蜂蜜。", "--tier", "static")
    command("add", index, "--id", REPLACED, "--text", "打鼾的人宜侧卧。", "--tier", "static")
    assert command("delete", index, "note", DELETED) == {"deleted": 1, "missing": [DELETED]}
    assert first("婴儿不宜吃蜂蜜", "--mode", "lexical") == "new" and first("打鼾的人宜侧卧") == REPLACED
    assert command("compact", index)["worked"]
    after = command("info", index)
    assert (after["deleted"], after["documents"]) == (0, before["documents"])
    assert command("verify", index)["ok"]
    assert first("婴儿不宜吃蜂蜜", "--mode", "dense") == "new" and first("打鼾的人宜侧卧") == REPLACED
    assert "note" not in {hit["document_id"] for hit in command("search", index, "痛风患者少吃海鲜", "-k", 50)["hits"]}


def test_an_index_survives_a_backup_and_a_rebuild(index: Path, pair: Path, command: Command) -> None:
    command("backup", index, "kept")
    assert command("restore", "kept", "again")["passages"] == EXPECTED["index"]["passages"]
    answers = [one for one in EXPECTED["index"]["answers"] if one["asked"] == {"mode": "lexical"}]
    with suwen.open("again", pair=pair) as opened:
        for one in answers:
            assert {hit.id for hit in opened.search(one["query"], 200, mode="lexical", fold=False)} >= {
                hit[0] for hit in one["hits"]
            }


def test_finished_stages_of_a_run_are_kept_and_the_unfinished_one_goes_on(
    unpack: Callable[[str], Path], command: Command
) -> None:
    runs, keys = unpack("runs"), EXPECTED["runs"]["keys"]
    folder = runs / "every-stage" / "s0"
    finished = [name for name in keys if name != "align"]
    before = {name: contents(folder / name) for name in finished}
    steps = (folder / "align" / "curves.csv").read_text(encoding="utf-8").splitlines()
    assert not (folder / "align" / "metrics.json").exists()
    report = command("train", runs / "recipe.yaml", "--out", "runs", "--resume", "--device", "cpu")
    assert report["complete"] and [stage["name"] for stage in report["stages"]] == list(keys)
    assert {stage["name"]: stage["how"] for stage in report["stages"]} == dict.fromkeys(finished, "kept") | {
        "align": "run"
    }
    assert {name: contents(folder / name) for name in finished} == before
    metrics = {stage["name"]: stage["metrics"] for stage in report["stages"]}
    assert {name: metrics[name] for name in finished} == EXPECTED["runs"]["metrics"]
    # What was trained before is not trained again: the lines that were there are there, and more after them.
    after = (folder / "align" / "curves.csv").read_text(encoding="utf-8").splitlines()
    assert 1 < len(steps) < len(after) and after[: len(steps)] == steps
    journal = json.loads((folder / "stages.json").read_text(encoding="utf-8"))
    assert {name: journal[name]["key"] for name in keys} == keys
    again = command("train", runs / "recipe.yaml", "--out", "runs", "--device", "cpu")
    assert {stage["how"] for stage in again["stages"]} == {"kept"}


def test_another_run_links_the_finished_stages(unpack: Callable[[str], Path], command: Command) -> None:
    runs, keys = unpack("runs"), EXPECTED["runs"]["keys"]
    text = (runs / "recipe.yaml").read_text(encoding="utf-8")
    (runs / "other.yaml").write_text(text.replace("name: every-stage", "name: other"), encoding="utf-8")
    finished = [name for name in keys if name != "align"]
    only = [part for name in finished for part in ("--only", name)]
    report = command("train", runs / "other.yaml", "--out", "runs", "--device", "cpu", *only)
    assert {stage["name"]: stage["how"] for stage in report["stages"]} == dict.fromkeys(finished, "linked")


@pytest.fixture
def jury(unpack: Callable[[str], Path]) -> Iterator[Path]:
    """The jury's folder; its models are served, and nobody may ask them."""

    def refuse(body: object) -> str:
        raise AssertionError("a reply that is in the cache was asked for")

    with Server(refuse, models=("one", "kind")) as server:
        config = unpack("jury") / "suwen.toml"
        config.write_text(config.read_text(encoding="utf-8").replace("http://127.0.0.1:9/v1", server.url))
        yield Path("jury")
        assert server.total == 0


def voting(jury: Path) -> list[str]:
    """How the judges voted."""
    asked = [str(jury / "work"), "-j", "one", "-j", "kind", "-j", "kind:en", "--batch", "3", "--again", "0.5"]
    return ["jury", "judge", *asked, "--config", str(jury / "suwen.toml")]


def labels(file: Path) -> dict[tuple[str, str], Any]:
    """Verdicts by pair: the label, every vote and what became of it."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {
        (one["query_id"], one["passage_id"]): (one["label"], one["votes"], [event["by"] for event in one["history"]])
        for one in lines
    }


def test_a_jury_goes_on_and_its_verdicts_stay(jury: Path, command: Command) -> None:
    assert command(*voting(jury))["spent"]["calls"] == 0
    command("jury", "consensus", jury / "work")
    assert labels(jury / "work" / "verdicts.jsonl") == labels(jury / "verdicts-before.jsonl")
    command("jury", "consensus", jury / "work", "--reviewed")
    assert labels(jury / "work" / "verdicts.jsonl") == labels(jury / "verdicts-reviewed.jsonl")
    assert command("jury", "review", "agreement", jury / "work")["labelled"] == 12
    assert command("jury", "review", "import", jury / "work", jury / "li.csv", "--reviewer", "li") == {"new": 0}
    report = command("jury", "report", jury / "work")
    assert sum(row["calls"] for row in report["ledger"]) == EXPECTED["jury"]["calls"]


def test_replies_in_a_cache_are_not_asked_for_again(jury: Path, command: Command) -> None:
    (jury / "work" / "votes.db").unlink()
    done = command(*voting(jury))
    assert done["spent"]["calls"] == 0 and done["abstentions"] == 0
    command("jury", "consensus", jury / "work")
    before, after = (labels(file) for file in (jury / "verdicts-before.jsonl", jury / "work" / "verdicts.jsonl"))
    assert {pair: label for pair, (label, *_) in after.items()} == {pair: label for pair, (label, *_) in before.items()}


def test_results_of_a_benchmark_are_kept(unpack: Callable[[str], Path], command: Command) -> None:
    bench = unpack("bench")
    before = contents(bench / "results" / "suite")
    systems = ["-s", "bm25:words", "-s", f"pair:{bench / 'pair'}"]
    done = command("bench", "run", bench / "suite.toml", *systems, "--out", bench / "results")
    assert [(len(one["results"]), len(one["reused"])) for one in done["systems"]] == [(1, 1), (1, 1)]
    assert contents(bench / "results" / "suite") == before
    compared = command("bench", "compare", bench / "results", "--a", "bm25:words", "--b", f"pair:{bench / 'pair'}")
    assert len(compared["tasks"]) == 1
    # Scored again, from the vectors that are there, the numbers stay.
    shutil.rmtree(bench / "results" / "suite")
    again = command("bench", "run", bench / "suite.toml", *systems, "--out", bench / "results")
    assert [one["results"] for one in again["systems"]] == [one["results"] for one in done["systems"]]


def test_the_default_pair_has_its_document_encoder_and_finds_the_same(place: Path, command: Command) -> None:
    """Its queries, and where documents lie for them, are others since; words find what they did."""
    command("demo", "demo")
    with suwen.open("demo") as opened:
        assert (opened.pair.space.alone.id, opened.pair.name) == (EXPECTED["default"]["space"], "suwen-care-mini")
        for one in EXPECTED["default"]["answers"]:
            if one["asked"].get("mode") == "lexical":
                check(opened, one, within=WITHIN)
                continue
            results = opened.search(one["query"], 20, **one["asked"])
            assert results.tier == one["tier"] and (results.relevant or results.tier == "static")
            assert {id_ for id_, *_ in one["hits"][:3]} <= {hit.id for hit in results}
