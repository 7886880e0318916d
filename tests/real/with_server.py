"""Runs a command beside a server: ``with_server.py INDEX PORT COMMAND …``; what documentation takes as given.

Starts ``suwen serve INDEX`` on the port of this machine, waits until it is ready, runs the command, stops the server
and ends with the command's exit code. Works inside an empty network namespace too, whose loopback it brings up.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

_PATIENCE = 300.0
_SET_FLAGS, _UP = 0x8914, 0x1


def bring_up_loopback() -> None:
    """In a new network namespace even 127.0.0.1 is down; elsewhere this changes nothing, or is not allowed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle, suppress(OSError):
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("16sh", b"lo", _UP))


def wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    """Return when the server answers searches; raise when it ends first or takes too long."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode} before it was ready")
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as ready:
            if json.load(ready) == {"status": "ready"}:
                return
        time.sleep(0.1)
    raise SystemExit(f"the server was not ready after {_PATIENCE:.0f} seconds")


def main(index: str, port: str, *command: str) -> int:
    """Run the command while the server runs."""
    bring_up_loopback()
    server = subprocess.Popen(["suwen", "serve", index, "--port", port])
    try:
        wait_until_ready(server, int(port))
        return subprocess.run(command).returncode
    finally:
        server.terminate()
        server.wait(timeout=_PATIENCE)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
