"""A port that a test knows before its server starts, and keeps while the server is away. No test lives here.

Most servers take port 0 and say which one they got. This is for those whose address others know first: a worker that
outlives its server, the meeting place of several processes, a command that is told its port by a file.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the machine gives to nobody else; a server that is told it may listen there.

    Linux lets one socket listen where another is bound that does not listen, where both said that addresses may be
    reused, and chooses no such port by itself, neither for a server nor for a client. Elsewhere the port is merely a
    free one.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = int(holder.getsockname()[1])
        if sys.platform != "linux":
            holder.close()
        yield port
