"""Serve a GGUF file with the OpenAI protocol, on this machine: ``python tools/serve_gguf.py MODEL.gguf --port 8080``.

Needs ``pip install xllamacpp`` (llama.cpp's own server, with wheels for x86_64 and aarch64). Replies can be held to a
JSON schema: llama.cpp turns it into a grammar, so even a tiny model answers in the form asked for.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="the GGUF file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--name", help="what the model is called; the file's name unless given")
    parser.add_argument("--context", type=int, default=4096, help="tokens of a request, prompt and reply (%(default)s)")
    parser.add_argument("--parallel", type=int, default=1, help="requests worked on at once (%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads (%(default)s)")
    parser.add_argument("--gpu-layers", type=int, default=0, help="layers on the GPU, with a GPU build (%(default)s)")
    return parser.parse_args()


def main() -> int:
    """Load the model, serve it, and stay until told to stop."""
    given = options()
    if not given.model.is_file():
        sys.stderr.write(f"there is no file {given.model}: name a GGUF file\n")
        return 2
    try:
        import xllamacpp
    except ImportError:
        sys.stderr.write("this needs xllamacpp: pip install xllamacpp\n")
        return 2
    params = xllamacpp.CommonParams()
    params.model.path = str(given.model)
    params.model_alias = {given.name or given.model.stem}
    params.hostnames, params.port = [given.host], given.port
    # llama.cpp shares its window out among the requests worked on at once.
    params.n_ctx, params.n_parallel = given.context * given.parallel, given.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.n_gpu_layers, params.n_predict, params.use_jinja = given.gpu_layers, -1, True
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{given.name or given.model.stem} at {server.listening_address}/v1\n")
    sys.stdout.flush()
    over = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: over.set())
    over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
