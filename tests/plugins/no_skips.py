"""A pytest plugin that fails the run when a test was skipped or expected to fail: ``pytest -p no_skips``.

A test nobody runs protects nobody. Tests left out by ``-m`` are deselected, not skipped, and do not count.
"""

from __future__ import annotations

import pytest

_skipped: list[str] = []


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped:
        terminalreporter.section("skipped tests fail this run", red=True)
        for name in _skipped:
            terminalreporter.write_line(name)
