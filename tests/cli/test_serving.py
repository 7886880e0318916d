"""``suwen key``, and what ``suwen serve`` says where the extra is not installed; serving is in tests/real."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from suwen.service.keys import Keys


def test_a_key_is_printed_once_and_known_again(suwen, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    done = suwen("key", "new", "--name", "ward-3", "--file", file)
    key = done.out.strip()
    assert (done.code, key.startswith("suwen_")) == (0, True)
    assert "only time" in done.err
    told = suwen("key", "new", "--name", "loader", "--role", "write", "--file", file, "--json").json
    keys = Keys(file)
    assert (keys.find(key.encode()).role, keys.find(told["key"].encode()).role) == ("read", "write")
    again = suwen("key", "new", "--name", "loader", "--file", file)
    assert (again.code, again.out) == (1, "")
    assert "has a key named 'loader'" in again.err


def test_keys_are_listed_and_withdrawn(suwen, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    suwen("key", "new", "--name", "ward-3", "--expires", "2999-12-31", "--file", file)
    suwen("key", "new", "--name", "gpu", "--role", "worker", "--file", file)
    told = suwen("key", "list", "--file", file, "--json").json["keys"]
    assert [(key["name"], key["role"], key["expires"], key["expired"]) for key in told] == [
        ("ward-3", "read", "3000-01-01T00:00:00+00:00", False),
        ("gpu", "worker", None, False),
    ]
    table = suwen("key", "list", "--file", file).out
    assert "ward-3" in table and "3000-01-01" in table and "for good" in table
    done = suwen("key", "revoke", "--name", "ward-3", "--file", file)
    assert (done.code, "'ward-3' is withdrawn" in done.out) == (0, True)
    again = suwen("key", "revoke", "--name", "ward-3", "--file", file)
    assert (again.code, "has no key named 'ward-3'; there are: gpu" in again.err) == (1, True)
    late = suwen("key", "new", "--name", "x", "--expires", "2001-01-01", "--file", file)
    assert (late.code, "is past" in late.err) == (1, True)


def test_without_the_extra_the_fix_is_named(suwen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "fastapi" else find(name, *rest)
    )
    for arguments in (("serve", tmp_path), ("key", "new", "--name", "a")):
        done = suwen(*arguments)
        assert done.code == 1
        assert "needs fastapi: install it with pip install 'suwen[serve]'" in done.err
