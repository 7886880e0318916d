"""Keys: kept as hashes, known again, held to their role, and refused in words."""

from __future__ import annotations

import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.service import keys as module
from suwen.service.keys import Keys, moment, new_key, presented_key, read_keys, revoke_key
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


# -- their life -----------------------------------------------------------------------------------------------------


class Clock:
    """Seconds that go on when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10
        return self.now


def test_a_file_that_changes_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys.toml"
    first = new_key(file, "first", "read")
    keys = Keys(file, Clock())
    second = new_key(file, "second", "worker")
    assert keys.find(second.encode()).role == "worker"
    file.write_text("[[keys", encoding="utf-8")
    assert keys.find(second.encode()).name == "second"
    assert "the keys stay as they were" in caplog.text
    file.unlink()
    assert keys.find(first.encode()).name == "first"
    third = new_key(file, "third", "write")
    assert (keys.find(first.encode()), keys.find(third.encode()).name) == (None, "third")
    assert revoke_key(file, "third").role == "write"
    assert keys.find(third.encode()) is None
    assert keys.needed and read_keys(file) == (), "the last key is gone, and nobody is let in"


def test_a_key_ends_when_it_was_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.toml"
    keyed = new_key(file, "guest", "read", "7d")
    keys = Keys(file)
    assert keys.find(keyed.encode()).name == "guest"
    (known,) = read_keys(file)
    ends = datetime.fromisoformat(known.expires)
    assert timedelta(days=6.9) < ends - datetime.now(UTC) < timedelta(days=7.1)
    assert not known.expired(ends - timedelta(seconds=1)) and known.expired(ends)
    past = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(known.expires, past), encoding="utf-8")
    assert Keys(file).find(keyed.encode()) is None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("2027-01-31", "2027-02-01T00:00:00+00:00"),
        ("2027-01-31T12:00", "2027-01-31T12:00:00+00:00"),
        ("2027-01-31T12:00+08:00", "2027-01-31T04:00:00+00:00"),
        ("90d", "2026-04-01T00:00:00+00:00"),
    ],
)
def test_when_a_key_ends(text: str, ends: str) -> None:
    assert moment(text, datetime(2026, 1, 1, tzinfo=UTC)).isoformat() == ends


@pytest.mark.parametrize("text", ["soon", "90", "2020-01-01", "0d", "2027-13-01", "99999d" * 2, ""])
def test_what_is_no_time_to_end_at(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsProblem, match=r"no time to end at|is past"):
        new_key(tmp_path / "keys.toml", "a", "read", text)
    assert not (tmp_path / "keys.toml").exists()


def test_withdrawing_what_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    with pytest.raises(SettingsProblem, match="there is no"):
        revoke_key(file, "a")
    assert not file.exists()
    new_key(file, "ward", "read")
    with pytest.raises(SettingsProblem, match="has no key named 'a'; there are: ward"):
        revoke_key(file, "a")


def test_a_key_among_thousands_is_found_with_one_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.toml"
    keyed = new_key(file, "mine", "read")
    record = read_keys(file)[0]
    others = [record._replace(name=f"k{n}", shown=f"suwen_{n:08}", hash=f"{n:064x}") for n in range(3000)]
    file.write_text("\n".join(map(module._written, [*others, record])), encoding="utf-8")
    keys, hashed, plain = Keys(file), [], module._hashed
    monkeypatch.setattr(module, "_hashed", lambda salt, key: (hashed.append(salt), plain(salt, key))[1])
    assert keys.find(keyed.encode()).name == "mine"
    assert keys.find(b"suwen_" + b"x" * 43) is None
    assert len(hashed) == 1


def test_a_file_of_thousands_is_read_again_beside_the_loop(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    first = new_key(file, "first", "read")
    keys = Keys(file, Clock())
    record = read_keys(file)[0]
    others = [record._replace(name=f"k{n}", shown=f"suwen_{n:08}", hash=f"{n:064x}") for n in range(1000)]
    file.write_text("\n".join(map(module._written, others)), encoding="utf-8")
    while keys.find(first.encode()) is not None:
        pass


def test_keys_that_an_older_suwen_made_are_known(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keyed = new_key(file, "old", "write")
    record = read_keys(file)[0]._replace(shown="")
    file.write_text(module._written(record), encoding="utf-8")
    assert "shown" not in file.read_text(encoding="utf-8")
    assert Keys(file).find(keyed.encode()).name == "old"


def test_keys_made_at_once_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    threads = [threading.Thread(target=new_key, args=(file, f"k{n}", "read")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.name for key in read_keys(file)} == {f"k{n}" for n in range(8)}
    assert file.stat().st_mode & 0o777 == 0o600
