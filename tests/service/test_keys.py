"""Keys: kept as hashes, known again, held to their role, and refused in words."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.service.keys import Keys, new_key, presented_key
from suwen.service.serve_settings import SettingsProblem


def test_a_key_is_known_again_and_not_written_down(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    reading, writing = new_key(file, "病房-3", "read"), new_key(file, "loader", "write")
    keys = Keys(file)
    assert keys.find(reading.encode()).name == "病房-3"
    assert keys.find(writing.encode()).role == "write"
    text = file.read_text(encoding="utf-8")
    assert reading not in text and writing not in text
    assert reading.removeprefix("suwen_") not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@given(st.binary(max_size=80))
def test_nothing_else_is_taken_for_a_key(tmp_path_factory: pytest.TempPathFactory, presented: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "guessed.toml"
    if not file.exists():
        new_key(file, "only", "write")
    assert Keys(file).find(presented) is None


def test_two_keys_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    new_key(file, "ward", "read")
    with pytest.raises(SettingsProblem, match="has a key named 'ward'"):
        new_key(file, "ward", "write")
    with pytest.raises(SettingsProblem, match="cannot name a key"):
        new_key(file, 'a"\nrole = "write', "read")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "there is no"),
        ("", "holds no key"),
        ("keys = 3", "not a file of keys"),
        ('[[keys]]\nname = "a"', "not a file of keys"),
        ('[[keys]]\nname = "a"\nrole = "king"\nsalt = ""\nhash = "' + "0" * 64 + '"', "'a' is damaged"),
        ('[[keys]]\nname = "a"\nrole = "read"\nsalt = ""\nhash = "short"', "'a' is damaged"),
    ],
)
def test_a_file_that_is_not_one_of_keys(text: str | None, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsProblem, match=complaint):
        Keys(file)


def test_where_a_request_may_carry_its_key() -> None:
    assert presented_key([(b"authorization", b"bearer  k ")]) == b"k"
    assert presented_key([(b"x-api-key", b"k")]) == b"k"
    assert presented_key([(b"x-api-key", b"other"), (b"authorization", b"Bearer k")]) == b"k"
    assert presented_key([(b"authorization", b"Basic k")]) is None


def test_roles(served, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    reading, writing = new_key(file, "reader", "read"), new_key(file, "writer", "write")
    client, _ = served(keys=file)
    search, post = {"json": {"query": "布洛芬"}}, {"json": {"documents": [{"id": "x", "text": "阿司匹林"}]}}

    def code(method: str, path: str, key: str | None, **body: object) -> tuple[int, str | None]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        reply = client.request(method, path, headers=headers, **body)
        return reply.status_code, reply.json().get("error", {}).get("code")

    for key in (None, "suwen_wrong", reading[:-1], reading + " x"):
        assert code("POST", "/search", key, **search) == (401, "unauthorized")
        assert code("GET", "/info", key) == (401, "unauthorized")
        assert code("POST", "/documents", key, **post) == (401, "unauthorized")
    assert code("POST", "/search", reading, **search) == (200, None)
    assert code("POST", "/documents", reading, **post) == (403, "forbidden")
    assert code("DELETE", "/documents/fever", reading) == (403, "forbidden")
    assert code("GET", "/documents/fever", reading) == (200, None)
    assert code("POST", "/documents", writing, **post) == (200, None)
    assert code("POST", "/search", writing, **search) == (200, None)
    assert client.get("/info", headers={"X-API-Key": reading}).status_code == 200
    assert client.get("/healthz").status_code == client.get("/metrics").status_code == 200
    challenge = client.get("/info").headers["www-authenticate"]
    assert challenge.startswith("Bearer")


def test_the_description_asks_for_a_key_only_where_the_server_does(served, tmp_path: Path) -> None:
    open_, _ = served()
    assert "securitySchemes" not in open_.get("/openapi.json").json()["components"]
    open_.close()
    file = tmp_path / "keys.toml"
    new_key(file, "reader", "read")
    keyed, _ = served(keys=file, read_only=True)
    described = keyed.get("/openapi.json").json()
    assert set(described["components"]["securitySchemes"]) == {"bearer", "header"}
    assert "security" in described["paths"]["/search"]["post"]
    assert "security" not in described["paths"]["/healthz"]["get"]
