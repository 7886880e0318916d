"""Small models and data in place of large ones: what ``builtin:`` names stand for, and a whole recipe for a dry run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from suwen.training.recipe.recipe_checks import check
from suwen.training.recipe.recipe_errors import RecipeError, nearest
from suwen.training.recipe.recipe_model import Recipe
from suwen.training.recipe.tiny_data import facts, write_tiny_data

_PREFIX = "builtin:"
_SEED = 3
#: The widths of stand-in models: the students', the document encoder's.
_SPACE, _DECODER = 32, 64


def with_builtins(recipe: Recipe, folder: Path) -> Recipe:
    """Write what the recipe's ``builtin:`` names stand for, and put the paths in their place.

    Args:
        recipe: A checked recipe.
        folder: Where to write; what is there already is used.

    Raises:
        RecipeError: an unknown builtin.
    """
    raw = recipe.model_dump(mode="json")
    for key, value in raw["data"].items():
        raw["data"][key] = _path(value, {"tiny": write_tiny_data}, folder)
    for group in [*raw["stages"], *raw["students"].values()]:
        if "base" in group:
            group["base"] = _path(group["base"], _MODELS, folder)
    return Recipe.model_validate(raw)


def stand_in(recipe: Recipe, folder: Path) -> Recipe:
    """A recipe of the same stages and architectures that runs in seconds: tiny models, tiny data, two steps a stage.

    Args:
        recipe: The recipe to try out; none of its data or models are touched.
        folder: Where the small models and data are written.
    """
    raw = recipe.model_dump(mode="json")
    rows = [stage["rows"] for stage in raw["stages"] if stage.get("rows")]
    names = {name for one in rows for name in (*(one["sources"] or ()), *one["weights"])}
    data = folder / "data"
    named = [[*(one.get("forms") or {}).values(), one.get("kinds")] for one in raw["stages"]]
    kinds = {kind for one in named for kinds in one for kind in kinds or ()}
    _once(data, lambda made: write_tiny_data(made, sorted(names), conditions=8, kinds=kinds))

    def builtin(name: str) -> str:
        return str(_path(_PREFIX + name, _MODELS, folder))

    raw["data"] = {
        "rows": str(data / "rows"),
        "texts": str(data / "texts.jsonl.gz"),
        "held_out": str(data / "held-out.jsonl.gz") if recipe.data.held_out else None,
        "measure": str(data / "dev.toml") if recipe.data.measure else None,
        "set_aside": 0.3 if recipe.data.set_aside else 0.0,
    }
    raw["dimension"] = _SPACE
    if raw["tokenizer"]:
        raw["tokenizer"] = {"vocabulary": 600}
    for student in raw["students"].values():
        _shrink_student(student, recipe.dimension, builtin)
    raw["stages"] = [
        stage.stand_in(_small_stage(keys, recipe.dimension), builtin)
        for stage, keys in zip(recipe.stages, raw["stages"], strict=True)
    ]
    small = Recipe.model_validate(raw)
    check(small)
    return small


def _shrink_student(student: dict[str, Any], dimension: int, builtin: Callable[[str], str]) -> None:
    if student["base"] is not None:
        student["base"] = builtin("gte-tiny" if "gte" in student["base"].lower() else "bert-tiny")
    if student["width"] is not None:
        student["width"] = _SPACE if student["width"] == dimension or student["base"] else 48
    student |= {"layers": min(student["layers"], 2), "heads": 2, "intermediate": 64}
    student["max_length"] = min(student["max_length"], 56)
    student["document_length"] = min(student["document_length"], 56) if student["document_length"] else None


def _small_stage(stage: dict[str, Any], dimension: int) -> dict[str, Any]:
    """Two steps of two rows; every other choice of the recipe stays, so that its code is run."""
    # Long enough for a prompt of some words and something behind it.
    least = {"max_length": 96, "query_length": 96, "limit": 24, "negatives": 2, "rank": 2, "token_budget": 512}
    for key, most in least.items():
        if stage.get(key):
            stage[key] = min(stage[key], most)
    if stage.get("dimension"):
        stage["dimension"] = _SPACE if stage["dimension"] == dimension else _DECODER
    if stage.get("dimensions"):
        stage["dimensions"] = [_DECODER, _SPACE, 16]
    if stage.get("mine"):
        stage["mine"] |= {"first_rank": 1, "last_rank": 10, "count": 3}
    if stage.get("rows"):
        stage["rows"] |= {"limit_per_source": None, "negatives": min(stage["rows"]["negatives"], 1)}
    if stage.get("training"):
        _shrink_training(stage["training"])
    return stage


def _shrink_training(training: dict[str, Any]) -> None:
    steps = 0 if training["steps"] == 0 else 2
    training |= {"steps": steps, "epochs": None, "seconds": None, "batch": 2, "log_every": 1}
    training["chunk"] = 1 if training["chunk"] else None
    training["token_budget"] = 256 if training["token_budget"] else None
    training["checkpoint_every"] = min(training["checkpoint_every"], 1)
    # Halves are slow on a CPU; but fp16 has a scale that can go wrong.
    training["precision"] = "fp16" if training["precision"] == "fp16" else "fp32"


def _path(value: Any, known: dict[str, Callable[[Path], None]], folder: Path) -> Any:
    """``builtin:NAME/rest`` as a path, made if it is not there; any other value as it is."""
    if not isinstance(value, str) or not value.startswith(_PREFIX):
        return value
    name, _, rest = value.removeprefix(_PREFIX).partition("/")
    if name not in known:
        raise RecipeError(f"{value}: nothing of that name is built in{nearest(name, known)}")
    _once(folder / name, known[name])
    return str(folder / name / rest) if rest else str(folder / name)


def _once(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder whole or not at all; another process may be at the same."""
    if folder.is_dir():
        return
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process was first; its folder is the same.
        shutil.rmtree(unfinished)


def _texts() -> list[str]:
    return [text for fact in facts() for text in (*fact.questions, fact.answer)]


def _decoder(family: str, folder: Path) -> None:
    import torch
    import transformers

    torch.manual_seed(_SEED)
    sizes = {
        # Gemma's and Mistral's tokenizers put a token before every text.
        "vocab_size": _save_byte_pairs(folder, first_token=family in ("Gemma", "Mistral")),
        "hidden_size": _DECODER,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 2 * _DECODER,
        "max_position_embeddings": 256,
        "initializer_range": 0.08,
        "tie_word_embeddings": True,
        "eos_token_id": 0,
        "pad_token_id": 1,
        "bos_token_id": None,
    }
    if family in ("Qwen3", "Gemma"):
        sizes["head_dim"] = 16
    if family == "GPTNeoX":
        del sizes["num_key_value_heads"]
    config = getattr(transformers, f"{family}Config")(**sizes)
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(folder)


def _encoder(family: str, folder: Path) -> None:
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    torch.manual_seed(_SEED)
    parts = folder / "parts"
    config = getattr(transformers, f"{family}Config")(
        vocab_size=_save_word_pieces(parts),
        hidden_size=_SPACE,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * _SPACE,
        max_position_embeddings=128,
        pad_token_id=1,
    )
    getattr(transformers, f"{family}Model")(config).save_pretrained(parts)
    whole = SentenceTransformer(
        modules=[Transformer(str(parts), max_seq_length=64), Pooling(_SPACE, "cls"), Normalize()], device="cpu"
    )
    whole.save(str(folder))
    shutil.rmtree(parts)


def _pair(folder: Path) -> None:
    """A frozen document encoder as a pair holds it, with a static tier that has learnt nothing, beside its base."""
    from suwen.encoders.adapter import apply_lora, read_factors
    from suwen.encoders.base_model import load_base
    from suwen.encoders.space import ElsewhereDocument, Manifest, load_manifest, save_manifest
    from suwen.training.ship.exporting import export
    from suwen.training.ship.freezing import freeze
    from suwen.training.students.student_models import build_student
    from suwen.training.students.student_tokenizer import train_tokenizer

    _decoder("Qwen2", folder / "base")
    model = load_base(folder / "base", device="cpu", dtype="fp32", max_length=96)
    apply_lora(model, rank=2, alpha=4, dropout=0.0)
    settings: dict[str, Any] = {"name": "tiny", "dimension": _SPACE, "max_length": 96, "device": "cpu"}
    freeze(read_factors(model), folder / "base", folder / "pair", **settings)
    tier = build_student(train_tokenizer(_texts(), size=600), kind="static", dimension=_SPACE, max_length=56)
    tier.save(str(folder / "static"))
    elsewhere = ElsewhereDocument(kind="elsewhere", name="tiny")
    space = load_manifest(folder / "pair").space
    save_manifest(folder / "static", Manifest(name="static", form="full", space=space, document=elsewhere))
    export(folder / "static", folder / "pair", tier="static", texts=_texts(), into=True, max_length=56)


def _writer(steps: int, folder: Path) -> None:
    """A language model that knows the small world a little; without any step, one that knows nothing."""
    from suwen.training.recipe.tiny_writer import make_writer

    make_writer(folder, steps=steps, seed=_SEED)


def _save_byte_pairs(folder: Path, *, first_token: bool = False) -> int:
    """A tokenizer like the Qwens': byte pairs, an end token that it does not add by itself."""
    from tokenizers import processors

    from suwen.training.recipe.tiny_writer import byte_pairs

    tokenizer, special = byte_pairs(_texts(), 800)
    if first_token:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{special[1]} $A", pair=f"{special[1]} $A $B", special_tokens=[(special[1], 1)]
        )
    _save_tokenizer(folder, tokenizer, eos_token=special[0], pad_token=special[1], model_max_length=256)
    return int(tokenizer.get_vocab_size())


def _save_word_pieces(folder: Path) -> int:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    _save_tokenizer(folder, tokenizer, model_max_length=128, **names)
    return int(tokenizer.get_vocab_size())


def _save_tokenizer(folder: Path, tokenizer: Any, **names: Any) -> None:
    import transformers

    make: Any = transformers.PreTrainedTokenizerFast
    make(tokenizer_object=tokenizer, **names).save_pretrained(folder)


_MODELS: dict[str, Callable[[Path], None]] = {
    "qwen2-tiny": partial(_decoder, "Qwen2"),
    "qwen3-tiny": partial(_decoder, "Qwen3"),
    "neox-tiny": partial(_decoder, "GPTNeoX"),
    "gemma-tiny": partial(_decoder, "Gemma"),
    "mistral-tiny": partial(_decoder, "Mistral"),
    "writer-tiny": partial(_writer, 0),
    "writer-trained": partial(_writer, 400),
    "pair-tiny": _pair,
    "gte-tiny": partial(_encoder, "Gte"),
    "bert-tiny": partial(_encoder, "Bert"),
}
