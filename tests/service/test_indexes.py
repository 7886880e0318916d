"""Indexes by name, aliases, heads, packed answers, cursors and traces, in this process; real servers in tests/real."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index
from suwen.service.packing import takes_gzip
from suwen.service.problems import Problem
from suwen.service.request_intake import addressed
from suwen.service.search_cursors import Cursors
from suwen.service.serve_settings import ServeSettings, SettingsProblem, load_settings
from suwen.service.snapshot_files import Packed, unpack
from suwen.service.trace_context import trace_of


def test_settings_name_indexes_and_aliases(tmp_path: Path) -> None:
    file = tmp_path / "suwen.toml"
    file.write_text(
        '[serve]\nindex = "notes"\nfolder = "more"\n[serve.indexes]\ndrugs = "d/one"\n'
        'guides = {index = "g", read_only = true}\n[serve.aliases]\ncurrent = "drugs"\n',
        encoding="utf-8",
    )
    settings = load_settings(None, file, environment={})
    assert settings.indexes["drugs"].index == tmp_path / "d/one"
    assert settings.folder == tmp_path / "more"
    own = settings.of(settings.indexes["guides"])
    assert (own.index, own.read_only, own.indexes) == (tmp_path / "g", True, {})
    named = {"SUWEN_SERVE_INDEXES": "a=x, b=y", "SUWEN_SERVE_ALIASES": "c=a"}
    assert set(load_settings(tmp_path / "notes", None, environment=named).indexes) == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"indexes": {"notes": "x"}}, "which is the name of the folder"),
        ({"aliases": {"notes": "notes"}}, "is the name of an index"),
        ({"aliases": {"a": "b"}}, "which is no index"),
        ({"indexes": {"a/b": "x"}}, "indexes"),
        ({"indexes": {"..": "x"}}, "indexes"),
        ({"indexes": "x"}, "dictionary"),
    ],
)
def test_names_that_cannot_be(given: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsProblem, match=complaint):
        load_settings(tmp_path / "notes", None, given, environment={})


def test_an_address_is_of_an_index_or_of_the_server() -> None:
    assert addressed("/indexes/x/documents/a/b") == ("x", "/documents/a/b")
    for path in ("/indexes/x", "/indexes", "/indexes/x/restore", "/indexes/x/healthz", "/indexes//"):
        assert addressed(path) == ("default", path)


def test_whatever_may_be_got_may_be_asked_for_by_its_head(client) -> None:
    for path in ("/info", "/healthz", "/documents/stone", "/openapi.json", "/", "/api", "/indexes/notes/info"):
        head, whole = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == whole.headers["content-type"]
    assert client.head("/documents/none").status_code == 404
    refused = client.head("/search")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert client.post("/info").headers["allow"] == "GET, HEAD"


def test_a_long_answer_is_packed_for_who_takes_it(client) -> None:
    plain = client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = client.get("/openapi.json", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip" and "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) < len(plain.content) / 5
    assert packed.json() == plain.json()
    assert "content-encoding" not in client.get("/healthz").headers, "too short to be worth it"
    page = client.get("/", headers={"Accept-Encoding": "gzip"})
    assert page.headers["etag"].startswith('W/"')
    again = client.get("/", headers={"Accept-Encoding": "gzip", "If-None-Match": page.headers["etag"]})
    assert again.status_code == 304
    assert not takes_gzip([(b"accept-encoding", b"gzip;q=0.0, br")])


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", True),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", False),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        ("", False),
    ],
)
def test_a_trace_is_taken_in_by_the_letter(header: str, known: bool) -> None:
    found = trace_of([(b"traceparent", header.encode())])
    assert (found is not None) == known
    if found:
        assert (found.trace_id, found.parent_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
        assert len(found.span_id) == 16


def test_a_trace_stands_in_the_log(served, caplog: pytest.LogCaptureFixture) -> None:
    client, _ = served()
    with caplog.at_level("INFO", "suwen.service"):
        header = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        client.get("/healthz", headers=header)
    (line,) = [record.line for record in caplog.records if getattr(record, "line", {}).get("route") == "/healthz"]
    assert line["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


def test_a_cursor_holds_still_or_says_that_it_changed(served) -> None:
    client, _ = served()
    begun = client.post("/cursors", json={"query": "布洛芬", "mode": "dense", "k": 2}).json()
    assert (begun["total"], begun["after"], begun["next"], len(begun["hits"])) == (6, 0, 2, 2)
    whole = [hit["id"] for hit in client.post("/search", json={"query": "布洛芬", "mode": "dense"}).json()["hits"]]
    new = {"documents": [{"id": "new", "text": "布洛芬布洛芬。"}]}
    assert client.post("/documents", json=new).json()["added"] == 1
    page = client.get(f"/cursors/{begun['cursor']}", params={"after": 2, "k": 10}).json()
    assert [hit["id"] for hit in begun["hits"] + page["hits"]] == whole, "what came meanwhile is not in it"
    assert page["next"] is None
    client.delete(f"/documents/{whole[3].partition('#')[0]}")
    same = client.get(f"/cursors/{begun['cursor']}", params={"after": 0, "k": 3})
    assert same.status_code == 200, "pages without what is gone are as they were"
    changed = client.get(f"/cursors/{begun['cursor']}", params={"after": 2, "k": 3})
    assert (changed.status_code, changed.json()["error"]["code"]) == (409, "cursor_changed")
    assert client.get("/readyz").status_code == 200, "a hit that is gone is no damage"
    assert client.get(f"/cursors/{begun['cursor']}", params={"after": 99}).json()["hits"] == []
    assert client.get("/cursors/" + "0" * 32).json()["error"]["code"] == "unknown_cursor"
    assert client.delete(f"/cursors/{begun['cursor']}").json() == {"ended": begun["cursor"]}
    assert client.get(f"/cursors/{begun['cursor']}").status_code == 404


def test_a_cursor_goes_past_ten_thousand(served, tmp_path: Path, static_pair: Path) -> None:
    count = 10_500
    with Index.create(tmp_path / "large", pair=static_pair) as index:
        index.add(Document(f"d{number}", f"第{number}号病人发烧。") for number in range(count))
    client, _ = served(tmp_path / "large")
    refused = client.post("/search", json={"query": "发烧", "offset": 10_000}).json()["error"]
    assert refused["code"] == "bad_search" and "/cursors" in refused["message"]
    for mode in ("lexical", "hybrid"):
        page = client.post("/cursors", json={"query": "发烧", "mode": mode, "k": 1000}).json()
        assert page["total"] == count
        ids = [hit["id"] for hit in page["hits"]]
        while page["next"] is not None:
            page = client.get(f"/cursors/{page['cursor']}", params={"after": page["next"], "k": 1000}).json()
            ids += [hit["id"] for hit in page["hits"]]
        assert len(ids) == len(set(ids)) == count, mode


def test_only_so_many_cursors_for_so_long() -> None:
    now = [0.0]
    cursors = Cursors(2, 10.0, lambda: now[0])
    first, second = cursors.begin(None, "a"), cursors.begin(None, "a")  # type: ignore[arg-type]
    assert cursors.find(first.id, "a") is first
    cursors.begin(None, "a")  # type: ignore[arg-type]
    with pytest.raises(Problem):
        cursors.find(second.id, "a")
    with pytest.raises(Problem):
        cursors.find(first.id, "b")
    now[0] = 11.0
    with pytest.raises(Problem):
        cursors.find(first.id, "a")


def test_files_are_packed_and_unpacked_alike(tmp_path: Path) -> None:
    source = tmp_path / "backup"
    source.mkdir()
    for name, size in (("empty", 0), ("odd", 700), ("block.db", 1024), ("large", 3_000_000)):
        (source / name).write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    packed = Packed(source)
    data = b"".join(packed.parts())
    assert len(data) == packed.length
    (tmp_path / "whole.tar").write_bytes(data)
    unpack(tmp_path / "whole.tar", tmp_path / "out")
    assert {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} == {
        one.name: one.read_bytes() for one in source.iterdir()
    }
    for number, cut in enumerate((0, 100, 512, 5000, len(data) - 512)):
        (tmp_path / "cut.tar").write_bytes(data[:cut])
        with pytest.raises(Problem, match="not a whole snapshot"):
            unpack(tmp_path / "cut.tar", tmp_path / f"cut-{number}")


@pytest.mark.parametrize("name", ["../evil", "/evil", ".hidden", "a/b"])
def test_a_packed_file_lands_nowhere_else(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(Problem, match="no plain file"):
        unpack(tmp_path / "evil.tar", tmp_path / "out")
    assert not (tmp_path / "evil").exists() and not list((tmp_path / "out").iterdir())


def test_links_in_a_snapshot_are_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("truth.db")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.addfile(link)
    with pytest.raises(Problem, match="no plain file"):
        unpack(tmp_path / "evil.tar", tmp_path / "out")


def test_numbers_of_the_process_and_the_build(client) -> None:
    text = client.get("/metrics").text
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "python_info"):
        assert f"\n{name}" in text, name
    assert "suwen_build_info{" in text and "onnxruntime=" in text


def test_the_api_page_shows_every_request_and_loads_nothing_from_elsewhere(client) -> None:
    page = client.get("/api")
    assert page.headers["content-type"].startswith("text/html")
    described = client.get("/openapi.json").json()
    for path in described["paths"]:
        assert path in page.text, path
    assert "http://" not in page.text and "https://" not in page.text
    assert "<style" not in page.text and " style=" not in page.text and "onclick" not in page.text
    assert page.text.count("<script") == 1
    for file in ("/web/reference.js", "/web/reference.css"):
        assert file in page.text and client.get(file).status_code == 200


def test_every_address_of_an_index_says_that_others_have_one(client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/search"]["post"]["servers"][1]["url"] == "/indexes/{index}"
    assert "servers" not in paths["/metrics"]["get"] and "servers" not in paths["/indexes"]["get"]
    assert json.dumps(paths["/aliases/{alias}"]["put"]["parameters"]).count('"alias"') == 1


def test_defaults_need_no_index_but_one(tmp_path: Path) -> None:
    settings = ServeSettings(index=tmp_path / "notes")
    assert (settings.indexes, settings.aliases, settings.folder) == ({}, {}, None)
