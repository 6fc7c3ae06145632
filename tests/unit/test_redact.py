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
    ("**Password**: `x1y2z3`", "x1y2z3"),
    ("- **Password:** x1y2z3", "x1y2z3"),
    ("pw: x1y2z3", "x1y2z3"),
    ("password -> x1y2z3", "x1y2z3"),
    ("I changed my password to X1!y2", "X1!y2"),
    ("Please reset the admin password to `X1!y2`.", "X1!y2"),
    ("Ich habe mein Passwort auf X1!y2 geändert.", "X1!y2"),
    ("AccountName=kiln;AccountKey=Zm9vYmFyYmF6cXV4+/Zm9v==;EndpointSuffix=core.windows.net", "Zm9vYmFy"),
    ("SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", "abcdefghij"),
    ("xapp-1-A012345-6789012-abcdef0123456789", "A012345"),
    ("whsec_abcdefghijklmnop0123456789", "abcdefgh"),
    (f"123456789:AA{'x' * 33}", "AAxx"),
    (f"https://api.telegram.org/bot123456789:AA{'x' * 33}/getMe", "AAxx"),
    (f"dop_v1_{'0a' * 32}", "0a0a"),
    (f"xai-{'aB3' * 10}", "aB3"),
    (f"gsk_{'aB3' * 10}", "aB3"),
    (f"SK{'0a' * 16}", "0a0a"),
    (f"the sid is AC{'0a' * 16}.", "0a0a"),
    ("mysql -u root -pPW9", "PW9"),
    ("sshpass -p hunter2 ssh host", "hunter2"),
    ("sk-abcdEFGH\u200b1234567890abcd", "1234567890"),
    ("pass\u200bword: hunter22", "hunter22"),
    *(
        (said, secret)
        for secret, texts in {
            "Sonne2026": (
                "Das Passwort fürs Portal ist Sonne2026!",
                "Das Kennwort für mein altes Notebook lautet: Sonne2026",
                "Das Passwort des Routers war Sonne2026.",
                "das Passwort der Datenbank ist „Sonne2026“",
                "Unser Passwort bei Amazon ist jetzt Sonne2026",
                "Das Passwort an der Tür ist Sonne2026",
                "Mein Passwort im Büro habe ich auf Sonne2026 geändert; das Masterpasswort ist Sonne2026",
                "the password for the portal is now Sonne2026!",
                "La contraseña para el portal es Sonne2026, la contraseña en casa era Sonne2026",
                "A senha do portal é Sonne2026, a senha na empresa era Sonne2026",
                "Le mot de passe pour le portail est Sonne2026",
                "Hasło do portalu to Sonne2026, hasło jest Sonne2026",
                "Het wachtwoord voor het portaal is Sonne2026",
                "пароль от портала — Sonne2026",
                "门户的密码为Sonne2026",
                "ポータルのパスワードはSonne2026",
            ),
            "sonnenblume": ("Das Passwort lautet wie folgt: sonnenblume", "Kennwort zur Cloud: sonnenblume"),
            "4711": (
                "Die PIN für meine Karte ist 4711.",
                "Meine Geheimzahl lautet 4711",
                "Der PIN-Code vom Handy ist 4711",
                "Der Zugangscode fürs Tor ist 4711",
                "Türcode: 4711, PUK = 4711",
            ),
            "abc123def": ("API-Schlüssel: abc123def",),
        }.items()
        for said in texts
    ),
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
    "The password to the flat is with Tom; the password to server2 got lost.",
    "I changed my password to something new. Set the password to expire every 90 days.",
    "Settings -> Password -> Change. Password → Reset.",
    "PW: none. In pw = power the unit is watt.",
    "Type mysql -u root -p and press enter; docker run mysql -p3306:3306; mysql -port 3306; ssh -p22 host.",
    "ACDC played at 19:30; SK is Slovakia. SG.1.2 and XAI-2 are chapters. whsec_ is a prefix.",
    "Call 12345678: AA batteries are at 123456789:AA, shelf 2.",
    "The account key figures: 10 and 20. Die Änderung ist auf Seite2.",
    "👩\u200d👩\u200d👧 were here, a soft\u00adhyphen and a zero\u200bwidth, but no token.",
    "**Note**: the pass* is open. `secret`: none.",
    "Das Passwort ist falsch. Das Passwort ist weg, mein Passwort fürs Portal ist abgelaufen!",
    "Das Passwort ist 2023 abgelaufen, seit 2023 gesperrt, 3 Jahre alt. Das Passwort ist (leider) weg.",
    "Das Passwort ist 12-stellig. The password is 8-12 characters long. Das Passwort ist 100% sicher.",
    "Die PIN der Karte ist gesperrt. Der Zugangscode ist derselbe wie im letzten Jahr. Der Code ist 12345.",
    "Put a pin in the map: Lisbon. My password no longer works: please help. Das Passwort an Tom2 schicken.",
    "A senha do mês é segura. Hasło do portalu to podstawa. Пароль — это важно. Le mot de passe est incorrect.",
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
    _, content, clean, *_ = redact.redacted_all(("", json.dumps([{"type": "text", "text": KEY[:60]}]), calls, "", ""))
    assert "MIIEow" not in clean + content
    assert "login" == json.loads(clean)[0]["function"]["name"]
    assert "text" == json.loads(content)[0]["type"]


def test_a_token_is_not_kept_as_the_id_of_a_call_or_as_a_name() -> None:
    """Whatever of a message is written is looked through; an id that is none stays."""
    token = "sk-abcdEFGH1234567890abcd"
    assert ("[redacted token]", "[redacted token]") == redact.redacted_all(("", "", "", token, token))[3:]
    assert ("call_1", "Mara") == redact.redacted_all(("", "", "", "call_1", "Mara"))[3:]


def test_redacting_twice_changes_nothing_more() -> None:
    """A message that comes a second time is still the same message."""
    for text, _ in SECRETS:
        once = redact.redacted(text)
        assert once == redact.redacted(once)


@pytest.mark.parametrize(
    "piece",
    [
        *("sk-", "4", "password is ", "-----BEGIN PRIVATE KEY-----", "a:", "://a:", "eyJa.", "pass ", "12345678:AA"),
        *(
            "mysql ",
            "mysql -p",
            "changed password to ",
            "set my ",
            "SG.",
            "SG.aaaaaaaaaaaaaaaa",
            "a\u200b",
            "password to a ",
            "passwort in der ",
            "Das Passwort für a",
            "hasło do ",
            "geheim",
        ),
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    """A megabyte of what nearly is a credential takes a moment, not minutes."""
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    redact.redacted(text)
    assert time.process_time() - started < 2
