"""What a recipe will cost, told before it starts: parameters, tokens, memory, time, disk. Rough, from shapes alone."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from suwen.errors import SuwenError
from suwen.training.recipe.identity import row_files
from suwen.training.recipe.settings import (
    AlignStage,
    AnyStage,
    ContrastiveStage,
    DocumentStage,
    JointStage,
    PairStage,
    Recipe,
    RetromaeStage,
    Rows,
    Student,
    VectorsStage,
)
from suwen.training.tasks.row_tables import read_texts

#: Floating-point operations a second that training reaches in practice: two CPU cores, one large GPU in bf16.
_RATES = {"cpu": 3e10, "cuda": 1.5e14}
#: What a step costs however small it is.
_STEP_SECONDS = {"cpu": 0.15, "cuda": 0.03}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
#: AdamW: the gradient and two moments in fp32, and a master copy of the weight.
_TRAINED_BYTES = 16
#: Bytes a layer keeps per token for the backward pass in half precision: by its width (norms, attention), and by the
#: inner width of its MLP, gated or not. Read off the tensors that torch saves for a Qwen2.
_KEPT, _KEPT_GATED, _KEPT_PLAIN = 19, 8, 4
#: With checkpointing only its input.
_KEPT_CHECKPOINTED = 2
#: Copies of the scores of a batch against its near documents: of student and teacher, their softmax, and gradients.
_RANKED = 6
#: Tokens of a usual text; a limit on length caps it. Queries are short, documents longer.
_QUERY_TOKENS, _DOCUMENT_TOKENS = 24, 160
_SPARE = 0.05


class EstimateError(SuwenError):
    """Too little room for what the recipe will write."""


class Shape(NamedTuple):
    """The size of a transformer; ``embeddings`` are the parameters of its token table, ``inner`` its MLP's width."""

    layers: int
    width: int
    parameters: int
    embeddings: int
    inner: int
    gated: bool = False

    def kept(self, *, checkpointed: bool) -> int:
        """Bytes that all layers keep for the backward pass of a token, in half precision."""
        layer = _KEPT * self.width + (_KEPT_GATED if self.gated else _KEPT_PLAIN) * self.inner
        if not self.layers:
            return _KEPT * self.width
        return layer + self.layers * _KEPT_CHECKPOINTED * self.width if checkpointed else self.layers * layer


#: Official shapes, so that an estimate needs no download.
_KNOWN = {
    "Qwen/Qwen3-0.6B": Shape(28, 1024, 596_000_000, 155_600_000, 3072, gated=True),
    "Qwen/Qwen3-4B": Shape(36, 2560, 4_022_000_000, 389_000_000, 9728, gated=True),
    "Qwen/Qwen3-8B": Shape(36, 4096, 7_568_000_000, 622_000_000, 12288, gated=True),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": Shape(24, 896, 494_000_000, 136_100_000, 4864, gated=True),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Shape(28, 1536, 1_544_000_000, 233_400_000, 8960, gated=True),
    "Alibaba-NLP/gte-multilingual-base": Shape(12, 768, 305_000_000, 192_000_000, 3072, gated=True),
    "alibaba-nlp-community/gte-multilingual-base": Shape(12, 768, 305_000_000, 192_000_000, 3072, gated=True),
    "builtin:qwen2-tiny": Shape(2, 64, 133_120, 51_200, 128, gated=True),
}


@dataclass(frozen=True)
class StageEstimate:
    """The cost of one stage; None where it cannot be told."""

    name: str
    kind: str
    parameters: int | None = None
    trained: int | None = None
    steps: int | None = None
    tokens_per_step: int | None = None
    memory: int | None = None
    seconds: float | None = None
    disk: int = 0


@dataclass(frozen=True)
class Estimate:
    """The cost of a recipe."""

    stages: tuple[StageEstimate, ...]

    @property
    def seconds(self) -> float:
        """All stages that can be told, together."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def memory(self) -> int:
        """The largest stage."""
        return max((stage.memory or 0 for stage in self.stages), default=0)

    @property
    def disk(self) -> int:
        """What is written in all."""
        return sum(stage.disk for stage in self.stages)


def estimate(recipe: Recipe, device: str = "cpu", names: Collection[str] | None = None) -> Estimate:
    """The cost of these stages, or of all, from shapes, numbers of rows and settings."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    stages = [stage for stage in recipe.stages if names is None or stage.name in names]
    return Estimate(tuple(_of_stage(recipe, stage, _RATES[kind], _STEP_SECONDS[kind]) for stage in stages))


def tight(cost: Estimate, room: int) -> list[str]:
    """A line for every stage that may not fit into ``room`` bytes of memory, with what would make it smaller."""
    lines = []
    for stage in cost.stages:
        if stage.memory is None or stage.memory <= room:
            continue
        needed, there = _gigabytes(stage.memory), _gigabytes(room)
        lines.append(
            f"'{stage.name}' may need {needed} of memory, and there are {there}: {smaller(stage.name, stage.kind)}"
        )
    return lines


def smaller(name: str, kind: str) -> str:
    """What makes a stage of some kind need less memory."""
    if kind == "vectors":
        return f"lower its token_budget (--set stages.{name}.token_budget=N)"
    if kind in ("freeze", "export"):
        return "take a larger device, or --device cpu"
    again = f"recompute its layers (--set stages.{name}.training.gradient_checkpointing=true)"
    if kind == "retromae":
        return f"{again}, or lower its batch"
    return f"cut its batches into smaller pieces (--set stages.{name}.training.token_budget=N), or {again}"


def memory_of(device: str) -> int | None:
    """All memory of a GPU, or of the machine; None where it cannot be told."""
    import torch

    if not device.startswith("cuda"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    return int(torch.cuda.get_device_properties(device).total_memory) if torch.cuda.is_available() else None


def require_disk(recipe: Recipe, folder: Path, names: Collection[str] | None = None) -> None:
    """Refuse to start when the teacher's vectors and the models of these stages, or of all, will not fit.

    Raises:
        EstimateError: with the room needed and the room there is.
    """
    stages = estimate(recipe, names=names).stages
    todo = [stage for stage in stages if not (folder / stage.name / "metrics.json").is_file()]
    needed = sum(stage.disk for stage in todo)
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if needed > free * (1 - _SPARE):
        largest = max(todo, key=lambda stage: stage.disk)
        raise EstimateError(
            f"not enough disk at {there}: about {_gigabytes(needed)} are needed ('{largest.name}' alone writes "
            f"{_gigabytes(largest.disk)}) and {_gigabytes(free)} are free; free some, choose another --out"
            + (f", or use fewer texts: --set stages.{largest.name}.limit=N" if largest.kind == "vectors" else "")
        )


def shape_of(base: str) -> Shape | None:
    """The shape of a model: known by its hub id, or read from its folder; None when neither helps."""
    if base in _KNOWN:
        return _KNOWN[base]
    file = Path(base) / "config.json"
    if not file.is_file():
        return None
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if not {"num_hidden_layers", "hidden_size", "vocab_size"} <= set(config):
        return None
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    inner = config.get("intermediate_size", 4 * width)
    matrices = 3 if config.get("num_key_value_heads") else 2
    embeddings = config["vocab_size"] * width
    whole = layers * (4 * width * width + matrices * width * inner) + embeddings
    return Shape(layers, width, whole, embeddings, inner, gated=matrices == 3)


def shape_of_student(recipe: Recipe, student: Student) -> Shape | None:
    """The shape of a student, by where it starts."""
    if student.base is not None:
        return shape_of(student.base)
    if student.start == "layers-of-document":
        teacher = _document_shape(recipe)
        if teacher is None:
            return None
        a_layer = (teacher.parameters - teacher.embeddings) // teacher.layers
        whole = teacher.embeddings + student.layers * a_layer
        return teacher._replace(layers=student.layers, parameters=whole)
    if student.pruned_from is not None and student.width is None:
        source = shape_of_student(recipe, recipe.students[student.pruned_from])
        if source is None:
            return None
        a_layer = (source.parameters - source.embeddings) // source.layers
        return source._replace(layers=student.layers, parameters=source.embeddings + student.layers * a_layer)
    vocabulary = recipe.tokenizer.vocabulary if recipe.tokenizer else 16_000
    if student.kind == "static":
        return Shape(0, recipe.dimension, vocabulary * recipe.dimension, vocabulary * recipe.dimension, 0)
    width = student.width or recipe.dimension
    inner = student.intermediate or 4 * width
    table = vocabulary * width
    return Shape(student.layers, width, student.layers * (4 * width**2 + 2 * width * inner) + table, table, inner)


def _document_shape(recipe: Recipe) -> Shape | None:
    for stage in recipe.stages:
        if isinstance(stage, DocumentStage):
            return shape_of(stage.base) or (shape_of(stage.hub_id) if stage.hub_id else None)
    return None


def _of_stage(recipe: Recipe, stage: AnyStage, rate: float, least: float) -> StageEstimate:
    if isinstance(stage, VectorsStage):
        return _vectors(recipe, stage, rate)
    training = getattr(stage, "training", None)
    if training is None:
        return StageEstimate(stage.name, stage.stage)
    student = getattr(stage, "student", None)
    shape = shape_of_student(recipe, recipe.students[student]) if student else _document_shape(recipe)
    if shape is None:
        return StageEstimate(stage.name, stage.stage, seconds=training.seconds)
    trained = shape.parameters if student else _adapter(recipe, shape)
    rows = _rows(recipe, stage)
    steps = training.steps if rows is None else training.steps_over(rows)
    tokens = _tokens(recipe, stage) * training.batch
    work = 6 * (shape.parameters - shape.embeddings + shape.width) * tokens
    piece = tokens * (training.chunk or training.batch) // training.batch
    if training.token_budget is not None:  # of the documents; their queries are held with them where all fits
        piece = min(tokens, training.token_budget + training.batch * _QUERY_TOKENS)
    size = _BYTES[training.precision]
    kept = shape.kept(checkpointed=training.gradient_checkpointing) * size // 2
    memory = shape.parameters * size + trained * _TRAINED_BYTES + piece * kept
    if isinstance(stage, DocumentStage) and not stage.lora.dropout:  # merged once a step: the base apart, its gradients
        memory += 2 * (shape.parameters - shape.embeddings) * size
    if isinstance(stage, AlignStage) and stage.ranking:
        memory += training.batch**2 * stage.neighbours * 4 * _RANKED
    seconds = (
        training.seconds if training.seconds is not None else None if steps is None else steps * (work / rate + least)
    )
    disk = shape.parameters * 4 + trained * (12 if training.checkpoint_every else 0)
    return StageEstimate(
        stage.name, stage.stage, shape.parameters, trained, steps, tokens, int(memory), seconds, int(disk)
    )


def _vectors(recipe: Recipe, stage: VectorsStage, rate: float) -> StageEstimate:
    """Vectors on disk: texts x forms x dimension x 2 bytes, twice: the shards, and the one array they become."""
    shape, kinds = _document_shape(recipe), _kinds(recipe.data.texts)
    if kinds is None:
        return StageEstimate(stage.name, stage.stage, shape.parameters if shape else None, 0)
    whole = max(1, kinds.total())
    share = min(whole, stage.limit or whole) / whole
    wanted = (kinds if form is None else form for form in (stage.forms.query, stage.forms.document))
    texts = round(share * sum(kinds[kind] for form in wanted for kind in form))
    # A row brings a query and a document; negatives are mostly documents of other rows.
    texts += 2 * (_rows(recipe, stage) or 0)
    disk = 2 * texts * recipe.dimension_of(stage.start) * 2
    if shape is None:
        return StageEstimate(stage.name, stage.stage, disk=disk)
    work = 2 * (shape.parameters - shape.embeddings) * texts * _QUERY_TOKENS
    memory = shape.parameters * 2 + stage.token_budget * shape.width * 16
    return StageEstimate(
        stage.name, stage.stage, shape.parameters, 0, None, stage.token_budget, memory, work / rate, disk
    )


def _adapter(recipe: Recipe, shape: Shape) -> int:
    lora = next((stage.lora for stage in recipe.stages if isinstance(stage, DocumentStage)), None)
    if lora is None or not shape.layers:
        return 0
    a_layer = (shape.parameters - shape.embeddings) / shape.layers
    # A rank-r pair beside a matrix of width x n holds r (width + n) numbers; n is at its mean over the matrices.
    outer = a_layer / len(lora.modules) / shape.width
    return int(shape.layers * len(lora.modules) * lora.rank * (shape.width + outer))


def _tokens(recipe: Recipe, stage: AnyStage) -> int:
    """Tokens of one row, as the trained encoder sees them."""
    if isinstance(stage, AlignStage | RetromaeStage):
        return min(recipe.students[stage.student].max_length, _QUERY_TOKENS)
    if isinstance(stage, DocumentStage):
        documents = 1 + stage.rows.negatives
        query = min(_QUERY_TOKENS, stage.query_length or stage.max_length)
        return query + documents * min(_DOCUMENT_TOKENS, stage.max_length)
    if isinstance(stage, JointStage) and not stage.train_document:
        return min(recipe.students[stage.student].max_length, _QUERY_TOKENS)
    if isinstance(stage, JointStage | PairStage):
        negatives = stage.negatives if isinstance(stage, JointStage) else stage.rows.negatives
        return _QUERY_TOKENS + (1 + negatives) * _DOCUMENT_TOKENS
    return 1


def _rows(recipe: Recipe, stage: AnyStage) -> int | None:
    """Rows or texts of an epoch; None when the data are not there yet."""
    if isinstance(stage, RetromaeStage | AlignStage) and not (isinstance(stage, AlignStage) and stage.supervised):
        texts = _count(recipe.data.texts)
        return min(texts, stage.limit) if texts is not None and stage.limit is not None else texts
    rows: Rows | None = getattr(stage, "rows", None)
    if rows is None or not Path(recipe.data.rows).is_dir():
        return None
    files = row_files(recipe, rows, unsupervised=isinstance(stage, ContrastiveStage))
    counts = {name: _count(str(file)) or 0 for name, file in files.items()}
    most = rows.limit_per_source or max(counts.values(), default=0)
    return round(sum(min(count, most) * rows.weights.get(name, 1.0) for name, count in counts.items()))


def _count(path: str) -> int | None:
    file = Path(path)
    return _lines(file, file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else None


@lru_cache(maxsize=256)
def _lines(file: Path, size: int, modified: int) -> int:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        return sum(1 for line in stream if line.strip())


def _kinds(path: str) -> Counter[str] | None:
    """How many texts there are of each kind; None when the file is not there yet."""
    file = Path(path)
    return _kinds_in(file, file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else None


@lru_cache(maxsize=16)
def _kinds_in(file: Path, size: int, modified: int) -> Counter[str]:
    return Counter(read_texts(file, None).kinds)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
