"""Reading endpoints and models, and saying what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from suwen.llm.config import ConfigProblem, LLMConfig, load_config

GOOD = """
[serve]
port = 8000

[llm.endpoints.cloud]
base_url = "https://llm.example.org/v1/"
key_env = "SUWEN_TEST_KEY"
requests_per_minute = 60

[llm.endpoints.local]
base_url = "http://localhost:8080/v1"
json_mode = "schema"

[llm.models.large]
endpoint = "cloud"
model = "large-1"
price_in = 2.0
price_out = 8.0
temperature = "omit"
token_field = "max_completion_tokens"
extra = { top_p = 0.9 }

[llm.models.small]
endpoint = "local"
model = "small-1"
seed = 3
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "suwen.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_several_endpoints_and_models_in_one_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    assert list(config.models) == ["large", "small"]
    assert config.endpoint("large").base_url == "https://llm.example.org/v1"
    assert config.endpoint("large").concurrency == 4
    assert config.model("large").cost(1_000_000, 500_000) == 6.0
    assert config.model("small").temperature == 0.0


def test_the_file_is_found_by_the_environment_and_then_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUWEN_CONFIG", raising=False)
    with pytest.raises(ConfigProblem, match=r"there is no suwen\.toml: write one"):
        load_config()
    write(tmp_path, GOOD)
    assert len(load_config().models) == 2
    monkeypatch.setenv("SUWEN_CONFIG", str(tmp_path / "other.toml"))
    with pytest.raises(ConfigProblem, match=r"other\.toml"):
        load_config()


def test_a_missing_key_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(write(tmp_path, GOOD))
    monkeypatch.delenv("SUWEN_TEST_KEY", raising=False)
    config.require(["small"])
    with pytest.raises(ConfigProblem, match="export SUWEN_TEST_KEY"):
        config.require(["small", "large"])
    monkeypatch.setenv("SUWEN_TEST_KEY", "  ")
    with pytest.raises(ConfigProblem, match="export SUWEN_TEST_KEY"):
        config.require(["large"])
    monkeypatch.setenv("SUWEN_TEST_KEY", "secret")
    config.require(["large"])
    assert config.endpoint("large").key("cloud") == "secret"


def test_an_unknown_model_names_the_nearest(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD))
    with pytest.raises(ConfigProblem, match="'lrage'; did you mean 'large'"):
        config.model("lrage")
    with pytest.raises(ConfigProblem, match="there are large, small"):
        config.require(["qwen"])
    with pytest.raises(ConfigProblem, match=r"add it to suwen\.toml"):
        LLMConfig().model("any")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('endpoint = "cloud"', 'endpoint = "clud"', "endpoint 'clud', which is not configured; did you mean 'cloud'"),
        ("key_env", "key_evn", "has no setting 'key_evn'; did you mean 'key_env'"),
        ("price_in = 2.0", "price_in = -2.0", "price_in"),
        ('model = "small-1"', "", r"\[llm.models.small\] lacks model"),
        ("https://llm.example.org/v1/", "llm.example.org", "is not an address"),
        ("[llm.models.small]", "[llm.models.small", "cannot be read as TOML"),
        ('json_mode = "schema"', 'json_mode = "xml"', "json_mode"),
        ("requests_per_minute = 60", "requests_per_minute = 0", "requests_per_minute"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    file = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigProblem, match=told):
        load_config(file)


def test_a_file_without_the_section_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblem, match=r"no \[llm\] section"):
        load_config(write(tmp_path, "[serve]\nport = 1\n"))
