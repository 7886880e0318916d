"""What an encoder is, and the one that runs an ONNX graph: onnxruntime and tokenizers, no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from suwen.encoders.prompts import Form
from suwen.encoders.space import DamagedPair, Tier
from suwen.encoders.tokens import Tokens
from suwen.errors import SuwenError

Vectors = NDArray[np.float32]
_BATCH = 32


class EncoderError(SuwenError):
    """A model gave something that is not a vector of its space."""


class Encoder(Protocol):
    """Text to vectors of one space. A row per text, float32, in the order the texts came."""

    name: str
    dimension: int

    def encode(self, texts: Sequence[str], *, form: Form = "document", instruction: str | None = None) -> Vectors:
        """Encode texts in the form of documents or of queries; queries may bring an instruction of their own.

        Raises:
            InstructionRefused: The encoder's prompt has no place for it.
        """
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has, neither cut nor with special tokens."""
        ...

    def encode_queries(self, texts: Sequence[str], instruction: str | None = None) -> Vectors:
        """Encode texts in the form of queries, with an instruction of their own where the prompt has a place for it."""
        return self.encode(texts, form="query", instruction=instruction)

    def encode_documents(self, texts: Sequence[str]) -> Vectors:
        """Encode texts in the form of documents."""
        return self.encode(texts, form="document")


class OnnxEncoder(Encoder):
    """A tier of kind ``onnx``: one graph from ids to unit vectors.

    Args:
        folder: The tier's folder.
        tier: What the manifest says of it.
        name: The tier's name.
        dimension: The space's dimension.
        threads: Threads within one run; ``None`` leaves it to onnxruntime. Short texts gain little from a second
            thread, so a busy service is better off with one session per core.
    """

    def __init__(self, folder: Path, tier: Tier, *, name: str, dimension: int, threads: int | None = 1) -> None:
        self.name, self.dimension = name, dimension
        self._tier = tier
        self._tokens = Tokens(folder / "tokenizer.json", tier.max_length)
        self._session = open_session(folder / next(file for file in tier.files if file.endswith(".onnx")), threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        width = self._session.get_outputs()[0].shape[-1]
        if isinstance(width, int) and width != dimension:
            raise EncoderError(
                f"tier {name!r} gives vectors of {width} dimensions, its space has {dimension}: export the tier again"
            )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has, neither cut nor with special tokens."""
        return self._tokens.count(texts)

    def encode(self, texts: Sequence[str], *, form: Form = "document", instruction: str | None = None) -> Vectors:
        """Encode texts; a query runs alone, so that its vector never depends on its neighbours."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        prompt = self._tier.prompts.before(form, instruction)
        # Dynamic int8 takes its scales from the whole batch, and padding shifts fp32 a little: only texts of equal
        # length may share a run, and under int8 none.
        batch = _BATCH if form == "document" and self._tier.precision == "fp32" else 1
        by_length: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
        for position, text in enumerate(texts):
            ids = self._tokens.ids(prompt + text)
            by_length[len(ids)].append((position, ids))
        for group in by_length.values():
            for start in range(0, len(group), batch):
                positions, rows = zip(*group[start : start + batch], strict=True)
                vectors[list(positions)] = self._run(np.asarray(rows, dtype=np.int64))
        if not np.isfinite(vectors).all():
            raise EncoderError(f"tier {self.name!r} gave a vector that is not finite: export the tier again")
        return vectors

    def _run(self, ids: NDArray[np.int64]) -> Vectors:
        # The mask is all ones, the types of tokens are all zeros; a graph need not take the latter.
        masks = {name: np.full(ids.shape, name == "attention_mask", ids.dtype) for name in self._inputs - {"input_ids"}}
        return np.asarray(self._session.run(None, {"input_ids": ids, **masks})[0])


def open_session(file: Path, threads: int | None) -> Any:
    """An ONNX graph that can be run on the CPU.

    Raises:
        DamagedPair: The file is none.
    """
    import onnxruntime  # a search by words alone needs none

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a family of unrelated exception types for a file it cannot run
        raise DamagedPair(f"{file} is not an ONNX graph that can be run ({error}): export the tier again") from error
