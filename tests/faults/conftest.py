"""The fault shim, built once for a run, and the report of what was struck."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The helpers beside this file are also programs the children run, so they import each other by bare name.
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled fault shim."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    if compiler is None and importlib.util.find_spec("ziglang") is None:
        pytest.fail("the fault tests need a C compiler: install gcc or clang, or 'pip install ziglang'")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    done = subprocess.run(
        [*command, "-O1", "-shared", "-fPIC", "-o", str(built), str(HERE / "shim.c")], capture_output=True, text=True
    )
    if done.returncode:
        pytest.fail(f"the fault shim does not compile (Linux on aarch64 or x86_64 is needed):\n{done.stderr}")
    return built


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Keeps a text for the end of the run; as a property of the test, so that it also arrives from another process."""
    return lambda text: record_property("faults", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was struck."""
    done = [one for found in terminalreporter.stats.values() for one in found if getattr(one, "when", "") == "call"]
    texts = [text for one in done for name, text in one.user_properties if name == "faults"]
    if texts:
        terminalreporter.section("faults")
    for text in texts:
        terminalreporter.write_line(str(text))
