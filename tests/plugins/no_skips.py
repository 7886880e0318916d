"""A pytest plugin that fails the run when a test was skipped or expected to fail: ``pytest -p no_skips``.

A test nobody runs protects nobody. Tests left out by ``-m`` are deselected, not skipped, and do not count. Where the
environment names a reason in ``SKIPS_ALLOWED``, such as a server that is not there, tests skipped for it are only told.
"""

from __future__ import annotations

import os

import pytest

_skipped: list[str] = []
_allowed: list[str] = []


def _note(report: pytest.CollectReport | pytest.TestReport) -> None:
    reason = os.environ.get("SKIPS_ALLOWED")
    (_allowed if reason and reason in str(report.longrepr) else _skipped).append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _note(report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _note(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped:
        terminalreporter.section("skipped tests fail this run", red=True)
        for name in _skipped:
            terminalreporter.write_line(name)
    if _allowed:
        terminalreporter.section(f"skipped, as {os.environ['SKIPS_ALLOWED']!r} is not to be had: {len(_allowed)} tests")
