"""What the result of a stage depends on, as one hash: equal hashes are the same work, whatever the run is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from suwen.encoders.space import sha256_of
from suwen.training.recipe.checks import references
from suwen.training.recipe.options import HOW
from suwen.training.recipe.settings import (
    AlignStage,
    AnyStage,
    ContrastiveStage,
    DocumentStage,
    ExportStage,
    FreezeStage,
    JointStage,
    PairStage,
    Recipe,
    RetromaeStage,
    Rows,
    VectorsStage,
)
from suwen.training.tasks.row_tables import UNSUPERVISED, DataError, rows_folder_sources

#: Stands for the hash of a file that is not there.
_MISSING = "missing"


def identity(recipe: Recipe, name: str, seed: int) -> dict[str, Any]:
    """Everything the stage's result depends on: its keys, its student, its data, the stages it starts from.

    The stage's own name is left out: a stage of another recipe with the same work is the same work.

    Args:
        recipe: The recipe.
        name: The stage.
        seed: The run's seed; stages that train nothing do not depend on it.
    """
    stage = recipe.stage(name)
    pointers = {key.partition(".")[0] for key, _, _ in references(stage)}
    found: dict[str, Any] = {
        "config": _what(stage.model_dump(mode="json", exclude={"name", *pointers})),
        "dimension": recipe.dimension,
        "faithful": recipe.faithful,
        "after": {key: digest(identity(recipe, other, seed)) for key, other in _after(recipe, stage)},
        "data": _data(recipe, stage),
    }
    training = getattr(stage, "training", None)
    if training is not None:
        found["seed"] = seed if training.seed is None else training.seed
    if blend := getattr(stage, "blend", None):
        found["blend"] = dict(blend)
    if isinstance(stage, DocumentStage):
        found["base"] = files_of(stage.base)
    if isinstance(stage, VectorsStage) and recipe.wants_tokens:
        found |= _vocabulary(recipe)
    if getattr(stage, "student", None) is not None:
        found |= _student(recipe, stage, seed)
    return found


def digest(found: dict[str, Any]) -> str:
    """The hash of an identity."""
    return hashlib.sha256(json.dumps(found, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:20]


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """What changed between two identities, a line for each key."""
    lines: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            lines += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before!r} before, {after!r} now")
    return lines


def row_files(recipe: Recipe, rows: Rows, *, unsupervised: bool = False) -> dict[str, Path]:
    """The files of the rows a stage sees, by source."""
    files = rows_folder_sources(Path(recipe.data.rows))
    if rows.sources is not None:
        return {name: files[name] for name in rows.sources if name in files}
    return {name: file for name, file in files.items() if name.startswith(UNSUPERVISED) == unsupervised}


def files_of(base: str) -> dict[str, int]:
    """Names and sizes of a local model's files: telling copies apart by content would read gigabytes at each start."""
    path = Path(base)
    if path.is_file():
        return {path.name: path.stat().st_size}
    if path.is_dir():
        files = (file for file in sorted(path.rglob("*")) if file.is_file())
        return {file.relative_to(path).as_posix(): file.stat().st_size for file in files}
    return {}


def _what(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A stage's keys without those that do not touch its result."""
    return {
        key: _what(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in config.items()
        if prefix + key not in HOW
    }


def _after(recipe: Recipe, stage: AnyStage) -> list[tuple[str, str]]:
    """The stages that are read: those named, and the vectors that a stage which mines finds by itself."""
    found = [(key, name) for key, name, _ in references(stage)]
    encoder = None
    if isinstance(stage, JointStage) and stage.vectors is None:
        encoder = stage.document
    elif isinstance(stage, PairStage) and stage.mine is not None:
        encoder = stage.start or stage.document
    earlier = recipe.stages[: recipe.stages.index(stage)]
    vectors = [one.name for one in earlier if isinstance(one, VectorsStage) and one.start == encoder]
    return found + [(f"vectors.{name}", name) for name in vectors]


def _student(recipe: Recipe, stage: Any, seed: int) -> dict[str, Any]:
    student = recipe.students[stage.student]
    found: dict[str, Any] = {"student": student.model_dump(mode="json"), "run_seed": seed}
    earlier = recipe.stages[: recipe.stages.index(stage)]
    if student.base is not None:
        found["base"] = files_of(student.base)
    if student.table_of is not None:
        found["table_of"] = _stages_of(recipe, student.table_of, earlier, seed)
    if student.pruned_from is not None:
        found["pruned"] = _stages_of(recipe, student.pruned_from, earlier, seed)
    elif student.start == "layers-of-document":
        names = [other.name for other in earlier if isinstance(other, DocumentStage | FreezeStage)]
        found["layers_of"] = [digest(identity(recipe, name, seed)) for name in names]
    else:
        found |= _vocabulary(recipe)
    return found


def _stages_of(recipe: Recipe, student: str, stages: Sequence[AnyStage], seed: int) -> list[str]:
    return [digest(identity(recipe, one.name, seed)) for one in stages if getattr(one, "student", None) == student]


def _vocabulary(recipe: Recipe) -> dict[str, Any]:
    if recipe.tokenizer is None:
        return {}
    return {
        "tokenizer": recipe.tokenizer.model_dump(mode="json"),
        "tokenizer_texts": _hash(Path(recipe.data.texts)),
    }


def _data(recipe: Recipe, stage: AnyStage) -> dict[str, str]:
    """Hashes of the files a stage reads."""
    found: dict[str, str] = {}
    keeps = isinstance(stage, JointStage) and stage.keep_alignment > 0
    reads_texts = isinstance(stage, VectorsStage | RetromaeStage | ExportStage)
    if keeps or reads_texts or (isinstance(stage, AlignStage) and not stage.supervised):
        found["texts"] = _hash(Path(recipe.data.texts))
    if isinstance(stage, AlignStage) and not stage.supervised:
        rows = None
    else:
        rows = getattr(stage, "rows", None)
    if rows is not None:
        files = row_files(recipe, rows, unsupervised=isinstance(stage, ContrastiveStage))
        found |= {f"rows.{name}": _hash(file) for name, file in sorted(files.items())}
    for key, path in (("held_out", recipe.data.held_out), ("measure", recipe.data.measure)):
        if path is not None:
            found[key] = _hash(Path(path))
    return found


def require_inputs(recipe: Recipe, names: Iterable[str]) -> None:
    """Refuse data that some of the stages will want and not find: now, and not when their turn comes.

    Raises:
        DataError: A file that is not there, or a source without rows.
    """
    for stage in map(recipe.stage, names):
        for key, found in _data(recipe, stage).items():
            if found == _MISSING:
                raise DataError(
                    f"data.{key}: {getattr(recipe.data, key)} does not exist, and the stage '{stage.name}' reads it; "
                    f"make it, or set data.{key}"
                )
        rows: Rows = getattr(stage, "rows", None) or Rows()
        for key, named in (("sources", rows.sources or ()), ("weights", rows.weights)):
            if not named:
                continue
            files = rows_folder_sources(Path(recipe.data.rows))
            if unknown := sorted(set(named) - set(files)):
                raise DataError(
                    f"stages.{stage.name}.rows.{key}: {recipe.data.rows} holds no rows called {', '.join(unknown)}; "
                    f"make them, or take the names out (there are {', '.join(files)})"
                )


def _hash(path: Path) -> str:
    if not path.is_file():
        return _MISSING
    stat = path.stat()
    return _hashed(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1024)
def _hashed(path: Path, size: int, modified: int) -> str:
    return sha256_of(path)
