"""Which share of the work is this process's: told by a person, by Slurm or by torchrun. Nothing is encoded here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from suwen.errors import SuwenError


class ShareError(SuwenError):
    """A share that is none, or an environment that tells of none."""


class Share(NamedTuple):
    """One of ``size`` shares, from 0; ``local`` is the number of this process among those of its machine."""

    rank: int
    size: int
    local: int = 0


#: Where launchers say it: rank, number of processes, rank on the machine. torchrun's come first: inside a Slurm job it
#: starts several processes for one task. An array's tasks are jobs of one process each.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def read_share(text: str, environment: Mapping[str, str]) -> Share:
    """The share in ``i/n``, counted from 1, or with ``auto`` the one that a launcher's environment tells.

    >>> read_share("2/4", {})
    Share(rank=1, size=4, local=0)
    >>> read_share("auto", {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})
    Share(rank=3, size=8, local=1)

    Raises:
        ShareError: It is no share, or nothing tells of one.
    """
    if text == "auto":
        return _from_launcher(environment)
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ShareError(f"--share {text} is no share: give 1/4 to 4/4 (for four), or auto under Slurm or torchrun")
    return Share(int(found[1]) - 1, int(found[2]))


def _from_launcher(environment: Mapping[str, str]) -> Share:
    for rank, size, local in _LAUNCHERS:
        # A job of one task inside an array says so too: the array is what shares the work out.
        if rank in environment and int(environment.get(size, "1")) > 1:
            return _checked(environment[rank], environment[size], environment.get(local, "0"))
    if "SLURM_ARRAY_TASK_ID" in environment:
        names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT")
        id_, least, count = (int(environment.get(name, "0")) for name in names)
        return _checked(id_ - least, count)
    if any(rank in environment for rank, _, _ in _LAUNCHERS):
        return Share(0, 1)
    raise ShareError(
        "--share auto finds neither torchrun's environment (RANK, WORLD_SIZE) nor Slurm's (SLURM_PROCID, "
        "SLURM_ARRAY_TASK_ID): start it by `srun` or `torchrun --no-python`, or say which share, as in --share 1/4"
    )


def _checked(rank: str | int, size: str | int, local: str | int = 0) -> Share:
    share = Share(int(rank), int(size), int(local))
    if not 0 <= share.rank < share.size:
        raise ShareError(
            f"the environment says share {share.rank} of {share.size}: an array needs a step of 1 (--array=0-3), or "
            f"say which share, as in --share 1/4"
        )
    return share
