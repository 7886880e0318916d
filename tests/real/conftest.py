"""What the tests against the outside world share: a way to run commands that cannot reach a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from warm_start import WarmStart

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

#: What the commands of the documentation need, torch and its kin included.
_PRELOADED = (
    *(f"suwen.cli.{name}" for name in ("main", "benchmark", "curating", "jury", "mask_command")),
    *(f"suwen.training.{name}" for name in ("recipe_runner", "ship.assembling", "ship.exporting")),
    "sentence_transformers",
)

Offline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the path of Python, with which no network is reached."""
    folder = tmp_path_factory.mktemp("offline")
    (folder / "sitecustomize.py").write_text(_NO_NETWORK)
    return folder


def _environment(guard: Path) -> dict[str, str]:
    """A clean Python environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SUWEN", "PIP"))}
    return kept | {"PYTHONPATH": str(guard), "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}


@pytest.fixture(scope="session")
def offline(guard: Path) -> Offline:
    """Runs a command without a network: ``offline(command, cwd=…, path=…)``, with a clean Python environment."""
    prefix = _namespace()

    def run(
        command: Sequence[str], *, cwd: Path, path: Path | str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = _environment(guard) | {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", **(variables or {})}
        return subprocess.run([*prefix, *command], cwd=cwd, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture(scope="session")
def warm(guard: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmStart]:
    """Programs without a start and without a network, of whose folder ``offline`` takes ``suwen`` where it is given."""
    folder = tmp_path_factory.mktemp("warm")
    server = WarmStart(folder, _PRELOADED, prefix=_namespace(), environment=_environment(guard))
    yield server
    server.close()


def _namespace() -> list[str]:
    """A command prefix that takes the network away, where the kernel lets us."""
    for prefix in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            return prefix
    return []
