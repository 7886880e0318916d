"""Encodes on a Ray cluster of two nodes on this machine, and kills what the test asks for; prints what came of it.

Run by test_encode_on_ray.py in a network of its own, because Ray's control store listens on every address.

    python encode_on_ray.py SCENARIO MODEL TEXTS OUT PAIR
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

HOST = os.environ.get("RAY_TEST_HOST", "127.0.0.1")
PORT = 26379


class NodeEnded(Exception):
    """A node that should be running is not."""


def wait_for(nodes: list[subprocess.Popen[bytes]], truth: Callable[[], object]) -> Any:
    while not (got := truth()):
        if any(node.poll() is not None for node in nodes):
            raise NodeEnded
        time.sleep(0.05)
    return got


def answers() -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, PORT), 1):
        return True
    return False


def kill_tree(process: psutil.Process) -> None:
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


#: Where they are not named, a node waits 15 seconds for its agents to tell them, and ends: too short on a busy machine.
NAMED = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port", "runtime-env-agent-port")


def start_node(temporary: str, number: int, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", *options]
    command += [f"--node-ip-address={HOST}", "--object-store-memory=80000000", "--disable-usage-stats"]
    command += [f"--{name}={PORT + 10 * number + at}" for at, name in enumerate(NAMED)]
    # A busy machine takes longer than Ray is willing to wait.
    patient = {**os.environ, "RAY_raylet_start_wait_time_s": "600"}
    with Path(temporary, "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=patient, start_new_session=True)


@contextlib.contextmanager
def two_nodes() -> Iterator[list[subprocess.Popen[bytes]]]:
    # A short name: the paths of Ray's sockets have little room.
    temporary, nodes = tempfile.mkdtemp(prefix="rt", dir="/tmp"), []
    try:
        nodes.append(
            start_node(temporary, 1, "--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={temporary}")
        )
        # Written once the whole node runs; its control store answers before that.
        wait_for(nodes, lambda: Path(temporary, "ray_current_cluster").exists() and answers())
        nodes.append(start_node(temporary, 2, f"--address={HOST}:{PORT}"))
        yield nodes
    except NodeEnded as problem:
        raise SystemExit(Path(temporary, "log").read_text()) from problem
    finally:
        for node in nodes:
            with contextlib.suppress(psutil.NoSuchProcess):
                kill_tree(psutil.Process(node.pid))
        shutil.rmtree(temporary, ignore_errors=True)


def workers(of: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = psutil.Process(of.pid).children(recursive=True)
    return [one for one in found if one.cmdline() and one.cmdline()[0].startswith("ray::_Encoding")]


def disturbed(rows: list[list[str]], nodes: list[subprocess.Popen[bytes]], shards: Path, whole: bool) -> Iterator:
    """Rows; while both nodes are at work, the second's worker is halted with shards in hand, then killed."""
    victim = None
    for number, row in enumerate(rows):
        if number == 8:  # two each are in hand, and one is done
            victim = wait_for(nodes, lambda: workers(nodes[1]))[0]
            victim.suspend()
        if number == 16:
            wait_for(nodes, lambda: len(list(shards.glob("[0-9]*.npy"))) >= 4)
            victim.kill()
            if whole:
                kill_tree(psutil.Process(nodes[1].pid))
        yield tuple(row)


def by_library(scenario: str, model: str, texts: Path, out: Path, nodes: list[subprocess.Popen[bytes]]) -> dict:
    import ray

    from suwen.encoders.document import DocumentEncoder
    from suwen.encoders.ray_crew import RayCrew
    from suwen.encoders.vector_folder import encode_to_folder

    rows = json.loads(texts.read_text(encoding="utf-8"))
    encoder = DocumentEncoder.load(model, device="cpu")
    crew = RayCrew(2, address=f"{HOST}:{PORT}", gpus=0)
    wait_for(nodes, lambda: len([node for node in ray.nodes() if node["Alive"]]) == 2)
    given = disturbed(rows, nodes, out / "shards", scenario == "node") if scenario != "plain" else map(tuple, rows)
    encode_to_folder(given, encoder, out, shard_size=2, crew=crew)
    return {"initialised after": ray.is_initialized()}


def by_command(scenario: str, texts: Path, out: Path, pair: str, model: str) -> dict:
    """``suwen encode --on ray``, killed once a few shards are there, and run again."""
    command = [sys.executable, "-c", "from suwen.cli.main import run; run()", "encode", str(texts), "--out", str(out)]
    command += ["--pair", pair, "--base", model, "--shard-size", "1", "--workers", "2", "--gpus-per-worker", "0"]
    command += ["--on", f"ray:{HOST}:{PORT}"]
    if scenario == "driver":
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for([], lambda: first.poll() is not None or len(list((out / "shards").glob("[0-9]*.npy"))) >= 2)
        first.send_signal(signal.SIGKILL)
        first.wait()
        left = len(list((out / "shards").glob("[0-9]*.npy")))
        unfinished = not (out / "vectors.json").is_file()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = {"code": done.returncode, "said": done.stdout + done.stderr}
    return {**said, "left": left, "unfinished": unfinished} if scenario == "driver" else said


def main() -> None:
    scenario, model, texts, out, pair = sys.argv[1:]
    with two_nodes() as nodes:
        if scenario in ("plain", "worker", "node"):
            told = by_library(scenario, model, Path(texts), Path(out), nodes)
        else:
            told = by_command(scenario, Path(texts), Path(out), pair, model)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
