"""axe-core in a tab: what its rules find serious on a page. The rules come from a development package. No test here."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from browser import Tab


@cache
def _rules() -> str:
    return (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


def serious(tab: Tab) -> list[dict[str, Any]]:
    """What is wrong on the page as it stands, serious or worse: the rule, and where."""
    # Given to the tab and not to the page, whose policy lets no script of others run.
    tab.see(f"void (() => {{ {_rules()} }})()")
    found = tab.see("axe.run(document).then((told) => JSON.parse(JSON.stringify(told.violations)))")
    return [
        {
            "rule": one["id"],
            "where": [node["html"][:200] + " | " + node.get("failureSummary", "") for node in one["nodes"]],
        }
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
