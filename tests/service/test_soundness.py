"""Damage of an index is told before a request meets it: at the opening, and by a look at every file now and then."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest

from suwen.corpora.records import Document
from suwen.retrieve.retriever import Index


def large(folder: Path, pair: Path) -> Path:
    """An index with vector files: those of the notes are too few to be sealed."""
    with Index.create(folder, pair=pair) as index:
        index.add(Document(f"d{number}", f"第{number}号病人发烧。") for number in range(1100))
    return folder


def flip(file: Path, at: int) -> None:
    """Change one byte, as a failing disk would."""
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def told(client, wanted: int) -> dict[str, str]:
    while (reply := client.get("/readyz")).status_code != wanted:
        time.sleep(0.02)
    return dict(reply.json().get("error", {}))


def test_a_file_that_goes_bad_is_told_though_no_request_met_it(served, tmp_path: Path, static_pair: Path) -> None:
    folder = large(tmp_path / "large", static_pair)
    client, _ = served(folder, check_seconds=0.05)
    (bits,) = folder.glob("gen-*/bits")
    flip(bits, -100)
    error = told(client, 503)
    assert error["code"] == "damaged_index"
    assert f"{bits.parent.name}/bits is damaged" in error["message"]
    assert "suwen rebuild large" in error["message"] and str(tmp_path) not in error["message"]
    assert client.post("/search", json={"query": "发烧"}).status_code == 200, "what can be answered is"
    flip(bits, -100)
    assert told(client, 200) == {}, "and in order again when it is"


def test_a_vector_that_goes_bad_is_told_with_its_document(served, tmp_path: Path, static_pair: Path) -> None:
    folder = large(tmp_path / "large", static_pair)
    client, _ = served(folder, check_seconds=0.05)
    with sqlite3.connect(folder / "truth.db") as connection:
        row, blob = connection.execute("SELECT row, vector FROM vectors LIMIT 1").fetchone()
        bad = np.frombuffer(blob, dtype=np.uint8) ^ 1
        connection.execute("UPDATE vectors SET vector = ? WHERE row = ?", (bad.tobytes(), row))
    assert "add the document again" in told(client, 503)["message"]


def test_no_look_is_taken_where_none_is_wanted(served, monkeypatch: pytest.MonkeyPatch) -> None:
    from suwen.service.soundness import Soundness

    monkeypatch.setattr(Soundness, "_run", lambda *_: pytest.fail("it looked"))
    client, _ = served(check_seconds=0)
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", ["bits", "codes", "rows"])
def test_a_file_that_is_cut_off_is_found_at_the_opening(name: str, served, tmp_path: Path, static_pair: Path) -> None:
    folder = large(tmp_path / "large", static_pair)
    (file,) = folder.glob(f"gen-*/{name}")
    file.write_bytes(file.read_bytes()[:-1000])
    client, holder = served(folder, check_seconds=0)
    assert "rebuilt from the truth" in holder.index.engine.healed, "so few passages are made again at once"
    assert client.get("/readyz").status_code == 200
