"""A decoder-only language model as the body of a document encoder: from the hub, a folder, or a GGUF file.

Last-token pooling, a real end token, unit length (or not), no language-model head. What is trained on top lives in
``adapter.py``. Needs the ``train`` extra.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from suwen.choices import NumberFormat as NumberFormat
from suwen.encoders.gguf_file import build_config, build_tokenizer, open_gguf, read_weights
from suwen.encoders.pair_files import sha256_of, sha256_of_files
from suwen.encoders.side import ModelError, Side, document_files, local_folder, no_progress_bar, write_transformer

#: Of a model on the hub: the weights as safetensors, and what describes them.
WANTED = ["*.safetensors", "*.json", "merges.txt", "vocab.txt", "*.model"]


def load_base(
    source: str | Path,
    *,
    device: str | None = None,
    dtype: NumberFormat = "auto",
    max_length: int = 512,
    end_token: str | None = None,
    normalise: bool = True,
) -> Any:
    """Load a decoder as a ``SentenceTransformer``: transformer, last-token pooling, normalisation.

    Args:
        source: A GGUF file, a folder of safetensors, or a hub id.
        device: ``cpu``, ``cuda``, …; a GPU where there is one by default.
        dtype: Of the weights; ``auto`` is bf16 on a GPU and fp32 on a CPU.
        max_length: Tokens a text may have, the end token among them.
        end_token: The token put after every text and kept when a text is cut. By default the one the tokenizer adds by
            itself, else its end-of-text token.
        normalise: Whether vectors get length one; without it they are compared by their inner product.

    Raises:
        ModelError: The source is not there, or is not a decoder this project reads.
    """
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    except ImportError as error:
        raise ModelError("encoding with torch needs the train extra: pip install 'suwen[train]'") from error
    device = device or _best_device()
    weights_dtype = torch_dtype(dtype, device)
    with quietly():
        if is_gguf(source):
            transformer = _from_gguf(Path(source), weights_dtype, max_length)
        else:
            transformer = open_transformer(local_folder(source, WANTED), weights_dtype, max_length)
    pooling = Pooling(transformer.get_embedding_dimension(), "lasttoken")
    modules = [transformer, pooling, *([Normalize()] if normalise else [])]
    model = SentenceTransformer(modules=modules, device=device, similarity_fn_name=None if normalise else "dot")
    _set_end_token(model, end_token, source)
    return model.eval()


def round_base(model: Any) -> Any:
    """Hold the linear layers of a base as int8 with a scale for each row, in place: half the memory of bf16.

    They multiply in the precision they had, so an adapter can be trained beside them; the embeddings stay.
    """
    from suwen.encoders.int8_linear import round_linears

    body = model[0].model
    for parameter in body.parameters():
        parameter.requires_grad_(False)
    round_linears(body)
    return model


def base_hash(source: str | Path) -> str:
    """What a space is minted with: the sha256 of a GGUF file, or of the weights and tokenizer of a folder.

    Two forms of one base (GGUF and safetensors, say) hash differently: that they are one is shown by the probe.
    """
    if is_gguf(source):
        if not Path(source).is_file():
            raise ModelError(f"{source} does not exist: download the GGUF file and name it")
        return sha256_of(Path(source))
    folder = local_folder(source, WANTED)
    return sha256_of_files(folder, document_files(folder))


def is_gguf(source: str | Path) -> bool:
    """Whether the source names a GGUF file."""
    return str(source).endswith(".gguf")


def torch_dtype(dtype: NumberFormat, device: str) -> Any:
    """The torch type of a precision; ``auto`` is bf16 on a GPU and fp32 on a CPU."""
    import torch

    known = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if dtype not in known:
        raise ModelError(f"dtype {dtype!r} is not known: choose auto, {', '.join(known)}")
    return known[dtype]


def _best_device() -> str:
    from sentence_transformers.util import get_device_name

    return str(get_device_name())


def open_transformer(folder: Path, dtype: Any, max_length: int | None, *, trust_remote_code: bool = False) -> Any:
    """The transformer module of a folder of safetensors, checked to have all of its weights.

    Args:
        folder: The transformer's, or a sentence-transformers model's.
        dtype: A torch type, or ``auto`` for that of the files.
        max_length: Tokens a text may have; None for what the tokenizer says.
        trust_remote_code: Run Python code that comes with the model.
    """
    from safetensors import SafetensorError
    from sentence_transformers.sentence_transformer.modules import Transformer

    folder = transformer_folder(folder)
    if not list(folder.glob("*.safetensors")):
        raise ModelError(f"{folder} has no *.safetensors: name the folder of the weights, saved as safetensors")
    here = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    length = {"model_max_length": max_length} if max_length else {}
    try:
        transformer = Transformer(
            str(folder),
            model_kwargs={"dtype": dtype, "use_safetensors": True, **here},
            processor_kwargs={**length, **here},
            config_kwargs=here,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"{folder} cannot be loaded by transformers ({error}): name a decoder's folder") from error
    except (SafetensorError, RuntimeError) as error:
        raise ModelError(
            f"the weights in {folder} are damaged, or others than its config.json says ({error}): download it again"
        ) from error
    _refuse_missing(transformer.model, _stored_names(folder), folder)
    _take_texts_alone(transformer)
    return transformer


def _take_texts_alone(transformer: Any) -> None:
    """Have a text read as it is: where there is a template for conversations, it would become a turn of one."""
    ways = {name: way for name, way in transformer.modality_config.items() if name != "message"}
    if "text" in ways:
        transformer.modality_config = ways
        transformer.input_formatter.supported_modalities = list(ways)


def _stored_names(folder: Path) -> set[str]:
    from safetensors import safe_open

    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as stored:
            names.update(stored.keys())
    return names


def _refuse_missing(model: Any, stored: Collection[str], source: Path) -> None:
    """What is not stored, transformers fills with random numbers and a warning."""
    # A language model keeps its body under the architecture's own name: ``model``, or ``gpt_neox``.
    names = {name.removeprefix(model.base_model_prefix + ".").removeprefix("model.") for name in stored}
    # An encoder's pooler is read by none of our poolings, and often not stored.
    wanted = (name for name, _ in model.named_parameters() if not name.startswith("pooler."))
    if missing := sorted(name for name in wanted if name not in names):
        raise ModelError(f"{source} lacks {len(missing)} weights, such as {missing[0]}: download it again")


@contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' report of the head that is left out; what is missing is checked here."""
    from transformers.utils import logging as switch

    before = switch.get_verbosity()
    switch.set_verbosity(logging.ERROR)
    try:
        with no_progress_bar():
            yield
    finally:
        switch.set_verbosity(before)


def transformer_folder(folder: Path) -> Path:
    """Where the transformer of a sentence-transformers folder lies: its first module, mostly the folder itself."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return folder
    first = json.loads(listed.read_text(encoding="utf-8"))[0]["path"]
    return folder / first if (folder / first / "config.json").is_file() else folder


def _from_gguf(path: Path, dtype: Any, max_length: int) -> Any:
    """The transformer module of a GGUF file.

    The module only opens folders, so it opens a stand-in (the file's own tokenizer, a model of one narrow layer) and
    is then given the real model, of the same class: nothing of gigabytes passes through the disk.
    """
    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import AutoModel

    file, auto = open_gguf(path), cast(Any, AutoModel)
    config = build_config(file)
    small = type(config)(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8
    )
    with tempfile.TemporaryDirectory() as folder:
        write_transformer(auto.from_config(small), folder)
        build_tokenizer(file).save_pretrained(folder)
        transformer = Transformer(folder, processor_kwargs={"model_max_length": max_length})
    model_class: Any = type(transformer.model)
    config.use_cache = False
    config.name_or_path = path.stem
    weights = read_weights(file, dtype)
    names = set(weights)
    try:
        transformer.model = model_class.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"{path} does not hold the weights its metadata describes ({error}): get it again") from error
    _refuse_missing(transformer.model, names, path)
    return transformer


def _set_end_token(model: Any, end_token: str | None, source: str | Path) -> None:
    side = Side(model, "document")
    tokenizer = side.tokenizer
    tokenizer.padding_side = "right"
    token = end_token or side.end_token or tokenizer.eos_token
    if token is None:
        raise ModelError(
            f"the tokenizer of {source} names no end-of-text token, and a text's vector is that of its last token: say "
            f"`eos_token` in its tokenizer_config.json (end_token= in Python), or take another base"
        )
    side.require_end_token(token)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = token
