"""A GGUF file of a Qwen2 or Qwen3 decoder: its weights, configuration and tokenizer. No language-model head is read.

transformers reads GGUF too, but parses 300,000 strings one memory map at a time, twice, and unpacks the head as well:
about 85 s of CPU for a 1.5B file, on one core; 34 s here, mostly spread over the cores. Needs the ``train`` extra.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.encoders.side import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
#: Numbers unpacked at a time: enough to hide Python's cost, few enough to stay in a core's cache.
_PIECE = 1 << 18
_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: How Qwen's tokenizer cuts text before it merges bytes (its ``tokenizer.json``; GGUF only names it).
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER_DEFINED = 3, 4


class GgufTensor(NamedTuple):
    """Where one tensor lies: its shape as torch has it, its kind of packing, and its first byte."""

    shape: tuple[int, ...]
    kind: int
    start: int


class GgufFile(NamedTuple):
    """An opened GGUF file. Made by :func:`open_gguf`."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """``qwen2`` or ``qwen3``."""
        return str(self.metadata["general.architecture"])


def open_gguf(path: str | Path) -> GgufFile:
    """Read the metadata and the table of tensors of a GGUF file.

    Raises:
        ModelError: It is not a GGUF file, is cut short, or holds another architecture than Qwen2 or Qwen3.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            file = _read_header(path, data)
    except (OSError, struct.error, UnicodeDecodeError, ValueError, KeyError, IndexError) as error:
        raise ModelError(f"{path} is not a whole GGUF file ({error}): download it again") from error
    if file.architecture not in ("qwen2", "qwen3"):
        raise ModelError(
            f"{path} holds the architecture {file.architecture!r}; GGUF is read for qwen2 and qwen3 only: give the "
            f"model as a folder of safetensors"
        )
    if file.metadata.get(f"{file.architecture}.rope.scaling.type", "none") != "none":
        raise ModelError(f"{path} stretches its positions (rope scaling): give the model as a folder of safetensors")
    return file


def read_weights(file: GgufFile, dtype: Any) -> dict[str, Any]:
    """The weights by the names transformers gives them, unpacked straight into torch tensors of ``dtype``.

    The head (``output``) is left out: an encoder has none.

    Raises:
        ModelError: The ``gguf`` package is missing, or a tensor is packed in a way it does not unpack.
    """
    import torch

    names = {name: _transformers_name(name, file.path) for name in file.tensors if not name.startswith("output.")}
    weights = {new: torch.empty(file.tensors[old].shape, dtype=dtype) for old, new in names.items()}
    raw = np.memmap(file.path, dtype=np.uint8, mode="r")
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy lets go of the interpreter while it unpacks
        jobs = [
            pool.submit(_unpack, raw, file.tensors[old], weights[new], first, last)
            for old, new in names.items()
            for first, last in _pieces(file.tensors[old].shape)
        ]
        for job in jobs:
            job.result()
    return weights


def build_config(file: GgufFile) -> Any:
    """The configuration as transformers has it."""
    from transformers import Qwen2Config, Qwen3Config

    stated, kind = file.metadata, file.architecture
    heads = int(stated[f"{kind}.attention.head_count"])
    fields: dict[str, Any] = {
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": int(stated[f"{kind}.embedding_length"]),
        "intermediate_size": int(stated[f"{kind}.feed_forward_length"]),
        "num_hidden_layers": int(stated[f"{kind}.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(stated.get(f"{kind}.attention.head_count_kv", heads)),
        "max_position_embeddings": int(stated[f"{kind}.context_length"]),
        "rms_norm_eps": float(stated[f"{kind}.attention.layer_norm_rms_epsilon"]),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(stated[f"{kind}.rope.freq_base"])},
        "eos_token_id": stated.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": stated.get("tokenizer.ggml.padding_token_id"),
    }
    if kind == "qwen2":
        return Qwen2Config(**fields)
    return Qwen3Config(**fields, head_dim=int(stated[f"{kind}.attention.key_length"]))


def build_tokenizer(file: GgufFile) -> Any:
    """The byte-level BPE tokenizer the file describes, as transformers has it.

    Raises:
        ModelError: The file describes another kind of tokenizer.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    wrap: Any = PreTrainedTokenizerFast
    stated = file.metadata
    how = (stated.get("tokenizer.ggml.model"), stated.get("tokenizer.ggml.pre"))
    if how != ("gpt2", "qwen2"):
        raise ModelError(f"{file.path} has the tokenizer {how}, not Qwen's: give the model as a folder of safetensors")
    tokens: list[str] = stated["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in stated["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: id_ for id_, token in enumerate(tokens)}, merges=merges))
    tokenizer.normalizer = normalizers.NFC()  # in Qwen's own tokenizer.json; GGUF does not name it
    split = pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated", invert=False)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    kinds = stated["tokenizer.ggml.token_type"]
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        added = [AddedToken(tokens[at], special=special, normalized=False) for at in np.flatnonzero(kinds == kind)]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    named = {name: stated.get(f"tokenizer.ggml.{key}_token_id") for name, key in (("eos", "eos"), ("pad", "padding"))}
    special_names = {f"{name}_token": tokens[id_] for name, id_ in named.items() if id_ is not None}
    length = int(stated[f"{file.architecture}.context_length"])
    return wrap(tokenizer_object=tokenizer, model_max_length=length, **special_names)


def _read_header(path: Path, data: mmap.mmap) -> GgufFile:
    magic, version, tensor_count, field_count = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"it begins with {magic!r}, version {version}")
    at, metadata = 24, {}
    for _ in range(field_count):
        key, at = _string(data, at)
        metadata[key], at = _value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    table: dict[str, GgufTensor] = {}
    for _ in range(tensor_count):
        name, at = _string(data, at)
        (rank,) = struct.unpack_from("<I", data, at)
        *shape, kind, offset = struct.unpack_from(f"<{rank}QIQ", data, at + 4)
        at += 4 + 8 * rank + 12
        table[name] = GgufTensor(tuple(reversed(shape)), kind, offset)  # GGUF counts dimensions from the inside
    alignment = metadata.get("general.alignment", 32)
    start = -(-at // alignment) * alignment
    tensors = {name: tensor._replace(start=start + tensor.start) for name, tensor in table.items()}
    if (last := max(tensor.start for tensor in tensors.values())) >= len(data):
        raise ValueError(f"it has {len(data)} bytes, and a tensor begins at {last}")
    return GgufFile(path, metadata, tensors)


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    end = at + 8 + struct.unpack_from("<Q", data, at)[0]
    if end > len(data):
        raise ValueError(f"a text runs past its end at {at}")
    return data[at + 8 : end].decode("utf-8"), end


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind == _STRING:
        return _string(data, at)
    if kind in _SCALARS:
        return struct.unpack_from("<" + _SCALARS[kind], data, at)[0], at + struct.calcsize("<" + _SCALARS[kind])
    if kind != _ARRAY:
        raise ValueError(f"a field of the unknown kind {kind} at {at}")
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in _SCALARS:
        dtype = np.dtype("<" + _SCALARS[inner])
        return np.frombuffer(data[at : at + count * dtype.itemsize], dtype, count), at + count * dtype.itemsize
    values = []
    for _ in range(count):
        value, at = _value(data, at, inner)
        values.append(value)
    return values, at


def _transformers_name(name: str, path: Path) -> str:
    if name == "token_embd.weight":
        return "embed_tokens.weight"
    if name == "output_norm.weight":
        return "norm.weight"
    match name.split("."):
        case ["blk", layer, module, what] if module in _MODULES:
            return f"layers.{layer}.{_MODULES[module]}.{what}"
    raise ModelError(f"{path} holds a tensor {name!r} that Qwen has not: give the model as a folder of safetensors")


def _pieces(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    if len(shape) == 1:
        return [(0, 1)]
    step = max(1, _PIECE // math.prod(shape[1:]))
    return [(first, min(first + step, shape[0])) for first in range(0, shape[0], step)]


def _unpack(raw: Any, tensor: GgufTensor, into: Any, first: int, last: int) -> None:
    """Unpack rows ``first`` to ``last`` into a torch tensor, which casts them; a vector is one row."""
    import torch

    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as error:
        raise ModelError("reading GGUF needs the gguf package: pip install 'suwen[train]'") from error
    kind = GGMLQuantizationType(tensor.kind)
    rows = into.view(1, -1) if into.ndim == 1 else into
    block, size = GGML_QUANT_SIZES[kind]
    width = rows.shape[1] // block * size
    try:
        packed = raw[tensor.start + first * width : tensor.start + last * width].reshape(last - first, width)
        rows[first:last] = torch.from_numpy(np.require(dequantize(packed, kind), np.float32, "W"))
    except (ValueError, RuntimeError) as error:
        raise ModelError(
            f"a tensor packed as {kind.name} cannot be unpacked ({error}): download the file again, or give the model "
            f"as a folder of safetensors"
        ) from error
