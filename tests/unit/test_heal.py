"""Three-way merging of stale saves, without any disk."""

from __future__ import annotations

import itertools
import zoneinfo

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from everosd import types
from everosd.log import entry as entries
from everosd.log import heal, layout, parse, render

UTC = zoneinfo.ZoneInfo("UTC")
PATH = types.RelPath("default_app/default_project/users/u_mara/episodes/episode-2026-03-02.md")
IDS = tuple(f"ep_20260302_{nth:08}" for nth in range(1, 6))


def stamp(nth: int) -> str:
    """Return the n-th moment."""
    return f"2026-03-02T10:00:{nth:02}.000000+00:00"


def saved(texts: dict[str, str], *, at: int | None, deprecated: dict[str, str] | None = None) -> parse.Parsed:
    """Return a file as somebody saved it."""
    place = layout.place(PATH)
    assert place is not None
    listed = [entries.Entry(kind="episode", id=key, preamble=text) for key, text in texts.items()]
    data = render.new_file(place, listed, stamp=stamp(at or 0), deprecated=deprecated)
    if at is None:
        data = data.replace(f"last_appended_at: '{stamp(0)}'\n".encode(), b"")
    return parse.parse(PATH, data, place)


def raw(key: str, text: str) -> str:
    """Return the raw text of an entry."""
    return render.inner_text(entries.Entry(kind="episode", id=key, preamble=text))


ADDED = heal.Write(stamp=stamp(2), base_stamp=stamp(1), added={IDS[1]: raw(IDS[1], "daemon")})


def test_what_the_save_had_not_seen_is_restored() -> None:
    """An entry added after the save's stamp comes back, the person's text stays."""
    assert heal.heal(saved({IDS[0]: "mine"}, at=1), [ADDED]) == heal.Healing(restored=ADDED.added)


@pytest.mark.parametrize("at", [2, 3, None])
def test_a_current_or_missing_stamp_means_what_it_says(at: int | None) -> None:
    """Nothing is put back into a save that knew of the write, or carries no stamp."""
    assert not heal.heal(saved({IDS[0]: "mine"}, at=at), [ADDED])


def test_a_stamp_that_is_no_time_counts_as_none() -> None:
    """Nobody can be sure that it is older."""
    assert not heal.is_older("yesterday", stamp(1))
    assert not heal.is_older(stamp(1), "tomorrow")


def test_stamps_are_compared_as_moments() -> None:
    """Another offset or fewer digits do not make a stamp older."""
    assert not heal.is_older("2026-03-02T11:00:01+01:00", stamp(1))
    assert heal.is_older("2026-03-02T10:00:00+00:00", stamp(1))


@pytest.mark.parametrize(
    ("text", "updated", "n_conflicts"),
    [("before", {IDS[0]: raw(IDS[0], "after")}, 0), ("after", {}, 0), ("mine", {}, 1), (None, {}, 1)],
    ids=["untouched", "same", "both changed", "deleted"],
)
def test_update_is_repeated_unless_the_person_changed_it_too(
    text: str | None, updated: dict[str, str], n_conflicts: int
) -> None:
    """The person's text, or deletion, stays; the daemon's text is handed over as a conflict."""
    change = heal.Update(before=raw(IDS[0], "before"), after=raw(IDS[0], "after"))
    write = heal.Write(stamp=stamp(2), base_stamp=stamp(1), updated={IDS[0]: change})
    healing = heal.heal(saved({} if text is None else {IDS[0]: text}, at=1), [write])
    assert healing.updated == updated
    assert [each.daemon_text for each in healing.conflicts] == [change.after] * n_conflicts


@pytest.mark.parametrize(
    ("held", "keys", "gone", "n_conflicts"),
    [({}, {IDS[0]: IDS[2]}, (), 0), ({IDS[0]: IDS[2]}, {}, (), 0), ({IDS[0]: IDS[3]}, {}, (), 1)],
)
def test_keys_of_deprecated_entries_are_merged_one_by_one(
    held: dict[str, str], keys: dict[str, str], gone: tuple[str, ...], n_conflicts: int
) -> None:
    """A key that the save lacks is set again; one that a person points elsewhere stays."""
    write = heal.Write(stamp=stamp(2), base_stamp=stamp(1), deprecated={IDS[0]: heal.Pointer(after=IDS[2])})
    healing = heal.heal(saved({IDS[0]: "a"}, at=1, deprecated=held), [write])
    assert (healing.deprecated, healing.undeprecated, len(healing.conflicts)) == (keys, gone, n_conflicts)


def test_a_revived_entry_stays_revived() -> None:
    """The daemon removed a key after the save's stamp: it is removed again."""
    write = heal.Write(stamp=stamp(2), base_stamp=stamp(1), deprecated={IDS[0]: heal.Pointer(before=IDS[2])})
    assert heal.heal(saved({IDS[0]: "a"}, at=1, deprecated={IDS[0]: IDS[2]}), [write]).undeprecated == (IDS[0],)


def test_without_a_journal_everything_known_that_is_missing_comes_back() -> None:
    """The index was deleted meanwhile: who removed an entry cannot be told, so that none is lost."""
    known = heal.Known(stamp=stamp(3), entries={IDS[0]: "a", IDS[1]: "b"}, deprecated={IDS[0]: IDS[1]})
    healing = heal.heal(saved({IDS[0]: "mine"}, at=1), [], known)
    assert (healing.restored, healing.deprecated) == ({IDS[1]: "b"}, {IDS[0]: IDS[1]})


def test_a_journal_that_reaches_back_tells_deletions_from_losses() -> None:
    """What the person removed in the stale buffer stays removed; only what was written after it comes back."""
    known = heal.Known(stamp=stamp(2), entries={IDS[0]: "a", IDS[1]: "b", IDS[2]: "c"})
    assert heal.heal(saved({IDS[0]: "a"}, at=1), [ADDED], known).restored == ADDED.added


def test_an_entry_that_stands_in_the_file_unread_is_not_doubled() -> None:
    """Its marker is there although it could not be read: the daemon's text is reported instead."""
    parsed = saved({IDS[0]: "a"}, at=1)
    parsed = msgspec.structs.replace(parsed, ids=parsed.ids | {IDS[1]})
    healing = heal.heal(parsed, [ADDED])
    assert healing.restored == {}
    assert [each.entry_id for each in healing.conflicts] == [IDS[1]]


TEXTS = st.dictionaries(st.sampled_from(IDS), st.sampled_from("abc"), max_size=5)


def apply(texts: dict[str, str], write: heal.Write) -> dict[str, str]:
    """Return what a write makes of raw texts."""
    out = {key: text for key, text in texts.items() if key not in write.removed}
    return out | write.added | {key: each.after for key, each in write.updated.items()}


def parsed_raw(texts: dict[str, str]) -> dict[str, str]:
    """Return raw texts."""
    return {key: raw(key, text) for key, text in texts.items()}


@hypothesis.given(st.lists(TEXTS, min_size=1, max_size=5))
def test_folding_writes_equals_doing_them_one_by_one(versions: list[dict[str, str]]) -> None:
    """Whatever a chain of writes did, its fold does at once."""
    files = [saved(texts, at=1) for texts in versions]
    writes = [heal.difference((one.entries, {}), (other.entries, {})) for one, other in itertools.pairwise(files)]
    assert apply(parsed_raw(versions[0]), heal.fold(writes)) == parsed_raw(versions[-1])


@hypothesis.given(TEXTS, TEXTS, TEXTS)
def test_no_text_is_lost_in_a_merge(base: dict[str, str], person: dict[str, str], daemon: dict[str, str]) -> None:
    """What either side changed is in the result, or in a conflict; what only one side changed is as that side has it."""
    write = heal.difference((saved(base, at=1).entries, {}), (saved(daemon, at=1).entries, {}))
    healing = heal.merge(saved(person, at=1), write)
    base_raw, mine, theirs = parsed_raw(base), parsed_raw(person), parsed_raw(daemon)
    result = (
        {key: text for key, text in mine.items() if key not in healing.removed} | healing.restored | healing.updated
    )
    disputed = {each.entry_id: each.daemon_text for each in healing.conflicts}
    for key in IDS:
        was, left, right = base_raw.get(key), mine.get(key), theirs.get(key)
        if left == was:
            assert result.get(key) == right
        elif right in (was, left):
            assert result.get(key) == left
        else:
            assert result.get(key) == left
            assert right is None or disputed[key] == right


def test_a_report_says_what_happened_and_what_to_do() -> None:
    """Each sort of repair has its sentence; a long list is cut; nothing done, nothing said."""
    assert not heal.Report()
    assert "" == heal.Report().describe()
    many = tuple(f"ep_{n}" for n in range(7))
    said = heal.Report(restored=many, removed=("ep_8",), conflicts=(heal.Conflict(entry_id="ep_9", daemon_text="x"),))
    assert said
    text = said.describe()
    assert text.startswith("put back ep_0, ep_1, ep_2, ep_3, ep_4 and 2 more")
    assert "; repeated the changes to ep_8; kept your text of ep_9; " in text
    assert heal.Report(restored=many[:5]).describe().startswith("put back ep_0, ep_1, ep_2, ep_3, ep_4, which")


def test_a_stamp_without_an_offset_is_utc() -> None:
    """A person who shortened the stamp has not made the save a stale one."""
    assert not heal.is_older("2026-03-02T18:40:12", "2026-03-02T18:40:12+00:00")
    assert heal.is_older("2026-03-02T18:40:11", "2026-03-02T18:40:12+00:00")
    assert not heal.is_older("yesterday", "2026-03-02T18:40:12+00:00")
