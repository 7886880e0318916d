"""The data files a stage reads, by name: which they are, what they hold in numbers, their hashes. Reading is tasks'."""

from __future__ import annotations

import gzip
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate.convert import named, read_sets
from suwen.encoders.pair_files import sha256_of
from suwen.training.recipe.key_groups import Rows
from suwen.training.tasks.row_tables import UNSUPERVISED, DataError, read_texts, rows_folder_sources

if TYPE_CHECKING:
    from suwen.training.recipe.recipe_model import Recipe
    from suwen.training.recipe.stage_base import Stage

#: Stands for the hash of a file that is not there.
_MISSING = "missing"
#: The numbers behind an estimate, each with where it was measured.
COST = tomllib.loads(Path(__file__).with_name("cost_constants.toml").read_text("utf-8"))
#: What mean lengths are taken of: so many rows of a source, and every so many of the texts.
_SAMPLED, _EVERY = 200, 50


def row_files(recipe: Recipe, stage: Stage) -> dict[str, Path]:
    """The files of the rows a stage sees, by source."""
    rows = stage.rows_read
    if rows is None:
        return {}
    files = rows_folder_sources(Path(recipe.data.rows))
    if rows.sources is not None:
        return {name: files[name] for name in rows.sources if name in files}
    return {name: file for name, file in files.items() if name.startswith(UNSUPERVISED) == stage.unsupervised}


def count_examples(recipe: Recipe, stage: Stage) -> int | None:
    """Rows or texts of an epoch; None when the data are not there yet, and no number is expected."""
    expected = recipe.data.expected
    if stage.learns_from_texts:
        texts = _lines(Path(stage.texts_file(recipe))) or expected.get("texts")
        return None if texts is None else int(min(texts, getattr(stage, "limit", None) or texts))
    if stage.rows_read is None:
        return None
    rows = sum(_drawn(recipe, stage).values()) or expected.get("pairs" if stage.unsupervised else "rows")
    return None if rows is None else round(rows)


def count_kinds(recipe: Recipe) -> Counter[str] | None:
    """How many texts there are of each kind; None when the file is not there yet, and no number is expected."""
    file, texts = Path(recipe.data.texts), recipe.data.expected.get("texts")
    if file.is_file():
        return _texts_in(file, *_state(file))[0]
    return None if texts is None else Counter(text=int(texts))


def mean_tokens(recipe: Recipe, stage: Stage, side: str, most: int, kinds: Collection[str] | None = None) -> float:
    """Tokens of a usual text, with what stands around it: of a sample of the data, where they are there.

    Args:
        recipe: Names the data, and what is expected of them.
        stage: Whose rows or texts.
        side: The query or the document of a row, or an unlabelled text.
        most: The length at which texts are cut.
        kinds: Of unlabelled texts, only these.
    """
    tokens, total, weights = COST["tokens"], 0.0, 0.0
    expected: Mapping[Any, float] = recipe.data.expected
    for text, weight in _sample(recipe, stage, side, kinds):
        wide = sum(character >= "\u2e80" for character in text)
        length = tokens["around"] + tokens["wide"] * wide + tokens["narrow"] * (len(text) - wide)
        total, weights = total + weight * min(most, length), weights + weight
    return total / weights if weights else min(most, expected.get(f"{side}_tokens", tokens[side]))


def _sample(recipe: Recipe, stage: Stage, side: str, kinds: Collection[str] | None) -> Iterator[tuple[str, float]]:
    """Some texts of a side, with the weight of each; none where there are no data."""
    file = Path(stage.texts_file(recipe))
    if side == "text" and file.is_file():
        _, some = _texts_in(file, *_state(file))
        yield from ((text, 1.0) for text, kind in some if kinds is None or kind in kinds)
    elif side != "text":
        for name, drawn in _drawn(recipe, stage).items():
            file = row_files(recipe, stage)[name]
            rows = _rows_in(file, *_state(file))
            yield from ((row.query if side == "query" else row.pos[0], drawn) for row in rows)


def _drawn(recipe: Recipe, stage: Stage) -> dict[str, float]:
    """How many rows of each source an epoch has; empty where there are no data."""
    rows, files = stage.rows_read or Rows(), row_files(recipe, stage) if Path(recipe.data.rows).is_dir() else {}
    counts = {name: _lines(file) or 0 for name, file in files.items()}
    most = rows.limit_per_source or max(counts.values(), default=0)
    return {name: min(rows.share * count, most) * rows.weights.get(name, 1.0) for name, count in counts.items()}


def data_hashes(recipe: Recipe, stage: Stage) -> dict[str, str]:
    """Hashes of the files a stage reads."""
    hashes = {"texts": file_hash(stage.texts_file(recipe))} if stage.reads_texts else {}
    hashes |= {f"rows.{name}": file_hash(str(file)) for name, file in sorted(row_files(recipe, stage).items())}
    for key, path in (("held_out", recipe.data.held_out), ("measure", recipe.data.measure)):
        if path is not None:
            hashes[key] = file_hash(path)
    return hashes


def model_files(base: str) -> dict[str, int]:
    """Names and sizes of a local model's files: telling copies apart by content would read gigabytes at each start."""
    path = Path(base)
    if path.is_file():
        return {path.name: path.stat().st_size}
    if path.is_dir():
        files = (file for file in sorted(path.rglob("*")) if file.is_file())
        return {file.relative_to(path).as_posix(): file.stat().st_size for file in files}
    return {}


def absent(key: str, file: str, stage: Stage) -> DataError:
    """What to say where a file of the data that a stage reads is not there."""
    return DataError(
        f"data.{key}: {file} does not exist, and the stage '{stage.name}' reads it; make it, or set data.{key}"
    )


def require_inputs(recipe: Recipe, names: Iterable[str]) -> None:
    """Refuse data that some of the stages will want and not find: now, and not when their turn comes.

    Raises:
        DataError: A file that is not there, a source without rows, or one that may not be trained on.
    """
    names = list(names)
    refuse_measured(recipe, map(recipe.stage, names))
    for stage in map(recipe.stage, names):
        for key, hashed in data_hashes(recipe, stage).items():
            if hashed == _MISSING:
                file = stage.texts_file(recipe) if key == "texts" else getattr(recipe.data, key)
                raise absent(key, file, stage)
        require_sources(recipe, stage)


def require_sources(recipe: Recipe, stage: Stage) -> None:
    """Refuse a stage whose rows are named and not there.

    Raises:
        DataError: A source without rows.
    """
    rows: Rows = getattr(stage, "rows", None) or Rows()
    for key, sources in (("sources", rows.sources or ()), ("weights", rows.weights)):
        if not sources:
            continue
        files = rows_folder_sources(Path(recipe.data.rows))
        if unknown := sorted(set(sources) - set(files)):
            raise DataError(
                f"stages.{stage.name}.rows.{key}: {recipe.data.rows} holds no rows called {', '.join(unknown)}; "
                f"make them, or take the names out (there are {', '.join(files)})"
            )


def refuse_measured(recipe: Recipe, stages: Iterable[Stage]) -> None:
    """Refuse sources named after sets on which BMRetriever's paper measures, where a recipe follows the paper.

    Of the data that a stage takes by default the names are known only where they are.

    Raises:
        DataError: A stage reads such a source.
    """
    if recipe.faithful != "paper":
        return
    for stage in stages:
        rows = stage.rows_read
        if rows is None or (rows.sources is None and not Path(recipe.data.rows).is_dir()):
            continue
        for name in row_files(recipe, stage) if rows.sources is None else rows.sources:
            if told := named(_measured_sets(), [name]):
                raise DataError(
                    f"stages.{stage.name}.rows.sources: {name} is of {told}, on which BMRetriever's paper measures and "
                    "does not train: leave it out of the sources, or do not say `faithful: paper`"
                )


@cache
def _measured_sets() -> list[str]:
    """The labelled sets on which BMRetriever's paper measures, and trains on nothing of them."""
    return [name for name, kind in read_sets().items() if kind.measured]


def _state(file: Path) -> tuple[int, int]:
    """What changes when a file does; a part of the keys of the caches below."""
    return file.stat().st_size, file.stat().st_mtime_ns


def file_hash(path: str) -> str:
    """The hash of a file, or a word for one that is not there."""
    return sha256_of(Path(path)) if Path(path).is_file() else _MISSING


def _lines(file: Path) -> int | None:
    return _lines_in(file, *_state(file)) if file.is_file() else None


@lru_cache(maxsize=256)
def _lines_in(file: Path, size: int, modified: int) -> int:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        return sum(1 for line in stream if line.strip())


@lru_cache(maxsize=256)
def _rows_in(file: Path, size: int, modified: int) -> tuple[TrainingRow, ...]:
    return tuple(row for _, row in zip(range(_SAMPLED), read_training_rows(file), strict=False))


@lru_cache(maxsize=16)
def _texts_in(file: Path, size: int, modified: int) -> tuple[Counter[str], list[tuple[str, str]]]:
    """How many texts there are of each kind, and some of them with their kinds."""
    texts = read_texts(file, None)
    return Counter(texts.kinds), list(zip(texts.texts[::_EVERY], texts.kinds[::_EVERY], strict=True))
