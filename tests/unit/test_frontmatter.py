"""The head of a file: text as written, exact positions, and a reason with a line where it does not parse."""

from __future__ import annotations

import pytest

from everosd.log import frontmatter


def test_P05_values_keep_the_text_they_were_written_with() -> None:
    """Nothing is coerced: dates, leading zeros, null and on stay text."""
    text = "---\ntitle: 2026-01-01\nid: 007\ntags: null\nuser: on\nnote: 'a: b'\nempty:\nlist: [1, 2.50]\nmap:\n  yes: 0x1F\n---\nbody"
    found = frontmatter.read(text)
    assert "" == found.error
    assert {
        "title": "2026-01-01",
        "id": "007",
        "tags": "null",
        "user": "on",
        "note": "a: b",
        "empty": "",
        "list": ["1", "2.50"],
        "map": {"yes": "0x1F"},
    } == found.values
    assert ("007", "", "") == (found.text("id"), found.text("tags"), found.text("map"))
    assert "body" == text[found.end :]


def test_positions_are_those_of_the_text() -> None:
    """Each key and value is found where it stands, behind characters of any width and with CRLF."""
    text = "---\r\nname: Jos\u00e9 \U0001f600 # who\r\nentry_count: 6 # six\r\ndeprecated_entries:\r\n  # why\r\n  a: b\r\n  c: d\r\nlast:\r\n---\r\nbody"
    found = frontmatter.read(text)
    spans = {name: text[key.value_start : key.value_end] for name, key in found.keys.items()}
    assert "6" == spans["entry_count"]
    assert "Jos\u00e9 \U0001f600" == spans["name"]
    assert "" == spans["last"]
    assert ["a: b", "c: d"] == [text[start:end] for start, end in found.keys["deprecated_entries"].items.values()]
    assert "body" == text[found.end :]


@pytest.mark.parametrize(
    ("head", "line", "word"),
    [
        ("ok: 1\npath: `C:\\new`", 3, "cannot start any token"),
        ("title: *x*", 2, "alias"),
        ("- [[a]]b", 2, ""),
        ('a: 1\nb: 2\ndescription: "abc "def" ghi"', 4, ""),
        ("note: a: b", 2, "mapping values"),
        ("a: 1\na: 2", 3, "twice"),
        ("{a: b}", 2, "lines"),
        ("just text", 2, "lines"),
        ("a: b\nc: [\nd: 1", 3, "sequence"),
        ("a: &x [*x]", 2, "*x"),
        ("a: b\n...\nc: d", 4, ""),
        ("? [a]\n: b", 2, "not text"),
        ("a: " + "[" * 5000, 2, "nest"),
        ("a: b\x07", 2, "control"),
        ("\ttab: x", 2, ""),
    ],
)
def test_P02_broken_yaml_is_named_with_its_line(head: str, line: int, word: str) -> None:
    """What does not parse, or could not be changed safely, has a reason and the line of the file."""
    found = frontmatter.read(f"---\n{head}\n---\nbody\n")
    assert found.error
    assert line == found.error_line
    assert word in found.error
    assert {} == found.values


def test_P02_a_rule_that_is_never_closed_is_an_error() -> None:
    """`---` as first line without an end does not swallow the entries that follow, nor a rule inside one of them."""
    text = "---\nid: x\n<!-- entry:ep_20260302_1 -->\n---\n<!-- /entry:ep_20260302_1 -->\n"
    found = frontmatter.read(text)
    assert "never closed" in found.error
    assert "id: x" in text[found.end :]


@pytest.mark.parametrize("text", ["", "body", "----\na\n---\n", " ---\na: b\n---\n", "# x\n---\na: b\n---\n"])
def test_most_files_by_hand_have_none(text: str) -> None:
    """Only `---` as the very first line opens a frontmatter."""
    found = frontmatter.read(text)
    assert (0, 0, "") == (found.start, found.end, found.error)


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "a@b+c",
        "yes",
        "007",
        "1.5",
        "2026-03-02",
        "",
        "it's",
        "a: b",
        "# x",
        "- x",
        "null",
        "~",
        "[a]",
        " lead",
        "a\nb",
        "\x07",
        "\u00e9",
        "\u2028",
        "!t",
        "*x",
        '"q"',
        "a #b",
    ],
)
def test_scalars_read_back(value: str) -> None:
    """What is written as a scalar is one line and the same text when read."""
    written = frontmatter.scalar(value)
    assert "\n" not in written
    assert {"key": value} == frontmatter.read(f"---\nkey: {written}\n---\n").values


def test_huge_heads_are_refused_quickly() -> None:
    """A frontmatter that would hold the interpreter for seconds is an error instead."""
    assert "too large" in frontmatter.read("---\na: " + "x" * 5_000_000 + "\n---\n").error


@pytest.mark.parametrize(
    ("value", "number"),
    [("6", 6), ("06", 6), ("-1", 0), ("six", 0), ("9" * 30, 0), (["1"], 0), (None, 0), ("\u0663", 0)],
)
def test_counts_are_plain_digits(value: object, number: int) -> None:
    """Anything else counts as nothing."""
    assert number == frontmatter.number(value)
