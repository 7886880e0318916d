"""A small real Milvus for tests and trials: milvus-lite, as a server of its own on the loopback.

``python tools/milvus.py make`` gets both forms of it from PyPI into a folder: 2.5.1 has the core of Milvus, 3.2.2 is a
rewrite in Python. Both speak Milvus' client protocol; neither is its cluster. ``python tools/milvus.py start`` starts
one and prints what to add to an index's address; Ctrl-C ends it. Not for data that matters: it asks for no password.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Where `make` puts them unless told otherwise: beside this repository's own files, ignored by git.
ROOT = Path(os.environ.get("SUWEN_MILVUS", Path(__file__).parents[1] / ".milvus"))
VERSIONS = ("2.5.1", "3.2.2")
HOW = f"there is no milvus-lite in {ROOT}: run 'python tools/milvus.py make' (it needs pip, and PyPI)"


class NoMilvus(RuntimeError):
    """There is no server to start here; the message says how to get one."""


def is_made(version: str = VERSIONS[0], root: Path = ROOT) -> bool:
    """Whether this form is there."""
    return (root / version / "made").exists()


def make(root: Path = ROOT) -> None:
    """Get both forms; what they need beyond themselves, suwen's own development environment has."""
    for version in VERSIONS:
        if not is_made(version, root):
            target = root / version
            shutil.rmtree(target, ignore_errors=True)
            given = ["--quiet", "--no-deps", "--no-compile", "--target", str(target), f"milvus-lite=={version}"]
            subprocess.run([sys.executable, "-m", "pip", "install", *given], check=True)
            (target / "made").touch()


class Server:
    """One server with data of its own.

    Args:
        version: Which form.
        root: What :func:`make` made.
    """

    def __init__(self, version: str = VERSIONS[0], root: Path = ROOT) -> None:
        if not is_made(version, root):
            raise NoMilvus(HOW)
        self.version, self._home = version, root / version
        self.data, self.port = Path(tempfile.mkdtemp(prefix="milvus-")), _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        """What ``?milvus=`` takes."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, or start it again, and wait until it listens."""
        environment = dict(os.environ)
        if self.version.startswith("2"):
            libraries = self._home / "milvus_lite" / "lib"
            command = [str(libraries / "milvus"), str(self.data / "milvus.db"), self.address, "ERROR"]
            environment["LD_LIBRARY_PATH"] = str(libraries)
        else:
            given = ["--data-dir", str(self.data / "milvus"), "--host", "127.0.0.1", "--port", str(self.port)]
            command = [sys.executable, "-m", "milvus_lite", "server", *given]
            environment["PYTHONPATH"] = str(self._home)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, cwd=self.data, **quiet)
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"milvus-lite {self.version} ended at once with status {self.process.returncode}")
            time.sleep(0.1)
        raise RuntimeError("milvus-lite does not answer")

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """End it, and take its data away."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "start"])
    parser.add_argument("--root", type=Path, default=ROOT, help="where it is kept")
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[0], help="which form")
    given = parser.parse_args(arguments)
    try:
        if given.what == "make":
            make(given.root)
            return
        server = Server(given.version, given.root)
    except NoMilvus as problem:
        sys.exit(str(problem))
    print(f"?milvus={server.address}", flush=True)  # noqa: T201 (what the command is for)
    # A handler that does nothing ends the pause, also where a shell has told its jobs to ignore Ctrl-C.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: None)
    signal.pause()
    server.close()


if __name__ == "__main__":
    main()
