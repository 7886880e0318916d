"""What the tests against the outside world share: a way to run commands that cannot reach a network."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

#: Stands in for `unshare -n` where namespaces are not allowed: no address but this machine's can be connected to.
_NO_NETWORK = """
import socket

_connect = socket.socket.connect


def _local_only(self, address):
    if self.family != socket.AF_UNIX and str(address[0]) not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"network use in an offline test: {address}")
    return _connect(self, address)


socket.socket.connect = socket.socket.connect_ex = _local_only
"""

Offline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Offline:
    """Runs a command without a network: ``offline(command, cwd=…, path=…)``, with a clean Python environment."""
    guard = tmp_path_factory.mktemp("offline")
    (guard / "sitecustomize.py").write_text(_NO_NETWORK)
    prefix = _namespace()

    def run(
        command: Sequence[str], *, cwd: Path, path: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SUWEN", "PIP"))}
        environment = kept | {
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(guard),
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "120",
            **(variables or {}),
        }
        return subprocess.run([*prefix, *command], cwd=cwd, env=environment, capture_output=True, text=True)

    return run


def _namespace() -> list[str]:
    """A command prefix that takes the network away, where the kernel lets us."""
    for prefix in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            return prefix
    return []
