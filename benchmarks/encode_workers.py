"""What encoding costs by workers on Ray beside plain processes: CPU of all processes, with 1, 2 and 4 workers.

    python benchmarks/encode_workers.py [--texts 400] [--out docs/data/encode-workers.json]

A 6 x 384 BERT with random weights encodes sentences of the sample, into shards of 25. Everything that a run starts is
counted: Ray's own processes, and each worker's loading of torch and the model. Ray runs on this machine, where it can
only cost. Each run is a process of its own; its children's CPU time is read while they live. Run it in a network of
its own (`unshare -n sh -c 'ip link set lo up; python …'`) where others share the machine: Ray listens on every address.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

WORKERS = (1, 2, 4)
PORT = 26379
#: Where they are not named, a node waits 15 seconds for its agents to tell them, and ends: too short on a busy machine.
NAMED = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port", "runtime-env-agent-port")


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[str]:
    """A Ray cluster of this machine alone, for one run; its address."""
    with tempfile.TemporaryDirectory(prefix="rt", dir="/tmp") as temporary:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--num-cpus={workers}"]
        command += [f"--port={PORT}", "--node-ip-address=127.0.0.1", "--include-dashboard=false"]
        command += ["--object-store-memory=80000000", "--disable-usage-stats", f"--temp-dir={temporary}"]
        command += [f"--{name}={PORT + 1 + at}" for at, name in enumerate(NAMED)]
        given = {**os.environ, "RAY_raylet_start_wait_time_s": "600"}
        node = psutil.Popen(command, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (Path(temporary) / "ray_current_cluster").exists() or not answers():
                if node.poll() is not None:
                    raise SystemExit("the Ray node ended before it began")
                time.sleep(0.2)
            yield f"127.0.0.1:{PORT}"
        finally:
            for one in [*node.children(recursive=True), node]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            node.wait()


def answers() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
        return True
    return False


def make_model(folder: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as parts
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from suwen.encoders.pair import Pair

    pair = Pair.load()
    tokenizer = pair.path / pair.manifest.tiers[pair.fastest].path / "tokenizer.json"
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), pad_token="[PAD]", unk_token="[UNK]")
    fast.model_max_length = 128
    torch.manual_seed(0)
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    BertModel(BertConfig(vocab_size=len(fast), **shape)).save_pretrained(folder / "bert")
    fast.save_pretrained(folder / "bert")
    modules = [parts.Transformer(str(folder / "bert"), max_seq_length=128), parts.Pooling(384, "mean")]
    SentenceTransformer(modules=[*modules, parts.Normalize()], device="cpu").save(str(folder / "model"))


def encode(model: Path, out: Path, kind: str, workers: int, texts: int) -> None:
    """One run, in a process of its own."""
    from suwen.corpora.readers import read_documents
    from suwen.corpora.sample_collection import sample_path
    from suwen.encoders.document import DocumentEncoder
    from suwen.encoders.vector_folder import encode_to_folder

    sentences = [part for one in read_documents(sample_path()) for part in one.text.split("。") if part]
    rows = [(str(number), "。".join(sentences[number % 500 : number % 500 + 3])) for number in range(texts)]
    encoder = DocumentEncoder.load(model, device="cpu")
    if kind == "processes":
        encode_to_folder(rows, encoder, out, shard_size=25, workers=workers)
        return
    from suwen.encoders.ray_crew import RayCrew

    with cluster(workers) as address:
        crew = RayCrew(workers, address=address, gpus=0)
        encode_to_folder(rows, encoder, out, shard_size=25, workers=workers, crew=crew)


def spent(command: list[str]) -> dict[str, float]:
    """CPU seconds of a command and all it starts, and the most memory they held together."""
    began, seen, most = time.monotonic(), dict[int, float](), 0
    process = psutil.Popen(command)
    while process.poll() is None:
        held = 0
        for one in [process, *process.children(recursive=True)]:
            try:
                times, memory = one.cpu_times(), one.memory_full_info()
            except psutil.Error:
                continue
            seen[one.pid], held = times.user + times.system, held + memory.uss
        most = max(most, held)
        time.sleep(0.25)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return {"cpu_s": sum(seen.values()), "wall_s": time.monotonic() - began, "own_memory_mb": most / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("docs/data/encode-workers.json"))
    parser.add_argument("--encode", nargs=4, metavar=("MODEL", "OUT", "KIND", "WORKERS"), help="one run, for itself")
    parser.add_argument("--model", type=Path, help="only make the model in this folder")
    options = parser.parse_args()
    # Nobody else gets in.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    if options.model:
        make_model(options.model)
        return
    if options.encode:
        model, out, kind, workers = options.encode
        encode(Path(model), Path(out), kind, int(workers), options.texts)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        subprocess.run([sys.executable, __file__, "--model", folder], check=True)
        for workers in WORKERS:
            row: dict[str, Any] = {"workers": workers}
            for kind in ("processes", "ray"):
                given = [str(work / "model"), str(work / f"{kind}-{workers}"), kind, str(workers)]
                row[kind] = spent([sys.executable, __file__, "--texts", str(options.texts), "--encode", *given])
            row["ray_cpu_over_processes"] = row["ray"]["cpu_s"] / row["processes"]["cpu_s"]
            files = [(work / f"{kind}-{workers}" / "vectors.npy").read_bytes() for kind in ("processes", "ray")]
            row["same_bytes"] = files[0] == files[1]
            rows.append(row)
            print(json.dumps(row), flush=True)
            report = {"texts": options.texts, "runs": rows}
            options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
