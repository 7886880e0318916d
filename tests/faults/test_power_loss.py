"""The harness itself: the shim sees every change, and a power cut takes exactly what was not synced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kill_harness import Bench, dry_run, strata
from power_loss import LOSSES, Disk, killed_at

#: Writes ``kept`` and syncs it, appends to it without; replaces ``old`` by a synced file; leaves ``lost`` unsynced.
SCRIPT = """
import ctypes, os, sys
os.chdir(sys.argv[1])
folder = os.open(".", os.O_RDONLY)
def write(name, data, sync):
    handle = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(handle, data)
    if sync:
        os.fsync(handle)
write("kept", b"1234", True)
write("old", b"before", True)
os.fsync(folder)
ctypes.CDLL(None).shim_arm(b"change")
write("kept", b"5678", False)
write("old.new", b"after", True)
os.rename("old.new", "old")
write("lost", b"nobody synced this", False)
write("end", b"whole", False)
"""

#: Writes and syncs while a timer's signal comes between, and within, the calls: Python's handler writes to a pipe.
UNDER_SIGNALS = """
import os, signal, socket, sys
os.chdir(sys.argv[1])
near, far = socket.socketpair()
far.setblocking(False)
signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
handle = os.open("kept", os.O_CREAT | os.O_WRONLY)
for _ in range(3000):
    os.write(handle, b"1234")
    os.fsync(handle)
signal.setitimer(signal.ITIMER_REAL, 0)
"""

LEFT = {
    "none": {"kept": b"12345678", "old": b"after", "lost": b"nobody synced this"},
    "zeros": {"kept": b"1234\0\0\0\0", "old": b"after", "lost": bytes(18)},
    "cut": {"kept": b"1234", "old": b"after", "lost": b""},
    "names": {"kept": b"1234\0\0\0\0", "old": b"before", "old.new": b"after"},
}


def _run(bench: Bench, fault: str, script: str) -> int:
    bench.root.mkdir(parents=True)
    bench.trash.mkdir()
    paths = {"SHIM_ROOT": bench.root, "SHIM_LOG": bench.folder / "journal", "SHIM_TRASH": bench.trash}
    environment = os.environ | {name: str(path) for name, path in paths.items()}
    environment |= {"LD_PRELOAD": str(bench.shim), "SHIM_FAULT": fault}
    return subprocess.run([sys.executable, "-c", script, str(bench.root)], env=environment, check=False).returncode


def _strike(bench: Bench, fault: str) -> dict[str, bytes]:
    _run(bench, fault, SCRIPT)
    return {path.name: path.read_bytes() for path in bench.root.iterdir()}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_power_cut_takes_what_was_not_synced(loss: str, shim: Path, tmp_path: Path) -> None:
    bench = Bench(shim, tmp_path)
    # The fourth write after the first sync is that of "end": it never happens, its empty file may stay.
    _strike(bench, "kill:change:write:4")
    Disk(str(bench.root)).replay(tmp_path / "journal").lose(loss, bench.trash)
    left = {path.name: path.read_bytes() for path in bench.root.iterdir()}
    assert left.pop("end", b"") == b""
    assert left == LEFT[loss]


def test_a_torn_write_leaves_half_and_a_full_disk_stays_full(shim: Path, tmp_path: Path) -> None:
    torn = _strike(Bench(shim, tmp_path / "torn"), "tear:change:write:3")
    assert torn["lost"] == b"nobody sy" and "end" not in torn
    full = _strike(Bench(shim, tmp_path / "full"), "full:change:write:1")
    assert full["kept"] == b"123456" and full.get("old.new", b"") == b"" and full["old"] == b"before"


def test_a_kill_comes_before_the_change(shim: Path, tmp_path: Path) -> None:
    left = _strike(Bench(shim, tmp_path), "kill:change:rename:1")
    assert left["old"] == b"before" and left["old.new"] == b"after"
    hit = killed_at(tmp_path / "journal")
    assert hit is not None and hit.kind == "rename" and hit.path.endswith("/old")


def test_a_signal_within_a_watched_call_does_not_end_the_process(shim: Path, tmp_path: Path) -> None:
    bench = Bench(shim, tmp_path)
    assert _run(bench, "", UNDER_SIGNALS) == 0
    assert (bench.root / "kept").stat().st_size == 12_000


def test_the_shim_sees_the_changes_of_sqlite_of_tantivy_and_of_python(shim: Path, tmp_path: Path) -> None:
    seen = set(strata(dry_run(Bench(shim, tmp_path), 0)))
    for verb, kind, files in (
        ("add", "write", ("log", "truth", "vectors", "lexical", "lexical list")),
        ("add", "fsync", ("log", "truth", "vectors", "lexical", "lexical list", "folder")),
        ("add", "rename", ("lexical list",)),
        ("delete", "write", ("log",)),
        ("delete", "fsync", ("log",)),
        ("rebuild", "rename", ("lexical list", "folder")),
        ("rebuild", "unlink", ("vectors", "lexical")),
        ("compact", "rename", ("lexical list", "folder")),
    ):
        assert {(verb, kind, file) for file in files} <= seen
