"""Large contrastive batches in the memory of a small one. The losses and what the chunks encode live elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from suwen.errors import SuwenError
from suwen.training.loop.random_state import restore_torch_random_state, torch_random_state


class GradientCacheError(SuwenError):
    """Chunks or a loss that gradient caching cannot work with."""


def cached_backward(chunks: Sequence[Callable[[], Tensor]], loss: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Forward and backward through all chunks with one chunk's graph in memory at a time (GradCache; Gao et al., 2021).

    Each chunk but the last is encoded without a graph, the loss is taken on all the vectors and gives their gradients,
    then each of those chunks is encoded once more, with a graph, and its vectors' gradients are sent back. The last
    one's graph is there already: it is used first, and so the last chunk, best the largest, is encoded once. The
    gradients are added to the parameters' ``.grad`` and equal those of the plain way; beside one chunk's graph only the
    vectors and the loss are held. The price is the second forward pass.

    Random numbers (dropout), on the CPU and on the GPUs, are the same in both passes, and afterwards stand where the
    plain way would have left them. Works under ``torch.autocast``; for a gradient scaler, let ``loss`` return the
    scaled loss. Over processes, call ``gather`` inside ``loss`` and ``average_gradients`` afterwards.

    Args:
        chunks: functions that encode a part of the batch, n_i x d, and have no other effect: all but the last are
            called twice. Vectors of a frozen teacher belong in ``loss``, where they are not computed twice.
        loss: the loss of the list of the chunks' vectors.

    Returns:
        The loss, detached.

    Example:
        >>> import torch
        >>> encoder = torch.nn.Linear(3, 2, bias=False)
        >>> texts = torch.eye(3).split(2)
        >>> loss = cached_backward([lambda part=part: encoder(part) for part in texts], lambda v: torch.cat(v).sum())
        >>> torch.equal(encoder.weight.grad, torch.ones(2, 3))
        True

    Raises:
        GradientCacheError: there is nothing to train, or a chunk is not the same when it is encoded again.
    """
    if not chunks:
        raise GradientCacheError("there are no chunks: pass at least one function that encodes a part of the batch")
    *before, last = chunks
    vectors, states = _without_graph(before)
    kept = last()
    vectors.append(kept.detach().requires_grad_())
    value = loss(list(vectors))
    if not value.requires_grad:
        raise GradientCacheError(
            "the loss does not depend on the vectors it was given: compute it from the list passed to it, "
            "outside torch.no_grad()"
        )
    # A backward pass takes the types of its forward pass; autocast would change them again.
    with torch.autocast(value.device.type, enabled=False):
        value.backward()  # type: ignore[no-untyped-call]
    trained = _send_back(kept, vectors.pop())
    del kept  # and with it the graph, before the next one is made
    torch.clear_autocast_cache()
    if not _with_graph(before, vectors, states) and not trained:
        raise GradientCacheError(
            "no chunk's vectors carry a gradient: unfreeze an encoder, or do not detach inside the chunks"
        )
    return value.detach()


def _without_graph(chunks: Sequence[Callable[[], Tensor]]) -> tuple[list[Tensor], list[list[Tensor]]]:
    vectors, states = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(torch_random_state())
            vectors.append(chunk().detach().requires_grad_())
    # Autocast keeps low-precision copies of the weights, and one made without a graph would cut the second pass off.
    # torch 2.11 and 2.13 were seen to keep the two kinds apart; nothing promises it for older ones.
    torch.clear_autocast_cache()
    return vectors, states


def _with_graph(chunks: Sequence[Callable[[], Tensor]], vectors: list[Tensor], states: list[list[Tensor]]) -> bool:
    """Encode chunks once more and send their vectors' gradients back; whether any of them learns."""
    trained = False
    after = torch_random_state()
    try:
        for index, chunk in enumerate(chunks):
            if vectors[index].grad is None:
                continue
            restore_torch_random_state(states[index])
            again = chunk()
            if again.shape != vectors[index].shape:
                raise GradientCacheError(
                    f"chunk {index} gave {tuple(vectors[index].shape)}, then {tuple(again.shape)}: a chunk is called "
                    f"twice, so fix its texts before, not inside it"
                )
            trained |= _send_back(again, vectors[index])
    finally:
        restore_torch_random_state(after)
    return trained


def _send_back(encoded: Tensor, vectors: Tensor) -> bool:
    """Send the gradient of a chunk's vectors through its graph, and let go of it; whether there was something to do."""
    gradient, vectors.grad = vectors.grad, None
    if gradient is None or not encoded.requires_grad:
        return False
    with torch.autocast(encoded.device.type, enabled=False):
        torch.autograd.backward(encoded, gradient)
    return True
