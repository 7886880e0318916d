"""One side of a sentence-transformers model: the modules a query, or a document, passes, and the space they fix.

Needs the ``train`` extra. How many texts run together, and in what order, is decided elsewhere.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from suwen.encoders import packed
from suwen.encoders.packed import Ints
from suwen.encoders.pair_files import sha256_of_files
from suwen.encoders.pickled import pickled_weights, refusal
from suwen.encoders.prompts import Form, Prompts
from suwen.encoders.space import Space
from suwen.encoders.tokens import stand_in, well_formed
from suwen.errors import SuwenError

if TYPE_CHECKING:
    import torch

    from suwen.encoders.fused import FusedDecoder

_POOLING: dict[str, Literal["cls", "mean", "last"]] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
#: Modules of this package.
_OWN = {
    "suwen.training.students.static_student.StaticStudent",
    *(f"suwen.training.students.two_texts.{name}" for name in ("TwoTexts", "TwoMeans")),
}
#: What a length may be when neither the tokenizer nor the configuration sets one.
_LONGEST = 8192


class ModelError(SuwenError):
    """A model folder that cannot be loaded, or that holds something this project does not run."""


def load_model(path: str | Path, *, device: str | None = None, trust_remote_code: bool = False) -> tuple[Any, Path]:
    """Load a sentence-transformers (or plain transformers) model from a folder, or from the hub by its id.

    Returns:
        The ``SentenceTransformer`` in evaluation mode, and the folder it came from.

    Raises:
        ModelError: The ``train`` extra is not installed, the folder is not a model, or its weights are pickles.
    """
    folder = local_folder(path)
    # Before torch, which takes seconds to load.
    if pickle := next(pickled_weights(folder), None):
        raise ModelError(f"{pickle} {refusal(pickle)}")
    try:
        from safetensors import SafetensorError
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ModelError("encoding with torch needs the train extra: pip install 'suwen[train]'") from error
    try:
        # The environment says so where no option reaches: to search and serve.
        trust_remote_code |= _is_own(folder) or os.environ.get("SUWEN_TRUST_REMOTE_CODE") == "1"
        with no_progress_bar():
            model = SentenceTransformer(
                str(folder), device=device, trust_remote_code=trust_remote_code, local_files_only=True
            )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"{folder} cannot be loaded ({error}): name a sentence-transformers folder") from error
    except SafetensorError as error:
        raise ModelError(f"the weights in {folder} are damaged ({error}): get the model again") from error
    return model.eval(), folder


def _is_own(folder: Path) -> bool:
    """Whether all that sentence-transformers does not know is this package's: then no code comes with the model.

    Nothing else may stand beside it than modules without code of their own; a Transformer's folder may bring some.
    """
    file = folder / "modules.json"
    kinds = (
        {str(module["type"]) for module in json.loads(file.read_text(encoding="utf-8"))} if file.is_file() else set()
    )
    ours, others = kinds & _OWN, kinds - _OWN
    known = all(kind.startswith("sentence_transformers.") for kind in others)
    return bool(ours) and known and {kind.rpartition(".")[2] for kind in others} <= {"Dense", "Normalize"}


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Keep transformers' bar off the caller's terminal; the switch is global, so it is put back."""
    from transformers.utils import logging

    switch: Any = logging
    was_on = switch.is_progress_bar_enabled()
    switch.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            switch.enable_progress_bar()


def write_transformer(model: Any, folder: str | Path) -> None:
    """Write a transformer for its module to open; ``save_pretrained`` would do so in the first of several processes."""
    from safetensors.torch import save_model

    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    save_model(model, str(Path(folder) / "model.safetensors"), metadata={"format": "pt"})


def local_folder(path: str | Path, wanted: list[str] | None = None) -> Path:
    """The folder itself, or the hub's snapshot of an id: all of it, or the files of these patterns."""
    if Path(path).is_dir():
        return Path(path)
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(str(path), allow_patterns=wanted))
    except Exception as error:  # the hub client has many kinds; all of them mean that the model is not here
        raise ModelError(
            f"{path} is neither a folder nor a model the hub could give ({type(error).__name__}): offline, no hub is "
            f"asked; else check the name, or "
            f"download it and give the folder"
        ) from error


class Side:
    """The modules one form of text passes in a sentence-transformers model.

    Args:
        model: The ``SentenceTransformer``; where it begins with a Router, the form's route is taken.
        form: Which side.

    Attributes:
        packed: Run texts end to end without padding (see ``packed.py``); None does so where it is faster, which is on
            a GPU in half precision.
        fused: What packed texts pass in place of the transformer; set by :meth:`fuse`.
    """

    packed: bool | None = None
    fused: FusedDecoder | None = None

    def __init__(self, model: Any, form: Form) -> None:
        first, *rest = list(model)
        if type(first).__name__ == "Router":
            if form not in first.sub_modules:
                raise ModelError(f"the Router has no {form!r} route, only {', '.join(first.sub_modules)}: add one")
            self.modules: list[Any] = [*first.sub_modules[form], *rest]
        else:
            self.modules = [first, *rest]
        self._cutting = threading.Lock()
        self.prompt = _prompt(model, form)
        self.tokenizer = self.modules[0].tokenizer
        self.is_static = "StaticEmbedding" in {kind.__name__ for kind in type(self.modules[0]).__mro__}
        self.max_length = _LONGEST if self.is_static else _length(self.modules[0])

    @property
    def backend(self) -> Any:
        """The Rust tokenizer beneath, whose JSON is the whole of it."""
        return self.tokenizer if self.is_static else self.tokenizer.backend_tokenizer

    @property
    def device(self) -> Any:
        """Where the parameters are."""
        return next(self.modules[0].parameters()).device

    @property
    def pooling(self) -> Literal["cls", "mean", "last"]:
        """How tokens become one vector."""
        poolings = [module for module in self.modules if type(module).__name__ == "Pooling"]
        if self.is_static:
            return "mean"
        if len(poolings) != 1 or poolings[0].pooling_mode not in _POOLING:
            modes = [module.pooling_mode for module in poolings]
            raise ModelError(f"pooling {modes} is not one of {', '.join(_POOLING)}: choose one of them in the model")
        if not poolings[0].include_prompt and self.prompt:
            raise ModelError("pooling leaves the prompt out (include_prompt=False): set it to true and train again")
        return _POOLING[poolings[0].pooling_mode]

    @property
    def normalises(self) -> bool:
        """Whether the modules themselves give vectors of length one."""
        return type(self.modules[-1]).__name__ == "Normalize"

    @property
    def end_token(self) -> str | None:
        """The token the tokenizer itself puts after every text, where it does."""
        if self.is_static:
            return None
        # Not of an empty text: where a token is put before every text and none after it, that one would be its last.
        last, bare = (self.tokenizer("a", add_special_tokens=special)["input_ids"][-1:] for special in (True, False))
        return str(self.tokenizer.convert_ids_to_tokens(last[0])) if last != bare else None

    def require_end_token(self, token: str) -> None:
        """Make the tokenizer put ``token`` after every text, and keep it when it cuts, unless it does so already."""
        if self.end_token == token:
            return
        from tokenizers.processors import Sequence as Chain
        from tokenizers.processors import TemplateProcessing

        id_ = self.backend.token_to_id(token)
        if id_ is None:
            raise ModelError(f"the end token {token!r} of the space is not in the tokenizer: this is another model")
        # What stands before a text, as Gemma's and Mistral's <bos>, is part of the template: one after another, each
        # template would take the other's token for a text.
        first, before = self.tokenizer("")["input_ids"], self.backend.post_processor
        names = self.tokenizer.convert_ids_to_tokens(first)
        template = TemplateProcessing(
            single=[*names, "$A", token],
            pair=[*names, "$A", token, "$B", token],
            special_tokens=list({**dict(zip(names, first, strict=True)), token: id_}.items()),
        )
        self.backend.post_processor = Chain([before, template]) if before and not first else template

    def ids(self, texts: Sequence[str], *, max_length: int | None = None) -> list[list[int]]:
        """Token ids of each text as it stands (put the prompt before it yourself), cut to the length, never empty."""
        texts = [well_formed(text) for text in texts]
        limit = min(max_length or self.max_length, self.max_length)
        if self.is_static:
            rows = [encoding.ids[:limit] for encoding in self.backend.encode_batch(texts, add_special_tokens=False)]
        else:
            with self._cutting:  # the tokenizer refuses to be set while another thread reads by it
                self.backend.no_padding()
                self.backend.enable_truncation(limit)
                # Not by the tokenizer's own call, which spends twice the time on masks and offsets nobody reads.
                rows = [encoding.ids for encoding in self.backend.encode_batch_fast(texts)]
        return [ids or [stand_in(self.backend, getattr(self.tokenizer, "pad_token", None))] for ids in rows]

    def embed(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Vectors of the ids, as the last module gives them."""
        flat = np.fromiter((id_ for row in rows for id_ in row), np.int64)
        return self.embed_flat(flat, np.array([len(row) for row in rows], np.int64))

    def embed_flat(self, flat: Ints, lengths: Ints) -> torch.Tensor:
        """Vectors of texts whose ids stand end to end, ``lengths`` of them each; none may be empty.

        Run packed (see :attr:`packs`), or padded on the right, so that positions count from 0.
        """
        if self.is_static:
            ids, offsets = flat.astype(np.int64), np.cumsum(lengths) - lengths
            return self.run({"input_ids": self._here(ids), "offsets": self._here(offsets)})
        if self.packs:
            try:
                return self._embed_packed(flat, lengths)
            except packed.PackError:
                if self.packed:
                    raise
                self.packed = False  # nobody asked for it: a transformers too old for it pads, as before
                self.modules[0].model.set_attn_implementation("sdpa")
        real = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
        padded = np.full(real.shape, getattr(self.tokenizer, "pad_token_id", None) or 0, np.int64)
        padded[real] = flat
        return self.run({"input_ids": self._here(padded), "attention_mask": self._here(real.astype(np.int64))})

    def _here(self, array: Ints) -> torch.Tensor:
        return packed.to_device(array, self.device)

    @property
    def packs(self) -> bool:
        """Whether texts run end to end, without padding: as :attr:`packed` says, or where it is faster."""
        if self.packed is not None or self.is_static:
            return bool(self.packed) and not self.is_static
        if self.device.type != "cuda" or not hasattr(self.modules[0], "model"):
            return False
        poolings = [module for module in self.modules if type(module).__name__ == "Pooling"]
        plain = len(poolings) == 1 and poolings[0].pooling_mode in _POOLING and poolings[0].include_prompt
        return plain and packed.pays(self.modules[0].model)

    def fuse(self, *, tokens: int | None = None) -> None:
        """Run packed texts through a :class:`~suwen.encoders.fused.FusedDecoder` from now on: for inference alone.

        Args:
            tokens: Compile for rows of this many tokens (tens of seconds, once); None compiles nothing.

        Raises:
            FuseError: The model is not a Qwen decoder, or has adapters in it.
        """
        from suwen.encoders.fused import FusedDecoder

        self.fused = FusedDecoder(self.modules[0].model, tokens=tokens)

    def _embed_packed(self, flat: Ints, lengths: Ints) -> torch.Tensor:
        first, *rest = self.modules
        start = packed.first_position(first.model)
        fill = self.fused.fill(len(flat)) if self.fused else None
        row = packed.pack(flat, lengths, device=self.device, first_position=start, fill=fill)
        if self.fused is not None:
            states = self.fused(row)
        else:
            packed.prepare(first.model)
            # Not by the module around the model: what sentence-transformers hands on differs between its versions.
            states = first.model(**self._with_types(row.features())).last_hidden_state[0]
        features = {"token_embeddings": states[None]}
        for module in rest:
            if type(module).__name__ == "Pooling":
                features["sentence_embedding"] = packed.pool(features["token_embeddings"][0], row, self.pooling)
            else:
                features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors

    def run(self, features: dict[str, Any]) -> torch.Tensor:
        """Pass tensors through the modules."""
        features = self._with_types(features)
        for module in self.modules:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors

    def _with_types(self, features: dict[str, Any]) -> dict[str, Any]:
        import torch

        if not self.is_static and "token_type_ids" in inspect.signature(self.modules[0].model.forward).parameters:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        return features


def cast(model: Any, dtype: torch.dtype) -> None:
    """Cast a model's weights, but not the tables it computed for itself, as ``model.to(dtype)`` would.

    Rotary frequencies in bf16 are off by a radian at position 500: alone they cost 0.0005 of cosine there.
    """
    stored = model.state_dict().keys()
    tables = {name: buffer for name, buffer in model.named_buffers() if name not in stored}
    model.to(dtype)
    for name, buffer in tables.items():
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, buffer)


def mint_space(
    model: Any,
    folder: Path,
    *,
    dimension: int | None = None,
    hub_id: str | None = None,
    prompts: Prompts | None = None,
) -> Space:
    """The space a sentence-transformers model fixes by its document side, where no manifest states it.

    Args:
        model: The loaded model.
        folder: Where it was loaded from; its document weights and tokenizer are hashed.
        dimension: Cut vectors to this width; the model's own by default.
        hub_id: Where the weights may be found.
        prompts: With the place of an instruction, which a model cannot state; the model's own by default.
    """
    import torch

    side = Side(model, "document")
    with torch.inference_mode():
        full = int(side.embed(side.ids(["a"])).shape[1])
    unit = side.normalises or model.similarity_fn_name != "dot"
    return Space.mint(
        base={"hub_id": hub_id, "sha256": sha256_of_files(folder, document_files(folder))},
        prompts=prompts or Prompts(query=_prompt(model, "query"), document=_prompt(model, "document")),
        pooling=side.pooling,
        end_token=side.end_token,
        max_length=side.max_length,
        dimension=dimension or full,
        full_dimension=full,
        normalise=unit,
        similarity="cosine" if unit else "dot",
    )


def document_files(folder: Path) -> list[str]:
    """The weights and tokenizers of the document side, relative to the folder; a Router's query route is left out."""
    fixing = (*folder.rglob("*.safetensors"), *folder.rglob("tokenizer.json"))
    names = [file.relative_to(folder) for file in fixing]
    config = folder / "router_config.json"
    if not config.is_file():
        return sorted(name.as_posix() for name in names)
    routes = json.loads(config.read_text(encoding="utf-8"))["structure"]
    others = {module for form, modules in routes.items() if form != "document" for module in modules}
    others -= set(routes.get("document", []))
    return sorted(name.as_posix() for name in names if name.parts[0] not in others)


def _prompt(model: Any, form: Form) -> str:
    """The prompt ``encode_query`` or ``encode_document`` of sentence-transformers would use."""
    names = ("query",) if form == "query" else ("document", "passage", "corpus")
    for name in (*names, model.default_prompt_name):
        if name in model.prompts:
            return model.prompts[name] or ""
    return ""


def _length(transformer: Any) -> int:
    config = transformer.model.config
    positions = getattr(config, "max_position_embeddings", None) or _LONGEST
    if "roberta" in config.model_type:  # its positions begin after the padding id
        positions -= config.pad_token_id + 1
    return int(min(transformer.max_seq_length or positions, positions))
