"""Nothing that somebody wrote hides from whoever reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from underseal.cli._visible import members, visible, visible_value


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("pay ann 500", "pay ann 500"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"),
        ("a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"),
        ("one\ntwo\tthree\r", "one⟨U+000A⟩two⟨U+0009⟩three⟨U+000D⟩"),
        ("\x1b[2Jgone\x07", "⟨U+001B⟩[2Jgone⟨U+0007⟩"),
        ("\x9b31m\x7f", "⟨U+009B⟩31m⟨U+007F⟩"),
        ("a\u00a0b\u3000", "a⟨U+00A0⟩b⟨U+3000⟩"),
        ("soft\u00adhyphen", "soft⟨U+00AD⟩hyphen"),
        ("\u3164\u2800\ufe0f\U000e0041", "⟨U+3164⟩⟨U+2800⟩⟨U+FE0F⟩⟨U+E0041⟩"),
        ("a\ufe0fb\u034fc", "a⟨U+FE0F⟩b⟨U+034F⟩c"),
        ("\ue000\U000f0000", "⟨U+E000⟩⟨U+F0000⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("⟨U+202E⟩", "⟨U+27E8⟩U+202E⟨U+27E9⟩"),
        ("[red]not markup[/red] :smile:", "[red]not markup[/red] :smile:"),
    ],
)
def test_what_hides_or_speaks_to_the_terminal_is_marked(written: str, shown: str) -> None:
    assert visible(written) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Zoë Ñandú Việt",
        "日本語のテキスト",
        "ภาษาไทยน้ำ",
        "שָׁלוֹם",
        "Привет мир",
        "Ελλάδα",
        "naïve e\u0301",
        "👍 €5",
    ],
)
def test_other_peoples_writing_is_left_alone(text: str) -> None:
    assert visible(text) == text


def test_a_tower_of_combining_marks_is_marked_from_the_third_on() -> None:
    assert visible("a\u0301\u0302\u0303\u0304b") == "a\u0301\u0302⟨U+0303⟩⟨U+0304⟩b"


@pytest.mark.parametrize("text", ["\u0301a", " \u0301", "\u200b\u0301"])
def test_a_mark_without_a_letter_is_marked(text: str) -> None:
    assert "⟨U+0301⟩" in visible(text)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("p\u0430yp\u0430l", "p⟨U+0430⟩yp⟨U+0430⟩l"),
        ("a\uff41nn and ann", "a⟨U+FF41⟩nn and ann"),
        ("\u03bd\u0430n", "⟨U+03BD⟩⟨U+0430⟩n"),
    ],
)
def test_look_alikes_among_latin_letters_are_marked(written: str, shown: str) -> None:
    assert visible(written) == shown


@given(st.text())
def test_what_is_shown_has_no_control_and_no_line_of_its_own(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1


@given(st.text(), st.text())
def test_two_texts_that_differ_look_different(one: str, other: str) -> None:
    assert (visible(one) == visible(other)) == (one == other)


def test_values_keep_text_and_number_apart() -> None:
    assert visible_value("500") == '"500"'
    assert visible_value(500) == "500"
    assert visible_value('say "x\\n"') == '"say \\"x\\\\n\\""'
    assert visible_value({"a\u202e": [True, None, {}]}) == '{"a⟨U+202E⟩": [true, null, {}]}'


def test_members_are_rows_of_place_and_value() -> None:
    assert members('{"to":{"iban":"X","a/b":[1,[]]},"none":null}') == [
        ("to/iban", '"X"'),
        ("to/a~1b/0", "1"),
        ("to/a~1b/1", "[]"),
        ("none", "null"),
    ]


def test_a_column_that_is_no_json_is_shown_as_it_stands() -> None:
    assert members("{oops\u202e") == [("", "{oops⟨U+202E⟩")]
