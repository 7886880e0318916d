"""The suites as mteb tasks and a pair as an mteb model. The definitions are plain data and need no mteb.

mteb is not part of any extra by itself: its compiled dependency, pytrec-eval-terrier, has no wheel for every platform.
Where mteb is installed, :func:`build_tasks` and :func:`wrap_pair` make its objects of the same definitions.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from suwen.bench.dense_systems import PairSystem
from suwen.bench.exact_search import prepared
from suwen.bench.result_files import LANGUAGES, mteb_name
from suwen.bench.retrieval_metrics import parse
from suwen.bench.suite_tasks import Suite, Task, load_suite
from suwen.bench.task_data import Paired, Ranked
from suwen.bench.task_loading import Places, load_data
from suwen.bench.vector_cache import contract_hash
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

_TYPES = {"retrieval": "Retrieval", "rerank": "Reranking", "sts": "STS", "paraphrase": "Retrieval"}
_LICENCES = {
    "not specified": "not specified",
    "MIT": "mit",
    "ODC-BY": "odc-by",
    "GPL-3.0": "gpl-3.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC-BY-NC-SA-4.0": "cc-by-nc-sa-4.0",
}
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{4,5})")


class MtebError(SuwenError):
    """Something that needs mteb, where it is not installed."""


def definitions(suite: Suite | str) -> list[dict[str, Any]]:
    """The arguments of ``mteb.TaskMetadata`` for each task of a suite.

    Names begin with the suite's, since mteb has tasks of its own called NFCorpus or BIOSSES, and keeps results by name.
    """
    suite = load_suite(suite) if isinstance(suite, str) else suite
    return [_definition(suite, task) for task in suite.tasks]


def _definition(suite: Suite, task: Task) -> dict[str, Any]:
    arxiv = _ARXIV.search(suite.reference)
    prompt = {side: text for side in ("query", "document") if (text := getattr(task.instruction, side))}
    return {
        "name": f"{suite.name}-{task.name}",
        "description": f"{task.name} of {suite.title}. {task.note}".strip(),
        "reference": f"https://arxiv.org/abs/{arxiv[1]}" if arxiv else None,
        "dataset": {
            "path": task.hub.id or f"local/{suite.name}-{task.name}",
            "revision": task.hub.revision or "local",
        },
        "type": _TYPES[task.kind],
        "category": "t2t",
        "modalities": ["text"],
        "eval_splits": [task.split],
        "eval_langs": [LANGUAGES[task.language]],
        "main_score": main_score(task),
        "domains": ["Medical"],
        "license": _LICENCES.get(task.licence),
        "prompt": prompt or None,
    }


def main_score(task: Task) -> str:
    """The name mteb knows the main metric by.

    A metric without a cutoff is mteb's at 1,000, the deepest it scores; accuracy at k, with one right passage for each
    query, is its recall at k.
    """
    base, cutoff = parse(task.main)
    if task.kind == "sts":
        return f"cosine_{base}"
    named = "recall" if base == "accuracy" else base
    return mteb_name(f"{named}@{cutoff or 1000}")


def pair_meta(system: PairSystem) -> dict[str, Any]:
    """The arguments of ``mteb.ModelMeta`` for a pair and tier.

    Name and revision are explicit: without them mteb takes two local models for one and mixes up their results.
    """
    contracts = [system.contract(None, side) for side in ("query", "document")]
    space = system.pair.space
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{system.pair.name}-{system.tier or 'query'}").strip("-.")
    return {
        "loader": None,
        "name": f"suwen/{name}",
        "revision": contract_hash({"sides": contracts}),
        "release_date": None,
        "languages": list(LANGUAGES.values()),
        "n_parameters": None,
        "memory_usage_mb": None,
        "max_tokens": space.max_length,
        "embed_dim": space.dimension,
        "license": None,
        "open_weights": True,
        "public_training_code": None,
        "public_training_data": None,
        "framework": ["ONNX"],
        "similarity_fn_name": space.similarity,
        "use_instructions": bool(space.prompts.query or space.prompts.document),
        "training_datasets": None,
    }


class PairModel:
    """A pair as mteb's encoders are: ``encode`` by prompt type, similarity by the space's contract.

    Args:
        system: The pair and tier.
        meta: mteb's ``ModelMeta`` of it.
    """

    def __init__(self, system: PairSystem, meta: Any = None) -> None:
        self._system, self.mteb_model_meta = system, meta

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        **options: Any,
    ) -> Vectors:
        """Encode batches of texts; those of no prompt type, as in STS, are put as queries."""
        texts = [text for batch in inputs for text in batch["text"]]
        wanted = getattr(prompt_type, "value", prompt_type)
        side: Literal["query", "document"] = "document" if wanted in ("document", "passage") else "query"
        return self._system.encode(texts, None, side)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """All similarities between two lists of vectors."""
        one, other = (self._ready(vectors) for vectors in (embeddings1, embeddings2))
        return np.asarray(one @ other.T)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Vectors:
        """The similarity of each vector with its counterpart."""
        one, other = (self._ready(vectors) for vectors in (embeddings1, embeddings2))
        return np.asarray((one * other).sum(axis=1))

    def _ready(self, vectors: Any) -> Vectors:
        return prepared(np.atleast_2d(np.asarray(vectors, np.float32)), self._system.similarity)


def wrap_pair(path: str, tier: str | None = None) -> PairModel:
    """A pair as an mteb model, with an explicit name and revision. Needs mteb.

    Args:
        path: The pair's folder; the package's own where it is empty.
        tier: The tier; the default one when None.
    """
    system = PairSystem.open(f"pair:{path}", path, tier)[0]
    return PairModel(system, _mteb("models.model_meta").ModelMeta(**pair_meta(system)))


def build_tasks(suite: Suite | str, places: Places = None, **options: Any) -> list[Any]:
    """The suite as mteb tasks that load their data as this package does. Needs mteb.

    Args:
        suite: A suite or its name.
        places: Where the data are.
        options: Passed to :func:`~suwen.bench.task_loading.load_data`.
    """
    suite = load_suite(suite) if isinstance(suite, str) else suite
    pairs = zip(suite.tasks, definitions(suite), strict=True)
    return [_task_class(suite, task, definition, places, options)() for task, definition in pairs]


def _mteb(module: str) -> Any:
    try:
        return importlib.import_module(f"mteb.{module}")
    except ImportError as problem:
        raise MtebError(
            "this needs mteb: pip install mteb (where pytrec-eval-terrier has no wheel for your platform, a C "
            "compiler is needed too). `suwen bench run` measures the same without it"
        ) from problem


def _task_class(
    suite: Suite, task: Task, definition: Mapping[str, Any], places: Places, options: Mapping[str, Any]
) -> type:
    def load_data_here(self: Any, *_: Any, **__: Any) -> None:
        if self.data_loaded:
            return
        data = load_data(suite, task, places, **options)
        if isinstance(data, Paired):
            self.min_score, self.max_score = min(data.scores), max(data.scores)
            self.dataset = {task.split: _dataset(pair_rows(data))}
        else:
            parts = ranked_parts(data)
            parts |= {name: _dataset(parts[name]) for name in ("corpus", "queries")}
            self.dataset["default"][task.split] = parts
        self.data_loaded = True

    base = _mteb("abstasks.sts").AbsTaskSTS if task.kind == "sts" else _mteb("abstasks.retrieval").AbsTaskRetrieval
    metadata = _mteb("abstasks.task_metadata").TaskMetadata(**definition)
    name = re.sub(r"\W", "", f"{suite.name}_{task.name}")
    return type(name, (base,), {"metadata": metadata, "load_data": load_data_here})


def _dataset(rows: Sequence[Mapping[str, Any]]) -> Any:
    from datasets import Dataset  # type: ignore[import-not-found]

    return Dataset.from_list(list(rows))


def pair_rows(data: Paired) -> list[dict[str, Any]]:
    """Sentence pairs as mteb's STS tasks hold them."""
    triples = zip(data.left, data.right, data.scores, strict=True)
    return [{"sentence1": left, "sentence2": right, "score": score} for left, right, score in triples]


def ranked_parts(data: Ranked) -> dict[str, Any]:
    """Corpus, queries, judgements and candidates as mteb's retrieval tasks hold them; titles are joined already."""
    documents = zip(data.document_ids, data.documents, strict=True)
    queries = zip(data.query_ids, data.queries, strict=True)
    candidates = (
        None
        if data.candidates is None
        else {
            query: [data.document_ids[row] for row in rows]
            for query, rows in zip(data.query_ids, data.candidates, strict=True)
        }
    )
    return {
        "corpus": [{"id": document, "title": "", "text": text} for document, text in documents],
        "queries": [{"id": query, "text": text} for query, text in queries],
        "relevant_docs": data.qrels,
        "top_ranked": candidates,
    }
