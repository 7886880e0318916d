"""An embedding endpoint that speaks OpenAI's protocol, as a system on the encode side. The standard library only."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from suwen.bench.retrieval_metrics import Similarity
from suwen.bench.systems import Dense, Prompting, Setting, Side, SystemProblem
from suwen.encoders.query import Vectors
from suwen.llm.pace import retry_after

_BATCH = 64
_TRIES = 5
#: Seconds to wait for one reply.
_PATIENCE = 120.0
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 60.0


class EndpointSystem(Dense):
    """Vectors from ``URL/embeddings``. The key is read from ``OPENAI_API_KEY`` and is never stored.

    Args:
        spec: What the user wrote.
        url: The endpoint's base, such as ``http://localhost:8000/v1``.
        model: The model to ask for.
        prompting: ``suite`` puts the suite's instructions before the texts; an endpoint has no prompts of its own.
        wait: How to wait between tries.
    """

    def __init__(
        self,
        spec: str,
        url: str,
        model: str,
        prompting: Prompting = "model",
        *,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not model:
            raise SystemProblem(f"{spec!r} is not an endpoint: write openai:http://HOST:PORT/v1#MODEL")
        self.spec, self._url, self._model, self._prompting = spec, url.rstrip("/"), model, prompting
        self.name = f"openai:{model}" + ("?prompts=suite" if prompting == "suite" else "")
        self._wait = wait

    @property
    def similarity(self) -> Similarity:
        """Endpoints state none; cosine is what their vectors are made for."""
        return "cosine"

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The address, the model's name and the prompt: what stands behind the name cannot be seen from here."""
        prompt = setting.prompt_contract(self._prompting, side) if self._prompting == "suite" else []
        return {"openai": self._url, "model": self._model, "prompt": prompt}

    def encode(self, texts: Sequence[str], setting: Setting, side: Side) -> Vectors:
        """Vectors of texts, asked for in batches; a failing request is tried again."""
        put = setting.put(self._prompting, side, texts)
        batches = [self._batch(put[start : start + _BATCH]) for start in range(0, len(put), _BATCH)]
        widths = {batch.shape[1] for batch in batches}
        if len(widths) > 1:
            raise SystemProblem(f"{self.name}: {self._url} gave vectors of {sorted(widths)} dimensions; name one model")
        return np.concatenate(batches) if batches else np.empty((0, 0), np.float32)

    def _batch(self, texts: list[str]) -> Vectors:
        # Some servers refuse an empty input; a space has the same meaning.
        body = {"model": self._model, "input": [text or " " for text in texts], "encoding_format": "float"}
        reply = self._ask(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        try:
            items = sorted(reply["data"], key=lambda item: int(item["index"]))
            if [int(item["index"]) for item in items] != list(range(len(texts))):
                raise ValueError(f"{len(items)} vectors for {len(texts)} texts")
            return np.asarray([item["embedding"] for item in items], np.float32)
        except (KeyError, TypeError, ValueError) as problem:
            raise SystemProblem(
                f"{self.name}: the reply of {self._url}/embeddings is not a list of vectors ({problem}); check that "
                f"the server embeds and that {self._model!r} is an embedding model"
            ) from problem

    def _ask(self, body: bytes) -> Any:
        why, key = "", os.environ.get("OPENAI_API_KEY")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        for attempt in range(_TRIES):
            request = urllib.request.Request(f"{self._url}/embeddings", data=body, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=_PATIENCE) as reply:
                    return json.loads(reply.read())
            except urllib.error.HTTPError as problem:
                why = f"HTTP {problem.code}: {problem.read(300).decode('utf-8', 'replace').strip()}"
                if problem.code not in _PASSING:
                    break
                pause = _pause(problem.headers.get("Retry-After"), attempt)
            except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as problem:
                why, pause = str(getattr(problem, "reason", problem)), _pause(None, attempt)
            if attempt < _TRIES - 1:
                self._wait(pause)
        raise SystemProblem(
            f"{self.name}: {self._url}/embeddings did not answer ({why}). Check the address, the model's name and "
            f"OPENAI_API_KEY; what was encoded so far is kept, run it again to go on"
        )


def _pause(asked: str | None, attempt: int) -> float:
    seconds = retry_after(asked)
    return min(_LONGEST_WAIT, 0.5 * 2.0**attempt if seconds is None else seconds)
