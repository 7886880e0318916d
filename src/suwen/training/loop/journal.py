"""What a run has done: the journal of its stages, and the report people read. Running them is the runner's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from suwen.durable import write_json, write_text


class Journal:
    """``stages.json``: for each stage, what it depends on with the hash of that, and how long it took.

    Args:
        file: The file; made by the first record.

    Attributes:
        stages: For each stage its ``key``, ``identity`` and ``seconds``.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.stages: dict[str, dict[str, Any]] = {}
        self.reload()

    def reload(self) -> None:
        """Read the file again."""
        if self.file.is_file():
            self.stages = json.loads(self.file.read_text(encoding="utf-8"))

    def key(self, name: str) -> str | None:
        """The hash of a stage's identity; None when it was never begun."""
        return self.stages[name]["key"] if name in self.stages else None

    def seconds(self, name: str) -> float:
        """How long a stage has taken so far, over all its resumptions."""
        return float(self.stages[name]["seconds"]) if name in self.stages else 0.0

    def record(self, name: str, key: str, identity: dict[str, Any], seconds: float) -> None:
        """Note a stage, on the disk at once."""
        self.stages[name] = {"key": key, "identity": identity, "seconds": round(seconds, 3)}
        write_json(self.file, self.stages)


@dataclass(frozen=True)
class StageReport:
    """One stage of a run: whether it was run now, kept from before, or linked from another run."""

    name: str
    kind: str
    seconds: float
    metrics: dict[str, Any]
    how: Literal["run", "kept", "linked"] | str = "run"


@dataclass(frozen=True)
class TrainingReport:
    """What a run has come to; ``stopped`` says why it is not complete."""

    name: str
    seed: int
    folder: Path
    stages: tuple[StageReport, ...]
    stopped: str = ""
    faithful: str = "fixed"
    followed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every stage that was asked for is done."""
        return not self.stopped

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "recipe": self.name,
            "seed": self.seed,
            "complete": self.complete,
            "stopped": self.stopped,
            "faithful": self.faithful,
            "followed": dict(self.followed),
            "stages": [asdict(stage) for stage in self.stages],
        }

    def as_markdown(self) -> str:
        """A table of stages, seconds and metrics."""
        lines = [f"# {self.name}, seed {self.seed}", "", "| stage | kind | seconds | metrics |", "|---|---|---|---|"]
        for stage in self.stages:
            note = "" if stage.how == "run" else f" ({stage.how})"
            shown = ", ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in stage.metrics.items()
                if key not in ("notes", "odd_rows")
            )
            lines.append(f"| {stage.name} | {stage.kind} | {stage.seconds:.1f}{note} | {shown} |")
        lines += ["", f"In all {sum(stage.seconds for stage in self.stages):.0f} seconds."]
        if odd := [
            f"- {one.name}: {_counted(one.metrics['odd_rows'])}" for one in self.stages if "odd_rows" in one.metrics
        ]:
            lines += [
                "",
                "Odd rows, which were trained on as they are, and texts of which the beginning alone was read:",
            ]
            lines += ["", *odd]
        if self.followed:
            lines += ["", f"Where paper, published code and correction part, `faithful: {self.faithful}` was followed:"]
            lines += ["", *(f"- {key}: {value}" for key, value in self.followed.items())]
        if self.stopped:
            lines += ["", f"Not complete: {self.stopped}"]
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        """Write ``report.json`` and ``report.md`` into the run's folder."""
        write_text(self.folder / "report.md", self.as_markdown())
        write_json(self.folder / "report.json", self.as_json())


def _counted(rows: Mapping[str, int]) -> str:
    """Counts in words.

    >>> _counted({"rows": 5000, "documents_cut": 1200})
    '5,000 rows; documents cut: 1,200'
    """
    odd = (f"{name.replace('_', ' ')}: {count:,}" for name, count in rows.items() if name != "rows")
    return "; ".join([f"{rows['rows']:,} rows", *odd])


def is_finished(folder: Path) -> bool:
    """Whether a stage is done: its metrics are written last."""
    return (folder / "metrics.json").is_file()


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """What differs between two groups of values, by dotted key: before, and now."""
    changes: dict[str, tuple[Any, Any]] = {}
    for key in sorted({*old, *new}):
        before, now = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(now, dict):
            changes |= differences(before, now, f"{prefix}{key}.")
        elif before != now:
            changes[prefix + key] = (before, now)
    return changes
