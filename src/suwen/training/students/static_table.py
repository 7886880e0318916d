"""The static tier's table: read off a StaticEmbedding, or fitted to a model. ``exporting.py`` writes its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.query import Vectors
from suwen.encoders.side import ModelError, Side
from suwen.encoders.static import unit

#: Smooth inverse frequency (Arora et al., 2017): a token's first weight is a / (a + its share of the text).
_SIF = 1e-3
#: Passes over the texts, and the fewest steps however few the texts are; the held-out tenth stops an overfit.
_EPOCHS = 12
_STEPS = 600
_BATCH = 256
_RATE = 2e-3
_FEWEST = 20


class Table(NamedTuple):
    """Rows (weights folded in), the two forms' vectors, and how near the held-out texts, in both forms, come."""

    rows: Vectors
    form: Vectors
    mean: float
    least: float
    texts: int


def read_table(side: Side, dimension: int) -> tuple[Vectors, Vectors]:
    """Rows and form of a query route that is a StaticEmbedding; linear projections after it are folded in."""
    import torch

    rows = side.modules[0].embedding.weight.detach().float().cpu()
    forms = getattr(side.modules[0], "form", None)
    shift = torch.zeros(2, rows.shape[1]) if forms is None else forms.detach().float().cpu()
    for module in side.modules[1:]:
        kind = type(module).__name__
        if kind == "Dense" and isinstance(module.activation_function, torch.nn.Identity) and not module.use_residual:
            linear = module.linear.float().cpu()
            rows, shift = rows @ linear.weight.T, shift @ linear.weight.T
            shift = shift + linear.bias if linear.bias is not None else shift
        elif kind != "Normalize":
            raise ModelError(f"{kind} after a StaticEmbedding cannot be folded into its table: use a linear Dense")
    return rows[:, :dimension].detach().numpy(), shift[:, :dimension].detach().numpy()


def distil_table(side: Side, teacher: DocumentEncoder, texts: Sequence[str]) -> Table:
    """Fit a table to a space.

    Each token is encoded alone; then the rows are fitted so that the mean of a text's rows points where the document
    encoder's vector of the text points. Tokens that no text holds keep the vector they have alone. A tenth of the
    texts is held out, chooses the epoch and is what the cosines are measured on.

    Args:
        side: The query side; the table has its vocabulary.
        teacher: The document encoder of the space.
        texts: Texts of the kind that will be encoded: thousands of them, or the table stays crude.
    """
    import torch

    texts = list(dict.fromkeys(text for text in texts if text.strip()))
    if len(texts) < _FEWEST:
        raise ModelError(f"a static tier is fitted to texts, and {len(texts)} are too few: give at least {_FEWEST}")
    targets = _targets(teacher, texts)
    ids = _bare_ids(side, texts)
    flat = np.concatenate([np.asarray(row) for row in ids])
    counts = np.bincount(flat, minlength=side.backend.get_vocab_size())
    start = _token_vectors(side, teacher.dimension) * frequency_weights(counts)[:, None]
    seen, local = np.unique(flat, return_inverse=True)
    bags = np.split(local, np.cumsum([len(row) for row in ids])[:-1])
    fitted, form, cosines = _fit(torch.from_numpy(start[seen]), bags, targets)
    rows = start.copy()
    rows[seen] = fitted
    return Table(rows, form, float(cosines.mean()), float(cosines.min()), len(cosines) // 2)


def _targets(teacher: DocumentEncoder, texts: Sequence[str]) -> Vectors:
    """The space's vectors of the texts, ``[2, n, d]``: as queries, as documents."""
    as_documents = teacher.encode(texts)
    same = teacher.space.prompts.query == teacher.space.prompts.document
    return np.stack([as_documents if same else teacher.encode(texts, form="query"), as_documents])


def _bare_ids(side: Side, texts: Sequence[str]) -> list[list[int]]:
    """Ids as the static encoder will see them: no special tokens, cut to the length, never empty."""
    backend = side.backend
    backend.no_padding()
    backend.no_truncation()
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    return [encoding.ids[: side.max_length] or [0] for encoding in encodings]


def _token_vectors(side: Side, dimension: int) -> Vectors:
    """Every token of the vocabulary encoded alone, centred: what all tokens share belongs to the form's vector."""
    import torch

    frame = side.backend.encode("", add_special_tokens=True).ids
    head, tail = (frame[:-1], frame[-1:]) if len(frame) > 1 else ([], frame)
    count = side.backend.get_vocab_size()
    vectors = np.empty((count, dimension), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, count, 1024):
            rows = [[*head, id_, *tail] for id_ in range(start, min(start + 1024, count))]
            vectors[start : start + len(rows)] = side.embed(rows).float().cpu().numpy()[:, :dimension]
    vectors = unit(vectors)
    return np.asarray(vectors - vectors.mean(axis=0))


def frequency_weights(counts: NDArray[np.int64]) -> Vectors:
    """What each token's row is worth before training, by how often the token occurs."""
    return np.asarray(_SIF / (_SIF + counts / max(1, int(counts.sum()))), np.float32)


def _fit(start: Any, bags: list[Any], targets: Vectors) -> tuple[Vectors, Vectors, Vectors]:
    """Adam on one minus the cosine, over rows and forms; the epoch that is best on the held-out tenth is kept."""
    import torch

    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.Parameter(start.clone())
    form = torch.nn.Parameter(torch.from_numpy(targets.mean(axis=1)).float())
    optimiser = torch.optim.Adam([rows, form], lr=_RATE)
    held = np.arange(0, len(bags), 10)
    kept = np.setdiff1d(np.arange(len(bags)), held)
    best: tuple[float, Any, Any, Any] = (-2.0, None, None, None)
    epochs = max(_EPOCHS, _STEPS // -(-len(kept) // _BATCH))
    for epoch in range(epochs + 1):
        if epoch:
            order = kept[torch.randperm(len(kept), generator=generator).numpy()]
            for first in range(0, len(order), _BATCH):
                part = order[first : first + _BATCH]
                loss = 1 - _cosines(rows, form, bags, targets, part).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        with torch.no_grad():
            cosines = _cosines(rows, form, bags, targets, held)
        if (mean := float(cosines.mean())) > best[0]:
            best = (mean, rows.detach().numpy().copy(), form.detach().numpy().copy(), cosines.flatten().numpy())
    return best[1], best[2], best[3]


def _cosines(rows: Any, form: Any, bags: list[Any], targets: Vectors, part: Any) -> Any:
    """Cosines ``[2, len(part)]`` of the table's vectors with the space's, per form."""
    import torch

    chosen = [bags[position] for position in part]
    flat = torch.from_numpy(np.concatenate(chosen))
    offsets = torch.from_numpy(np.cumsum([0, *(len(bag) for bag in chosen[:-1])]))
    means = torch.nn.functional.embedding_bag(flat, rows, offsets, mode="mean")
    return torch.nn.functional.cosine_similarity(
        means[None] + form[:, None], torch.from_numpy(targets[:, part]), dim=-1
    )
