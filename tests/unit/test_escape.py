"""Text that looks like structure, values on one line, and lists as people write them."""

from __future__ import annotations

import pytest

from everosd.log import escape
from everosd.log import kind as kinds


@pytest.mark.parametrize(
    ("written", "items"),
    [
        ("[u_mara, helper]", ("u_mara", "helper")),
        ("[]", ()),
        ("", ()),
        ("null", ()),
        ("mara", ("mara",)),
        ("[mara", ("[mara",)),
        ('["a, b", "c"]', ("a, b", "c")),
        ("[\"a, b\", mara, 'it''s', ]", ("a, b", "mara", "it's")),
        ('["\\"x\\"", y]', ('"x"', "y")),
        ('["broken, y]', ("broken", "y")),
        ("[1, 2.50, 007]", ("1", "2.50", "007")),
        ('[{"a": 1}]', ('{"a": 1}',)),
        ("[  a ,b  ]", ("a", "b")),
    ],
)
def test_lists_are_read_as_people_and_programs_write_them(written: str, items: tuple[str, ...]) -> None:
    """Plain, quoted and JSON items; a comma in quotes separates nothing."""
    assert items == escape.read_list(written)


@pytest.mark.parametrize(
    "items",
    [("a", "b"), (), ("a, b",), ("null",), ("",), ("1", "2.50"), (" x",), ("[x]", "'"), ("é ü",), ("line\nbreak",)],
)
def test_lists_read_back(items: tuple[str, ...]) -> None:
    """Whatever the items are, they come back as they were, on one line."""
    written = escape.write_list(items)
    assert items == escape.read_list(written)
    assert "\n" not in written


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("plain", "plain"),
        ('"a\\nb"', "a\nb"),
        ('"', '"'),
        ('""', ""),
        ('"unfinished', '"unfinished'),
        ('"bad \\x"', '"bad \\x"'),
        ('"a" and "b"', '"a" and "b"'),
        ("7\r", "7"),
    ],
)
def test_values_lose_only_real_quoting(value: str, read: str) -> None:
    """A JSON string is unquoted; anything else that begins with a quote is what a person wrote."""
    assert read == escape.read_value(value)


def test_text_is_cleaned_and_no_more() -> None:
    """Line ends become LF, NUL and half surrogates go, blank lines at both ends go; blanks within lines stay."""
    assert "  a  \n\n\tb\ufffd" == escape.clean(" \n\r\n  a  \r\n\r\tb\ud800\0\n\t\n")
    assert "" == escape.clean(" \n\t\n ")
    assert "two lines" == escape.one_line(" two\nlines ")


def test_escapes_are_seen_only_where_needed() -> None:
    """Ordinary text, headings in Content and backslashes elsewhere are written as they are."""
    text = "### heading\n\\d+ is a regex\n<!-- a comment -->\n    <!-- entry:x -->\n- \\### no"
    raw = escape.raw_text(kinds.BY_NAME["episode"], "ep_20260302_1", fields={}, sections=[("Content", text)])
    assert raw.endswith(f"### Content\n{text}")


def test_content_goes_last() -> None:
    """The section that takes everything to the close is written behind the others, so that it takes none of them."""
    raw = escape.raw_text(
        kinds.BY_NAME["episode"],
        "ep_20260302_1",
        fields={},
        sections=[("Content", "c"), ("Subject", "s"), ("Notes", "")],
    )
    assert "## ep_20260302_1\n\n### Subject\ns\n\n### Notes\n\n### Content\nc" == raw


def test_half_a_surrogate_pair_that_json_spells_out_is_made_text() -> None:
    """A value or an item that a person wrote as JSON can be stored and written, whatever its escapes say."""
    assert "a\ufffdb" == escape.read_value('"a\\ud800b"')
    assert ("\ufffd", "b") == escape.read_list('["\\udfff", "b"]')
    assert "\U0001f600" == escape.read_value('"\\ud83d\\ude00"')
