"""Encoding on a real Ray cluster: two nodes on this machine, in a network of their own where that can be made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.vector_folder import encode_to_folder

pytest.importorskip("ray", reason="Ray is not installed: pip install 'suwen[ray]'")
SCRIPT = Path(__file__).with_name("encode_on_ray.py")
SOURCE = Path(__file__).parents[2] / "src"


def private_network(address: str = "") -> list[str]:
    """What runs a command in a network of its own; nothing where that is not allowed."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return []
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        return []
    outer = f"ip addr add {address}/24 dev lo && "
    return ["unshare", "-n", "sh", "-c", f'ip link set lo up && {outer if address else ""}exec "$@"', "sh"]


def on_ray(scenario: str, *places: object, address: str = "", **environment: str) -> dict:
    """Run a scenario with a token of its own, so that nobody else gets in where the network is not its own."""
    given = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(16).hex(), "RAY_TEST_HOST": address or "127.0.0.1"}
    given |= {"PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [*private_network(address), sys.executable, str(SCRIPT), scenario, *map(str, places)]
    done = subprocess.run(
        command, env={**os.environ, **given, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture
def rows(models, tmp_path: Path) -> Path:
    file = tmp_path / "rows.json"
    texts = [*models.TEXTS, *reversed(models.TEXTS)]
    file.write_text(json.dumps([[f"d{number}", f"{text} {number}"] for number, text in enumerate(texts)]))
    return file


@pytest.mark.parametrize("killed", ["worker", pytest.param("node", marks=pytest.mark.long)])
def test_a_killed_worker_and_a_killed_node_cost_only_what_they_had_in_hand(killed, decoder_folder, rows, tmp_path):
    on_ray(killed, decoder_folder, rows, tmp_path / "ray", "-")
    encoder = DocumentEncoder.load(decoder_folder, device="cpu")
    texts = [tuple(row) for row in json.loads(rows.read_text())]
    alone = encode_to_folder(texts, encoder, tmp_path / "alone", shard_size=2)
    assert contents(tmp_path / "ray") == contents(alone)


@pytest.fixture
def articles(models, tmp_path: Path) -> Path:
    file = tmp_path / "articles.jsonl"
    texts = [{"_id": f"d{number}", "text": f"{text} {number}"} for number, text in enumerate(models.TEXTS * 4)]
    file.write_text("".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8")
    return file


@pytest.mark.long
def test_a_killed_driver_finds_what_was_done(adapter_pair, base_folder, articles, tmp_path, suwen_encode):
    told = on_ray("driver", base_folder, articles, tmp_path / "ray", adapter_pair)
    assert told["code"] == 0, told["said"]
    assert told["unfinished"] and told["left"] >= 2
    suwen_encode(articles, tmp_path / "alone", adapter_pair, base_folder)
    assert contents(tmp_path / "ray") == contents(tmp_path / "alone")


@pytest.fixture
def suwen_encode():
    def run(texts: Path, out: Path, pair: Path, base: Path) -> None:
        command = [
            sys.executable,
            "-c",
            "from suwen.cli.main import run; run()",
            "encode",
            str(texts),
            "--out",
            str(out),
        ]
        command += ["--pair", str(pair), "--base", str(base), "--shard-size", "1"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, check=True, capture_output=True)

    return run


@pytest.mark.long
@pytest.mark.skipif(not private_network(), reason="no network of its own can be made here: needs root and iproute2")
def test_a_cluster_that_others_can_reach_must_ask_for_a_token(adapter_pair, base_folder, articles, tmp_path):
    given = (base_folder, articles, tmp_path / "ray", adapter_pair)
    told = on_ray("command", *given, address="10.99.0.1", RAY_AUTH_MODE="disabled")
    assert told["code"] == 1 and "uses no token" in told["said"] and not (tmp_path / "ray").exists()
    told = on_ray("command", *given, address="10.99.0.1")
    assert told["code"] == 0, told["said"]
