"""What the stages of one run share: its folders, its data, its device, and models that are already in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from suwen.curate.leakage import HeldOut
from suwen.durable import write_text
from suwen.encoders.adapter import apply_adapter, load_adapted
from suwen.encoders.base_model import load_base
from suwen.encoders.pair import Pair, pair_folder
from suwen.encoders.pair_files import sha256_of, sha256_of_files
from suwen.encoders.side import load_model
from suwen.encoders.space import load_manifest
from suwen.training.development_measure import Measured, load_measures
from suwen.training.loop.best_kept import Watch
from suwen.training.loop.run_folder import RunFolder
from suwen.training.loop.training_loop import optimise
from suwen.training.recipe.key_groups import Training
from suwen.training.recipe.recipe_model import Recipe, Student
from suwen.training.recipe.stage_base import Stage
from suwen.training.students.shrunk_layers import shrink_decoder
from suwen.training.students.student_models import (
    build_student,
    first_layers,
    init_from_vectors,
    prune_layers,
    with_pooling,
    with_projection,
)
from suwen.training.students.student_tokenizer import train_tokenizer
from suwen.training.students.tier_weights import open_tier
from suwen.training.tasks.row_tables import (
    DataError,
    Texts,
    fingerprint,
    read_source,
    read_texts,
    source_files,
)

#: The file of rows in the model folder of a stage that writes them.
ROWS = "rows.jsonl.gz"
#: Texts whose states say which axes of a document encoder's layers a student keeps.
_LOOKED_AT = 512
#: Called with the stage's name, the steps done and in all (0 where the clock decides), and the curves' last values.
StageProgress = Callable[[str, int, int, Mapping[str, float]], None]


@dataclass
class RunContext:
    """One run of a recipe with one seed.

    Attributes:
        recipe: The recipe, checked.
        root: The run's folder; each stage has a folder of its name in it.
        device: Where to compute.
        seed: Of everything random in the run.
        resume: Whether unfinished stages go on.
        progress: Called with every logged step.
        stop: Asked between steps; true ends the run with a checkpoint.
        shared: Where what several runs can share is kept (the tokenizer, rows, token ids); the run's folder by default.
        loaded: Models in memory, by what they are: a stage takes what the one before it left.
    """

    recipe: Recipe
    root: Path
    device: str = "cpu"
    seed: int = 0
    resume: bool = False
    progress: StageProgress | None = None
    stop: Callable[[], bool] | None = None
    shared: Path | None = None
    loaded: dict[str, Any] = field(default_factory=dict)
    _read: dict[str, Texts] = field(default_factory=dict)

    def folder_of(self, name: str) -> Path:
        """The folder of a stage."""
        return self.root / name

    def model_of(self, name: str) -> Path:
        """The model a stage has written."""
        folder = self.folder_of(name) / "model"
        if not folder.is_dir():
            raise DataError(f"{folder} does not exist: run the stage {name!r} first")
        return folder

    def run(self, stage: Stage) -> dict[str, Any]:
        """Do a stage in its folder, or find it done; gives its metrics.

        Raises:
            RunError: It was begun on other results of the stages before it.
        """
        config = stage.model_dump(mode="json") | {"seed": self.seed_of(stage)}
        if stage.student_trained is not None:
            config["student_shape"] = self.recipe.students[stage.student_trained].model_dump(mode="json")
        place, inputs = self.folder_of(stage.name), self._results_read(stage)
        with RunFolder.open(place, config, inputs, resume=self.resume) as folder:
            if folder.finished:
                return folder.metrics
            metrics = {"skipped": 1.0} if self._ended_before(stage) else {**stage.run(self, folder), **folder.looks}
            folder.finish({**metrics, "odd_rows": folder.rows} if folder.rows else metrics)
        return metrics

    def _ended_before(self, stage: Stage) -> bool:
        """Whether the round before it gained nothing, or a stage that it reads was itself passed over."""
        if stage.runs_anyway:
            return False
        read = [
            (one.key, json.loads(file.read_text(encoding="utf-8")))
            for one in stage.references()
            if (file := self.folder_of(one.stage) / "metrics.json").is_file()
        ]
        return any(said.get("skipped") or (key == "after" and said.get("stopped")) for key, said in read)

    def seed_of(self, stage: Stage) -> int:
        """The stage's own seed, or the run's."""
        training = stage.how_trained
        return self.seed if training is None or training.seed is None else training.seed

    def optimise(
        self, task: Any, folder: RunFolder, training: Training, *, per_epoch: int, watch: Watch | None = None
    ) -> None:
        """Train a task as the settings say; with a watch, it ends with the weights that were best there."""
        steps = training.steps
        if training.epochs is not None:
            steps = max(1, round(training.epochs * per_epoch))
        if steps == 0:
            return
        if training.precision == "fp16":
            # Gradients under 6e-8 are zero in fp16: the loss is scaled up, and they are scaled down again in fp32.
            task.scaler = torch.amp.GradScaler(torch.device(self.device).type)
        optimise(
            task,
            folder,
            steps=steps,
            budget_seconds=training.seconds,
            optimisation=training if steps is None else training.warmed(steps),
            checkpoint_every=training.checkpoint_every,
            log_every=training.log_every,
            progress=None if self.progress is None else partial(self.progress, folder.path.name),
            stop=self.stop,
            watch=watch,
        )

    @property
    def common(self) -> Path:
        """Where is kept what several runs can share."""
        return self.shared or self.root

    def sources(
        self, names: Sequence[str] | None, *, unsupervised: bool = False, prompts: bool = True
    ) -> dict[str, list[Path]]:
        """The shards of some sources (all labelled ones by default); refused where they hit the held-out set."""
        shards = {}
        for name, file in source_files(Path(self.recipe.data.rows), names, unsupervised=unsupervised).items():
            with self._guarded(file) as held_out:
                shards[name] = read_source(file, held_out, self.common / "row-shards", prompts=prompts)
        return shards

    def rewritten(self, name: str) -> dict[str, list[Path]]:
        """The shards of the rows that a stage has written with a language model."""
        file = self.model_of(name) / ROWS
        if not file.is_file():
            raise DataError(f"{file} does not exist: the stage {name!r} wrote for texts alone, which are no rows")
        with self._guarded(file) as held_out:
            return {name: read_source(file, held_out, self.common / "row-shards")}

    @contextmanager
    def _guarded(self, file: Path) -> Iterator[HeldOut | None]:
        """What a file must be checked against; None once it has been, by this run or by one that shares with it."""
        path = self.recipe.data.held_out
        if (path is None and not self.measures) or not file.is_file():
            yield None
            return
        kept_apart = ("" if path is None else sha256_of(Path(path))) + self._asked
        named = hashlib.sha256((kept_apart + sha256_of(file)).encode()).hexdigest()[:16]
        mark = self.common / "no-leaks" / named
        if mark.is_file():
            yield None
            return
        yield self.held_out
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    @cached_property
    def held_out(self) -> HeldOut:
        """What nothing may be trained on: the file that the recipe names, and the queries of what it is measured on."""
        path = self.recipe.data.held_out
        apart = HeldOut() if path is None else HeldOut.read(Path(path))
        for task in self.measures:
            for query in task.data.queries:
                apart.add(query)
        return apart

    @cached_property
    def _asked(self) -> str:
        """A hash of the queries that are measured; empty where nothing is."""
        queries = [query for task in self.measures for query in task.data.queries]
        return fingerprint(queries) if queries else ""

    def _all_texts(self, path: str) -> Texts:
        if path not in self._read:
            with self._guarded(Path(path)) as held_out:
                self._read[path] = read_texts(Path(path), held_out)
        return self._read[path]

    @cached_property
    def measures(self) -> list[Measured]:
        """The development tasks."""
        path = self.recipe.data.measure
        return load_measures(Path(path) if path is not None else None)

    def texts(self, limit: int | None = None, path: str | None = None) -> Texts:
        """The unlabelled texts, or a stage's own, or as many of them as asked for; the same ones in every run."""
        return self._all_texts(path or self.recipe.data.texts).drawn(limit)

    def _results_read(self, stage: Stage) -> dict[str, str]:
        """Hashes of what the stages have left that this one reads: by its keys, or by its student's start."""
        names = {reference.stage for reference in stage.references()}
        student = stage.student_trained
        if student is not None and getattr(stage, "start", None) is None:
            source = self.recipe.students[student].source
            names |= {self._source_stage(source, student)} if source is not None else set()
        return {f"stage.{name}": hashed for name in sorted(names) if (hashed := self._result_hash(name))}

    def _result_hash(self, name: str) -> str:
        """A hash of what a finished stage left; empty where it left nothing."""
        folder = self.folder_of(name)
        files = [
            file.relative_to(folder).as_posix()
            for file in sorted(folder.rglob("*"))
            if file.suffix in (".safetensors", ".json")
            and file.name not in ("versions.json", "metrics.json", "events.jsonl", "inputs.json", "config.json")
            and "checkpoints" not in file.relative_to(folder).parts
        ]
        return sha256_of_files(folder, files) if files else ""

    def tokenizer(self) -> Any:
        """The students' tokenizer, trained once on the data and shared by all runs over them."""
        settings = self.recipe.tokenizer
        if settings is None:
            raise DataError("a student from scratch needs a vocabulary: add `tokenizer: {vocabulary: 14000}`")
        texts = self.texts(settings.limit).texts
        file = self.common / f"tokenizer-{settings.vocabulary}-{fingerprint(texts)[:12]}.json"
        if not file.is_file():
            write_text(file, train_tokenizer(texts, size=settings.vocabulary).to_str(pretty=True))
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file))

    def student(self, name: str, start: str | None) -> Any:
        """A student to train: the weights of a stage, or its own start."""
        student = self._student(name, start)
        if not self.recipe.students[name].train_table:
            student[0].model.get_input_embeddings().weight.requires_grad_(False)
        return student

    def _student(self, name: str, start: str | None) -> Any:
        if start is not None:
            return load_model(self.model_of(start), device=self.device)[0]
        shape = self.recipe.students[name]
        if shape.base is not None:
            pretrained = with_pooling(self._pretrained(shape), shape.pooling)
            if not shape.projection or pretrained.get_embedding_dimension() == self.recipe.dimension:
                return pretrained
            # The same in every stage of a run: a mean may take a part of what a student began as.
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                return with_projection(pretrained, self.recipe.dimension)
        if shape.pruned_from is not None:
            source = self.model_of(self._source_stage(shape.pruned_from, name))
            return prune_layers(load_model(source, device=self.device)[0], shape.layers)
        if shape.start == "layers-of-document":
            return with_projection(first_layers(self._decoder(), shape.layers), self.recipe.dimension, start="cut")
        common: dict[str, Any] = {
            "layers": shape.layers,
            "width": shape.width or 0,
            "heads": shape.heads,
            "intermediate": shape.intermediate,
            "dimension": self.recipe.dimension,
            "max_length": max(shape.max_length, shape.document_length or 0),
        }
        if shape.start == "shrunk-document":
            seen, pooling = self.texts(_LOOKED_AT).texts, shape.pooling or "mean"
            shrunk = shrink_decoder(self._decoder(), self.tokenizer(), seen, pooling=pooling, seed=self.seed, **common)
            return shrunk.to(self.device)
        made = build_student(
            self.tokenizer(),
            kind=shape.kind,
            pooling=shape.pooling or "cls",
            dropout=shape.dropout,
            projection=shape.projection,
            seed=self.seed,
            **common,
        )
        if shape.table_of is not None:
            learnt = load_model(self.model_of(self._source_stage(shape.table_of, name)), device="cpu")[0]
            init_from_vectors(made, learnt[0].embedding.weight.detach().numpy())
        return made.to(self.device)

    def _pretrained(self, shape: Student) -> Any:
        if shape.tier_of is None:
            return load_model(str(shape.base), device=self.device)[0]
        pair, tier = shape.tier_of
        return open_tier(Pair.load(pair_folder(pair)), tier).to(self.device)

    def _decoder(self) -> Any:
        """The document encoder as it was frozen (or trained), with its prompts, for a student of its first layers."""
        stage = self.recipe.decoder_stage
        if stage is None:  # taken from a pair, space and all
            taken: Any = next(one for one in self.recipe.giving("space") if getattr(one, "pair", None))
            folder = self.model_of(taken.name)
            return load_adapted(folder, load_manifest(folder), taken.base, device=self.device, dtype="fp32")
        model = load_base(stage.base, device=self.device, dtype="fp32", max_length=stage.max_length)
        frozen = [one.name for one in self.recipe.giving("space") if one.encoder_from == stage.name]
        adapters = [self.folder_of(name) / "model" / "adapter" for name in (*frozen, stage.name)]
        if (adapter := next((folder for folder in adapters if folder.is_dir()), None)) is not None:
            apply_adapter(model, adapter)
        prompts = stage.prompts.filled
        model.prompts = {"query": prompts.query, "document": prompts.document}
        return model

    def _source_stage(self, source: str, student: str) -> str:
        """The last stage that has written a student, of those before the first of another one which starts from it."""
        stages = [(stage.name, stage.student_trained) for stage in self.recipe.stages]
        first = next((place for place, (_, trained) in enumerate(stages) if trained == student), len(stages))
        written = [
            name for name, trained in stages[:first] if trained == source and (self.folder_of(name) / "model").is_dir()
        ]
        if not written:
            raise DataError(f"no finished stage holds the student {source!r}: put one before the stage that needs it")
        return written[-1]
