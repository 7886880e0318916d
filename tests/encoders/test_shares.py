from __future__ import annotations

import pytest

from suwen.encoders.shares import Share, ShareError, read_share


@pytest.mark.parametrize(("text", "share"), [("1/1", (0, 1)), ("1/4", (0, 4)), ("4/4", (3, 4))])
def test_a_share_is_counted_from_one(text, share):
    assert read_share(text, {})[:2] == share


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
def test_what_is_no_share_is_refused_with_an_example(text):
    with pytest.raises(ShareError, match="1/4 to 4/4"):
        read_share(text, {})


@pytest.mark.parametrize(
    ("environment", "share"),
    [
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, Share(5, 8, 1)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, Share(2, 4, 0)),
        # torchrun inside a Slurm job of one task a machine
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, Share(1, 4, 1)),
        # an array's job, which Slurm also tells that it is task 0 of 1
        (
            {
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "1",
                "SLURM_ARRAY_TASK_ID": "12",
                "SLURM_ARRAY_TASK_MIN": "10",
                "SLURM_ARRAY_TASK_COUNT": "4",
            },
            Share(2, 4, 0),
        ),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Share(0, 1, 0)),
    ],
)
def test_launchers_tell_the_share(environment, share):
    assert read_share("auto", environment) == share


def test_an_environment_that_tells_of_none_or_of_an_impossible_one():
    with pytest.raises(ShareError, match="--share 1/4"):
        read_share("auto", {})
    gaps = {"SLURM_ARRAY_TASK_ID": "6", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "4"}
    with pytest.raises(ShareError, match="step of 1"):
        read_share("auto", gaps)
