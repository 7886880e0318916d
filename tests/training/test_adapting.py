"""What an adaptation makes of a recipe; the whole way is in tests/cli/test_adapting.py."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from small_pair import make_static_pair

from suwen.curate.leakage import HeldOut
from suwen.encoders.pair import pair_folder
from suwen.training.adapting import Adaptation, _models, put_together
from suwen.training.recipe.recipe_file import load_recipe


def test_a_specialist_goes_on_from_the_pair_that_is_named_and_from_its_tier(tmp_path: Path) -> None:
    recipe, shelf = load_recipe("cardioembed-mini"), (Path("shelf"), Path("work"))
    (house := tmp_path / "house").symlink_to(pair_folder("default"), target_is_directory=True)
    keys = _models(recipe, Adaptation(*shelf, pair=str(house), base="base.gguf"))
    made = load_recipe("cardioembed-mini", keys)
    assert made.stage("specialist").pair == made.stage("average").pair == str(house)
    assert made.students["l6"].base == f"pair:{house}#l6" and made.stage("specialist").base == "base.gguf"
    assert _models(recipe, Adaptation(*shelf)) == []


def test_a_pair_without_that_tier_lends_no_start(tmp_path: Path) -> None:
    recipe, bare = load_recipe("cardioembed-mini"), make_static_pair(tmp_path / "pair")
    keys = _models(recipe, Adaptation(Path("shelf"), Path("work"), pair=str(bare)))
    assert f"stages.specialist.pair={bare}" in keys and not any(key.startswith("students.") for key in keys)


def packed(file: Path, records: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in records).encode()))


def unpacked(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def row(query: str) -> dict[str, Any]:
    return {"query": query, "pos": [f"An answer to that: {query}, at some length."], "neg": ["Nothing of the kind."]}


def test_nothing_that_is_kept_apart_is_trained_on_whoever_keeps_it(tmp_path: Path) -> None:
    work, general = tmp_path / "work", tmp_path / "general"
    secrets = {
        "triplets": "the third valve of the left chamber",
        "questions": "the slow beat of the right chamber",
        "general": "the cold hands of the second guest",
    }
    clean = [row("why does it beat at night"), row("what is a murmur of the old")]
    for name, folder in (("triplets", work / "triplets"), ("questions", work / "questions"), ("general", general)):
        packed(folder / "held-out.jsonl.gz", [{"text": secrets[name]}])
    leaks = [row(f"what of {secret}?") for secret in secrets.values()]
    packed(work / "triplets" / "rows" / "paraphrase.jsonl.gz", [*clean, leaks[2]])
    packed(work / "triplets" / "texts.jsonl.gz", [{"text": clean[0]["query"], "kind": "sentence"}])
    packed(work / "questions" / "rows.jsonl.gz", [*clean, leaks[0], leaks[2]])
    packed(general / "rows" / "own.jsonl.gz", [*clean, *leaks])
    packed(general / "rows" / "gone.jsonl.gz", leaks)
    packed(general / "texts.jsonl.gz", [{"text": text, "kind": "query"} for text in ("what helps", *secrets.values())])
    counts = put_together(work, general)
    assert counts == {"rows": 4, "texts": 1, "general_rows": 2, "general_texts": 1, "left_out": 12}
    data = work / "data"
    assert {file.name: len(unpacked(file)) for file in (data / "rows").iterdir()} == {
        "own.jsonl.gz": 2,
        "paraphrase.jsonl.gz": 2,
        "questions.jsonl.gz": 2,
    }
    held = HeldOut.read(data / "held-out.jsonl.gz")
    assert set(held) == set(secrets.values())
    assert not held.hits([one["text"] for one in unpacked(data / "texts.jsonl.gz")])
