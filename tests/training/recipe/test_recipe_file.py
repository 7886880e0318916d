"""Reading recipes: includes, --set, variants, variables, and what is refused with which words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipes_on_the_spot import TRAINING, raw_recipe, write_recipe

from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe, require_data
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.stages.align import AlignStage
from suwen.training.stages.document import DocumentStage
from suwen.training.stages.export import ExportStage
from suwen.training.stages.joint import JointStage
from suwen.training.sweep import table_of

SHIPPED = Path(__file__).parents[3] / "recipes"
RECIPES = (
    *("care", "care-mini", "care-mini-l3", "care-nearer", "care-tiny", "care-ablations"),
    *("bmretriever", "bmretriever-mini", "bmretriever-light", "bmretriever-tiny"),
    *("cardioembed", "cardioembed-mini", "cardioembed-aligned", "cardioembed-tiny"),
    *("sl-hyde", "sl-hyde-mini", "sl-hyde-pair", "sl-hyde-tiny", "sl-hyde-unlabelled"),
    *("reranker", "reranker-mini", "reranker-tiny"),
)
Raw = dict[str, Any]


def stage(raw: Raw, name: str) -> Raw:
    return next(one for one in raw["stages"] if one["name"] == name)


def load(folder: Path, raw: Raw, *sets: str, variant: str | None = None) -> Recipe:
    return load_recipe(write_recipe(folder, raw), sets, variant)


@pytest.mark.parametrize("name", RECIPES)
def test_every_shipped_recipe_and_each_of_its_variants_fits_together(name: str) -> None:
    recipe = load_recipe(SHIPPED / f"{name}.yaml")
    assert recipe.name == name
    for variant in recipe.variants:
        changed = load_recipe(SHIPPED / f"{name}.yaml", variant=variant)
        assert changed.name == f"{name}.{variant}"
        assert (changed.stages, changed.students) != (recipe.stages, recipe.students)


def test_a_third_query_encoder_changes_nothing_of_the_default_pair() -> None:
    pair, more = (load_recipe(SHIPPED / f"{name}.yaml") for name in ("care-mini", "care-mini-l3"))
    shared = [stage.name for stage in pair.stages if stage.name != "export"]
    assert [pair.stage(name) for name in shared] == [more.stage(name) for name in shared]
    assert all(pair.students[name] == more.students[name] for name in pair.students)
    assert {stage.name for stage in more.stages} - set(shared) == {"retromae-l3", "align-l3", "joint-l3", "export"}
    assert more.students["l3"] == more.students["l6"].model_copy(update={"layers": 3})
    six, three = (more.stage(f"joint-{name}").model_dump() for name in ("l6", "l3"))
    assert three == six | {"name": "joint-l3", "student": "l3", "start": "align-l3"}


@pytest.mark.parametrize("name", ["care", "care-tiny", "care-ablations"])
def test_the_tables_of_the_paper_are_all_variants(name: str) -> None:
    wanted = {
        variant for number in ("3", "4", "5", "15", "16") for variant in table_of(name, number).variants if variant
    }
    assert wanted <= set(load_recipe(SHIPPED / f"{name}.yaml").variants)


@pytest.mark.parametrize(
    ("name", "light", "unsupervised", "rows"),
    [("care", "finetune", "contrastive", "${DATA}"), ("care-tiny", "symmetric", "unsupervised", "builtin:tiny")],
)
def test_a_symmetric_model_is_one_encoder_and_sees_the_rows_twice(
    name: str, light: str, unsupervised: str, rows: str
) -> None:
    def stages(variant: str) -> list[str]:
        recipe = load_recipe(SHIPPED / f"{name}.yaml", variant=f"symmetric{variant}")
        assert recipe.stages[-1].training.epochs == (None if (name, variant) == ("care-tiny", "-document") else 2)
        return [one.name for one in recipe.stages]

    assert stages("") == ["retromae", unsupervised, light]
    assert stages("-retromae") == ["retromae", light]
    assert stages("-finetune-only") == [light]
    assert stages("-document") == ["document"]
    for variant, folder in (("", "rows"), ("-undiversified", "rows-undiversified")):
        recipe = load_recipe(SHIPPED / f"{name}.yaml", variant=f"symmetric{variant}")
        assert recipe.data.rows == f"{rows}/{folder}"


def test_the_light_symmetric_model_starts_as_the_query_encoder_does() -> None:
    whole, alone = (load_recipe(SHIPPED / "care.yaml", variant=variant) for variant in (None, "symmetric"))
    assert [whole.stage(name) for name in ("retromae", "contrastive")] == list(alone.stages[:2])


@pytest.mark.parametrize(
    ("variant", "base", "rates", "batch", "share"),
    [
        (None, "EleutherAI/pythia-410m", (5e-5, 5e-5), 256, 1.0),
        ("1b", "EleutherAI/pythia-1b", (5e-5, 5e-5), 256, 1.0),
        ("2b", "google/gemma-2b", (4e-5, 2e-5), 128, 1.0),
        ("7b", "BioMistral/BioMistral-7B", (2e-5, 1e-5), 64, 0.1),
    ],
)
def test_bmretriever_has_the_paper_s_numbers(
    variant: str | None, base: str, rates: tuple[float, float], batch: int, share: float
) -> None:
    recipe = load_recipe(SHIPPED / "bmretriever.yaml", variant=variant)
    pretrain, finetune = recipe.stage("pretrain"), recipe.stage("finetune")
    for one, rate, epochs in ((pretrain, rates[0], 2), (finetune, rates[1], 1)):
        assert (one.base, one.similarity, one.temperature, one.max_length) == (base, "dot", 1.0, 512)
        assert (one.lora.rank, one.lora.alpha) == (16, 32)
        training = one.training
        assert (training.learning_rate, training.batch, training.epochs) == (rate, batch, epochs)
        assert (training.warmup_steps, training.precision, training.gradient_checkpointing) == (100, "bf16", True)
    assert finetune.start == "pretrain" and finetune.rows.negatives == 1 and pretrain.rows.share == share
    assert not {"pubmedqa", "icliniq"} & set(finetune.rows.sources)


@pytest.mark.parametrize(
    ("faithful", "query", "passage"),
    [
        ("paper", "{instruction}. Query: ", "Represent this passage. Passage: "),
        ("code", "{instruction}\nQuery: ", "Represent this passage\npassage: "),
    ],
)
def test_bmretriever_s_template_is_the_paper_s_or_the_code_s(faithful: str, query: str, passage: str) -> None:
    recipe = load_recipe(SHIPPED / "bmretriever.yaml", [f"faithful={faithful}"])
    for name in ("pretrain", "finetune"):
        assert (recipe.stage(name).prompts.query, recipe.stage(name).prompts.document) == (query, passage)


def test_the_paper_s_recipe_has_the_paper_s_numbers() -> None:
    recipe = load_recipe(SHIPPED / "care.yaml")
    numbers = {
        one.name: (one.training.learning_rate, one.training.warmup, one.training.batch, one.training.epochs)
        for one in recipe.stages
        if hasattr(one, "training")
    }
    assert numbers == {
        "retromae": (2e-4, 0.0, 384, 3),
        "contrastive": (1e-4, 0.05, 19_200, 3),
        "finetune": (1e-4, 0.05, 640, 1),
        "document": (1e-4, 0.05, 640, 1),
        "align": (1e-4, 0.05, 2_560, 1),
        "joint": (1e-4, 0.05, 640, 1),
        # Nothing is trained once the space is fixed.
        "settle": (1e-5, 0.05, 640, None),
    }
    document, align, joint = (recipe.stage(name) for name in ("document", "align", "joint"))
    assert isinstance(document, DocumentStage) and isinstance(align, AlignStage) and isinstance(joint, JointStage)
    assert (document.lora.rank, document.lora.alpha, document.max_length) == (32, 64, 512)
    assert (align.contrastive, align.squared_l2, align.temperature) == (1, 1, 0.1)
    assert (joint.negatives, joint.temperature, joint.train_document) == (7, 0.02, True)
    assert recipe.dimension == 768


def test_a_number_with_an_exponent_is_a_number(tmp_path: Path) -> None:
    recipe = load(tmp_path, raw_recipe(), "stages.align.training.learning_rate=3e-4")
    assert recipe.stage("align").training.learning_rate == 3e-4


def test_set_reaches_stages_by_name_and_makes_groups(tmp_path: Path) -> None:
    recipe = load(tmp_path, raw_recipe(), "stages.document.lora.rank=4", "seed=7", "stages.align.kinds=[query, title]")
    assert recipe.stage("document").lora.rank == 4
    assert recipe.seed == 7
    assert recipe.stage("align").kinds == ("query", "title")


def test_what_an_anchor_shares_is_set_in_one_place_only(tmp_path: Path) -> None:
    file = write_recipe(tmp_path)
    assert "&id" in file.read_text(encoding="utf-8")
    recipe = load_recipe(file, ["stages.align.training.batch=64"])
    assert (recipe.stage("align").training.batch, recipe.stage("joint").training.batch) == (64, 2)


def test_setting_one_length_takes_the_others_away(tmp_path: Path) -> None:
    training = load(tmp_path, raw_recipe(), "stages.align.training.seconds=30").stage("align").training
    assert (training.steps, training.epochs, training.seconds) == (None, None, 30)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("stages.algin.limit=3", "stages.algin.limit: no stage is called 'algin'; did you mean 'align'?"),
        ("stages.align.squared_l3=1", "stages.align.squared_l3: unknown key; did you mean 'squared_l2'?"),
        ("stages.align.training.lerning_rate=1", "training.lerning_rate: unknown key; did you mean 'learning_rate'?"),
        ("students.student.widht=1", "students.student.widht: unknown key; did you mean 'width'?"),
        ("stages.align.temperature=hot", "stages.align.temperature: 'hot' is wrong"),
        ("stages.align.temperature=-1", "stages.align.temperature: -1 is wrong"),
        ("stages.align.limit.deep=1", "stages.align.limit.deep"),
        ("stages.align=1", "changed key by key"),
        ("stages.align.training.steps", "write it as key=value"),
        ("seed=[", "is not YAML"),
        ("name=Ü", "name: 'Ü' is wrong"),
        ("data.rowz=x", "data.rowz: unknown key; did you mean 'rows'?"),
    ],
)
def test_a_wrong_key_is_named_with_its_cure(tmp_path: Path, given: str, words: str) -> None:
    raw = raw_recipe()
    stage(raw, "align")["limit"] = 5
    with pytest.raises(RecipeError) as refused:
        load(tmp_path, raw, given)
    assert words in str(refused.value)


def change(*path: str | int, value: Any) -> Callable[[Raw], None]:
    def apply(raw: Raw) -> None:
        here: Any = raw
        for part in path[:-1]:
            here = stage(raw, part) if here is raw["stages"] else here[part]
        here[path[-1]] = value

    return apply


def joint_trains_the_frozen(raw: Raw) -> None:
    stage(raw, "joint")["train_document"] = True


def second_space(raw: Raw) -> None:
    raw["stages"][2:2] = [
        {"stage": "freeze", "name": "other", "start": "document", "dimension": 32},
        {"stage": "vectors", "name": "other-vectors", "start": "other"},
    ]


def tier_of_another_space(raw: Raw) -> None:
    second_space(raw)
    stage(raw, "align-static")["vectors"] = "other-vectors"


def joint_over_another_space(raw: Raw) -> None:
    second_space(raw)
    stage(raw, "joint")["document"] = "other"


def narrow_student(raw: Raw) -> None:
    raw["students"]["student"]["projection"] = False


def narrower_teacher(raw: Raw) -> None:
    stage(raw, "freeze")["dimension"] = 16


def later_start(raw: Raw) -> None:
    raw["stages"].insert(0, raw["stages"].pop(5))


def static_learns_last(raw: Raw) -> None:
    raw["students"]["student"]["init"] = "table:static"
    raw["stages"].sort(key=lambda found: found.get("student") == "static")


def ranking_without_queries(raw: Raw) -> None:
    stage(raw, "align").update(ranking=1.0, document_share=1.0)


def supervised_ranking(raw: Raw) -> None:
    stage(raw, "align").update(ranking=1.0, supervised=True)


def blend_of_another_space(raw: Raw) -> None:
    tier_of_another_space(raw)
    stage(raw, "align")["blend"] = {"align-static": 0.5}


def no_vocabulary(raw: Raw) -> None:
    del raw["tokenizer"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change("stages", "align", "student", value="studnt"), "unknown student 'studnt'; did you mean 'student'?"),
        (change("stages", "align", "vectors", value="vecters"), "unknown stage 'vecters'; did you mean 'vectors'?"),
        (change("stages", "align", "vectors", value="freeze"), "is a stage of kind freeze; name one of kind vectors"),
        (change("stages", "joint", "name", value="align"), "two stages have this name"),
        (change("stages", "align", "stage", value="alignment"), "unknown kind 'alignment'; did you mean 'align'?"),
        (change("stages", "document", "prompts", value={"query": "问："}), "a prompt on one side only"),
        (change("stages", "document", "dimensions", value=[64, 16]), "vectors are cut to 32, which is not among"),
        (change("stages", "freeze", "dimension", value=64), "wider than 'document' gives"),
        (change("students", "student", "start", value="prune:big"), "unknown student 'big'"),
        (change("students", "student", "start", value="prune:student"), "no stage before 'retromae' trains 'student'"),
        (change("stages", "align", "ranking", value=-1), "stages.align.ranking"),
        (supervised_ranking, "`ranking` is for unlabelled texts"),
        (ranking_without_queries, "set `document_share` below 1"),
        (change("students", "student", "init", value="table:big"), "init: unknown student 'big'"),
        (change("students", "student", "init", value="table:student"), "'student' is no static student"),
        (change("students", "student", "init", value="table"), "students.student.init"),
        (change("students", "static", "init", value="table:static"), "starts a transformer from scratch"),
        (change("students", "static", "train_table", value=False), "leaves nothing to train"),
        (static_learns_last, "no stage before 'retromae' trains 'static'; move one there"),
        (change("stages", "document", "training", value={"batch": 1}), "training.learning_rate: missing; add it"),
        (later_start, "'retromae' comes later than 'align' itself"),
        (narrow_student, "student 'student' gives 64 dimensions, teacher 'freeze' 32"),
        (narrower_teacher, "student 'static' gives 32 dimensions, teacher 'freeze' 16"),
        (joint_trains_the_frozen, "freeze and align again"),
        (tier_of_another_space, "tiers.static: 'align-static' is aligned to 'other', the pair is of 'freeze'"),
        (joint_over_another_space, "'align' is aligned to 'freeze', not to 'other': another space"),
        (change("stages", "export", "tiers", value={"l2": "retromae"}), "aligned to no space"),
        (no_vocabulary, "from scratch needs a vocabulary"),
        (
            change("stages", "align", "blend", value={"static": 0.5}),
            "stages.align.blend.static: unknown stage 'static'",
        ),
        (change("stages", "align", "blend", value={"align-static": 1.0}), "above 0 and less than 1 in all"),
        (change("stages", "align-static", "blend", value={"align": 0.5}), "'align' comes later than 'align-static'"),
        (blend_of_another_space, "aligned to 'other', this stage to 'freeze': another space"),
        (change("stages", "joint", "blend", value={"align-static": 0.5}), "trained blended with {'align-static': 0.5}"),
    ],
)
def test_stages_that_do_not_fit_together_are_refused(tmp_path: Path, spoil: Callable[[Raw], None], words: str) -> None:
    raw = raw_recipe()
    spoil(raw)
    with pytest.raises(RecipeError) as refused:
        load(tmp_path, raw)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("retromae.training.chunk=4", "retromae: `training.chunk` has no effect here, a batch is taken whole"),
        ("retromae.training.token_budget=99", "`training.token_budget` has no effect here"),
        ("align-static.training.gradient_checkpointing=true", "a static student has no layers to recompute"),
        ("joint.rows.negatives=3", "`rows.negatives` has no effect here"),
        ("vectors.rows={limit_per_source: 9}", "`rows.limit_per_source` has no effect here, every row"),
        ("align.rows={weights: {consult: 2}}", "`rows.weights` has no effect here, every row"),
    ],
)
def test_what_a_stage_would_ignore_is_refused(tmp_path: Path, key: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        load(tmp_path, raw_recipe(), f"stages.{key}")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as refused:
        load(tmp_path, raw_recipe(), "stages.align.squared_l3=1", "stages.joint.negatves=2")
    assert "2 wrong keys" in str(refused.value) and "negatves" in str(refused.value)


def test_the_paper_s_order_ends_in_one_space(tmp_path: Path) -> None:
    raw = load_recipe(SHIPPED / "care.yaml").model_dump(mode="json")
    assert load(tmp_path, raw).dimension_of("settle") == 768
    for tier, words in (("joint", "is aligned to 'joint', the pair is of 'freeze'"), ("align", "another space")):
        stage(raw, "export")["tiers"] = {"base": tier}
        with pytest.raises(RecipeError, match=words):
            load(tmp_path, raw)


def test_what_started_from_a_removed_stage_starts_before_it(tmp_path: Path) -> None:
    without = load(tmp_path, raw_recipe(), variant="without-stage-1")
    assert without.stage("joint").start == "retromae"
    assert load(tmp_path, raw_recipe(), variant="without-query-init").stage("align").start is None
    raw = raw_recipe()
    raw["variants"]["without-stage-2"]["export"] = True
    export = load(tmp_path, raw, variant="without-stage-2").stage("export")
    assert isinstance(export, ExportStage) and export.tiers == {"l2": "align", "static": "align-static"}


def test_a_removed_joint_stage_leaves_its_document_encoder_to_freeze(tmp_path: Path) -> None:
    raw = load_recipe(SHIPPED / "care.yaml").model_dump(mode="json")
    raw["variants"] = {"x": {"description": "no Stage II", "remove": ["joint", "settle"]}}
    assert load(tmp_path, raw, variant="x").stage("freeze").start == "document"


def test_set_and_variant_meet(tmp_path: Path) -> None:
    # Set on a stage that the variant leaves out: harmless; on one that it brings: kept.
    assert load(tmp_path, raw_recipe(), "stages.align.limit=9", variant="without-stage-1").stage("joint")
    raw = raw_recipe()
    extra = {"stage": "finetune", "name": "extra", "student": "student", "start": "joint", "training": TRAINING}
    raw["variants"]["more"] = {"description": "one more", "insert_after": {"joint": [extra]}}
    recipe = load(tmp_path, raw, "stages.extra.temperature=0.5", variant="more")
    assert [one.name for one in recipe.stages][-2:] == ["joint", "extra"]
    assert recipe.stage("extra").temperature == 0.5
    with pytest.raises(RecipeError, match="no stage is called 'extra'"):
        load(tmp_path, raw, "stages.extra.temperature=0.5")


def test_an_unknown_variant_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'without-mce'; did you mean 'without-mse'"):
        load(tmp_path, raw_recipe(), variant="without-mce")


def test_a_file_lies_over_the_ones_it_includes(tmp_path: Path) -> None:
    write_recipe(tmp_path, raw_recipe(), "below.yaml")
    above = {"include": "below.yaml", "name": "above", "stages": ["document", "freeze"], "tokenizer": {"limit": 5}}
    recipe = load(tmp_path, above)
    assert [one.name for one in recipe.stages] == ["document", "freeze"]
    assert recipe.tokenizer is not None and (recipe.tokenizer.vocabulary, recipe.tokenizer.limit) == (500, 5)
    assert set(recipe.variants) == set(raw_recipe()["variants"])
    with pytest.raises(RecipeError, match="no included stage is called 'documnt'; did you mean 'document'"):
        load(tmp_path, above | {"stages": ["documnt"]})


def test_a_stage_like_an_included_one_differs_in_what_it_says(tmp_path: Path) -> None:
    write_recipe(tmp_path, raw_recipe(), "below.yaml")
    again = {"like": "document", "name": "again", "training": {"seed": 7}}
    stages = ["document", again, {"like": "freeze", "start": "again"}]
    above = {"include": "below.yaml", "name": "above", "stages": stages}
    recipe = load(tmp_path, above)
    first, second, frozen = recipe.stages
    assert (second.name, frozen.name, frozen.start) == ("again", "freeze", "again")
    assert second.training == first.training.model_copy(update={"seed": 7})
    assert second.model_copy(update={"name": first.name, "training": first.training}) == first
    with pytest.raises(RecipeError, match="no included stage is called 'documnt'; did you mean 'document'"):
        load(tmp_path, above | {"stages": [{"like": "documnt", "name": "again"}]})


def test_an_included_variant_is_taken_out_with_null(tmp_path: Path) -> None:
    write_recipe(tmp_path, raw_recipe(), "below.yaml")
    recipe = load(tmp_path, {"include": "below.yaml", "name": "above", "variants": {"without-mse": None}})
    assert set(recipe.variants) == set(raw_recipe()["variants"]) - {"without-mse"}
    with pytest.raises(RecipeError, match="no variant is called 'without-mse'"):
        load_recipe(tmp_path / "small.yaml", variant="without-mse")


@pytest.mark.parametrize("name", ["care-mini", "care-mini-l3"])
def test_without_written_texts_only_their_rows_are_missing(name: str) -> None:
    recipe, plain = (load_recipe(SHIPPED / f"{name}.yaml", variant=variant) for variant in (None, "no-written"))
    assert [stage.name for stage in plain.stages] == [stage.name for stage in recipe.stages]
    for one, other in zip(recipe.stages, plain.stages, strict=True):
        kept, left = one.model_dump(), other.model_dump()
        if weights := (kept.get("rows") or {}).get("weights"):
            assert {source for source in weights if source.startswith("written-")}
            kept["rows"]["weights"] = {key: value for key, value in weights.items() if not key.startswith("written-")}
        assert left == kept


def test_the_data_folder_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = raw_recipe()
    del raw["data"]
    monkeypatch.delenv("SUWEN_DATA", raising=False)
    unsaid = load(tmp_path, raw)
    assert unsaid.data.rows == "${DATA}/rows"
    with pytest.raises(RecipeError, match="or set SUWEN_DATA"):
        require_data(unsaid)
    said = load(tmp_path, raw, "data.root=/somewhere")
    require_data(said)
    assert (said.data.rows, said.data.texts) == ("/somewhere/rows", "/somewhere/texts.jsonl.gz")
    monkeypatch.setenv("SUWEN_DATA", "/elsewhere")
    assert load(tmp_path, raw).data.rows == "/elsewhere/rows"


def test_other_variables_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QWEN", "/models/qwen")
    recipe = load(tmp_path, raw_recipe(), "stages.document.base=${QWEN}/x.gguf", "data.measure=${RECIPE}/dev.toml")
    assert recipe.stage("document").base == "/models/qwen/x.gguf"
    assert recipe.data.measure == f"{tmp_path}/dev.toml"
    with pytest.raises(RecipeError, match="the variable NOWHERE is not set"):
        load(tmp_path, raw_recipe(), "stages.document.base=${NOWHERE}/x")


def test_a_recipe_of_the_package_is_found_by_its_name() -> None:
    assert load_recipe("care-tiny").name == "care-tiny"
    with pytest.raises(RecipeError, match=r"there is no recipe 'care-tny'.*care-tiny"):
        load_recipe("care-tny")


def test_what_is_asked_for_by_hand_comes_after_what_a_variant_says(tmp_path: Path) -> None:
    raw = raw_recipe()
    raw["variants"]["hot"] = {"description": "hot", "set": {"stages.align.temperature": 0.5}}
    assert load(tmp_path, raw, variant="hot").stage("align").temperature == 0.5
    asked = load(tmp_path, raw, "stages.align.temperature=0.7", variant="hot")
    assert asked.stage("align").temperature == 0.7 and asked.name == "small.hot"
