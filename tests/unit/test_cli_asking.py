"""What becomes of answers that are errors."""

from __future__ import annotations

import pytest

from everosd import daemon
from everosd.cli import asking, client


def refused(status: int, code: str) -> asking.RequestFailed:
    """Return the error that an answer becomes."""
    answer = client.Answer(status=status, body={"error": {"code": code, "message": "there is no such thing"}})
    with pytest.raises(asking.RequestFailed) as raised:
        asking.checked(answer)
    assert "there is no such thing" == str(raised.value)
    return raised.value


@pytest.mark.parametrize(("status", "code"), [(404, "NOT_FOUND"), (409, "CONFLICT")])
def test_a_request_that_cannot_be_answered_ends_with_2(status: int, code: str) -> None:
    """Typing the same again would not help."""
    assert daemon.USAGE == daemon.exit_code(refused(status, code))


def test_what_failed_ends_with_1() -> None:
    """The same may succeed later."""
    assert daemon.UNEXPECTED == daemon.exit_code(refused(500, "INTERNAL_ERROR"))
