"""What the stages of a reranker share: lists of candidates, and models that score a query and a passage together.

A cross-encoder is a ``SentenceTransformer`` whose last module is a linear layer to one number: towers, gradient caching
and the export treat that number as a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Dense

from suwen.corpora.training_rows import TrainingRow
from suwen.encoders.adapter import adapter_of, apply_adapter, apply_lora, load_lora, save_adapter
from suwen.encoders.base_model import load_base
from suwen.encoders.pair import Pair, pair_folder
from suwen.encoders.prompts import Form
from suwen.encoders.query import Vectors
from suwen.encoders.reranker import joined
from suwen.encoders.side import Side
from suwen.training.loop.batches import Ragged, tokenise
from suwen.training.loop.joined_texts import JoinedTexts
from suwen.training.pair_rows import read_table
from suwen.training.recipe.key_groups import Training
from suwen.training.run_context import RunContext
from suwen.training.students.tier_weights import open_tier
from suwen.training.tasks.merged_lora import MergedLora
from suwen.training.tasks.row_negatives import mine_rows
from suwen.training.tasks.row_tables import PairTable, SourceRows
from suwen.training.tasks.towers import TrainedTower
from suwen.training.trained_document import document_encoder

if TYPE_CHECKING:
    from suwen.training.stages.cross import CandidatesStage, CrossStage
    from suwen.training.stages.scores import ScoresStage

HEAD, ADAPTER = "head.safetensors", "adapter"
#: Texts that a GPU encodes at a time; tokens that a query leaves to a passage at the least.
_AT_ONCE, _ROOM = 2048, 16


def candidate_rows(context: RunContext, stage: CandidatesStage) -> list[TrainingRow]:
    """The stage's rows, each with one positive and the negatives that a tier of a pair finds near its query."""
    seed = context.seed_of(stage)
    table = _cut(read_table(context, stage), stage, seed)
    queries = encoded(context, stage, list(table.queries[:]), "query")
    documents = encoded(context, stage, list(table.documents[:]), "document")
    mined = mine_rows(table, queries, documents, stage.mine, device=context.device, seed=seed)
    rng = np.random.default_rng((seed, 23))
    return [row for rows in mined.sources.values() for row in _listed(mined, rows, stage.negatives, rng)]


def encoded(context: RunContext, stage: CandidatesStage, texts: list[str], form: Form) -> Vectors:
    """Vectors by the stage's tier; on a GPU by the tier's own weights there, without what it blends in."""
    pair = Pair.load(pair_folder(stage.pair))
    pair.need_tier(stage.tier)
    tier = pair.manifest.tiers[stage.tier]
    if context.device == "cpu" or tier.kind != "onnx":
        return pair.encoder(stage.tier).encode(texts, form=form)
    side = Side(open_tier(pair, stage.tier).to(context.device), form)
    tokens = tokenise(side, texts, prompt=getattr(tier.prompts, form), max_length=tier.max_length)
    tower = TrainedTower(side, tokens, precision="bf16" if context.device.startswith("cuda") else "fp32")
    parts = np.array_split(np.arange(len(texts)), len(texts) // _AT_ONCE + 1)
    with torch.inference_mode():
        return np.concatenate([tower.vectors(part).float().cpu().numpy() for part in parts])


def _cut(table: PairTable, stage: CandidatesStage, seed: int) -> PairTable:
    """As many rows of each source as the stage takes, drawn once."""
    limit, weights = stage.rows.limit_per_source, stage.rows.weights
    for number, (name, rows) in enumerate(sorted(table.sources.items())):
        count = len(rows.queries)
        wanted = min(count, int((limit or count) * weights.get(name, 1.0)))
        chosen = np.sort(np.random.default_rng((seed, number, 29)).permutation(count)[:wanted])
        table.sources[name] = rows.of(chosen)
    return table


def _listed(table: PairTable, rows: SourceRows, negatives: int, rng: np.random.Generator) -> Iterator[TrainingRow]:
    for place, query in enumerate(rows.queries):
        right, wrong = rows.positives[place], rows.negatives[place]
        drawn = rng.permutation(wrong)[:negatives]
        if len(drawn):  # a list of one teaches nothing
            yield TrainingRow(
                table.queries[int(query)],
                (table.documents[int(rng.choice(right))],),
                tuple(table.documents[int(id_)] for id_ in drawn),
            )


def candidates(rows: Sequence[TrainingRow], template: str, query_characters: int) -> list[str]:
    """Every candidate of every row, joined with its query, the right one first."""
    return [
        joined(template, row.query, document, query_characters) for row in rows for document in (*row.pos, *row.neg)
    ]


def sizes(rows: Sequence[TrainingRow]) -> list[int]:
    """How many candidates each row has."""
    return [len(row.pos) + len(row.neg) for row in rows]


def read_apart(
    rows: Sequence[TrainingRow], side: Side, query_characters: int, max_length: int, cache: Path
) -> JoinedTexts | None:
    """Every candidate of every row as :func:`candidates` lists them, by the template of two texts; each is read once.

    None where a query leaves no room for a passage.
    """
    passages = {text: at for at, text in enumerate(dict.fromkeys(t for row in rows for t in (*row.pos, *row.neg)))}
    asked = tokenise(side, [row.query[:query_characters] for row in rows], prompt="[Q]", cache=cache)
    if int(asked.lengths(np.arange(len(rows))).max()) > max_length - _ROOM:
        return None
    read = tokenise(side, list(passages), prompt="[D]", max_length=max_length, cache=cache)
    owners, stand = np.arange(len(rows)).repeat(sizes(rows)), (t for row in rows for t in (*row.pos, *row.neg))
    return JoinedTexts(asked, read, owners, np.fromiter(map(passages.__getitem__, stand), np.int64), max_length)


def scoring_tower(
    model: Any, texts: Sequence[str] | JoinedTexts, training: Training, max_length: int, cache: Path
) -> TrainedTower:
    """A cross-encoder over joined texts, as it is trained."""
    side = Side(model, "document")
    tokens: Ragged | JoinedTexts = (
        texts
        if isinstance(texts, JoinedTexts)
        else tokenise(side, texts, prompt="", max_length=max_length, cache=cache)
    )
    return TrainedTower(
        side,
        tokens,
        precision=training.precision,
        token_budget=training.token_budget,
        rows_budget=training.chunk,
        normalise=False,
    )


def score_all(tower: TrainedTower, count: int, tokens: Ragged | JoinedTexts, budget: int) -> list[float]:
    """The score of every joined text, longest first so that those of one length run together."""
    order = np.argsort(-tokens.lengths(np.arange(count)), kind="stable")
    scores = np.empty(count, np.float32)
    with torch.inference_mode():
        for part in _within(order, tokens, budget):
            scores[part] = tower.vectors(part)[:, 0].float().cpu().numpy()
    found: list[float] = scores.tolist()
    return found


def _within(order: Any, tokens: Ragged | JoinedTexts, budget: int) -> Iterator[Any]:
    """Pieces of texts whose tokens, padded to the longest, fit the budget; the longest stands first."""
    places = iter(order)
    while len(first := np.fromiter(islice(places, 1), np.int64)):
        longest = int(tokens.lengths(first)[0])
        more = np.fromiter(islice(places, max(0, budget // max(longest, 1) - 1)), np.int64)
        yield np.concatenate([first, more])


def cosines(context: RunContext, stage: ScoresStage, rows: Sequence[TrainingRow]) -> list[float]:
    """What a document encoder makes of every candidate: its cosine with the query, over the stage's temperature."""
    encoder = document_encoder(context, str(stage.document))
    queries = dict.fromkeys(row.query for row in rows)
    documents = dict.fromkeys(document for row in rows for document in (*row.pos, *row.neg))

    def vectors(texts: Iterable[str], form: Form) -> dict[str, Vectors]:
        listed = list(texts)

        def report(done: int, total: int) -> None:
            if context.progress is not None:
                context.progress(f"{stage.name}/{form}", done, total, {})

        made = encoder.encode(listed, form=form, token_budget=stage.token_budget, progress=report)
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        return dict(zip(listed, made / np.maximum(lengths, 1e-12), strict=True))

    asked, read = vectors(queries, "query"), vectors(documents, "document")
    context.loaded.pop(f"encoder:{stage.document}", None)  # what learns from it next wants the room
    return [
        float(score)
        for row in rows
        for score in np.stack([read[one] for one in (*row.pos, *row.neg)]) @ asked[row.query] / stage.temperature
    ]


def _in_full(head: Dense) -> Dense:
    """The linear layer to one number in full precision: in bf16 the next number after 20 is 20.125."""
    plain = head.forward

    def forward(features: dict[str, Any], **more: Any) -> dict[str, Any]:
        vector = features["sentence_embedding"]
        with torch.autocast(vector.device.type, enabled=False):
            scored: dict[str, Any] = plain(features | {"sentence_embedding": vector.float()}, **more)
        return scored

    head.forward = forward  # type: ignore[method-assign]  # a class of our own would be saved under its name
    return head


def with_score(model: Any, *, start: torch.Tensor | None = None, bias: torch.Tensor | None = None) -> Any:
    """A model without normalisation or projection, and a linear layer to one number behind it."""
    from sentence_transformers import SentenceTransformer

    kept = [module for module in model if type(module).__name__ not in ("Normalize", "Dense")]
    width = kept[1].get_embedding_dimension() if hasattr(kept[1], "get_embedding_dimension") else None
    width = width or kept[0].get_embedding_dimension()
    head = _in_full(Dense(width, 1, activation_function=None))
    with torch.no_grad():
        # From zero: the first step's loss is that of chance, whatever the length of the states.
        head.linear.weight.copy_(torch.zeros_like(head.linear.weight) if start is None else start)
        head.linear.bias.copy_(torch.zeros(1) if bias is None else bias)
    return SentenceTransformer(modules=[*kept, head], device=str(model.device))


class CrossEncoder:
    """A decoder that scores a query and a passage together: LoRA, the last token, a linear layer.

    Args:
        model: The ``SentenceTransformer``.
        merged: Its adapter while it learns; None where it was read from disk.
    """

    def __init__(self, model: Any, merged: MergedLora | None) -> None:
        self.model, self.merged = model, merged

    @classmethod
    def create(cls, context: RunContext, stage: CrossStage) -> CrossEncoder:
        """The base with a fresh adapter, the same for the same seed, or with that of the pair's document encoder."""
        model, lora = with_score(_base(context, stage)), stage.lora
        torch.manual_seed(context.seed_of(stage))
        if stage.goes_on:
            load_lora(model, adapter_of(pair_folder(stage.pair)), scale=lora.alpha / lora.rank)
        else:
            apply_lora(model, rank=lora.rank, alpha=lora.alpha, dropout=0.0, modules=lora.modules)
        for parameter in model[-1].parameters():
            parameter.requires_grad_(True)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return cls(model, MergedLora(model))

    @classmethod
    def load(cls, context: RunContext, name: str) -> CrossEncoder:
        """The one that a stage has left: in memory, or in its folder."""
        kept: CrossEncoder | None = context.loaded.pop(f"cross:{name}", None)
        return kept or cls.read(_base(context, context.recipe.stage(name)), context.model_of(name))

    @classmethod
    def read(cls, base: Any, folder: Path) -> CrossEncoder:
        """The one in a folder, on the base that it was trained on."""
        from safetensors.torch import load_file

        head = load_file(folder / HEAD)
        return cls(with_score(apply_adapter(base, folder / ADAPTER), start=head["weight"], bias=head["bias"]), None)

    @property
    def trained(self) -> torch.nn.Module:
        """What learns: the adapter and the layer to one number."""
        return torch.nn.ModuleList([self.merged or self.model, self.model[-1]])

    def settle(self) -> None:
        """Make it ready to score."""
        self.model.eval()
        if self.merged is not None:
            self.merged.settle()

    def save(self, folder: Path, base: str) -> None:
        """Write the adapter and the linear layer; the base stays where it is."""
        from safetensors.torch import save_file

        assert self.merged is not None
        save_adapter(self.merged.factors(), folder / ADAPTER, bits=16, base=base)
        linear = self.model[-1].linear
        tensors = {"weight": linear.weight.detach().cpu().clone(), "bias": linear.bias.detach().cpu().clone()}
        save_file(tensors, str(folder / HEAD))


def _base(context: RunContext, stage: CrossStage) -> Any:
    return load_base(
        stage.base,
        device=context.device,
        dtype=stage.training.precision,
        max_length=stage.max_length,
        normalise=False,
    )
