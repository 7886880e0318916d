"""A limit of the stages that write: drawn from every source, the same for the same seed, others for another."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from server import Body, Server

from suwen.training.hypothetical_writing import QUERIES
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe_runner import train
from suwen.training.run_context import ROWS
from suwen.training.stages.rewrites import TEXTS

#: What the texts of a source begin with; the file is sorted by source, as such files are.
SOURCES = ("咳嗽", "血压", "骨折")
EACH, LIMIT, FEWER = 60, 40, 20
RECIPE = f"""
name: drawn
dimension: 32
data: {{root: "${{RECIPE}}", texts: "${{RECIPE}}/texts.jsonl", held_out: null}}
stages:
  - {{stage: queries, name: asked, model: scripted, limit: {LIMIT}, held_out_share: 0.1}}
  - {{stage: rewrites, name: of-queries, model: scripted, queries: asked, count: 1, limit: {FEWER}}}
  - {{stage: rewrites, name: of-texts, model: scripted, count: 1, limit: {LIMIT}}}
"""


def says(body: Body) -> str:
    """Something of use about whatever it is asked, and about nothing else the same."""
    number = sum(map(ord, str(body["messages"])))
    return f"持续{number}天以上的不适应当去医院检查。"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A recipe, its texts, and a scripted model that this folder's ``suwen.toml`` names."""
    folder = tmp_path_factory.mktemp("drawn")
    texts = [{"text": f"{source}第{number}号。", "kind": "text"} for source in SOURCES for number in range(EACH)]
    lines = (json.dumps(text, ensure_ascii=False) for text in texts)
    (folder / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "drawn.yaml").write_text(RECIPE, encoding="utf-8")
    with Server(says) as server, pytest.MonkeyPatch.context() as patch:
        models = '[llm.models.scripted]\nendpoint = "here"\nmodel = "scripted"\n'
        named = f'[llm.endpoints.here]\nbase_url = "{server.url}"\n{models}'
        (folder / "suwen.toml").write_text(named, encoding="utf-8")
        patch.chdir(folder)
        yield folder


def drawn(folder: Path, root: str, seed: int) -> dict[str, list[str]]:
    """The texts that each stage took, in a run of its own."""
    run = train(load_recipe(folder / "drawn.yaml"), folder / root, seed=seed, device="cpu").folder
    return {
        "asked": [one["doc"] for one in _lines(run / "asked" / "model" / QUERIES)],
        "of-queries": [one["pos"][0] for one in _lines(run / "of-queries" / "model" / ROWS)],
        "of-texts": [one["query"] for one in _lines(run / "of-texts" / "model" / TEXTS)],
    }


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


def test_a_limit_takes_from_every_source(written: Path) -> None:
    for stage, texts in drawn(written, "one", 0).items():
        found = Counter(text[:2] for text in texts)
        assert len(set(texts)) == len(texts) == (FEWER if stage == "of-queries" else LIMIT)
        # Of so many, a third of each source's share is what chance hardly ever leaves.
        assert set(found) == {*SOURCES} and min(found.values()) >= len(texts) / 9, (stage, found)
        assert texts == sorted(texts, key=lambda text: SOURCES.index(text[:2])), f"{stage}: in the order of the file"


def test_a_draw_is_the_same_for_the_same_seed_and_another_for_another(written: Path) -> None:
    first, again, other = (drawn(written, root, seed) for root, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert first == again
    for stage, texts in first.items():
        assert set(texts) != set(other[stage]), stage
