"""A browser, a visitor's tab, and the service they look at: with an index of the sample, with keys, with a jury."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from suwen.encoders.pair import default_pair_path
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.sampling import Sampled, Stratum, write_sample
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.service.keys import new_key
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
from browser import Browser, Tab
from visiting import ATTACK, DOCUMENTS, serving, wait_ready


@pytest.fixture(scope="session")
def pair() -> Path:
    """The pair of the package: two tiers, and a document encoder whose base is not here."""
    return default_pair_path()


@pytest.fixture(scope="session")
def folder(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the sample, by the vectors that come with the pair, and of fresh documents that are hard to show."""
    path = tmp_path_factory.mktemp("indexes") / "notes"
    with Index.create(path, pair=pair) as index:
        index_sample(index)
        index.add(DOCUMENTS)
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
    complaints = opened.complaints()
    opened.close()
    assert complaints == []


@pytest.fixture
def keyed(folder, pair, tmp_path) -> Iterator[tuple[str, str, str]]:
    """A service with keys, and with the review page of a jury; its address, a key that reads, a key that writes."""
    file = tmp_path / "keys.toml"
    read, write = new_key(file, "reader", "read"), new_key(file, "writer", "write")
    work = JuryFolder(tmp_path / "work")
    stratum = Stratum("positive", "one apart", "x")
    texts = [(f"{n:016x}", f"q{n}", f"p{n}", f"问题{n}{ATTACK}", f"资料{n}", stratum, 3) for n in range(3)]
    write_sample(work.sample, [Sampled(*text) for text in texts])
    settings = ServeSettings(index=folder, pair=pair, keys=file, reviews=work.root, read_only=True)
    with serving(settings) as address:
        wait_ready(address)
        yield address, read, write
