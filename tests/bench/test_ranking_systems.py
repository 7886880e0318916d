"""What BM25 brings in with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# As jax does on its first sum: it takes the device that its environment lets it have.
JAX = """
import os
from pathlib import Path

def top_k(values, k):
    Path(os.environ["SEEN"]).write_text(os.environ.get("JAX_PLATFORMS", "gpu"), encoding="utf-8")
"""
ASK = """
from suwen.bench.ranking_systems import _index
assert _index([["a", "b"], ["c"]]) is not None
"""


def test_bm25_does_not_let_jax_take_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").touch()
    (tmp_path / "jax" / "lax.py").write_text(JAX, encoding="utf-8")
    seen = tmp_path / "seen"
    mine = {key: value for key, value in os.environ.items() if key != "JAX_PLATFORMS"}
    mine |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [mine.get("PYTHONPATH")])]), "SEEN": str(seen)}
    subprocess.run([sys.executable, "-c", ASK], env=mine, check=True)
    assert seen.read_text(encoding="utf-8") == "cpu"
    # Whoever has said what jax may use is heard.
    subprocess.run([sys.executable, "-c", ASK], env={**mine, "JAX_PLATFORMS": "tpu"}, check=True)
    assert seen.read_text(encoding="utf-8") == "tpu"


def test_bm25_keeps_its_steps_to_itself_where_a_library_has_set_logging_up() -> None:
    told = f"import logging\nlogging.basicConfig(level=logging.DEBUG)\n{ASK}"
    made = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "bm25s" not in made.stderr
