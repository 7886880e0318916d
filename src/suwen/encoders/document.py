"""The document encoder: a full pair's document side (or any sentence-transformers model) on torch.

Needs the ``train`` extra. Writing vectors to a folder, resumably, is in ``vectors.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from suwen.encoders.query import EncoderError, Vectors
from suwen.encoders.side import Form, ModelError, Side, load_model, mint_space
from suwen.encoders.space import (
    AdapterDocument,
    ElsewhereDocument,
    Manifest,
    Space,
    TierDocument,
    load_manifest,
    manifest_path,
)

Precision = Literal["auto", "fp32", "bf16", "fp16"]
Progress = Callable[[int, int], None]


class Settings(NamedTuple):
    """What loads the same encoder again, in another process."""

    path: str
    device: str | None
    dtype: Precision
    trust_remote_code: bool


class DocumentEncoder:
    """Texts to vectors of a space, as its document encoder gives them. Made by :meth:`load`.

    Args:
        side: The modules documents pass.
        space: The contract; cut and normalisation follow it.
        name: The pair's name.
        settings: How it was loaded.
    """

    def __init__(self, side: Side, space: Space, *, name: str, settings: Settings) -> None:
        self.space, self.name, self.settings = space, name, settings
        self.dimension = space.dimension
        self._side = side
        if space.end_token is not None:
            side.require_end_token(space.end_token)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | None = None,
        dtype: Precision = "auto",
        trust_remote_code: bool = False,
    ) -> DocumentEncoder:
        """Load the document side of a folder: a full pair, or any sentence-transformers model.

        Args:
            path: The folder, or a hub id. A folder without ``suwen.json`` gets the space its model fixes.
            device: ``cpu``, ``cuda``, ``cuda:1``…; a GPU where there is one by default.
            dtype: ``auto`` is bf16 on a GPU and fp32 on a CPU.
            trust_remote_code: Run Python code that comes with the model. Only for models you trust.

        Raises:
            ModelError: The folder does not hold the document encoder, or cannot be loaded.
        """
        settings = Settings(str(path), device, dtype, trust_remote_code)
        manifest = load_manifest(Path(path)) if manifest_path(Path(path)).is_file() else None
        folder = str(path) if manifest is None else str(_model_folder(Path(path), manifest))
        model, found = load_model(folder, device=device, trust_remote_code=trust_remote_code)
        hub_id = None if Path(path).is_dir() else str(path)
        space = manifest.space if manifest else mint_space(model.float(), found, hub_id=hub_id)
        name = manifest.name if manifest else (hub_id or found.name)
        model.to(_torch_dtype(dtype, model.device.type))
        return cls(Side(model, "document"), space, name=name, settings=settings)

    def encode(
        self,
        texts: Sequence[str],
        *,
        token_budget: int = 16384,
        progress: Progress | None = None,
        form: Form = "document",
    ) -> Vectors:
        """Encode texts in batches of about equal length; a text's vector does not depend on its neighbours.

        Args:
            texts: The texts, without a prompt: the space's own is put before them.
            token_budget: The most tokens, padding included, in one batch (a longer single text still runs).
            progress: Called with the texts done and the texts in all, after each batch.
            form: ``query`` puts the space's query prompt before the text: what a query encoder is aligned to.
        """
        import torch

        prompt = self.space.prompts.query if form == "query" else self.space.prompts.document
        rows = self._side.ids([prompt + text for text in texts], max_length=self.space.max_length) if texts else []
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        done = 0
        with torch.inference_mode():
            for batch in _batches([len(row) for row in rows], token_budget):
                found = self._side.embed([rows[position] for position in batch]).float()[:, : self.dimension]
                if self.space.normalise:  # after the cut: a piece of a unit vector is not one
                    found = torch.nn.functional.normalize(found, dim=-1)
                vectors[batch] = found.cpu().numpy()
                done += len(batch)
                if progress is not None:
                    progress(done, len(texts))
        if not np.isfinite(vectors).all():
            raise EncoderError(f"{self.name} gave a vector that is not finite: load it with dtype='fp32' or 'bf16'")
        return vectors

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        """Encode texts in the form of documents."""
        return self.encode(texts)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Encode texts in the form of queries, by the document encoder's own weights."""
        return self.encode(texts, form="query")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has for this encoder, neither cut nor with special tokens."""
        tokenizer: Any = self._side.tokenizer
        if self._side.is_static:
            return [len(found.ids) for found in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]]


def _batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Positions grouped so that count x longest stays within the budget; longest first, so memory fails early."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > token_budget:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _model_folder(path: Path, manifest: Manifest) -> Path:
    document, root = manifest.document, manifest_path(path).parent
    if isinstance(document, AdapterDocument):
        raise ModelError(
            f"{path} holds an adapter over {document.base}: make the full pair first with "
            f"`suwen assemble {path} --base PATH`, then name that"
        )
    if isinstance(document, ElsewhereDocument):
        raise ModelError(f"{path} is a light pair; its document encoder is the full pair {document.name}: name that")
    if isinstance(document, TierDocument):
        raise ModelError(
            f"{path} is a light pair whose tier {document.tier!r} encodes its documents: use Pair.load and "
            f"encode_documents, or name the model it was exported from"
        )
    return root / document.path


def _torch_dtype(dtype: Precision, device: str) -> Any:
    import torch

    known = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if dtype not in known:
        raise ModelError(f"dtype {dtype!r} is not known: choose auto, {', '.join(known)}")
    return known[dtype]
