"""Two real processes over gloo give the loss and the gradients of one with the whole batch.

Run as a script, this file is one of those processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

import suwen
from suwen.training.loop.gradient_cache import cached_backward
from suwen.training.loop.processes import ProcessError, average_gradients, gather, world
from suwen.training.losses.info_nce import InfoNCE, text_mask
from suwen.training.losses.matryoshka import Matryoshka
from suwen.training.losses.squared_l2 import SquaredL2

QUERIES, DOCUMENTS, SIZE = 6, 15, 2
WIDTH = 12
#: A positive of one process stands among the documents of the other: found only if texts are gathered too.
TEXTS = list(range(2 * DOCUMENTS))
TEXTS[DOCUMENTS + 8 : DOCUMENTS + 14] = TEXTS[:6]
TEXTS[9:12] = TEXTS[DOCUMENTS : DOCUMENTS + 3]
TEXTS[4] = TEXTS[DOCUMENTS]


def towers(dtype: torch.dtype = torch.float32) -> nn.ModuleDict:
    torch.manual_seed(5)
    made = {name: nn.Sequential(nn.Linear(7, 20), nn.Tanh(), nn.Linear(20, WIDTH)) for name in ("query", "document")}
    return nn.ModuleDict(made).to(dtype)


def whole_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Query inputs, document inputs (positives first, then hard negatives, by process), and frozen teacher vectors."""
    generator = torch.Generator().manual_seed(9)
    shapes = (SIZE * QUERIES, 7), (SIZE * DOCUMENTS, 7), (SIZE * QUERIES, WIDTH)
    queries, documents, teacher = (torch.randn(shape, generator=generator) for shape in shapes)
    return queries, documents, functional.normalize(teacher, dim=-1)


def objective(queries: Tensor, documents: Tensor, teacher: Tensor, texts: list[int]) -> Tensor:
    """Both directions over two widths, and the alignment: whatever a process needs of the others is gathered here."""
    rank, _ = world()
    queries, documents = functional.normalize(queries, dim=-1), functional.normalize(documents, dim=-1)
    per_process = len(documents) // (len(queries) // QUERIES)  # one process holds the whole batch, two hold halves
    rows = torch.arange(len(queries))
    positives = rank * len(documents) + rows % QUERIES + rows // QUERIES * per_process
    everyone, ids = gather(documents), gather(torch.tensor(texts))
    loss, widths = InfoNCE(0.2), Matryoshka((6, WIDTH))
    forward = widths(loss, queries, everyone, positives=positives, same_text=text_mask(ids, positives))
    every_positive = gather(positives)
    backward = widths(
        loss.reverse,
        gather(queries),
        everyone,
        positives=every_positive,
        same_text=text_mask(ids, every_positive),
        own=slice(rank * len(queries), (rank + 1) * len(queries)),
    )
    return forward + 0.3 * backward + SquaredL2()(queries, teacher)


def run(model: nn.ModuleDict, chunk: int | None, rank: int, size: int) -> Tensor:
    """Forward and backward of this process's share of the batch; the mean loss over the processes."""
    queries, documents, teacher = (part.chunk(size)[rank] for part in whole_batch())
    texts = TEXTS[rank * len(documents) : (rank + 1) * len(documents)]
    if chunk is None:
        loss = objective(model["query"](queries), model["document"](documents), teacher, texts)
        loss.backward()
    else:
        left, right = queries.split(chunk), documents.split(chunk)
        encoders = [model["query"]] * len(left) + [model["document"]] * len(right)
        parts: list[Callable[[], Tensor]] = [
            lambda encode=encode, part=part: encode(part) for encode, part in zip(encoders, left + right, strict=True)
        ]
        split = len(left)
        loss = cached_backward(parts, lambda v: objective(torch.cat(v[:split]), torch.cat(v[split:]), teacher, texts))
    average_gradients(model.parameters())
    return gather(loss.detach()[None]).mean()


def refusal(tensor: Tensor) -> str:
    try:
        gather(tensor)
    except ProcessError as error:
        return str(error)
    return ""


def uneven_gradients(rank: int) -> list[Tensor | None]:
    """Used by both, by the second process only, by neither, frozen; the second in half precision."""
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3).bfloat16()), nn.Parameter(torch.zeros(1))]
    parameters.append(nn.Parameter(torch.zeros(1), requires_grad=False))
    parameters[0].grad = torch.tensor([1.0, 2.0]) * (1 + rank)
    if rank == 1:
        parameters[1].grad = torch.full((3,), 4.0).bfloat16()
    average_gradients(parameters)
    return [one.grad for one in parameters]


def process(rank: int, port: int, out: Path) -> None:
    torch.set_num_threads(1)
    store = distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=120))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=120))
    found: dict[str, object] = {"world": world()}
    for name, chunk in (("plain", None), ("cached", 4)):
        model = towers()
        loss = run(model, chunk, rank, SIZE)
        found[name] = {"loss": loss, "gradients": {key: one.grad for key, one in model.named_parameters()}}
    found["booleans"] = gather(torch.tensor([rank == 0, True]))
    found["uneven"] = uneven_gradients(rank)
    found["rows"] = refusal(torch.zeros(2 + rank, 3))
    found["dimensions"] = refusal(torch.zeros((2, 3) if rank else (6,)))
    found["scalar"] = refusal(torch.tensor(1.0))
    torch.save(found, out / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    out = tmp_path_factory.mktemp("processes")
    # This process holds the store, so the port is free by construction: the kernel chose it.
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    # Elsewhere the interface has another name, and gloo finds one by itself.
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    environment = os.environ | {"PYTHONPATH": str(Path(suwen.__file__).parents[1]), **loopback}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(store.port), str(out)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(SIZE)
    ]
    try:
        errors = [one.communicate(timeout=240)[1] for one in started]
    finally:
        for one in started:
            one.kill()
    assert [one.returncode for one in started] == [0, 0], "\n".join(errors)
    return [torch.load(out / f"{rank}.pt") for rank in range(SIZE)]


@pytest.mark.parametrize("way", ["plain", "cached"])
def test_two_processes_are_one_with_the_whole_batch(found, way) -> None:
    model = towers()
    loss = run(model, None, 0, 1)
    for rank in range(SIZE):
        assert found[rank][way]["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
        for name, one in model.named_parameters():
            gradient = found[rank][way]["gradients"][name]
            assert torch.linalg.norm(gradient - one.grad) <= 1e-5 * torch.linalg.norm(one.grad), name


def test_the_comparison_needs_the_other_processes_documents_and_texts() -> None:
    whole = run(towers(), None, 0, 1).item()
    halves = []
    for rank in range(SIZE):
        queries, documents, teacher = (part.chunk(SIZE)[rank] for part in whole_batch())
        model, texts = towers(), TEXTS[rank * DOCUMENTS : (rank + 1) * DOCUMENTS]
        halves.append(objective(model["query"](queries), model["document"](documents), teacher, texts).item())
    assert sum(halves) / SIZE != pytest.approx(whole, rel=1e-3)
    model = towers()
    queries, documents, teacher = whole_batch()
    apart = list(range(len(TEXTS)))
    unmasked = objective(model["query"](queries), model["document"](documents), teacher, apart).item()
    assert unmasked != pytest.approx(whole, rel=1e-3)


def test_both_processes_know_their_place_and_hold_the_same(found) -> None:
    assert [one["world"] for one in found] == [(0, 2), (1, 2)]
    for one in found:
        assert one["booleans"].tolist() == [True, True, False, True]


def test_absent_gradients_count_as_zero_unless_absent_everywhere(found) -> None:
    for one in found:
        both, second, neither, frozen = one["uneven"]
        assert both.tolist() == [1.5, 3.0]
        assert second.tolist() == [2.0, 2.0, 2.0] and second.dtype == torch.bfloat16
        assert neither is None and frozen is None


def test_unequal_shapes_are_refused_on_every_process(found) -> None:
    for one in found:
        assert "[(2, 3), (3, 3)]" in one["rows"] and "drop the last, shorter batch" in one["rows"]
        assert "[(6,), (2, 3)]" in one["dimensions"]
        assert "one row for each item" in one["scalar"]


def test_one_process_gathers_and_averages_nothing() -> None:
    tensor, parameter = torch.ones(2, 3, requires_grad=True), nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([1.0, 2.0])
    average_gradients([parameter])
    assert world() == (0, 1) and gather(tensor) is tensor and parameter.grad.tolist() == [1.0, 2.0]


if __name__ == "__main__":
    process(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
