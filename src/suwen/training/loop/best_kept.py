"""The best weights of a training, by what it has not seen: looked at now and then, kept, and put back at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from suwen.durable import replacing, write_json
from suwen.training.loop.processes import agree, in_first

_SAID = "best.json"


@dataclass(frozen=True)
class Watch:
    """When to look at how good a training is, and when to give it up.

    Attributes:
        score: How good the weights are as they stand; more is better. Asked in the first process alone.
        every: Steps between two looks.
        patience: Looks without a gain after which the training ends; None for never.
    """

    score: Callable[[], float]
    every: int
    patience: int | None = None


class BestKept:
    """The best weights so far, in a folder of their own, so that a training that is resumed knows them.

    Args:
        folder: Where they are kept.
        watch: When to look.
    """

    def __init__(self, folder: Path, watch: Watch) -> None:
        self.folder, self.watch = folder, watch
        self.step, self.score, self.looked, self.last = -1, float("-inf"), -1, float("-inf")

    def found_again(self, done: int) -> None:
        """Take up what an earlier process kept; what it kept after the step that is gone on from is not of this run."""
        if not (self.folder / _SAID).is_file():
            return
        said = json.loads((self.folder / _SAID).read_text(encoding="utf-8"))
        if said["step"] <= done:
            self.step, self.score = int(said["step"]), float(said["score"])

    def look(self, done: int) -> bool:
        """Score the weights after so many steps; true where they are the best so far."""
        self.looked = done
        mine = in_first(self.watch.score)
        self.last = agree([float("-inf") if mine is None else mine])[0]
        better = self.last > self.score
        if better:
            self.step, self.score = done, self.last
        return better

    def keep(self, state: Mapping[str, Tensor]) -> None:
        """Write the weights down; the checkpoint of their step is there already."""

        def write() -> None:
            self.folder.mkdir(parents=True, exist_ok=True)
            tensors = {name: one.detach().cpu().contiguous().clone() for name, one in state.items()}
            with replacing(self._file) as stream:
                stream.write(save(tensors))
            # What names the file comes after it, and what it named before goes last: a kill loses neither.
            write_json(self.folder / _SAID, {"step": self.step, "score": self.score})
            for other in self.folder.glob("*.safetensors"):
                if other != self._file:
                    other.unlink()

        in_first(write)

    def given_up(self, done: int) -> bool:
        """Whether nothing was gained for so long that the training should end."""
        patience = self.watch.patience
        return patience is not None and self.step >= 0 and done - self.step >= patience * self.watch.every

    def told(self) -> dict[str, float]:
        """Which weights were kept, and how good they and the last ones are."""
        return {"kept.step": float(self.step), "kept.score": self.score, "last.score": self.last}

    def state(self) -> dict[str, Tensor]:
        """The best weights."""
        return load_file(self._file)

    @property
    def _file(self) -> Path:
        return self.folder / f"step-{self.step:09d}.safetensors"
