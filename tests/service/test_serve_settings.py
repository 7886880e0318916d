"""Settings: the file, then the environment, then the command line; and what is said of a wrong one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suwen.service.serve_settings import ServeSettings, SettingsProblem, load_settings


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "suwen.toml"
    file.write_text('[llm]\n[serve]\nindex = "notes"\nport = 1000\nconcurrency = 5\nseconds = 7.5\n', encoding="utf-8")
    environment = {"SUWEN_SERVE_PORT": "2000", "SUWEN_SERVE_CONCURRENCY": "6", "OTHER": "x"}
    found = load_settings(None, file, {"port": 3000, "host": None}, environment)
    assert (found.port, found.concurrency, found.seconds, found.host) == (3000, 6, 7.5, "127.0.0.1")
    assert found.index == tmp_path / "notes"
    assert found.name == "notes"


def test_lists_and_truth_values_from_the_environment() -> None:
    environment = {
        "SUWEN_SERVE_CORS_ORIGINS": "https://a.example, https://b.example:8443/",
        "SUWEN_SERVE_READ_ONLY": "true",
        "SUWEN_SERVE_INDEX": "notes",
    }
    found = load_settings(None, None, None, environment)
    assert found.cors_origins == ("https://a.example", "https://b.example:8443")
    assert found.read_only is True


def test_no_file_in_the_current_folder_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(Path("notes"), None, {}, {}).port == 8000


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({}, "no index is named: give its folder"),
        ({"SUWEN_SERVE_INDEX": "n", "SUWEN_SERVE_PROT": "1"}, "did you mean SUWEN_SERVE_PORT"),
        ({"SUWEN_SERVE_INDEX": "n", "SUWEN_SERVE_PORT": "many"}, "SUWEN_SERVE_PORT is 'many'"),
        ({"SUWEN_SERVE_INDEX": "n", "SUWEN_SERVE_PORT": "70000"}, "port is 70000"),
        ({"SUWEN_SERVE_INDEX": "n", "SUWEN_SERVE_CORS_ORIGINS": "*"}, r"'\*' is not an origin"),
        ({"SUWEN_SERVE_INDEX": "n", "SUWEN_CONFIG": "missing.toml"}, "there is no missing.toml"),
    ],
)
def test_what_is_wrong_is_said(
    environment: dict[str, str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsProblem, match=complaint):
        load_settings(None, None, None, environment)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("[serve]\nprot = 1\n", "no setting 'prot'; did you mean port"), ("serve = 3\n", "not a section"), ("[", "TOML")],
)
def test_what_is_wrong_with_a_file_is_said(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "suwen.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsProblem, match=complaint):
        load_settings(Path("notes"), file, None, {})


def test_the_file_that_was_named_is_remembered_for_its_other_sections(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[serve]\nport = 1234\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_settings(Path("notes"), Path("mine.toml"), None, {}).config == file
    assert load_settings(Path("notes"), None, None, {"SUWEN_CONFIG": str(file)}).config == file
    assert load_settings(Path("notes"), None, None, {}).config is None


@pytest.mark.parametrize(
    ("host", "public"),
    [("127.0.0.1", False), ("127.3.2.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("::", True)],
)
def test_which_addresses_others_can_reach(host: str, public: bool) -> None:
    assert ServeSettings(index=Path("n"), host=host).public is public


def test_the_documentation_lists_every_setting_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    section = page.partition("## Settings")[2].partition("## Errors")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    assert set(rows) == set(ServeSettings.model_fields)
    for name, field in ServeSettings.model_fields.items():
        if isinstance(field.default, bool):
            assert rows[name] == str(field.default).lower(), name
        elif isinstance(field.default, int | float):
            assert float(rows[name]) == field.default, name
