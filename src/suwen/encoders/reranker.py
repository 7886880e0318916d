"""A reranker: a small cross-encoder that reads a query and a passage together. onnxruntime and tokenizers, no torch.

It is a folder with ``reranker.json``, an int8 ONNX graph and a tokenizer, made by ``recipes/reranker.yaml``. No package
ships one: it is found by ``SUWEN_RERANKER``, or as the folder ``reranker`` of a pair.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from suwen.encoders.pair_files import sha256_of
from suwen.encoders.query import open_session
from suwen.encoders.space import DamagedPair
from suwen.encoders.tokens import Tokens
from suwen.errors import SuwenError

DESCRIPTION = "reranker.json"
GRAPH, TOKENIZER = "model.onnx", "tokenizer.json"
VARIABLE = "SUWEN_RERANKER"
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_NAMED = {"zh": "Chinese", "en": "other"}


class RerankerError(SuwenError):
    """A reranker that is not there, or cannot be used."""


class Gain(BaseModel):
    """What it made of a development task: nDCG@10 of hybrid search alone, and with its first hits reranked."""

    model_config = ConfigDict(frozen=True)

    language: Literal["zh", "en"]
    hybrid: float
    precise: float


class RerankerManifest(BaseModel):
    """What ``reranker.json`` says."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    name: str
    layers: int = Field(ge=1)
    width: int = Field(ge=1)
    precision: Literal["int8", "fp32"]
    max_length: int = Field(ge=8)
    #: How a query and a passage become one text; a longer query is cut, so that some of the passage is read.
    template: str = Field(pattern=r"\{query\}[\s\S]*\{document\}")
    query_characters: int = Field(ge=8)
    files: dict[str, str]
    #: What a hybrid score counts beside the graph's.
    hybrid_weight: float = Field(default=0.0, ge=0)
    #: By development task. Empty: nobody has measured it.
    measured: dict[str, Gain] = Field(default_factory=dict)
    parity: dict[str, float] = Field(default_factory=dict)
    licence: str = ""


def joined(template: str, query: str, document: str, query_characters: int) -> str:
    """A query and a passage as one text.

    >>> joined("{query}[SEP]{document}", "胃痛怎么办", "少吃{辛辣}", 3)
    '胃痛怎[SEP]少吃{辛辣}'
    """
    before, _, rest = template.partition("{query}")
    between, _, after = rest.partition("{document}")
    return f"{before}{query[:query_characters]}{between}{document}{after}"


def language(query: str) -> Literal["zh", "en"]:
    """Whether a query is Chinese, by whether it has a Chinese character."""
    return "zh" if _HAN.search(query) else "en"


class Reranker:
    """A reranker on disk; its graph is read when it is first used. May be used from several threads.

    Args:
        folder: Its folder.
        manifest: What its ``reranker.json`` says.
    """

    def __init__(self, folder: Path, manifest: RerankerManifest) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    def load(cls, folder: Path | str) -> Reranker:
        """Open a reranker.

        Raises:
            RerankerError: There is none, or its description is wrong.
            DamagedPair: A file is not the one it was made with.
        """
        folder = Path(folder)
        try:
            manifest = RerankerManifest.model_validate_json((folder / DESCRIPTION).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RerankerError(
                f"{folder} holds no reranker ({DESCRIPTION}: {error.__class__.__name__}): make one with "
                f"`suwen train recipes/reranker-mini.yaml`, and name the model folder of its export in {VARIABLE}"
            ) from error
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise RerankerError(f"{folder / DESCRIPTION} is wrong ({said}): export the reranker again") from error
        for name in (GRAPH, TOKENIZER):
            if not (folder / name).is_file() or sha256_of(folder / name) != manifest.files.get(name):
                raise DamagedPair(
                    f"{folder / name} is not the file that {DESCRIPTION} names: export the reranker again"
                )
        return cls(folder, manifest)

    @classmethod
    def find(cls, pair: Path) -> Reranker | None:
        """The reranker that ``SUWEN_RERANKER`` names, else the one in a pair's folder, else none."""
        named, own = os.environ.get(VARIABLE), pair / "reranker"
        if named:
            return cls.load(named)
        return cls.load(own) if own.is_dir() else None

    @property
    def name(self) -> str:
        """Its name."""
        return self.manifest.name

    def loses(self, query: str) -> str:
        """Why it is not offered for a query: it lost to hybrid search where such queries were measured. Else empty."""
        spoken = language(query)
        gains = [gain for gain in self.manifest.measured.values() if gain.language == spoken]
        if not gains:
            return ""
        hybrid, precise = (float(np.mean([getattr(one, key) for one in gains])) for key in ("hybrid", "precise"))
        if precise > hybrid:
            return ""
        return (
            f"{self.name} is not used for {_NAMED[spoken]} queries: it lost to hybrid search on development tasks "
            f"(nDCG@10 {precise:.1f} and {hybrid:.1f})"
        )

    def scores(self, query: str, documents: Sequence[str], *, until: float | None = None) -> list[float]:
        """A score of each document, one after the other; those that there was time for.

        Args:
            query: What is asked.
            documents: The passages, with their titles.
            until: When to stop, by ``time.perf_counter``; the first is always scored.
        """
        made: list[float] = []
        for document in documents:
            if made and until is not None and time.perf_counter() >= until:
                break
            made.append(self._score(query, document))
        return made

    def tokens(self, query: str, document: str) -> int:
        """How many tokens are read of a query and a document together."""
        return len(self._ids(query, document))

    def _ids(self, query: str, document: str) -> list[int]:
        return self._tokens.ids(joined(self.manifest.template, query, document, self.manifest.query_characters))

    def _score(self, query: str, document: str) -> float:
        # One at a time: dynamic int8 takes its scales from the whole batch.
        ids = np.asarray([self._ids(query, document)], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        score = float(self._session.run(None, feed)[0][0, 0])
        if not np.isfinite(score):
            raise RerankerError(f"{self.name} gave a score that is not finite: export the reranker again")
        return score

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self.folder / TOKENIZER, self.manifest.max_length)

    @cached_property
    def _session(self) -> Any:
        return open_session(self.folder / GRAPH, 1)
