"""The single-entry form: what is one, its fields, its sections."""

from __future__ import annotations

import pytest

from everosd.log import frontmatter, kind, single

EPISODE = kind.BY_NAME["episode"]


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        ("timestamp: 2026-03-02\n", True),
        ("parent_id: mc_1\nsubject: x\n", True),
        ("date: 2026-03-02\nuser_id: mara\n", False),
        ("timestamp: 2026-03-02\nentry_count: 1\n", False),
        ("timestamp: [\n", False),
        ("timestamp: ''\n", False),
    ],
)
def test_a_frontmatter_that_speaks_of_an_entry_claims_the_form(head: str, *, is_one: bool) -> None:
    """Fields of an entry make it one; those of a daily log, or YAML that does not parse, do not."""
    assert is_one == single.is_claimed(frontmatter.read(f"---\n{head}---\n"))


def test_fields_are_what_the_frontmatter_says_of_the_entry() -> None:
    """Keys of the file, the id and names that are none stay out; lists and maps become inline values."""
    head = "id: x\nentry_id: ep_1\nuser_id: mara\nsender_ids: [mara, helper]\nextra: {a: [b]}\nNot a field: x\nmood: calm\n"
    found = single.fields(frontmatter.read(f"---\n{head}---\n"))
    assert {"sender_ids": "[mara, helper]", "extra": '{"a": ["b"]}', "mood": "calm"} == found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "before\n\n## Subject\nTea\n## Content\nShe drinks.\n",
            ("before\n\n", [("Subject", "Tea\n"), ("Content", "She drinks.\n")]),
        ),
        ("## subject\nTea\n## My own\nmore\n", ("", [("subject", "Tea\n## My own\nmore\n")])),
        ("## Content\na\n## Subject\nb\n", ("", [("Content", "a\n## Subject\nb\n")])),
        ("## My own\nx\n## Subject\nTea\n", None),
        ("no heading at all\n", None),
        ("", None),
    ],
)
def test_a_body_is_split_at_the_sections_of_its_kind(body: str, expected: object) -> None:
    """Other headings are text; the last section takes everything; a body that begins with another heading is none."""
    assert expected == single.sections(EPISODE, body)
