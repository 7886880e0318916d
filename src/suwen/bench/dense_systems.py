"""Systems on the encode side: suwen pairs and sentence-transformers models; and how any encode side ranks a corpus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from suwen.bench.exact_search import DimensionMismatch, PairScores, Ranks, middle_ms, prepared, ragged, scan, tie_order
from suwen.bench.retrieval_metrics import Similarity
from suwen.bench.systems import Dense, Prompting, RankingContext, Setting, Side, SystemProblem
from suwen.bench.task_data import Ranked
from suwen.encoders.blend import made_of
from suwen.encoders.pair import Pair
from suwen.encoders.pair_files import sha256_of_files
from suwen.encoders.query import Vectors
from suwen.encoders.space import AdapterDocument
from suwen.encoders.who_encodes import (
    DOCUMENT,
    Choice,
    Maker,
    best_maker,
    choose_encoder,
    encode_documents,
    load_document_encoder,
    own_encoder,
)

if TYPE_CHECKING:
    from suwen.encoders.document import DocumentEncoder

#: The document encoder on both sides by itself, where its documents come half-way to a tier.
ALONE = f"{DOCUMENT}-alone"
_BOTH_SIDES = (DOCUMENT, ALONE)
_WEIGHTS = ("*.safetensors", "*.json", "*.txt", "*.model")


def similarity_of(system: Dense, setting: Setting) -> Similarity:
    """How vectors are compared on a task: as the task states, else as the system's contract does."""
    stated = setting.task.similarity
    return system.similarity if stated == "contract" else stated


def encode_side(
    system: Dense, texts: Sequence[str], setting: Setting, context: RankingContext, side: Side = "query"
) -> Vectors:
    """All vectors of texts, from the cache where it has them."""
    return context.cache.all(
        system.contract(setting, side), texts, lambda piece: system.encode(piece, setting, side), context.progress
    )


def rank_densely(
    system: Dense, data: Ranked, setting: Setting, context: RankingContext, pairs: PairScores | None = None
) -> Ranks:
    """Rank a corpus, or each query's candidates, by exact search over cached vectors.

    Args:
        system: The encoders.
        data: The corpus and queries.
        setting: The task.
        context: The cache and the depth.
        pairs: Queries and documents whose similarity is wanted as well.
    """
    queries = encode_side(system, data.queries, setting, context._replace(progress=None))
    ties = tie_order(data.document_ids)
    documents = document_shards(system, data, setting, context)
    similarity = similarity_of(system, setting)
    wanted = [pairs] if pairs is not None else []
    depth = context.depth
    if data.candidates is not None:
        owners = np.repeat(np.arange(len(data.queries)), [len(group) for group in data.candidates])
        wanted.append(PairScores.of(owners, [row for group in data.candidates for row in group]))
        depth = 0
    try:
        rows, scores = scan(queries, documents, ties, similarity=similarity, depth=depth, pairs=wanted)
    except DimensionMismatch as problem:
        raise DimensionMismatch(f"{system.name}: {problem}") from problem
    if data.candidates is not None:
        rows, scores = ragged(by_query(wanted[-1], len(data.queries)), ties)
    alone = getattr(system, "encode_anew", None) or system.encode
    most = getattr(system, "timed", 32)
    spent = middle_ms(lambda text: alone([text], setting, "query"), data.queries, time.perf_counter, most)
    return Ranks(rows, scores, spent)


def document_shards(system: Dense, data: Ranked, setting: Setting, context: RankingContext) -> Iterator[Vectors]:
    """The vectors of the corpus, a shard at a time; only missing ones are encoded."""
    return context.cache.shards(
        system.contract(setting, "document"),
        data.documents,
        lambda piece: system.encode(piece, setting, "document"),
        context.progress,
    )


def by_query(pairs: PairScores, count: int) -> list[tuple[Any, Vectors]]:
    """The rows and scores of each query's pairs."""
    order = np.argsort(pairs.queries, kind="stable")
    edges = np.searchsorted(pairs.queries[order], np.arange(count + 1))
    return [(pairs.documents[order[low:high]], pairs.scores[order[low:high]]) for low, high in pairwise(edges.tolist())]


class PairSystem(Dense):
    """A pair: queries by one of its tiers, documents by its document encoder (or the tier that stands in for it).

    Made by :meth:`open`. ``tier`` is None for a full pair without tiers, whose own query route is used, and
    ``document`` for the document encoder on both sides: what a perfectly aligned tier would reach; where its documents
    come half-way to a tier, ``document-alone`` leaves them where they were.
    """

    def __init__(self, spec: str, pair: Pair, tier: str | None) -> None:
        self.spec, self.pair, self.tier = spec, pair, tier
        by_itself = tier in _BOTH_SIDES or self._documents.name == own_encoder(pair)
        stands_in = None if by_itself else self._documents.name
        # Documents by a tier make another system than documents by the document encoder: a report must tell them apart.
        said = "" if stands_in is None else f" (documents by {stands_in})"
        self.name = f"pair:{pair.name}#{tier or 'query'}{said}"

    @classmethod
    def open(cls, spec: str, path: str, tier: str | None) -> list[PairSystem]:
        """The system of one tier, or of every tier for ``all``; the package's pair where the path is empty.

        Raises:
            SystemProblem: The pair has no such tier.
        """
        pair = Pair.load(None if path in ("", "default") else path)
        # What training leaves has nothing but its document encoder, and no query route of a model in the folder.
        bare = DOCUMENT if isinstance(pair.manifest.document, AdapterDocument) else None
        if tier == "all":
            return [cls(spec, pair, name) for name in pair.tiers] or [cls(spec, pair, bare)]
        if tier not in (None, *_BOTH_SIDES, *pair.tiers):
            known = ", ".join([*pair.tiers, "all", *_BOTH_SIDES])
            raise SystemProblem(f"{spec!r}: pair {pair.name} has no tier {tier!r}; choose one of {known}")
        return [cls(spec, pair, tier or pair.manifest.default_tier or bare)]

    @property
    def similarity(self) -> Similarity:
        """As the space's contract says."""
        return self.pair.space.similarity

    @property
    def maker(self) -> Maker:
        """What makes the documents' vectors."""
        return "document" if self.tier in _BOTH_SIDES else best_maker(self.pair, [self._documents.name])

    def contract(self, setting: Setting | None, side: Side) -> dict[str, Any]:
        """The space and who encodes; the pair's prompts are its own, and take the task's instruction where they can."""
        instruction = self._instruction(setting, side)
        space = self.pair.space.alone if self.tier == ALONE else self.pair.space
        own = {"space": space.id, "side": side} | ({"instruction": instruction} if instruction else {})
        tier = self.tier if side == "query" else self._documents.name
        if side == "query" and tier is None:
            return own | {"by": "route", "files": _weights_hash(self.pair.path)}
        if tier in (None, DOCUMENT) or self.tier in _BOTH_SIDES:
            return own | {"by": "document"}
        return own | {"by": tier, "files": made_of(self.pair.manifest, tier)}

    def encode(self, texts: Sequence[str], setting: Setting | None, side: Side) -> Vectors:
        """Vectors of the space, of queries with the task's instruction where the pair's prompt has a place for it."""
        instruction = self._instruction(setting, side)
        if self.tier in _BOTH_SIDES:
            encoder = self._document_encoder.alone if self.tier == ALONE else self._document_encoder
            return encoder.encode(texts, form=side, instruction=instruction)
        if side == "document":
            return encode_documents(self.pair, self._documents.encoder, texts)
        if self.tier is not None:
            return self.pair.encoder(self.tier).encode_queries(texts, instruction)
        # None lets the model use its own.
        prompt = self.pair.space.prompts.before("query", instruction) if instruction else None
        vectors = self._router.encode_query(list(texts), prompt=prompt, show_progress_bar=False)
        return prepared(vectors[:, : self.pair.space.dimension], "cosine" if self.pair.space.normalise else "dot")

    def _instruction(self, setting: Setting | None, side: Side) -> str | None:
        """What the task's queries ask for, where the side's prompt has a place for it."""
        manifest = self.pair.manifest
        prompts = manifest.tiers[self.tier].prompts if self.tier in manifest.tiers else self.pair.space.prompts
        if setting is None or side == "document" or prompts.instruction is None:
            return None
        return setting.task.instruction.query or None

    def release(self) -> None:
        """Drop the models."""
        for name in ("_documents", "_document_encoder", "_router"):
            self.__dict__.pop(name, None)
        self.pair = Pair(self.pair.path, self.pair.manifest)

    @cached_property
    def _documents(self) -> Choice:
        return choose_encoder(self.pair)

    @cached_property
    def _document_encoder(self) -> DocumentEncoder:
        return load_document_encoder(self.pair)

    @cached_property
    def _router(self) -> Any:
        from suwen.encoders.side import load_model

        return load_model(self.pair.path)[0]


class ModelSystem(Dense):
    """A sentence-transformers model, or two of one space. Loaded when first used.

    Args:
        spec: What the user wrote.
        query: The folder or hub id that encodes queries.
        document: The one that encodes documents.
        prompting: Whose words stand before a text.
    """

    def __init__(self, spec: str, query: str, document: str, prompting: Prompting = "model") -> None:
        self.spec, self._prompting = spec, prompting
        self._paths: dict[Side, str] = {"query": query, "document": document}
        tail = "" if prompting == "model" else f"?prompts={prompting}"
        self.name = "st:" + "+".join(dict.fromkeys(Path(path).name or path for path in (query, document))) + tail
        self._loaded: dict[str, tuple[Any, Path]] = {}

    @property
    def similarity(self) -> Similarity:
        """As the document model says."""
        named = self._model("document")[0].similarity_fn_name or "cosine"
        if named not in ("cosine", "dot"):
            raise SystemProblem(
                f"{self.name} compares by {named}: only cosine and dot are ranked here; set similarity_fn_name"
            )
        return cast(Similarity, named)

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The hash of the model's files, and the prompt."""
        folder = Path(self._paths[side])
        files = _weights_hash(folder if folder.is_dir() else self._model(side)[1])
        return {"st": files, "side": side, "prompt": setting.prompt_contract(self._prompting, side)}

    def encode(self, texts: Sequence[str], setting: Setting, side: Side) -> Vectors:
        """Vectors as the model's ``encode_query`` or ``encode_document`` gives them."""
        model = self._model(side)[0]
        run = model.encode_query if side == "query" else model.encode_document
        # An empty prompt is no prompt; None lets the model use its own.
        prompt = None if self._prompting == "model" else ""
        return np.asarray(
            run(setting.put(self._prompting, side, texts), prompt=prompt, show_progress_bar=False), np.float32
        )

    def release(self) -> None:
        """Drop the models."""
        self._loaded.clear()

    def _model(self, side: Side) -> tuple[Any, Path]:
        from suwen.encoders.side import load_model

        path = self._paths[side]
        if path not in self._loaded:
            self._loaded[path] = load_model(path)
        return self._loaded[path]


def _weights_hash(folder: Path) -> str:
    """One hash of the files that fix a model's vectors: weights, tokenizers and settings."""
    files = {file for pattern in _WEIGHTS for file in folder.rglob(pattern) if file.is_file()}
    return sha256_of_files(folder, (file.relative_to(folder).as_posix() for file in files))
