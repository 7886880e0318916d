"""A process that reads beside the one that writes: started and told by it, and gone when it is.

Run as ``python -m suwen.service.reading_process`` by :class:`suwen.service.worker_processes.ReadingProcesses` alone:
what it serves, and on which socket, comes as one line of JSON on standard input, which stays open as long as the
writing process lives.
"""

from __future__ import annotations

import json
import socket
import sys
import threading

from suwen.service.app import create_app, entrance
from suwen.service.followed_indexes import FollowedIndexes, for_reading
from suwen.service.holder import Holder
from suwen.service.request_log import log_to_stderr
from suwen.service.serve_settings import ServeSettings
from suwen.service.server import make_server
from suwen.service.to_writer import Address, ToWriter


def main() -> int:
    """Open the index for reading, then answer until told to stop."""
    told = json.loads(sys.stdin.readline())
    log_to_stderr()
    settings = ServeSettings.model_validate(told["settings"])
    holder = Holder(for_reading(settings))
    # Before the first connection is taken: until then the other processes have them all.
    holder.open()
    if holder.failure is not None:
        return 1
    indexes = FollowedIndexes(holder, settings.folder)
    server = make_server(ToWriter(entrance(create_app(indexes)), indexes, Address(*told["writer"])), holder)

    def end_with_the_writer() -> None:
        sys.stdin.read()
        server.stop()

    threading.Thread(target=end_with_the_writer, daemon=True, name="suwen-parent").start()
    with socket.socket(fileno=told["socket"]) as opened:
        server.run(sockets=[opened])
    if holder.closed:
        server.ended.set()
    return 0


if __name__ == "__main__":
    sys.exit(main())
