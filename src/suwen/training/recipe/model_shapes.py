"""The size of a model, by its hub id, its folder or the recipe: no model is loaded for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from suwen.training.recipe.recipe_model import Recipe, Student

#: Bytes a layer keeps per token for the backward pass in half precision: by its width (norms, attention), and by the
#: inner width of its MLP, gated or not. Read off the tensors that torch saves for a Qwen2.
_KEPT, _KEPT_GATED, _KEPT_PLAIN = 19, 8, 4
#: With checkpointing only its input.
_KEPT_CHECKPOINTED = 2


class Shape(NamedTuple):
    """The size of a transformer; ``embeddings`` are the parameters of its token table, ``inner`` its MLP's width."""

    layers: int
    width: int
    parameters: int
    embeddings: int
    inner: int
    gated: bool = False

    @property
    def body(self) -> int:
        """The parameters beside the token table."""
        return self.parameters - self.embeddings

    def kept(self, *, checkpointed: bool) -> int:
        """Bytes that all layers keep for the backward pass of a token, in half precision."""
        layer = _KEPT * self.width + (_KEPT_GATED if self.gated else _KEPT_PLAIN) * self.inner
        if not self.layers:
            return _KEPT * self.width
        return layer + self.layers * _KEPT_CHECKPOINTED * self.width if checkpointed else self.layers * layer

    def first_layers(self, layers: int) -> Shape:
        """The same model with fewer layers."""
        return self._replace(layers=layers, parameters=self.embeddings + layers * (self.body // self.layers))


#: Official shapes, so that an estimate needs no download.
_KNOWN = {
    "Qwen/Qwen3-0.6B": Shape(28, 1024, 596_000_000, 155_600_000, 3072, gated=True),
    "Qwen/Qwen3-4B": Shape(36, 2560, 4_022_000_000, 389_000_000, 9728, gated=True),
    "Qwen/Qwen3-8B": Shape(36, 4096, 7_568_000_000, 622_000_000, 12288, gated=True),
    "Qwen/Qwen3-Embedding-8B": Shape(36, 4096, 7_568_000_000, 622_000_000, 12288, gated=True),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": Shape(24, 896, 494_000_000, 136_100_000, 4864, gated=True),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Shape(28, 1536, 1_544_000_000, 233_400_000, 8960, gated=True),
    "EleutherAI/pythia-410m": Shape(24, 1024, 353_800_000, 51_500_000, 4096),
    "EleutherAI/pythia-1b": Shape(16, 2048, 908_800_000, 103_000_000, 8192),
    "google/gemma-2b": Shape(18, 2048, 2_506_000_000, 524_300_000, 16384, gated=True),
    "BioMistral/BioMistral-7B": Shape(32, 4096, 7_111_000_000, 131_100_000, 14336, gated=True),
    "Alibaba-NLP/gte-multilingual-base": Shape(12, 768, 305_000_000, 192_000_000, 3072, gated=True),
    "alibaba-nlp-community/gte-multilingual-base": Shape(12, 768, 305_000_000, 192_000_000, 3072, gated=True),
    "builtin:qwen2-tiny": Shape(2, 64, 133_120, 51_200, 128, gated=True),
}


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


def document_shape(recipe: Recipe) -> Shape | None:
    """The shape of the recipe's document encoder."""
    based = (stage for stage in recipe.giving("encoder") if getattr(stage, "base", None))
    stage: Any = recipe.decoder_stage or next(based, None)
    return shape_of(stage.base) or shape_of(getattr(stage, "hub_id", "") or "") if stage is not None else None


def student_shape(recipe: Recipe, student: Student) -> Shape | None:
    """The shape of a student, by where it starts."""
    if student.base is not None and student.tier_of is None:
        return shape_of(student.base)
    other = student.pruned_from if student.width is None else None
    if student.start == "layers-of-document" or other is not None:
        source = document_shape(recipe) if other is None else student_shape(recipe, recipe.students[other])
        return source.first_layers(student.layers) if source is not None else None
    vocabulary = recipe.tokenizer.vocabulary if recipe.tokenizer else 16_000
    if student.kind == "static":
        return Shape(0, recipe.dimension, vocabulary * recipe.dimension, vocabulary * recipe.dimension, 0)
    width = student.width or recipe.dimension
    inner = student.intermediate or 4 * width
    table = vocabulary * width
    return Shape(student.layers, width, student.layers * (4 * width**2 + 2 * width * inner) + table, table, inner)


def encoder_shape(recipe: Recipe, student: str | None) -> Shape | None:
    """The shape of a student by its name, or else of the document encoder."""
    return student_shape(recipe, recipe.students[student]) if student else document_shape(recipe)
