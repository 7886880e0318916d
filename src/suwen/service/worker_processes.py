"""The processes that read beside the one that writes: started, started again when they fall, stopped with it."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from suwen.service.serve_settings import ServeSettings

log = logging.getLogger("suwen.service")
#: Seconds before a process that fell is started again.
_AGAIN = 1.0


class ReadingProcesses:
    """So many processes that answer searches on the address of the server.

    Each has a listening socket of its own on the same port, among which the kernel shares out connections. The sockets
    are kept here: what waits on one for a process that fell is answered by the next.

    Args:
        settings: How the index is served.
        opened: The server's own listening socket, which lets others have its port too.
        writer: Where the writing process listens for these.
    """

    def __init__(self, settings: ServeSettings, opened: socket.socket, writer: socket.socket) -> None:
        self._settings, self._writer = settings, writer.getsockname()[:2]
        self._sockets = [_beside(opened) for _ in range(settings.workers - 1)]
        self._stopping = threading.Event()
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(number,), daemon=True, name=f"suwen-reader-{number}")
            for number in range(len(self._sockets))
        ]

    def start(self) -> None:
        """Start them; they answer as soon as each has opened the index."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Tell them to stop, from any thread, also from a signal's handler."""
        self._stopping.set()
        for process in list(self._running.values()):
            with suppress(OSError):
                process.terminate()

    def join(self, seconds: float) -> None:
        """Wait for them to stop; after so many seconds they are ended."""
        self.end()
        for process in list(self._running.values()):
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        for one in self._sockets:
            one.close()

    def _keep(self, number: int) -> None:
        while not self._stopping.is_set():
            process = self._begin(number)
            if self._stopping.is_set():
                process.terminate()
            code = process.wait()
            if not self._stopping.is_set():
                log.error("a reading process ended with %d and is started again", code)
                self._stopping.wait(_AGAIN)

    def _begin(self, number: int) -> subprocess.Popen[str]:
        place = self._sockets[number].fileno()
        told = {"settings": self._settings.model_dump(mode="json"), "socket": place, "writer": self._writer}
        command = [sys.executable, "-m", "suwen.service.reading_process"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, pass_fds=[place])
        self._running[number] = process
        assert process.stdin is not None
        with suppress(OSError):
            # Left open: its end tells the process that this one is gone.
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()
        return process


def _beside(opened: socket.socket) -> socket.socket:
    """Another socket on the same port. It listens when its process does: until then it gets no connection."""
    other = socket.socket(opened.family, opened.type)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    other.bind(opened.getsockname())
    return other
