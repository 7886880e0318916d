"""A real PostgreSQL 17 with pgvector for tests and trials, where there is none: Debian's packages in a folder.

``python tools/postgres.py make`` unpacks them (as root; needs ``debootstrap``), ``python tools/postgres.py start``
starts a server on the loopback with a database of its own and prints its address; Ctrl-C ends both. Not for data that
matters: nothing is synced to the disk, and the password is in the address.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

#: Where `make` unpacks the packages unless told otherwise: beside this repository's own files, ignored by git.
ROOT = Path(os.environ.get("SUWEN_POSTGRES", Path(__file__).parents[1] / ".postgres"))
MIRROR = "http://deb.debian.org/debian"
HOW = f"there is no PostgreSQL in {ROOT}: run 'python tools/postgres.py make' as root (it needs debootstrap)"

_PACKAGES = "postgresql-17,postgresql-17-pgvector"
#: Large, and only for compiling queries while they run, which is off here.
_LEFT_OUT = ("libllvm", "libz3")
_BIN = "usr/lib/postgresql/17/bin"
#: The user nobody: the server refuses to run as root.
_NOBODY = 65534
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "jit": "off",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


class NoPostgres(RuntimeError):
    """There is no server to start here; the message says how to get one."""


def is_made(root: Path = ROOT) -> bool:
    """Whether the packages are there, and this user may start what is in them."""
    return (root / "made").exists() and os.geteuid() == 0


def make(root: Path = ROOT, mirror: str = MIRROR) -> None:
    """Unpack PostgreSQL, pgvector and all they need into ``root``; nothing is configured, nothing else is touched."""
    if (root / "made").exists():
        return
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise NoPostgres("making it needs root and debootstrap: 'apt-get install debootstrap', then as root")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    # Only the first stage, which downloads, checks signatures and unpacks what everything needs.
    options = ["--foreign", "--variant=minbase", f"--include={_PACKAGES}"]
    subprocess.run(["debootstrap", *options, "trixie", str(root), mirror], check=True, stdout=subprocess.DEVNULL)
    archives = root / "var/cache/apt/archives"
    unpacked = set((root / "debootstrap/required").read_text(encoding="utf-8").split())
    for package in sorted(archives.glob("*.deb")):
        name = package.name.partition("_")[0]
        if name not in unpacked and not name.startswith(_LEFT_OUT):
            subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    shutil.rmtree(archives)
    entry = f"nobody:x:{_NOBODY}:{_NOBODY}:nobody:/:/usr/sbin/nologin\n"
    (root / "etc/passwd").write_text(entry, encoding="utf-8")
    (root / "clusters").mkdir()
    shutil.chown(root / "clusters", _NOBODY, _NOBODY)
    (root / "made").touch()


class Server:
    """One server with a data folder of its own.

    Args:
        root: What :func:`make` made.
        primary: The server that it follows as a standby; none where it is a server by itself.
    """

    def __init__(self, root: Path = ROOT, primary: Server | None = None) -> None:
        if not is_made(root):
            raise NoPostgres(HOW)
        self.root, self.name, self.port = root, f"c{secrets.token_hex(6)}", _free_port()
        self.password = secrets.token_hex(8) if primary is None else primary.password
        self.process: subprocess.Popen[bytes] | None = None
        self._data = f"/clusters/{self.name}"
        if primary is None:
            self._make()
        else:
            following = ["-R", "-c", "fast", "-X", "stream", "--no-sync", "-d", primary.address]
            self._run("pg_basebackup", "-D", self._data, *following)
        self.start()

    def _make(self) -> None:
        word = self.root / "clusters" / f"{self.name}.word"
        word.write_text(self.password, encoding="utf-8")
        shutil.chown(word, _NOBODY, _NOBODY)
        given = ["-U", "suwen", "-A", "scram-sha-256", f"--pwfile=/clusters/{word.name}", "--no-sync"]
        self._run("initdb", "-D", self._data, *given, "-E", "UTF8", "--locale=C.UTF-8")
        word.unlink()

    @property
    def address(self) -> str:
        """The address of its database."""
        return f"postgresql://suwen:{self.password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        options = [f"-c{key}={value}" for key, value in (_SETTINGS | {"port": str(self.port)}).items()]
        command = self._command("postgres", "-D", self._data, *options)
        ready = self._command("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port))
        for _ in range(600):
            # After a kill it refuses to start until the last of its old processes is gone.
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if subprocess.run(ready).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("PostgreSQL does not answer")

    def kill(self) -> None:
        """End it as a crash would: every process of it at once, without a word."""
        if self.process is not None and self.process.poll() is None:
            children = _children(self.process.pid)
            self.process.kill()
            self.process.wait()
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w", "-D", self._data)

    def close(self) -> None:
        """End it, and take its data away."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
        shutil.rmtree(self.root / self._data.lstrip("/"), ignore_errors=True)

    def _command(self, program: str, *arguments: str) -> list[str]:
        return ["chroot", f"--userspec={_NOBODY}:{_NOBODY}", str(self.root), f"/{_BIN}/{program}", *arguments]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(self._command(program, *arguments), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip()}")


def _children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of a program may hold anything, so what follows it is counted from its end.
            if int(status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "start"])
    parser.add_argument("--root", type=Path, default=ROOT, help="where the packages are unpacked")
    parser.add_argument("--mirror", default=MIRROR, help="a mirror of Debian's packages")
    given = parser.parse_args(arguments)
    try:
        if given.what == "make":
            make(given.root, given.mirror)
            return
        server = Server(given.root)
    except NoPostgres as problem:
        sys.exit(str(problem))
    print(server.address, flush=True)  # noqa: T201 (what the command is for)
    # A handler that does nothing ends the pause, also where a shell has told its jobs to ignore Ctrl-C.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: None)
    signal.pause()
    server.close()


if __name__ == "__main__":
    main()
