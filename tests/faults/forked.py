"""Lives that are killed: a process that forks a child for each line it reads, so that imports are paid once."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def fork_for_each_line(live: Callable[[dict[str, Any]], None]) -> None:
    """Fork a child for each line; say its id when it lives, and how it ended."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                live(json.loads(line))
            except BaseException as problem:
                sys.stderr.write(f"{problem!r}\n")
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
