from __future__ import annotations

import base64
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from suwen import html_kit as kit

#: Characters that end an attribute, a tag or an entity, among others.
TEXTS = st.text(st.sampled_from("<>&\"'/= a高;#")) | st.text(max_size=40)
TAGS = {"p", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "small", "span", "dl", "dt", "dd", "h5"}
TAGS |= {"details", "summary", "ol", "ul", "li", "figure", "picture", "source", "img", "figcaption", "h3", "blockquote"}


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.words, self.attributes = [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words += data


@given(TEXTS)
def test_no_text_adds_a_tag_or_an_attribute(text):
    def parts(word: str) -> list[str]:
        row = kit.Row(word, [kit.Cell(word, best=True), kit.Cell(word, True, bar=0.5)], word, ours=True)
        return [
            kit.paragraph(word),
            kit.heading(word, word, 3),
            kit.table(word, [(word, word)], [row], {word: word}),
            kit.bullets([word]),
            kit.details(word, word, kit.sides([(word, [word])]), "gain"),
            kit.quotes([(word, word)]),
            kit.figure(b"one", b"two", word, word, (1, 1)),
        ]

    for made, plain in zip(parts(text or "x"), parts("x"), strict=True):
        seen, expected = Seen(made), Seen(plain)
        assert seen.tags == expected.tags and set(seen.tags) <= TAGS
        assert [name for name, _ in seen.attributes] == [name for name, _ in expected.attributes]


def test_a_picture_is_held_in_the_page_for_both_grounds():
    made = kit.figure(b"light", b"dark", "what it shows", "caption", (5.8, 3))
    assert f'<img src="data:image/png;base64,{base64.b64encode(b"light").decode()}" width="580" height="300"' in made
    assert f'(prefers-color-scheme: dark)" srcset="data:image/png;base64,{base64.b64encode(b"dark").decode()}"' in made


def test_a_list_with_nothing_in_it_says_so():
    assert "<p>nothing</p>" in kit.sides([("found", [])])
    assert kit.definition_list({}) == ""


def test_the_page_has_language_title_and_links():
    made = kit.document("A & B", "lead", [("one", "First")], [kit.heading("First", "one")])
    assert made.startswith('<!DOCTYPE html>\n<html lang="en">') and "<title>A &amp; B</title>" in made
    assert '<a href="#one">First</a>' in made and '<h2 id="one">First</h2>' in made
