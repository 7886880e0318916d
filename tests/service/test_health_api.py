"""``/info`` and its recall check; health and readiness are in test_app."""

from __future__ import annotations

from suwen import __version__
from suwen.service.answers import ExamplesAnswer, InfoAnswer
from suwen.service.keys import new_key


def test_info_tells_what_is_served(served) -> None:
    client, _ = served(concurrency=7)
    told = client.get("/info").json()
    InfoAnswer.model_validate(told)
    assert (told["name"], told["version"]) == ("suwen", __version__)
    assert told["index"]["name"] == "notes"
    assert (told["index"]["documents"], told["index"]["passages"], told["index"]["deleted"]) == (6, 6, 0)
    assert told["index"]["encoders"] == {"static": 6}
    assert told["index"]["fields"] == ["department", "lang", "year"]
    assert told["index"]["bytes_truth"] > 0 and told["index"]["bytes_derived"] > 0
    assert told["pair"] == {
        "name": "small-static",
        "tiers": ["static"],
        "take_instruction": [],
        "default_tier": "static",
        "document": "tier",
    }
    assert told["modes"] == ["hybrid", "dense", "lexical"]
    assert told["freshness"]["fresh_passages"] == 0
    assert told["limits"]["concurrency"] == 7
    assert (told["read_only"], told["reviews"], told["role"]) == (False, False, None)


def test_info_tells_a_bad_line_of_the_list_of_names(served) -> None:
    client, holder = served()
    assert client.get("/info").json()["notices"] == []
    holder.index.engine.put_blob("synonyms.txt", "发烧, 发热\n一个\n".encode())
    [told] = client.get("/info").json()["notices"]
    assert "synonyms.txt, line 2: a group needs two names" in told and "'suwen synonyms" in told
    assert client.post("/search", json={"query": "发烧", "k": 1}).status_code == 200
    assert client.get("/readyz").status_code == 200


def test_info_tells_the_role_of_the_key_that_asks(served, tmp_path) -> None:
    file = tmp_path / "keys.toml"
    keys = {role: new_key(file, role, role) for role in ("read", "write")}
    client, _ = served(keys=file)
    for role, key in keys.items():
        assert client.get("/info", headers={"Authorization": f"Bearer {key}"}).json()["role"] == role


def test_examples_are_drawn_from_the_index(client) -> None:
    found = client.get("/examples").json()
    ExamplesAnswer.model_validate(found)
    assert found["examples"] and found == client.get("/examples").json()
    for text in found["examples"]:
        assert client.post("/search", json={"query": text, "k": 1}).json()["relevant"] is True


def test_info_follows_what_is_posted_and_deleted(served) -> None:
    client, _ = served()
    client.post("/documents", json={"documents": [{"id": "x", "text": "新的一条。", "metadata": {"ward": 3}}]})
    client.delete("/documents/fever")
    told = client.get("/info").json()["index"]
    assert (told["documents"], told["deleted"]) == (6, 1)
    assert "ward" in told["fields"]


def test_recall_is_checked_against_exact_search(client) -> None:
    assert client.post("/info/recall", json={"sample": 4}).json() == {"recall": 1.0, "k": 10, "queries": 4}
    assert client.post("/info/recall", json={}).json()["queries"] == 6
    assert client.post("/info/recall", json={"sample": 0}).json()["error"]["param"] == "sample"
