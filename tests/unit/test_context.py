"""What recall asks a search for."""

from __future__ import annotations

import datetime as dt
from typing import cast

import pytest

from everosd import clock
from everosd.search import context, query
from everosd.store import read
from tests import memory_rows


class Asked:
    """A search that finds nothing and keeps what it was asked."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.queries: list[query.Query] = []

    async def run(self, query: query.Query) -> query.Answer:
        """Find nothing."""
        self.queries.append(query)
        return NOTHING


NOTHING = query.Answer()


@pytest.mark.parametrize(("max_tokens", "n_facts"), [(1, 1), (500, 8), (1500, 25), (6000, 100)])
async def test_a_block_is_made_of_as_many_facts_as_it_has_room_for(max_tokens: int, n_facts: int) -> None:
    """A large block is not left half empty, and in a small one weak facts of the first entry leave room for those of others."""
    search = Asked()
    recall = context.Recall(search, cast("read.Reader", None), clock.SystemClock(), dt.UTC)
    wanted = context.Wanted(owner=memory_rows.OWNER, text="tea", max_tokens=max_tokens)
    assert "" == (await recall.recall(wanted)).text
    assert [n_facts] == [one.n_facts for one in search.queries]
