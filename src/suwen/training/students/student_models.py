"""Query encoders before they learn: from scratch, from a model's layers, from a teacher's vectors.

Needs the ``train`` extra. What they learn is in the stages; their vocabulary is in ``student_tokenizer.py``.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from suwen.encoders.prompts import Prompts
from suwen.encoders.query import Vectors
from suwen.encoders.side import Side, no_progress_bar, write_transformer
from suwen.encoders.static import unit
from suwen.errors import SuwenError
from suwen.training.students.static_student import StaticStudent
from suwen.training.students.static_table import frequency_weights
from suwen.training.students.student_tokenizer import DOCUMENT, QUERY, SPECIAL

#: What tells a student's two forms apart.
PROMPTS = Prompts(query=QUERY, document=DOCUMENT)
#: Where the layers of an encoder, or of a decoder, are kept.
_STACKS = (("encoder", "layer"), ("", "layers"))


class StudentError(SuwenError):
    """A query encoder that cannot be made as asked."""


def build_student(
    tokenizer: Any,
    *,
    kind: Literal["transformer", "static"] = "transformer",
    layers: int = 6,
    width: int = 384,
    heads: int = 6,
    intermediate: int | None = None,
    dimension: int = 512,
    max_length: int = 256,
    pooling: Literal["cls", "mean"] = "cls",
    dropout: float = 0.0,
    projection: bool = True,
    seed: int = 0,
) -> Any:
    """A query encoder with random weights, the same for the same seed.

    Args:
        tokenizer: A ``tokenizers.Tokenizer`` of :mod:`~suwen.training.students.student_tokenizer`.
        kind: A transformer with a linear layer behind its pooling, or a table of token rows (``static``).
        layers: Transformer layers.
        width: Their width.
        heads: Attention heads.
        intermediate: The width inside a layer; 4 x ``width`` by default.
        dimension: The space's dimension.
        max_length: The most tokens of a text, special ones included.
        pooling: The state of ``[CLS]``, or the mean of all.
        dropout: Of hidden states and attention.
        projection: Put the linear layer; without it the width must be the dimension.
        seed: Of the weights.

    Returns:
        A ``SentenceTransformer`` on the CPU that gives unit vectors.

    Raises:
        StudentError: The shape does not fit together.
    """
    from sentence_transformers.sentence_transformer.modules import Pooling

    if missing := [token for token in SPECIAL if tokenizer.token_to_id(token) is None]:
        raise StudentError(f"the tokenizer lacks {', '.join(missing)}: train it with train_tokenizer")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "static":
            rows = torch.randn(tokenizer.get_vocab_size(), dimension) / dimension**0.5
            return assembled([StaticStudent(tokenizer, rows), *vector_head(dimension, None)], PROMPTS)
        if width % heads:
            raise StudentError(f"a width of {width} cannot be shared by {heads} heads: choose a divisor of it")
        if not projection and width != dimension:
            raise StudentError(
                f"a student of width {width} cannot be compared with vectors of {dimension} dimensions: "
                f"give it a projection, or that width"
            )
        shape = _shape(tokenizer, layers, width, heads, intermediate or 4 * width, max_length, dropout)
        transformer = student_transformer(shape, tokenizer, max_length)
        return assembled(
            [transformer, Pooling(width, pooling), *vector_head(width, dimension if projection else None)], PROMPTS
        )


def _shape(
    tokenizer: Any, layers: int, width: int, heads: int, intermediate: int, max_length: int, dropout: float
) -> Any:
    # Layers that normalise their input train from scratch at a rate of 1e-3, where BERT's own order needs a tenth of it
    # and a long warm-up; this is the one such encoder that transformers ships with flash attention.
    from transformers import RobertaPreLayerNormConfig

    padding = tokenizer.token_to_id("[PAD]")
    return RobertaPreLayerNormConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=max_length + padding + 1,  # positions begin after the padding id
        type_vocab_size=1,
        # SmallInit (Nguyen and Salazar, 2019). BERT's fixed 0.02 is for a width of 768; in narrower layers all texts
        # begin as nearly one vector.
        initializer_range=(2 / (5 * width)) ** 0.5,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=padding,
        bos_token_id=tokenizer.token_to_id("[CLS]"),
        eos_token_id=tokenizer.token_to_id("[SEP]"),
    )


def student_transformer(config: Any, tokenizer: Any, max_length: int) -> Any:
    """A transformer with random weights and a student's tokenizer, as a module of sentence-transformers."""
    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import AutoModel, PreTrainedTokenizerFast

    wrap, auto = cast(Any, PreTrainedTokenizerFast), cast(Any, AutoModel)
    fast = wrap(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        additional_special_tokens=[QUERY, DOCUMENT],
        model_max_length=max_length,
    )
    with tempfile.TemporaryDirectory() as folder, no_progress_bar():  # the module reads folders only
        write_transformer(auto.from_config(config), folder)
        fast.save_pretrained(folder)
        return Transformer(folder, max_seq_length=max_length)


def vector_head(width: int, dimension: int | None) -> list[Any]:
    """What follows a pooling: a linear layer, where a dimension is named, and length one."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    return [*([Dense(width, dimension, activation_function=None)] if dimension else []), Normalize()]


def assembled(modules: Sequence[Any], prompts: Prompts, device: Any = "cpu") -> Any:
    """Modules as a ``SentenceTransformer`` with prompts."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(modules=list(modules), device=str(device), prompts=prompts.model_dump())


def with_pooling(model: Any, pooling: str | None) -> Any:
    """A pretrained encoder with another pooling than its own; as it is where none is named."""
    for module in model:
        if pooling is not None and type(module).__name__ == "Pooling":
            module.pooling_mode = pooling
    return model


def prune_layers(student: Any, keep: int) -> Any:
    """A copy with fewer layers, from the first to the last of the old ones evenly.

    This is where KALE begins: a pruned encoder, aligned to the whole one's vectors afterwards.
    """
    side = Side(student, "query")
    count = len(_stack(side)[2])
    if not 1 <= keep <= count:
        raise StudentError(f"{keep} of {count} layers cannot be kept: choose 1 to {count}")
    return _with_layers(student, side, [round(place) for place in np.linspace(0, count - 1, keep)])


def first_layers(decoder: Any, count: int) -> Any:
    """A query encoder of an LLM document encoder's first layers, its embeddings, last norm, pooling and projection.

    The shrunk query encoder of Wang and Lyu (2023), as CARE's appendix C.2 builds it (3 layers of Qwen3-4B).
    """
    side = Side(decoder, "document")
    if not 1 <= count <= len(_stack(side)[2]):
        raise StudentError(f"the decoder has {len(_stack(side)[2])} layers: take 1 to that many, not {count}")
    return _with_layers(decoder, side, range(count))


def _stack(side: Side) -> tuple[Any, str, Any]:
    """Who holds the layers of a side's transformer, under which name, and the layers."""
    model = getattr(side.modules[0], "model", None)
    for owner, name in _STACKS:
        holder = getattr(model, owner, None) if owner else model
        if isinstance(getattr(holder, name, None), torch.nn.ModuleList):
            return holder, name, getattr(holder, name)
    raise StudentError(f"{type(model or side.modules[0]).__name__} has no layers to choose from: use a transformer")


def _with_layers(owner: Any, side: Side, kept: Sequence[int]) -> Any:
    """A model of copies of a side's modules with some layers of its transformer; the others are never copied."""
    holder, name, whole = _stack(side)
    setattr(holder, name, torch.nn.ModuleList([whole[place] for place in kept]))
    try:
        modules = copy.deepcopy(side.modules)
    finally:
        setattr(holder, name, whole)
    model = modules[0].model
    model.config.num_hidden_layers = len(kept)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [model.config.layer_types[place] for place in kept]
    for place, layer in enumerate(getattr(getattr(model, "encoder", model), name)):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = place
    return assembled(modules, _prompts(owner), side.device)


def _prompts(model: Any) -> Prompts:
    return Prompts(query=Side(model, "query").prompt, document=Side(model, "document").prompt)


def with_projection(student: Any, dimension: int, *, start: Literal["random", "cut"] = "random") -> Any:
    """A copy with one linear layer more, to another dimension.

    Args:
        student: Not changed.
        dimension: What it leads to.
        start: ``random`` is HotelMatch's way to meet an LLM's full width; ``cut`` begins as the first ``dimension``
            numbers of the old vector, which is where nested vectors are cut.
    """
    side = Side(student, "query")
    modules = copy.deepcopy(side.modules)
    last = [modules.pop()] if type(modules[-1]).__name__ == "Normalize" else []
    dense, _ = vector_head(vector_width(side), dimension)
    if start == "cut":
        torch.nn.init.eye_(dense.linear.weight)
        torch.nn.init.zeros_(dense.linear.bias)
    return assembled([*modules, dense, *last], _prompts(student), side.device)


def vector_width(side: Side) -> int:
    """How many dimensions a side's vectors have."""
    with torch.inference_mode():
        return int(side.embed(side.ids(["a"])).shape[1])


def init_from_vectors(
    student: Any,
    token_vectors: Vectors,
    *,
    counts: NDArray[np.int64] | None = None,
    form: Vectors | None = None,
) -> None:
    """Start a student's table from the teacher's vector of each token: a rare token then knows what it means.

    A transformer's table gets their main components, at the scale it had; its special tokens stay as they are, for what
    a teacher makes of their names means nothing. A static student's gets the vectors without what they share, each
    weighted down by its frequency.

    Args:
        student: Changed in place.
        token_vectors: A row per token id, ``[vocabulary, any dimension]``; for a static student the space's dimension.
        counts: How often each token occurs in the texts, for the static student's weights; all alike by default.
        form: The mean vectors of queries and of documents ``[2, dimension]``, for a static student.

    Raises:
        StudentError: The vectors are not one per token, or of another dimension.
    """
    first = Side(student, "query").modules[0]
    is_static = isinstance(first, StaticStudent)
    table = first.embedding.weight if is_static else first.model.get_input_embeddings().weight
    if len(token_vectors) != len(table):
        raise StudentError(f"{len(token_vectors)} vectors for {len(table)} tokens: encode every token of the tokenizer")
    directions = unit(np.asarray(token_vectors, np.float32))
    shared = directions.mean(axis=0)
    with torch.no_grad():
        if is_static:
            _start_static(first, directions, shared, counts, form)
        else:
            _start_table(table, directions - shared)


def _start_static(
    module: StaticStudent, directions: Vectors, shared: Vectors, counts: NDArray[np.int64] | None, form: Vectors | None
) -> None:
    if directions.shape[1] != module.embedding_dim:
        raise StudentError(
            f"vectors of {directions.shape[1]} dimensions cannot start rows of {module.embedding_dim}: "
            f"use those of the space"
        )
    weights = np.ones(len(directions), np.float32) if counts is None else frequency_weights(counts)
    module.embedding.weight.copy_(torch.from_numpy((directions - shared) * weights[:, None]))
    module.form.copy_(torch.from_numpy(np.stack([shared, shared]) if form is None else np.asarray(form, np.float32)))


def _start_table(table: torch.Tensor, centred: Vectors) -> None:
    vectors = torch.from_numpy(centred).double()
    _, axes = torch.linalg.eigh(vectors.T @ vectors)
    main = (vectors @ axes.flip(1)[:, : table.shape[1]]).float()
    scale = table.std() / main.std().clamp_min(1e-12)
    ordinary = slice(len(SPECIAL), None)
    table[ordinary, : main.shape[1]] = (main * scale).to(table)[ordinary]
