"""Variants over seeds: what is run, what is shared, and the tables that come out."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from recipes_on_the_spot import Stages, write_recipe

from suwen.bench.paired_statistics import over_seeds
from suwen.training.recipe.recipe_errors import RecipeError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.stand_in import stand_in
from suwen.training.recipe.tiny_data import write_tiny_data
from suwen.training.recipe_runner import train
from suwen.training.sweep import Job, Outcome, SweepError, half_width, jobs_of, paper_table, result_of, sweep, table_of
from suwen.training.tasks.row_tables import DataError


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_data(folder)
    return [f"data.root={folder}"]


def test_a_table_needs_every_variant_of_it_and_the_full_recipe_first() -> None:
    table = table_of("care-ablations", "4")
    jobs = jobs_of(table, 2)
    assert jobs[:2] == [Job(None, 0), Job(None, 1)]
    assert {job.variant for job in jobs} == set(table.variants)
    assert len(jobs) == len(set(jobs)) == 14
    assert Counter(job.variant for job in jobs_of(table, {None: 3, "without-mse": 2})) == Counter(
        {variant: {None: 3, "without-mse": 2}.get(variant, 1) for variant in table.variants}
    )
    for wrong in ("7", "figure-3"):
        with pytest.raises(SweepError, match="take one of 3, 4, 5"):
            table_of("my-care", wrong)


def test_a_sweep_shares_what_variants_and_seeds_have_in_common(tmp_path: Path, stages: Stages, sets: list[str]) -> None:
    recipe, jobs = write_recipe(tmp_path), jobs_of(table_of("care", "4"), {None: 2})
    outcomes = sweep(recipe, tmp_path / "runs", jobs, sets=sets)
    assert [outcome.problem for outcome in outcomes] == [""] * 8
    # Two teachers (trained and raw) for eight runs; two masked pre-trainings for two seeds.
    assert Counter(stages.done).items() >= {"document": 2, "freeze": 2, "vectors": 2, "retromae": 2}.items()
    table = paper_table(table_of("care", "4"), "small", outcomes)
    assert table.complete and table.measures == ("consult", "mean")
    rows = {row.variant: row.spreads["mean"] for row in table.rows}
    assert rows[None].seeds == 2
    assert rows["without-mse"].mean == pytest.approx(57)
    done = list(stages.done)
    assert sweep(recipe, tmp_path / "runs", jobs, sets=sets) == outcomes
    assert stages.done == done


def test_a_sweep_can_be_stopped_and_goes_on(tmp_path: Path, stages: Stages, sets: list[str]) -> None:
    recipe, jobs = write_recipe(tmp_path), [Job(None, 0), Job("without-mse", 0)]
    stopped = sweep(recipe, tmp_path / "runs", jobs, sets=sets, stop=lambda: len(stages.done) >= 5)
    assert [outcome.metrics for outcome in stopped] == [None]
    told: list[Outcome] = []
    outcomes = sweep(recipe, tmp_path / "runs", jobs, sets=sets, on_outcome=told.append)
    assert told == outcomes and all(outcome.metrics for outcome in outcomes)
    assert Counter(stages.done)["document"] == 1


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, stages: Stages, sets: list[str]) -> None:
    jobs = [Job("without-stage-1", 0), Job("without-stage-2", 0)]

    def broken(*_: object) -> dict[str, float]:
        raise DataError("the stage 'joint' has no rows")

    stages["joint"] = broken
    outcomes = sweep(write_recipe(tmp_path), tmp_path / "runs", jobs, sets=sets)
    assert outcomes[0].metrics is None and "'joint' has no rows" in outcomes[0].problem
    assert outcomes[1].metrics is not None
    table = paper_table(table_of("care", "4"), "small", outcomes)
    assert not table.complete
    assert "- w/o query align: the stage 'joint' has no rows" in table.as_markdown()
    assert "- Full model: not run yet" in table.as_markdown()


def test_runs_side_by_side_compute_what_they_share_once(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "recipes" / "care-ablations.yaml"
    small = stand_in(load_recipe(shipped, ["data.measure=dev.toml"]), tmp_path / "stand-in")
    recipe = write_recipe(tmp_path, small.model_dump(mode="json"))
    jobs = [Job(None, 0), Job("without-mse", 0), Job("without-contrastive", 0)]
    outcomes = sweep(recipe, tmp_path / "runs", jobs, workers=2, device="cpu")
    assert {outcome.job for outcome in outcomes} == set(jobs)
    assert [outcome.problem for outcome in outcomes] == [""] * 3
    assert all(outcome.metrics and "mean" in outcome.metrics for outcome in outcomes)
    for name in ("document", "vectors", "retromae"):
        folders = [path for path in (tmp_path / "runs").glob(f"*/s0/{name}") if not path.is_symlink()]
        assert len(folders) == 1, f"{name} was computed {len(folders)} times"


def test_a_wrong_key_is_said_before_anything_runs(tmp_path: Path, stages: Stages, sets: list[str]) -> None:
    with pytest.raises(RecipeError, match="did you mean 'without-mse'"):
        sweep(write_recipe(tmp_path), tmp_path / "runs", [Job(None, 0), Job("without-mze", 0)], sets=sets)
    assert stages.done == []


def test_seeds_that_would_all_be_the_same_are_refused(tmp_path: Path, stages: Stages, sets: list[str]) -> None:
    fixed = [f"stages.{name}.training.seed=0" for name in ("document", "align-static", "retromae", "align", "joint")]
    with pytest.raises(SweepError, match="one and the same"):
        sweep(write_recipe(tmp_path), tmp_path / "runs", [Job(None, 0), Job(None, 1)], sets=[*sets, *fixed])
    assert stages.done == []


def outcomes_of(values: dict[str | None, list[float]]) -> list[Outcome]:
    return [
        Outcome(Job(variant, seed), {"consult": value, "mean": value / 2})
        for variant, found in values.items()
        for seed, value in enumerate(found)
    ]


def test_a_table_marks_rows_of_one_seed_and_gives_intervals_to_the_others(tmp_path: Path) -> None:
    values = {variant: [40.0] for variant in table_of("care", "5").variants}
    table = paper_table(table_of("care", "5"), "small", outcomes_of(values | {None: [61.0, 62.0, 63.0]}))
    text = table.as_markdown()
    assert "| **Stage I only** |" in text and text.count("**Stage I, then Stage II**") == 1
    # t of two degrees at 95% is 4.303; the deviation is 1, over the root of three.
    assert "| Self-contrastive | 62.00 ± 2.48 | 31.00 ± 1.24 | 3 |" in text
    assert "| Supervised (labelled) | 40.00† | 20.00† | 1 |" in text
    file = table.write(tmp_path)
    assert file.read_text(encoding="utf-8") == text
    found = list(csv.DictReader(io.StringIO((tmp_path / "table-5.csv").read_text(encoding="utf-8"))))
    full = next(row for row in found if row["variant"] == "" and row["measure"] == "consult")
    assert (float(full["mean"]), float(full["deviation"]), full["seeds"]) == (62.0, 1.0, "3")
    assert float(full["half_width"]) == pytest.approx(2.484, abs=1e-3)
    assert next(row for row in found if row["variant"] == "without-stage-2")["half_width"] == ""


@given(st.lists(st.floats(0, 100), min_size=2, max_size=12))
def test_an_interval_is_that_of_student_s_t(values: list[float]) -> None:
    from scipy.stats import t

    spread = over_seeds(values)
    wanted = t.ppf(0.975, len(values) - 1) * (spread.deviation or 0) / len(values) ** 0.5
    assert half_width(spread) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    assert half_width(over_seeds([3.0])) is None


# -- BMRetriever's tables and figures, which are of the document encoder ----------------------------------------------


def test_bmretriever_s_tables_have_what_the_paper_prints_beside_ours(tmp_path: Path) -> None:
    table = table_of("bmretriever-mini", "table-5")
    outcomes = [Outcome(Job(variant, seed), {"dev": 40.0 + seed}) for variant in table.variants for seed in range(2)]
    text = paper_table(table, "bmretriever-mini", outcomes).as_markdown()
    assert text.startswith("# Table 5 of the paper at the scale of `bmretriever-mini`")
    assert "| setting | dev | seeds | paper, 410M | paper, 1B |" in text
    assert [line.split(" | ")[-2:] for line in text.splitlines() if line.startswith(("| 10%", "| 100%"))] == [
        *(["0.540", "0.564 |"], ["0.560", "0.579 |"], ["0.562", "0.590 |"], ["0.574", "0.596 |"])
    ]
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1
    with pytest.raises(
        SweepError, match=r"Table 11: its speeds .*bmretriever_speed.py .* take one of 4, 5, figure-3, figure-4"
    ):
        table_of("bmretriever", "11")


@pytest.mark.parametrize("name", ["table-4", "table-5", "figure-3", "figure-4"])
def test_what_is_printed_is_looked_up_and_every_variant_is_there(name: str) -> None:
    table = table_of("bmretriever", name)
    made = paper_table(table, "bmretriever", [])
    assert table.side == "document" and all(len(row.printed) == len(table.printed) for row in made.rows)
    assert any(float(cell) > 0.5 for row in made.rows for cell in row.printed if cell != "-")
    shipped = Path(__file__).parents[2] / "recipes"
    assert set(table.variants) - {None} <= set(load_recipe(shipped / "bmretriever.yaml").variants)
    assert set(table.variants) - {None, "without-general"} <= set(
        load_recipe(shipped / "bmretriever-mini.yaml").variants
    )


def test_a_sweep_of_bmretriever_takes_the_document_encoder_s_measures(tmp_path: Path) -> None:
    recipe = load_recipe("bmretriever-tiny", ["stages.pretrain.training.steps=2", "stages.finetune.training.steps=2"])
    report = train(recipe, tmp_path, device="cpu", only=["pretrain", "finetune", "freeze"])
    assert result_of(recipe, report) is None
    found, measured = result_of(recipe, report, "document"), {stage.name: stage.metrics for stage in report.stages}
    assert found == {name: measured["freeze"][name] for name in ("dev-dev", "mean")}
    assert found["mean"] != measured["pretrain"]["mean"]
