"""Every key has a meaning, and what cannot be meant is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import suwen.training.stages  # noqa: F401 - all of them are looked at
from suwen.training.recipe import key_groups, recipe_model
from suwen.training.recipe.key_groups import KeyGroup, Mine, Prompts, Rows, Training
from suwen.training.recipe.recipe_model import Recipe, Student
from suwen.training.recipe.stage_base import STAGES
from suwen.training.stages.align import AlignStage
from suwen.training.stages.contrastive import FinetuneStage
from suwen.training.stages.document import DocumentStage
from suwen.training.stages.export import ExportStage
from suwen.training.stages.freeze import FreezeStage
from suwen.training.stages.joint import JointStage

TRAINING = {"steps": 10, "batch": 4, "learning_rate": 1e-3}


def groups() -> list[type[KeyGroup]]:
    types = {
        value for module in (recipe_model, key_groups) for value in vars(module).values() if isinstance(value, type)
    }
    return sorted(
        {one for one in types if issubclass(one, KeyGroup)} | {*STAGES.values()}, key=lambda one: one.__name__
    )


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.__name__)
def test_every_key_says_what_it_means(group: type[KeyGroup]) -> None:
    silent = [key for key, field in group.model_fields.items() if key != "stage" and not field.description]
    assert silent == []


def test_the_word_of_a_stage_is_the_one_of_its_class() -> None:
    for word, group in STAGES.items():
        assert group.model_fields["stage"].annotation.__args__ == (word,)


def test_settings_do_not_change_and_take_no_unknown_key() -> None:
    training = Training(**TRAINING)
    with pytest.raises(ValidationError, match="frozen"):
        training.steps = 3
    with pytest.raises(ValidationError, match="stepz"):
        Training(**TRAINING, stepz=3)


@pytest.mark.parametrize("lengths", [{}, {"steps": 1, "epochs": 1}, {"epochs": 1, "seconds": 3}])
def test_a_training_has_exactly_one_length(lengths: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="exactly one of steps, epochs and seconds"):
        Training(batch=2, learning_rate=1e-3, **lengths)


@given(rows=st.integers(0, 10**7), batch=st.integers(1, 10**4), epochs=st.floats(0.1, 20))
def test_epochs_become_steps(rows: int, batch: int, epochs: float) -> None:
    steps = Training(epochs=epochs, batch=batch, learning_rate=1e-3).steps_over(rows)
    assert steps is not None and steps >= 1
    assert abs(steps - epochs * rows / batch) <= 1


def test_steps_and_seconds_do_not_depend_on_the_rows() -> None:
    assert Training(**TRAINING).steps_over(10**6) == 10
    assert Training(steps=0, batch=1, learning_rate=1e-3).steps_over(5) == 0
    assert Training(seconds=3, batch=1, learning_rate=1e-3).steps_over(5) is None


@pytest.mark.parametrize(("given", "missing"), [("query", "document"), ("document", "query")])
def test_a_prompt_on_one_side_only_is_refused(given: str, missing: str) -> None:
    with pytest.raises(ValidationError, match=f'say `{missing}: ""`'):
        Prompts(**{given: "问："})
    assert Prompts(**{given: "问：", missing: ""}).model_dump()[missing] == ""


def test_the_instruction_of_a_row_takes_its_place_in_the_prompt() -> None:
    prompts = Prompts(query="<instruct>{instruction}\n<query>", document="", instruction="找资料")
    assert prompts.filled.before("query") == "<instruct>找资料\n<query>"
    assert prompts.filled.before("query", "找近义句") == "<instruct>找近义句\n<query>"
    assert prompts.filled.before("document") == Prompts().filled.before("query") == ""


@pytest.mark.parametrize(
    "prompts",
    [
        {"query": "<instruct>{instructions}\n<query>", "document": ""},
        {"query": "{instruction}{instruction}", "document": ""},
        {"query": "", "document": "{instruction}"},
    ],
)
def test_a_brace_that_nothing_fills_is_refused(prompts: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"only \{instruction\} is filled"):
        Prompts(**prompts)


def test_rows_weigh_only_what_they_list() -> None:
    assert Rows(sources=["a", "b"], weights={"a": 2.0}).weights == {"a": 2.0}
    assert Rows(weights={"a": 2.0}).sources is None
    with pytest.raises(ValidationError, match="not listed: c"):
        Rows(sources=["a"], weights={"c": 1.0})
    with pytest.raises(ValidationError, match="above 0"):
        Rows(weights={"a": 0.0})


def test_a_window_of_ranks_has_its_ends_in_order() -> None:
    with pytest.raises(ValidationError, match="last_rank 3 is before first_rank 5"):
        Mine(first_rank=5, last_rank=3)


def test_a_symmetric_stage_trains_one_encoder() -> None:
    base = {"stage": "finetune", "name": "f", "training": TRAINING}
    assert FinetuneStage(**base, student="a").document is None
    for sides in ({}, {"student": "a", "document": "d"}):
        with pytest.raises(ValidationError, match="exactly one of them"):
            FinetuneStage(**base, **sides)
    with pytest.raises(ValidationError, match="`teacher` go together"):
        FinetuneStage(**base, student="a", distil=1.0)


def test_an_alignment_needs_a_loss() -> None:
    base = {"stage": "align", "name": "a", "student": "s", "vectors": "v", "training": TRAINING}
    assert AlignStage(**base, contrastive=0, squared_l2=0, leaf=1).leaf == 1
    with pytest.raises(ValidationError, match="no loss is left"):
        AlignStage(**base, contrastive=0, squared_l2=0)


def test_a_joint_stage_says_where_kept_alignment_and_negatives_come_from() -> None:
    base = {"stage": "joint", "name": "j", "student": "s", "document": "d", "training": TRAINING}
    assert JointStage(**base).negatives == 7
    assert JointStage(**base, keep_alignment=0.5, vectors="v").vectors == "v"
    with pytest.raises(ValidationError, match="`keep_alignment` above 0 needs `vectors`"):
        JointStage(**base, keep_alignment=0.5)
    with pytest.raises(ValidationError, match="say `negatives` on the stage"):
        JointStage(**base, rows={"negatives": 3})


def test_the_default_tier_is_a_tier() -> None:
    base = {"stage": "export", "name": "e", "start": "f", "tiers": {"l6": "joint"}}
    assert ExportStage(**base, default_tier="l6").tiers == {"l6": "joint"}
    with pytest.raises(ValidationError, match="'l3' is not one of the tiers: l6"):
        ExportStage(**base, default_tier="l3")


def test_blends_are_shares_of_tiers_that_do_not_blend() -> None:
    base = {"stage": "export", "name": "e", "start": "f", "tiers": {"l6": "a", "l3": "b", "static": "c"}}
    assert ExportStage(**base).blends == {}
    assert ExportStage(**base, blends={"l6": {"static": 0.5}}).blends == {"l6": {"static": 0.5}}
    for blends, words in (
        ({"l9": {"static": 0.5}}, "'l9' is not one of the tiers: l6, l3, static"),
        ({"l6": {"l9": 0.5}}, "'l9' is not one of the tiers"),
        ({"l6": {"l6": 0.5}}, "'l6' blends itself"),
        ({"l6": {"l3": 0.5}, "l3": {"static": 0.5}}, "'l3' blends itself and cannot be part of 'l6'"),
        ({"l6": {"static": 0.5, "l3": 0.5}}, "less than 1 in all"),
        ({"l6": {"static": 0.0}}, "above 0"),
        ({"l6": {}}, "at least 1 item"),
    ):
        with pytest.raises(ValidationError, match=words):
            ExportStage(**base, blends=blends)


def test_a_student_from_scratch_has_a_width_of_whole_heads() -> None:
    with pytest.raises(ValidationError, match="needs a `width`"):
        Student()
    with pytest.raises(ValidationError, match="not a multiple of 6"):
        Student(width=100, heads=6)
    assert Student(start="layers-of-document", layers=3).width is None
    assert Student(kind="static").kind == "static"
    for other in ({"kind": "static"}, {"base": "x"}, {"start": "prune:big"}):
        with pytest.raises(ValidationError, match="for transformers from scratch"):
            Student(**other, dropout=0.1)
    with pytest.raises(ValidationError, match="start"):
        Student(width=96, start="somewhere")


def test_dimensions_are_handed_down() -> None:
    document = DocumentStage(stage="document", name="document", base="b", training=TRAINING)
    wide = document.model_copy(update={"name": "wide", "dimension": 64})
    freeze = FreezeStage(stage="freeze", name="freeze", start="wide")
    cut = freeze.model_copy(update={"name": "cut", "dimension": 16})
    recipe = Recipe(name="r", dimension=32, stages=[document, wide, freeze, cut])
    assert [recipe.dimension_of(stage.name) for stage in recipe.stages] == [32, 64, 64, 16]
    with pytest.raises(KeyError):
        recipe.stage("nowhere")
