"""The system ``hyde:MODEL:SYSTEM``: an encoder whose queries are fused with documents that a language model writes."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from suwen.bench.dense_systems import similarity_of
from suwen.bench.exact_search import prepared
from suwen.bench.retrieval_metrics import Similarity
from suwen.bench.systems import Dense, Setting, Side, SystemProblem
from suwen.bench.task_data import text_hash
from suwen.bench.vector_cache import contract_hash
from suwen.encoders.query import Vectors
from suwen.hyde.fusion import Fusion, fuse, joined
from suwen.hyde.writing import PROMPTS, Draws, Writer
from suwen.llm.client import LLM
from suwen.llm.config import load_config
from suwen.llm.prompts import load_prompt
from suwen.llm.requests import Request, cache_key, identity

#: Where replies are kept: what was written once is not written again.
REPLIES = Path("replies.db")
#: Vectors of what was written for the last tasks, by encoder and texts: another weight encodes nothing again.
_ENCODED: dict[tuple[str, str], Vectors] = {}
_KEPT = 8
log = logging.getLogger("suwen.bench")


@dataclass(frozen=True)
class HydeSettings:
    """How queries are rewritten: the model, documents of each, the query's weight, how they are fused and drawn.

    ``timed`` queries are written for once more, one at a time, to say what a query takes; none with 0.
    """

    model: str
    n: int = 1
    weight: float = 1.0
    fusion: Fusion = "mean"
    seed: int = 0
    temperature: float = 0.7
    tokens: int = 256
    timed: int = 8

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The settings beside the model, with what they are unless given."""
        return {one.name: one.default for one in fields(cls) if one.name != "model"}

    @classmethod
    def parse(cls, text: str) -> HydeSettings:
        """Read ``MODEL,n=4,weight=2``.

        Raises:
            SystemProblem: A setting is not known, or its value is no good.
        """
        model, *given = text.split(",")
        known = cls.defaults()
        values: dict[str, Any] = {}
        for one in given:
            key, _, value = one.partition("=")
            if key not in known:
                raise SystemProblem(f"hyde has no setting {key!r}: it has {', '.join(known)}")
            try:
                values[key] = type(known[key])(value)
            except ValueError:
                raise SystemProblem(f"hyde's {key} is {value!r}: give a number") from None
        if values.get("fusion", "mean") not in get_args(Fusion):
            raise SystemProblem(f"hyde has no fusion {values['fusion']!r}: it has {', '.join(get_args(Fusion))}")
        if not model or values.get("n", 1) < 1 or values.get("timed", 0) < 0:
            raise SystemProblem(
                "write hyde:MODEL:SYSTEM with a model of suwen.toml, n of at least 1, timed of 0 or more"
            )
        return cls(model, **values)


class HydeSystem(Dense):
    """An encoder that is given each query with hypothetical documents of it; its documents are its own.

    Args:
        spec: What the user wrote.
        settings: How queries are rewritten.
        inner: The encoder.
    """

    def __init__(self, spec: str, settings: HydeSettings, inner: Dense) -> None:
        self.spec, self.settings, self._inner = spec, settings, inner
        self.timed = settings.timed
        self._config = load_config()
        self._config.require([settings.model])
        usual, said = settings.defaults(), asdict(settings)
        changed = [f"{key}={said[key]}" for key in usual if key != "timed" and said[key] != usual[key]]
        self.name = f"hyde:{','.join([settings.model, *changed])}:{inner.name}"

    @property
    def similarity(self) -> Similarity:
        """That of the encoder."""
        return self._inner.similarity

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The encoder's; of queries also the model, the prompt and how texts are drawn and fused."""
        own = self._inner.contract(setting, side)
        if side == "document":
            return own
        prompt = load_prompt(PROMPTS[setting.task.hyde or "q2p"], setting.task.language).fingerprint
        # By what answers, and not by what it is called in a file.
        bare = identity(Request(self.settings.model, ()), *self._served())
        written = asdict(self.settings) | {"model": cache_key(bare)}
        # How many are timed changes no vector; that directions are fused does, and vectors kept from before are others.
        del written["timed"]
        written["fused"] = "directions"
        return {"hyde": written, "prompt": prompt, "of": own, "texts": self._inner.contract(setting, "document")}

    def encode(self, texts: Sequence[str], setting: Setting, side: Side) -> Vectors:
        """Documents as the encoder does; queries fused with what is written for them."""
        if side == "document":
            return self._inner.encode(texts, setting, side)
        return self._fused(texts, setting, REPLIES)

    def encode_anew(self, texts: Sequence[str], setting: Setting, side: Side) -> Vectors:
        """The same with everything written again: what a query takes that nobody has asked before."""
        with tempfile.TemporaryDirectory() as folder:
            return self._fused(texts, setting, Path(folder) / "replies.db")

    def _fused(self, texts: Sequence[str], setting: Setting, replies: Path) -> Vectors:
        how = self.settings
        with LLM.open(self._config, replies) as llm:
            writer = Writer(llm, how.model, setting.task.language)
            draws = Draws(how.temperature, max_tokens=how.tokens, seed=how.seed)
            written = writer.documents(texts, how.n, kind=setting.task.hyde or "q2p", draws=draws)
        if writer.counts["kept"] < writer.counts["asked"]:
            log.warning("%s on %s: not all that was written is of use: %s", self.name, setting.task.name, writer.counts)
        if how.fusion == "concatenation":
            whole = [joined(text, own) for text, own in zip(texts, written, strict=True)]
            return self._inner.encode(whole, setting, "query")
        # What is compared by its direction is fused by it: a long vector would count for several.
        similarity = similarity_of(self._inner, setting)
        queries = prepared(self._inner.encode(texts, setting, "query"), similarity)
        every = [text for own in written for text in own]
        owners = [number for number, own in enumerate(written) for _ in own]
        encode = self._encoded if replies == REPLIES else self._encode_documents
        documents = prepared(encode(every, setting), similarity) if every else queries[:0]
        return fuse(queries, documents, owners, fusion=how.fusion, weight=how.weight)

    def _encoded(self, texts: Sequence[str], setting: Setting) -> Vectors:
        """Vectors of what was written, which often differ by nothing but their weight from the system's before."""
        key = contract_hash(self._inner.contract(setting, "document")), text_hash(texts)
        if key not in _ENCODED:
            while len(_ENCODED) >= _KEPT:
                del _ENCODED[next(iter(_ENCODED))]
            _ENCODED[key] = self._encode_documents(texts, setting)
        return _ENCODED[key]

    def _encode_documents(self, texts: Sequence[str], setting: Setting) -> Vectors:
        return self._inner.encode(texts, setting, "document")

    def release(self) -> None:
        """Let the encoder go."""
        self._inner.release()

    def _served(self) -> tuple[Any, Any]:
        return self._config.model(self.settings.model), self._config.endpoint(self.settings.model)
