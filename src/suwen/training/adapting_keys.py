"""What is asked of an adaptation, and the keys that it sets of its recipe: data, base, pair, and time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from suwen.corpora.book_pages import PictureReader
from suwen.curate.paraphrase import SOURCE
from suwen.durable import write_json
from suwen.encoders.pair import Pair
from suwen.errors import SuwenError
from suwen.training.adapting_data import QUESTIONS
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.stages.merge import MergeStage

#: The part of the time that training may take.
_TRAINING = 0.7


class AdaptError(SuwenError):
    """A shelf that no specialist can be made of."""


@dataclass(frozen=True)
class Adaptation:
    """What is asked for.

    Attributes:
        shelf: The books.
        work: Where the steps are kept.
        recipe: How it is trained: a name or a file.
        sets: Keys of the recipe, as ``--set`` takes them.
        pair: The pair you have, and go on with: its folder, or ``default``.
        base: A copy of the recipe's base model.
        minutes: The most time before measuring, training gets seven tenths; None for as long as the recipe takes.
        calls: The most calls of language models; None for a question and a paraphrase of everything.
        general: A data folder of general rows and texts that stand beside the shelf's, against forgetting.
        measure: A suite of general tasks, on which it may lose little.
        device: Where to train.
        ocr: Whether scans are read.
        seed: Of every draw.
        pictures: Who reads scans, if not the models of ``suwen[ocr]``.
    """

    shelf: Path
    work: Path
    recipe: str = "cardioembed-mini"
    sets: Sequence[str] = ()
    pair: str = "default"
    base: str | None = None
    minutes: float | None = None
    calls: int | None = None
    general: Path | None = None
    measure: Path | None = None
    device: str | None = None
    ocr: bool = True
    seed: int = 0
    pictures: PictureReader | None = None


def recipe_keys(wanted: Adaptation) -> list[str]:
    """The recipe's keys for this shelf: its data, no source that is not there, and no more time than there is."""
    file = wanted.work / "recipe-keys.json"
    if file.is_file():  # a run goes on with the keys it began with
        kept: list[str] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    own = [*wanted.sets, *models_of(load_recipe(wanted.recipe, wanted.sets), wanted)]
    recipe = load_recipe(wanted.recipe, own)
    there = sorted(path.name.removesuffix(".jsonl.gz") for path in (wanted.work / "data" / "rows").glob("*.jsonl.gz"))
    root = wanted.work.resolve() / "data"
    with gzip.open(root / "texts.jsonl.gz") as texts:
        kinds = {json.loads(line)["kind"] for line in texts}
    sets = [*own, f"data.root={root}", *_own_data(recipe, root), "data.measure=null"]
    for stage in recipe.stages:
        if (rows := stage.rows_read) is not None:
            if rows.sources is not None:
                sets.append(f"stages.{stage.name}.rows.sources=[{SOURCE}, {QUESTIONS}]")
            weights = {name: weight for name, weight in rows.weights.items() if name in there}
            sets.append(f"stages.{stage.name}.rows.weights={json.dumps(weights)}")
        if (forms := getattr(stage, "forms", None)) is not None:
            sets += [f"stages.{stage.name}.forms.{side}={_kept(own, kinds)}" for side, own in forms]
        if getattr(stage, "curve", None):
            sets.append(f"stages.{stage.name}.curve=[]")
    sets += _in_time(recipe, wanted.minutes)
    write_json(file, sets)
    return sets


def _kept(wanted: Sequence[str] | None, kinds: set[str]) -> str:
    """The kinds of texts that are there, of those a recipe names; as YAML."""
    return "null" if wanted is None else json.dumps([kind for kind in wanted if kind in kinds])


def models_of(recipe: Recipe, wanted: Adaptation) -> list[str]:
    """The base, and the pair that it goes on with, where the recipe goes on with one or with one of its tiers."""
    bases = [f"stages.{stage.name}.base={wanted.base}" for stage in recipe.giving("decoder") if wanted.base]
    if wanted.pair == "default":
        return bases
    taken = [stage.name for stage in recipe.stages if getattr(stage, "pair", None) == "default"]
    # Of a pair without such a tier, the default one's stays: it is a start, and is aligned to any space.
    there = Pair.load(wanted.pair).manifest.tiers
    tiers = {
        name: one.tier_of[1] for name, one in recipe.students.items() if one.tier_of and one.tier_of[0] == "default"
    }
    goes_on = [f"students.{name}.base=pair:{wanted.pair}#{tier}" for name, tier in tiers.items() if tier in there]
    strange = {name for name, tier in tiers.items() if tier not in there}
    if asks := next((one for stage in recipe.stages if (one := getattr(stage, "asked_by", None)) in strange), None):
        raise AdaptError(
            f"{wanted.pair} has no tier '{tiers[asks]}', by whose queries documents would learn to be found: say "
            f"--recipe cardioembed-aligned, which aligns tiers of its own"
        )
    kept = [f"stages.{one.name}.keeps={wanted.pair}" for one in recipe.stages if getattr(one, "keeps", 0) == "default"]
    goes_on += [f"stages.{name}.pair={wanted.pair}" for name in taken]
    return [*bases, *goes_on, *kept, *_without(recipe, strange)]


def _without(recipe: Recipe, strange: Set[str]) -> Iterator[str]:
    """No mean with a start that was aligned to another space."""
    for stage in recipe.stages:
        if isinstance(stage, MergeStage) and stage.base and stage.student in strange:
            whole = {name: share / (1 - stage.base) for name, share in stage.of.items()}
            yield from (f"stages.{stage.name}.of={json.dumps(whole)}", f"stages.{stage.name}.base=0")


def _own_data(recipe: Recipe, root: Path) -> list[str]:
    files = {"rows": "rows", "texts": "texts.jsonl.gz", "held_out": "held-out.jsonl.gz"}
    return [f"data.{key}={root / name}" for key, name in files.items() if getattr(recipe.data, key) is not None]


def _in_time(recipe: Recipe, minutes: float | None) -> list[str]:
    """Shorten every stage that goes by the clock by the same part, where they take too long together."""
    clocked = {
        one.name: one.how_trained.seconds for one in recipe.stages if one.how_trained and one.how_trained.seconds
    }
    most = None if minutes is None else _TRAINING * 60 * minutes
    if most is None or sum(clocked.values()) <= most:
        return []
    part = most / sum(clocked.values())
    return [f"stages.{name}.training.seconds={max(1.0, round(part * own, 1))}" for name, own in clocked.items()]
