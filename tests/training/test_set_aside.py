"""Questions set aside: no stage trains on them, the teacher's vectors have them, and things are chosen by them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recipes_on_the_spot import raw_recipe, write_recipe
from rows_on_disk import written_table

from suwen.corpora.training_rows import TrainingRow
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.stage_identity import digest, identity
from suwen.training.recipe.tiny_data import write_tiny_data
from suwen.training.set_aside import SetAside, _bank, _drawn, is_set_aside, which, without_set_aside


@pytest.fixture
def table(tmp_path: Path):
    """Two sources of questions with an answer each, and one of questions that mean the same."""
    rows = {
        name: [TrainingRow(f"{name} 问 {n}", (f"{name} 答 {n}",), (), type=kind) for n in range(200)]
        for name, kind in (("a", ""), ("b", ""), ("same", "symmetric_question"))
    }
    return written_table(rows, tmp_path)


def test_the_words_alone_decide_and_a_larger_share_has_more() -> None:
    texts = [f"第 {number} 个问题" for number in range(4000)]
    few, many = which(texts, 0.02), which(texts, 0.1)
    assert 40 < few.sum() < 130 and 300 < many.sum() < 500
    assert not (few & ~many).any() and not which(texts, 0.0).any()
    assert [is_set_aside(text, 0.1) for text in reversed(texts)] == many[::-1].tolist()


def test_rows_of_such_questions_are_left_out_and_no_others(table) -> None:
    left = without_set_aside(table, 0.2)
    aside = which(table.queries, 0.2)
    for name, rows in table.sources.items():
        kept = left.sources[name]
        assert len(kept.queries) == len(rows.queries) - aside[rows.queries].sum() < len(rows.queries)
        assert not aside[kept.queries].any()
        asked = [table.queries[query] for query in kept.queries]
        given = [table.documents[kept.positives[row][0]] for row in range(len(asked))]
        assert [text.replace("问", "答") for text in asked] == given
    assert without_set_aside(table, 0.0) is table
    assert set(without_set_aside(table, 1.0).sources) == set(), "a source without rows is no source"


def aside_of(table, share: float) -> SetAside:
    queries, source = _drawn(table, which(table.queries, share))
    documents = _bank(table, np.unique(np.concatenate([table.right[query] for query in queries])))
    asked, given = (
        [texts[n] for n in places] for texts, places in ((table.queries, queries), (table.documents, documents))
    )
    right = [np.array([given.index(text.replace("问", "答"))]) for text in asked]
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((len(given), 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    taught = np.stack([vectors[places[0]] for places in right])
    return SetAside(asked, taught, given, vectors, right, source)


def test_questions_of_every_source_but_symmetric_ones_are_searched_among_all_documents(table) -> None:
    aside = aside_of(table, 0.3)
    assert {text.split()[0] for text in aside.questions} == {"a", "b"}
    assert len(aside.documents) == 400 and not any(text.startswith("same") for text in aside.documents)


def test_the_score_is_ndcg_and_the_mean_of_the_sources(table) -> None:
    aside = aside_of(table, 0.3)
    assert aside.score(aside.taught) == pytest.approx(100)
    assert aside.score(-aside.taught) < 1
    half = aside.taught.copy()
    half[aside.source == aside.source[0]] *= -1
    assert aside.score(half) == pytest.approx(50, abs=1), "one source found whole, the other not at all"
    second = aside.given + 0.0
    second[[places[0] for places in aside.right]] *= 0.5  # each right one behind one that is nearer
    extra = np.concatenate([second, 0.9 * aside.taught[:1]])
    one = SetAside(aside.questions[:1], aside.taught[:1], aside.documents, extra, aside.right[:1], aside.source[:1])
    better = (aside.taught[:1] @ extra.T)[0]
    rank = int((better > better[aside.right[0][0]]).sum())
    assert one.score(one.taught) == pytest.approx(100 / np.log2(rank + 2) if rank < 10 else 0.0)


def recipe(tmp_path: Path, **changes):
    raw = raw_recipe()
    raw["data"] |= changes.pop("data", {})
    stages = {stage["name"]: stage for stage in raw["stages"]}
    for name, keys in changes.items():
        stages[name.replace("_", "-")].update(keys)
    return load_recipe(write_recipe(tmp_path, raw))


def test_a_recipe_that_chooses_by_nothing_is_refused(tmp_path: Path) -> None:
    stop = {"early_stop": {"every": 2}}
    with pytest.raises(RecipeError, match=r"stages.align.early_stop: no question is set aside"):
        recipe(tmp_path, align=stop, vectors={"rows": {}})
    with pytest.raises(RecipeError, match=r"have no vectors; say `rows"):
        recipe(tmp_path, align=stop, data={"set_aside": 0.1})
    with pytest.raises(RecipeError, match=r"stages.export.halfway: nothing is there to choose the share by"):
        recipe(tmp_path, export={"halfway": {"tier": "l2"}}, vectors={"rows": {}})
    with pytest.raises(RecipeError, match="'l9' is not one of the tiers"):
        recipe(tmp_path, export={"halfway": {"tier": "l9", "share": 0.3}})
    with pytest.raises(RecipeError, match="no common length"):
        recipe(tmp_path, export={"halfway": {"tier": "l2", "share": 0.3}}, document={"similarity": "dot"})
    trained = {"train_document": True, "document": "document", **stop}
    with pytest.raises(RecipeError, match="leaves behind"):
        recipe(tmp_path, joint=trained, vectors={"rows": {}}, data={"set_aside": 0.1})
    recipe(tmp_path, align=stop, joint=stop, vectors={"rows": {}}, data={"set_aside": 0.1})


def test_what_is_set_aside_is_part_of_what_a_stage_did(tmp_path: Path) -> None:
    write_tiny_data(tmp_path / "data", conditions=4)
    root = {"root": str(tmp_path / "data")}
    plain, aside = recipe(tmp_path, data=root), recipe(tmp_path, data=root | {"set_aside": 0.1})
    for name in ("document", "vectors", "align"):
        assert digest(identity(plain, name, 0)) != digest(identity(aside, name, 0)), name
