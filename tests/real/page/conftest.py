"""A browser, a visitor's tab, and the service they look at: with an index of the sample, with keys, with a jury."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from suwen.corpora.readers import read_documents
from suwen.corpora.sample import sample_path
from suwen.encoders.pair import Pair
from suwen.jury.folder import Folder
from suwen.jury.sampling import Sampled, Stratum, write_sample
from suwen.retrieve.ingest import ingest
from suwen.retrieve.retriever import Index
from suwen.service.keys import new_key
from suwen.service.settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
from browser import Browser, Tab
from visiting import ATTACK, DOCUMENTS, serving, wait_ready


class _Later:
    """The document encoder's stand-in: its passages count as encoded, all others as fresh."""

    name = "document"

    def __init__(self, pair: Pair) -> None:
        self._encoder = pair.encoder()

    def encode_documents(self, texts):
        return self._encoder.encode_documents(texts)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default pair with a second tier, and a document encoder that is not here."""
    folder = tmp_path_factory.mktemp("pairs") / "pair"
    shutil.copytree(Pair.load(None).path, folder)
    manifest = json.loads((folder / "suwen.json").read_text(encoding="utf-8"))
    tier = manifest["tiers"][manifest["default_tier"]]
    shutil.copytree(folder / tier["path"], folder / "query" / "other")
    manifest["tiers"]["other"] = tier | {"path": "query/other"}
    manifest["document"] = {"kind": "elsewhere", "name": "far-away"}
    (folder / "suwen.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def folder(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the sample, and of documents that are hard to show."""
    path = tmp_path_factory.mktemp("indexes") / "notes"
    loaded = Pair.load(pair)
    with Index.create(path, pair=loaded) as index:
        ingest(index, read_documents(sample_path()), encoder=_Later(loaded))
        ingest(index, DOCUMENTS)
    return path


@pytest.fixture(scope="session")
def address(folder: Path, pair: Path) -> Iterator[str]:
    with serving(ServeSettings(index=folder, pair=pair)) as found:
        wait_ready(found)
        yield found


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    """A visitor with an English browser and a large light screen, who must find nothing wrong with the pages."""
    opened = browser.tab()
    opened.screen(1280, 900)
    opened.speak("en-US")
    opened.prefer("light")
    yield opened
    assert opened.complaints() == []


@pytest.fixture
def keyed(folder, pair, tmp_path) -> Iterator[tuple[str, str, str]]:
    """A service with keys, and with the review page of a jury; its address, a key that reads, a key that writes."""
    file = tmp_path / "keys.toml"
    read, write = new_key(file, "reader", "read"), new_key(file, "writer", "write")
    work = Folder(tmp_path / "work")
    stratum = Stratum("positive", "one apart", "x")
    texts = [(f"{n:016x}", f"q{n}", f"p{n}", f"问题{n}{ATTACK}", f"资料{n}", stratum, 3) for n in range(3)]
    write_sample(work.sample, [Sampled(*text) for text in texts])
    settings = ServeSettings(index=folder, pair=pair, keys=file, reviews=work.root, read_only=True)
    with serving(settings) as address:
        wait_ready(address)
        yield address, read, write
