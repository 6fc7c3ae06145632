"""What everosd wrote is followed from the file to the index, so that a search can wait for it, and for nothing else."""

from __future__ import annotations

from everosd import types
from everosd.cascade import unshown
from everosd.log import layout

MARA, THEO = (types.Owner(app="default", project="default", type="user", id=name) for name in ("mara", "theo"))
USERS = "default_app/default_project/users"
EPISODES = types.RelPath(f"{USERS}/mara/episodes/episode-2026-03-02.md")
OF_THEO = types.RelPath(f"{USERS}/theo/episodes/episode-2026-03-02.md")
ROWS = types.RelPath(f"{USERS}/mara/.clusters/cluster-2026-03-02.md")


def test_a_write_is_waited_for_until_its_lsn_is_shown_and_only_by_its_owner() -> None:
    one = unshown.Unshown()
    one.wrote(EPISODES)
    assert one.is_unread(MARA, one.n)
    assert not one.is_unread(THEO, one.n)
    assert [EPISODES] == one.unread(MARA, one.n)
    one.taken([EPISODES])
    assert [] == one.unread(MARA, one.n)
    assert one.is_unread(MARA, one.n), "it is not in the ledger yet"
    one.applied(7, shown=6)
    assert not one.is_unread(MARA, one.n)
    assert (7, 0) == (one.lsn(MARA), one.lsn(THEO))
    one.wrote(OF_THEO)
    one.taken([OF_THEO])
    one.applied(8, shown=7)
    assert (0, 8) == (one.lsn(MARA), one.lsn(THEO)), "what is shown is remembered no longer"


def test_what_is_written_while_it_is_read_is_read_again_and_later_writes_are_not_waited_for() -> None:
    one = unshown.Unshown()
    one.wrote(EPISODES)
    first = one.n
    one.taken([EPISODES])
    one.wrote(EPISODES)
    assert one.is_unread(MARA, first)
    one.applied(7, shown=0)
    assert not one.is_unread(MARA, first)
    assert one.is_unread(MARA, one.n)
    one.wrote(EPISODES)
    assert one.is_unread(MARA, first + 1), "a write after it hides no write before it"


def test_rows_and_what_cannot_be_put_into_the_ledger_are_not_waited_for() -> None:
    one = unshown.Unshown()
    one.wrote(ROWS)
    assert 0 == one.n
    one.wrote(EPISODES)
    one.taken([EPISODES])
    one.dropped()
    assert not one.is_unread(MARA, one.n)
    one.applied(3, shown=0)
    assert 0 == one.lsn(MARA)


def test_an_owner_whose_folder_has_a_shortened_name_is_waited_for_like_any_other() -> None:
    """The path has the beginning of the id and a digest: who asks has the id."""
    long = types.Owner(app="default", project="default", type="user", id="ж" * 128)
    other = types.Owner(app="default", project="default", type="user", id="ж" * 127 + "е")
    path = types.RelPath(f"{USERS}/{layout.encode(long.id)}/episodes/episode-2026-03-02.md")
    assert long.id not in path
    one = unshown.Unshown()
    one.wrote(path)
    assert ([path], []) == (one.unread(long, one.n), one.unread(other, one.n))
    one.taken([path])
    assert (True, False) == (one.is_unread(long, one.n), one.is_unread(other, one.n))
    one.applied(7, shown=6)
    assert (7, 0) == (one.lsn(long), one.lsn(other))


def test_no_more_than_so_many_files_are_remembered() -> None:
    one = unshown.Unshown()
    for nth in range(unshown.MAX_PATHS + 10):
        one.wrote(types.RelPath(f"{USERS}/u{nth}/episodes/episode-2026-03-02.md"))
    assert unshown.MAX_PATHS == len(one._written)
