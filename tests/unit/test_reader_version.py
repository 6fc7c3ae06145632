"""A ledger outlives the everosd that wrote it: what reads differently has to be read again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from everosd.cascade import verify
from everosd.store import meta
from tests.unit import conftest

REPO = Path(__file__).parents[2]
SAMPLE = REPO / "everosd" / "cli" / "sample"
GOLDEN = REPO / "tests" / "golden" / "reader.txt"
IS_WRITING = bool(os.environ.get("EVEROSD_WRITE_GOLDEN"))
USER = "default_app/default_project/users/mara"
ODD = {
    f"{USER}/episodes/no date.md": "one\n\ntwo\n\n# Title\n\ntext\n\n## Heading\n\n- list\n\n```\n## code\n```\n",
    f"{USER}/episodes/episode-2026-03-02.md": "---\nid: [\n---\n## A note\r\n\r\nstill read\r\n",
    f"{USER}/episodes/episode-2026-03-03.md": "<!-- entry:ep_20260303_00000001 -->\n## Open\n\n**timestamp**: noon\n",
}
Open = Callable[..., AbstractAsyncContextManager[conftest.Door]]


async def test_a_changed_reading_raises_the_reader_version(open_door: Open) -> None:
    """Where the same bytes give other rows, `meta.READER_VERSION` is another, or `verify` fails after an update.

    Raise it, and set EVEROSD_WRITE_GOLDEN=1 to record the new pair.
    """
    files = {path.relative_to(SAMPLE).as_posix(): path.read_text(encoding="utf-8") for path in SAMPLE.rglob("*.md")}
    async with open_door(files | ODD) as door:
        report = await verify.verify(door.node.cascade)
    assert report.is_clean
    found = f"reader {meta.READER_VERSION} makes {report.digest_disk} of the sample\n"
    if IS_WRITING:
        await asyncio.to_thread(GOLDEN.write_text, found, encoding="utf-8")
    assert await asyncio.to_thread(GOLDEN.read_text, encoding="utf-8") == found
