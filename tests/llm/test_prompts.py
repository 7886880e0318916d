"""Prompt files: reading, rendering, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.llm.prompts import Message, Prompt, PromptProblem, load_prompt, prompt_names

GOOD = """
version = 2
about = "A try."
schema = '{"type": "object", "properties": {"a": {"type": "string"}}}'
[zh]
system = "你好 {{who}}"
user = "问：{{ text }} {不是位置}"
[en]
user = "{{who}}: {{text}}"
"""


def write(folder: Path, text: str) -> Path:
    (folder / "try.toml").write_text(text, encoding="utf-8")
    return folder


def test_a_prompt_is_read_in_its_language(tmp_path: Path) -> None:
    prompt = load_prompt("try", "zh", write(tmp_path, GOOD))
    assert (prompt.name, prompt.version, prompt.language, prompt.places) == ("try", 2, "zh", ("who", "text"))
    assert prompt.schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert prompt.render(who="医生", text=3) == (Message("system", "你好 医生"), Message("user", "问：3 {不是位置}"))
    assert load_prompt("try", "en", tmp_path).render(who="a", text="b") == (Message("user", "a: b"),)


@given(st.text(), st.text())
def test_values_go_in_verbatim(one: str, two: str) -> None:
    prompt = Prompt("p", 1, "en", "", "<{{a}}|{{b}}>")
    assert prompt.render(a=one, b=two)[-1].content == f"<{one}|{two}>"


def test_a_value_that_looks_like_a_place_is_left_alone() -> None:
    prompt = Prompt("p", 1, "en", "", "{{a}} {{b}}")
    assert prompt.render(a="{{b}}", b=r"\1 {0} %s")[0].content == r"{{b}} \1 {0} %s"


def test_missing_unknown_and_odd_values_are_refused() -> None:
    prompt = Prompt("p", 1, "en", "", "{{a}}")
    with pytest.raises(PromptProblem, match="needs a"):
        prompt.render()
    with pytest.raises(PromptProblem, match="has no place b: it has a"):
        prompt.render(a="", b="")
    with pytest.raises(PromptProblem, match="NoneType"):
        prompt.render(a=None)  # type: ignore[arg-type]


def test_the_fingerprint_follows_the_text_and_the_schema() -> None:
    prints = {
        Prompt("p", 1, "en", "", "a").fingerprint,
        Prompt("p", 1, "en", "", "b").fingerprint,
        Prompt("p", 1, "en", "", "a", {"type": "string"}).fingerprint,
    }
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("version = 2", "", "version = 1"),
        ("version = 2", "version = true", "version = 1"),
        ('"type": "object", "prop', '"typo": "object", "prop', "typo"),
        ('"type": "string"', '"type": "text"', "type 'text'"),
        ('\'{"type"', '\'"type"', "not JSON"),
        ("{{who}}: ", "", "the same"),
        ("{{who}}: ", "{{who: ", "opens no place"),
        ('user = "问', 'usr = "问', r"\[zh\] must hold user"),
        ("[zh]", "[zh", "not TOML"),
    ],
)
def test_a_badly_written_file_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(PromptProblem, match=told):
        load_prompt("try", "en", write(tmp_path, GOOD.replace(old, new)))


def test_unknown_names_and_languages(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(PromptProblem, match="there are try"):
        load_prompt("tri", "en", tmp_path)
    with pytest.raises(PromptProblem, match="it is in en, zh"):
        load_prompt("try", "fr", tmp_path)
    with pytest.raises(PromptProblem, match="there is no prompt"):
        load_prompt("../try", "en", tmp_path)


@pytest.mark.parametrize("name", prompt_names())
def test_every_prompt_of_the_package_can_be_rendered_in_both_languages(name: str) -> None:
    for language in ("zh", "en"):
        prompt = load_prompt(name, language)
        messages = prompt.render(**dict.fromkeys(prompt.places, "某值"))
        assert messages[-1].role == "user"
        assert "{{" not in "".join(message.content for message in messages)


def test_the_package_has_prompts() -> None:
    assert "grade" in prompt_names()
    assert load_prompt("grade", "zh").schema is not None
