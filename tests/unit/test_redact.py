"""Obvious credentials in messages are made unreadable; everything else stays as it was said."""

from __future__ import annotations

import json
import time

import pytest

from everosd.intake import redact

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----"

SECRETS = [
    ("the key is sk-abcdEFGH1234567890abcd, keep it", "sk-abcdEFGH1234567890abcd"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
    (f"here:\n{KEY}\nthanks", "MIIEow"),
    ("-----BEGIN PRIVATE KEY-----\nMIIEow and nothing more", "MIIEow"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIA"),
    ("card 4111 1111 1111 1111, exp 12/29", "4111"),
    ("card 4111111111111111.", "4111"),
    ("amex 3782 822463 10005", "822463"),
    ("my password is hunter2!", "hunter2"),
    ("The password of the kiln room is Ton&Glaze77.", "Ton&Glaze77"),
    ("the password for my old laptop: swordfish", "swordfish"),
    ("Password: correcthorse", "correcthorse"),
    ("das Passwort lautet Blau_3mil", "Blau_3mil"),
    ("我的密码是abc12345。", "abc12345"),
    ("postgres://admin:s3cret@db.example/app", "s3cret"),
    ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk", "eyJzdWIi"),
    ("API_KEY=abc123def456", "abc123def456"),
    ("export DB_PASSWORD=Tr0ub4dor03x!", "Tr0ub4dor03x"),
    ("db_password: hunter22", "hunter22"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "wJalrXUtnFEMI"),
    ('the password "Blue3Horse"', "Blue3Horse"),
    ("Authorization: Basic YWRtaW46aHVudGVyMg==", "YWRtaW46aHVudGVyMg"),
    ("token: 8f14e45fceea167a", "8f14e45fceea167a"),
    ("мой пароль: Корова77", "Корова77"),
    ("mysql --password Tr0ub4dor -h db", "Tr0ub4dor"),
    ("curl -u admin:hunter22 https://example.com", "hunter22"),
]
PLAIN = [
    "I forgot my password again.",
    "The password is incorrect.",
    "The password for the kiln room is written on the door.",
    "The secret: we're having twins!",
    "Order 1234 5678 9012 3456 has shipped.",
    "It happened at 1772442000000, call +49 170 1234567.",
    "sk-learn is a library; pass the salt; the key to the flat is under the mat.",
    "https://example.com/a?b=c and mara@example.com",
    "He is a key figure. Token effort: none.",
    "PIN it to the wall, please.",
    "The secret: honesty. One token: a smile.",
    "Run it with -u mara and --user 1000.",
    "Basic training starts soon; a basic necessity.",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_Z09_a_credential_is_not_readable_afterwards(text: str, secret: str) -> None:
    """What looks like a key, a password or a card number is replaced, what stands around it is not."""
    clean = redact.redacted(text)
    assert secret not in clean
    assert "[redacted" in clean


@pytest.mark.parametrize("text", PLAIN)
def test_plain_talk_stays_as_it_was_said(text: str) -> None:
    """Nothing is taken out of what only mentions passwords, or has numbers of another kind."""
    assert text == redact.redacted(text)


def test_redaction_of_json_leaves_json() -> None:
    """Items and tool calls stay JSON, and a value goes by the name of its key, too."""
    calls = json.dumps(
        [{"id": "1", "function": {"name": "login", "arguments": json.dumps({"password": "x", "key": KEY})}}]
    )
    _, content, clean = redact.redacted_all(("", json.dumps([{"type": "text", "text": KEY[:60]}]), calls))
    assert "MIIEow" not in clean + content
    assert "login" == json.loads(clean)[0]["function"]["name"]
    assert "text" == json.loads(content)[0]["type"]


def test_redacting_twice_changes_nothing_more() -> None:
    """A message that comes a second time is still the same message."""
    for text, _ in SECRETS:
        once = redact.redacted(text)
        assert once == redact.redacted(once)


@pytest.mark.parametrize(
    "piece", ["sk-", "4", "password is ", "-----BEGIN PRIVATE KEY-----", "a:", "://a:", "eyJa.", "pass "]
)
def test_no_text_takes_long(piece: str) -> None:
    """A megabyte of what nearly is a credential takes a moment, not minutes."""
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    redact.redacted(text)
    assert time.process_time() - started < 2
