"""A reranker: read from its folder, scored one after the other, refused where it is damaged or loses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerankers_on_the_spot import make_reranker
from suwen.encoders.reranker import Gain, Reranker, RerankerError
from suwen.encoders.space import DamagedPair


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_reranker(tmp_path / "reranker", {"水": 2.0, "药": -1.0, "问": 8.0})


def test_a_document_scores_what_its_characters_are_worth_and_a_long_query_is_cut(folder: Path) -> None:
    reranker = Reranker.load(folder)
    assert reranker.scores("结石", ["多喝水，水", "吃药", ""]) == [4.0, -1.0, 0.0]
    assert reranker.scores("12345678问问问", ["水"]) == [2.0], "only eight characters of a query are read"
    assert reranker.tokens("结石", "水") == 4


def test_time_ends_the_scoring_after_the_first(folder: Path) -> None:
    assert Reranker.load(folder).scores("结石", ["水", "药"], until=0.0) == [2.0]
    assert len(Reranker.load(folder).scores("结石", ["水", "药"], until=float("inf"))) == 2


def test_it_is_found_by_the_environment_and_in_a_pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUWEN_RERANKER", raising=False)
    assert Reranker.find(folder) is None
    found = Reranker.find(folder.parent)
    assert found is not None and found.folder == folder
    monkeypatch.setenv("SUWEN_RERANKER", str(folder))
    assert Reranker.find(Path("elsewhere")) is not None


def test_what_is_no_reranker_is_refused_with_the_way_to_one(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RerankerError, match=r"suwen train recipes/reranker-mini.yaml"):
        Reranker.load(tmp_path / "nothing")
    (folder / "model.onnx").write_bytes(b"torn")
    with pytest.raises(DamagedPair, match="export the reranker again"):
        Reranker.load(folder)
    said = json.loads((folder / "reranker.json").read_text())
    (folder / "reranker.json").write_text(json.dumps(said | {"template": "{document}"}))
    with pytest.raises(RerankerError, match="template"):
        Reranker.load(folder)


def test_it_is_not_offered_for_a_language_in_which_it_loses(tmp_path: Path) -> None:
    measured = {
        "zh": Gain(language="zh", hybrid=30.0, precise=31.0),
        "en": Gain(language="en", hybrid=34.4, precise=33.0),
    }
    reranker = Reranker.load(make_reranker(tmp_path / "r", {"水": 1.0}, measured=measured))
    assert reranker.loses("肾结石要多喝水吗") == ""
    assert "33.0 and 34.4" in reranker.loses("should stone formers drink more")
    assert Reranker.load(make_reranker(tmp_path / "s", {"水": 1.0})).loses("anything") == ""
