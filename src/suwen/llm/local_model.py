"""A language model in this process, with its head, its chat form and perhaps an adapter: text in, text out.

From a GGUF file, a folder of safetensors or the hub. Needs the ``train`` extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from suwen.encoders.adapter import adapter_sha256, apply_adapter, load_adapter
from suwen.encoders.base_model import WANTED, base_hash, is_gguf, quietly, torch_dtype
from suwen.encoders.gguf_file import build_config, build_tokenizer, open_gguf, read_weights
from suwen.encoders.side import ModelError, local_folder
from suwen.llm.requests import Sampling
from suwen.llm.sampler import sample

#: How a conversation is written where the tokenizer does not say, but has these marks.
_TURN, _END = "<|im_start|>", "<|im_end|>"


class Written(NamedTuple):
    """One reply: the text, whether it came to its end, and tokens read and written."""

    text: str
    ended: bool
    tokens_in: int
    tokens_out: int


class LocalModel:
    """A model that writes. Made by :meth:`load`."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._bare: dict[str, torch.Tensor] = {}
        self._worn: Path | None = None
        # Looked up once: a tokenizer writes its whole vocabulary down each time it is asked for it.
        known = tokenizer.get_vocab()
        ends = [known[one] for one in (_END, tokenizer.eos_token, "<|endoftext|>", "<|eot_id|>") if one in known]
        if not ends:
            raise ModelError("the model's tokenizer names no end of text: replies would never end; set its eos_token")
        self._end, self._ends, self._takes_turns = ends[0], sorted(set(ends)), _TURN in known

    @classmethod
    def load(cls, source: str | Path, adapter: Path | None = None, device: str | None = None) -> LocalModel:
        """Load a model with its head, and an adapter into its weights.

        Args:
            source: A GGUF file, a folder of safetensors, or a hub id.
            adapter: An adapter trained on it.
            device: A GPU where there is one by default.
        """
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with quietly():
            model, tokenizer = (_of_gguf if is_gguf(source) else _of_folder)(source, torch_dtype("auto", device))
        loaded = cls(model.to(device).eval(), tokenizer)
        loaded.wear(adapter)
        return loaded

    def wear(self, adapter: Path | None) -> None:
        """Put an adapter into the weights in place of the one that is in them, or none: to the bit as it was loaded."""
        if adapter == self._worn:
            return
        body, self._worn = self.model.base_model, None
        with torch.no_grad():
            for name, weight in self._bare.items():
                body.get_submodule(name).weight.copy_(weight)
        self._bare = {}
        if adapter is not None:
            names = [name.removeprefix(f"{self.model.base_model_prefix}.") for name in load_adapter(adapter)]
            bare = {name: _weight(body, name) for name in names}
            apply_adapter(body, adapter)
            self._bare = {name: weight for name, weight in bare.items() if weight is not None}
            self._worn = adapter

    def example(
        self, messages: Sequence[Mapping[str, str]], answer: str, longest: int
    ) -> tuple[list[int], list[int]] | None:
        """The token ids of a prompt, and of the reply that it should get with its end; None where they are too long."""
        prompt = self._prompt(messages)
        reply: list[int] = self.tokenizer(answer, add_special_tokens=False)["input_ids"]
        reply.append(self._end)
        return (prompt, reply) if len(prompt) + len(reply) <= longest else None

    def write(self, conversations: Sequence[Sequence[Mapping[str, str]]], how: Sampling) -> list[Written]:
        """A reply to each conversation (``role`` and ``content`` of its messages)."""
        return self.continued([self._prompt(messages) for messages in conversations], how)

    def continued(self, prompts: Sequence[Sequence[int]], how: Sampling) -> list[Written]:
        """What comes after each prompt, given as token ids."""
        drawn = sample(self.model, prompts, self._ends, how)
        texts = self.tokenizer.batch_decode([one.ids for one in drawn], skip_special_tokens=True)
        return [
            Written(text.strip(), one.ended, len(prompt), len(one.ids))
            for text, one, prompt in zip(texts, drawn, prompts, strict=True)
        ]

    def _prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if self.tokenizer.chat_template:
            told = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        elif self._takes_turns:
            said = "".join(f"{_TURN}{one['role']}\n{one['content']}{_END}\n" for one in messages)
            told = f"{said}{_TURN}assistant\n"
        else:
            told = "\n\n".join(one["content"] for one in messages) + "\n"
        ids: list[int] = self.tokenizer(told, add_special_tokens=False)["input_ids"]
        return ids


_held: dict[str, LocalModel] = {}


def held(source: str | Path, adapter: Path | None = None, device: str | None = None) -> LocalModel:
    """The model of a source, kept in memory for the next who asks, with another adapter or none: loading takes longest.

    One at a time: two large models rarely fit.
    """
    key = f"{source} {device or ''}"
    if key not in _held:
        _held.clear()
        _held[key] = LocalModel.load(source, adapter, device)
    else:
        _held[key].wear(adapter)
    return _held[key]


def let_go() -> None:
    """Let go of the model in memory, and of what is known of files."""
    _held.clear()
    weights_digest.cache_clear()


def _weight(body: Any, name: str) -> torch.Tensor | None:
    """A copy of a module's weight; None where there is none, which the adapter will complain of."""
    try:
        weight: torch.Tensor = body.get_submodule(name).weight
        return weight.detach().clone()
    except AttributeError:
        return None


@lru_cache(maxsize=32)
def weights_digest(source: str, adapter: str | None) -> str:
    """What stands for the weights in the cache of replies, read once in a process."""
    return base_hash(source) + (f"+{adapter_sha256(Path(adapter))}" if adapter else "")


def _of_gguf(source: str | Path, dtype: Any) -> tuple[Any, Any]:
    from transformers import Qwen2ForCausalLM, Qwen3ForCausalLM

    file = open_gguf(source)
    weights = {f"model.{name}": weight for name, weight in read_weights(file, dtype).items()}
    # The small Qwens share the table of the tokens with the head; the file's copy may be coarser.
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    config = build_config(file)
    config.tie_word_embeddings = True
    kind: Any = Qwen2ForCausalLM if file.architecture == "qwen2" else Qwen3ForCausalLM
    tokenizer = build_tokenizer(file)
    tokenizer.chat_template = file.metadata.get("tokenizer.chat_template")
    return kind.from_pretrained(None, config=config, state_dict=weights, dtype=dtype), tokenizer


def _of_folder(source: str | Path, dtype: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, kind, texts = local_folder(source, WANTED), AutoModelForCausalLM, AutoTokenizer
    here: Any = {"local_files_only": True, "trust_remote_code": False}
    try:
        model: Any = kind.from_pretrained(str(folder), dtype=dtype, use_safetensors=True, **here)
        tokenizer: Any = texts.from_pretrained(str(folder), **here)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{folder} cannot be loaded as a language model ({error}): name a causal one") from error
    return model, tokenizer
