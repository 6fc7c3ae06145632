"""The text index: ranking, bounds, durability, and what it does about damage."""

from __future__ import annotations

import concurrent.futures
import math
import os
import shutil
import threading
from pathlib import Path

import pytest

from everosd import errors, types
from everosd.index import contract, intact, shelf, text, token, where
from tests import memory_rows

OWNER, OTHER = memory_rows.OWNER, memory_rows.OTHER


def document(key: int, body: str, **fields: object) -> contract.Document:
    given: dict[str, object] = {
        "key": key,
        "owner": OWNER,
        "entry_id": f"ep_{key}",
        "kind": "episode",
        "status": "active",
        "title": "",
        "body": body,
        "timestamp_us": key,
    }
    return contract.Document(**(given | fields))  # type: ignore[arg-type]  # fields of the struct by name


def filled(folder: Path, *documents: contract.Document) -> text.TextIndex:
    index = text.TextIndex(folder)
    index.write(documents, [])
    index.commit()
    return index


def bounds(**fields: object) -> where.Where:
    given: dict[str, object] = {"owner": OWNER, "kinds": ("episode",), "now_us": 1_000}
    return where.Where(**(given | fields))  # type: ignore[arg-type]  # fields of the struct by name


def found(index: text.TextIndex, query: str, k: int = 10, **fields: object) -> list[int]:
    return [hit.key for hit in index.search(token.query_terms(query), bounds(**fields), k)]


def scores(index: text.TextIndex, query: str, **fields: object) -> dict[int, float]:
    return {hit.key: hit.score for hit in index.search(token.query_terms(query), bounds(**fields), 100)}


def test_scores_are_bm25_over_what_the_query_could_reach(tmp_path: Path) -> None:
    """Computed by hand from the formula, for an owner among others; a pair of neighbours comes on top."""
    bodies = {1: "pike perch", 2: "perch perch eel eel", 3: "eel bream"}
    others = [document(100 + i, "pike pike pike pike", owner=OTHER) for i in range(60)]
    index = filled(tmp_path / "text", *others, *(document(key, body) for key, body in bodies.items()))
    lengths = {key: 2 * len(body.split()) - 1 for key, body in bodies.items()}  # words and pairs
    average = (sum(lengths.values()) + 60 * 7) / 63  # of all owners: Tantivy keeps one average

    def weight(n: int) -> float:
        total = len(bodies) + shelf.PRIOR_DOCUMENTS
        return math.log(1 + (total - n + 0.5) / (n + 0.5))

    terms = {"pike": 1, "perch": 2, "carp": 1}  # the last occurs nowhere and counts as if it did once
    reach = 2.2 * sum(weight(n) for n in terms.values())
    expected = {}
    for key, body in bodies.items():
        words = body.split()
        raw = sum(
            2.2 * weight(n) * words.count(term) / (words.count(term) + 1.2 * (0.25 + 0.75 * lengths[key] / average))
            for term, n in terms.items()
        )
        share = raw / reach
        if key == 1:  # pike perch
            pair = token.NEIGHBOUR_WEIGHT * weight(1)
            share += 2.2 * pair / (1 + 1.2 * (0.25 + 0.75 * lengths[key] / average)) / reach
        if raw:
            expected[key] = share * (1 + shelf.CURVE) / (share + shelf.CURVE)
    assert pytest.approx(expected, rel=1e-3) == scores(index, "pike perch carp")


def test_words_that_stand_together_as_in_the_question_come_first(tmp_path: Path) -> None:
    """In long texts; a document that has them apart scores as if nobody had asked for the pair."""
    apart, together = "the red fox saw a panda", "the fox saw a red panda"
    index = filled(
        tmp_path / "text", document(1, together), document(2, apart), document(3, "a panda, later a red one")
    )
    assert 1 == found(index, "where was the red panda")[0]
    found_by_words = scores(index, "red otherwise panda")
    assert found_by_words[1] == found_by_words[2]
    assert scores(index, "red panda")[1] <= 1


def test_S06_an_exact_match_stands_clearly_above_noise(tmp_path: Path) -> None:
    """All words of the query score over 0.5, one of several below 0.3."""
    noise = [document(10 + i, f"the weather on day {i} was grey and wet again") for i in range(30)]
    index = filled(
        tmp_path / "text",
        *noise,
        document(1, "Mara adopted a grey parrot named Quill"),
        document(2, "a ship named after nobody in particular was seen again at sea"),
    )
    result = scores(index, "grey parrot named Quill")
    assert 1 == max(result, key=lambda key: result[key])
    assert 0.5 < result[1] <= 1.0
    assert all(0.3 > score > 0 for key, score in result.items() if key != 1)


def test_a_lone_weak_hit_is_weak(tmp_path: Path) -> None:
    """Being the best of one is no merit."""
    index = filled(tmp_path / "text", document(1, "a garden of roses"))
    assert 0.3 > scores(index, "quarterly budget figures garden")[1] > 0


def test_a_title_counts_more_than_the_same_words_in_the_body(tmp_path: Path) -> None:
    """A subject says what an entry is about."""
    filler = "one two three four five six seven"
    index = filled(
        tmp_path / "text", document(1, f"flat {filler}"), document(2, filler, title="flat"), document(3, filler)
    )
    assert [2, 1] == found(index, "flat")


def test_M07_a_word_in_every_entry_finds_every_entry(tmp_path: Path) -> None:
    """The commonest word still has a positive weight, right after each write."""
    index = text.TextIndex(tmp_path / "text")
    for key in range(1, 8):
        index.write([document(key, f"Luna did thing number {key}")], [])
        index.commit()
        assert set(range(1, key + 1)) == set(found(index, "luna"))


def test_S05_another_owners_entries_take_no_place(tmp_path: Path) -> None:
    """A's 2,000 near-identical entries neither crowd out B's five nor move their scores."""
    ours = [document(key, f"the fish swims in pond {key}") for key in range(1, 6)]
    alone = scores(filled(tmp_path / "alone", *ours), "fish pond")
    crowd = [document(1_000 + i, "the fish swims in pond 1", owner=OTHER) for i in range(2_000)]
    index = filled(tmp_path / "text", *crowd, *ours)
    assert pytest.approx(alone, rel=0.02) == scores(index, "fish pond")
    assert {1, 2} == set(found(index, "fish", clause=where.During(to_us=2)))
    assert [] == found(index, "fish", statuses=("deprecated",))


def test_Z03_scope_is_part_of_every_query(tmp_path: Path) -> None:
    """App, project, type and id of the owner all keep apart, also where one looks like another."""
    owners = [
        types.Owner(app="a", project="b", type="user", id="u"),
        types.Owner(app="a", project="b", type="agent", id="u"),
        types.Owner(app="a", project="c", type="user", id="u"),
        types.Owner(app="b", project="b", type="user", id="u"),
        types.Owner(app='a", "b', project="b", type="user", id="u"),
        types.Owner(app="a", project="b", type="user", id="u%"),
        types.Owner(app="a", project="b", type="user", id="*"),
    ]
    index = filled(
        tmp_path / "text", *(document(key, "secret", owner=owner) for key, owner in enumerate(owners, start=1))
    )
    for key, owner in enumerate(owners, start=1):
        assert [key] == found(index, "secret", owner=owner)
        links = [contract.link(other, f"ep_{n}") for n, other in enumerate(owners, start=1)]
        linked = index.score(token.query_terms("secret"), bounds(owner=owner), links)
        assert [key] == [hit.key for hit in linked]
    assert [] == found(index, "secret", owner=types.Owner(app="a", project="b", type="user", id=""))


def test_S07_statuses_and_expiry_are_part_of_the_query(tmp_path: Path) -> None:
    """By default only what is active and not past its time; an active entry past it counts as expired."""
    statuses = ("active", "deprecated", "expired", "superseded", "archived", "deleted")
    index = filled(
        tmp_path / "text",
        *(document(key, "word", status=status) for key, status in enumerate(statuses, start=1)),
        document(7, "word", expires_us=1_000),
        document(8, "word", expires_us=1_001),
        document(9, "word", status="archived", expires_us=1),
    )
    assert {1, 8} == set(found(index, "word"))
    assert {3, 7} == set(found(index, "word", statuses=("expired",)))
    assert {1, 3, 7, 8} == set(found(index, "word", statuses=("active", "expired")))
    assert {5, 9} == set(found(index, "word", statuses=("archived",)))
    assert {1, 2, 4, 8} == set(found(index, "word", statuses=("active", "deprecated", "superseded")))


@pytest.mark.parametrize(
    "query",
    ["fish days:", "C++ (x", '"open', "-x", "AND", "https://a.b/c?d=1", "{0}", ">>>", "a^", "*", "fish " * 2_000, "", "  ",
     "\x00", "title:fish", "fish~2", "[a TO b]", "NOT fish", "\\"],
)  # fmt: skip
def test_S01_any_text_is_a_query(tmp_path: Path, query: str) -> None:
    """Nothing a person types is a syntax error, and no sign is an operator."""
    index = filled(tmp_path / "text", document(1, "fish"))
    assert found(index, query) in ([1], [])
    assert ("fish" in query) == ([1] == found(index, query))


def test_X02_more_is_asked_for_than_there_is(tmp_path: Path) -> None:
    """Asking for 50 of 3, of 1 and of none gives 3, 1 and 0."""
    index = filled(tmp_path / "text", *(document(key, "word") for key in (1, 2, 3)))
    assert 3 == len(found(index, "word", k=50))
    index.write([document(key, "word", status="deprecated") for key in (1, 2)], [])
    index.commit()
    assert [3] == found(index, "word", k=50)
    index.write([], [types.EntryKey(3)])
    index.commit()
    assert [] == found(index, "word", k=50)


def test_equal_scores_come_in_the_same_order_every_time(tmp_path: Path) -> None:
    """The newest key first."""
    index = filled(tmp_path / "text", *(document(key, "word") for key in (3, 1, 2)))
    assert [3, 2, 1] == found(index, "word")


def test_facts_are_told_apart_from_episodes_and_know_their_parent(tmp_path: Path) -> None:
    """A fact's parent link is its Episode's own link."""
    fact = document(2, "the cat sleeps", kind="atomic_fact", entry_id="af_2", parent_id="ep_1")
    index = filled(tmp_path / "text", document(1, "about a cat"), fact)
    (hit,) = index.search(token.query_terms("cat"), bounds(kinds=("atomic_fact",)), 10)
    assert (2, contract.link(OWNER, "ep_1")) == (hit.key, hit.parent_link)
    (parent,) = index.score(token.query_terms("dog"), bounds(), [hit.parent_link])
    assert (1, 0.0) == (parent.key, parent.score)
    assert {1, 2} == set(found(index, "cat", kinds=("episode", "atomic_fact")))


def size_bytes(folder: Path) -> int:
    """Return what the files below a folder hold together."""
    return sum(path.stat().st_size for path in folder.rglob("*"))


def test_X04_one_entry_edited_over_and_over_leaves_nothing_behind(tmp_path: Path) -> None:
    """After 80 commits of one entry the index is as large as a fresh one, within a factor."""
    others = [document(key, "entry of a quiet year") for key in range(2, 60)]
    index = filled(tmp_path / "text", document(1, "edit 0"), *others)
    fresh_bytes = size_bytes(index.folder)
    for i in range(1, 81):
        index.write([document(1, f"edit {i}")], [])
        index.commit()
    assert (59, [1], []) == (index.count(), found(index, "80"), found(index, "79"))
    assert size_bytes(index.folder) < 3 * fresh_bytes


def test_X08_what_was_not_committed_is_written_again_without_doubling(tmp_path: Path) -> None:
    """A crash before the commit leaves the last commit; the replay ends with every entry once."""
    index = filled(tmp_path / "text", *(document(key, "old") for key in range(1, 51)))
    index.write([document(key, "new") for key in range(1, 101)], [])
    index.close()  # as kill -9 does: Tantivy writes nothing on the way out
    again, was_damaged = text.open_or_set_aside(tmp_path / "text")
    assert (False, 50, []) == (was_damaged, again.count(), found(again, "new"))
    again.write([document(key, "new") for key in range(1, 101)], [])
    again.commit()
    assert (100, 100) == (again.count(), len(found(again, "new", k=200)))
    assert [] == found(again, "old")


def test_X05_a_commit_that_was_killed_halfway_can_be_made_again(tmp_path: Path) -> None:
    """Its files are there and nothing names them: the next start makes the same commit, and removes what it left."""
    filled(tmp_path / "t", *(document(key, "walnut") for key in range(1, 30))).close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    changed = [document(key, "cherry") for key in range(1, 20)]
    filled(tmp_path / "t", *changed).close()
    for path, content in before.items():
        if path.name == "meta.json" or not path.exists():
            path.write_bytes(content)
    index, is_new = text.open_or_set_aside(tmp_path / "t")
    assert (False, 29) == (is_new, len(found(index, "walnut", 100)))
    left = {path.name for path in (tmp_path / "t").rglob("*") if path.suffix in (".del", ".store")}
    assert left == {path.name for path in before if path.suffix in (".del", ".store")}
    index.write(changed, [])
    index.commit()
    assert (10, 19) == (len(found(index, "walnut", 100)), len(found(index, "cherry", 100)))
    index.close()


def test_X06_lock_files_left_behind_never_block(tmp_path: Path) -> None:
    """Tantivy's locks are taken with flock: an empty file that someone left is no lock."""
    index = filled(tmp_path / "text", document(1, "word"))
    index.close()
    for name in (".tantivy-writer.lock", ".tantivy-meta.lock"):
        (tmp_path / "text" / "long" / name).write_bytes(b"")
    again = text.TextIndex(tmp_path / "text")
    again.write([document(2, "word")], [])
    again.commit()
    assert 2 == again.count()


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted((folder / "long").glob(f"*{suffix}"))


def damage(folder: Path, how: str) -> None:
    match how:
        case "garbage meta":
            (folder / "long" / "meta.json").write_text("garbage {")
        case "meta of another shape":
            (folder / "long" / "meta.json").write_text('{"segments": 3}')
        case "no meta":
            (folder / "long" / "meta.json").unlink()
        case "missing segment file":
            files(folder, ".term")[0].unlink()
        case "truncated":
            victim = files(folder, ".idx")[0]
            victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
        case "empty file":
            files(folder, ".fast")[0].write_bytes(b"")
        case "flipped byte":
            victim = files(folder, ".store")[0]
            data = bytearray(victim.read_bytes())
            data[len(data) // 3] ^= 0xFF
            victim.write_bytes(data)
        case "other schema":
            (folder / "schema.json").write_text('{"schema": 999}')
        case "no schema":
            (folder / "schema.json").unlink()
        case _:
            (folder / "schema.json").write_text("[")


@pytest.mark.parametrize(
    "how",
    ["garbage meta", "meta of another shape", "no meta", "missing segment file", "truncated", "empty file",
     "flipped byte", "other schema", "no schema", "garbage schema"],
)  # fmt: skip
def test_X05_X09_a_damaged_index_is_set_aside_and_begun_again(tmp_path: Path, how: str) -> None:
    """Each kind of damage is noticed at the start, kept for a look, and answered by an empty index to be filled."""
    filled(tmp_path / "text", *(document(key, "word " * 50) for key in range(1, 30))).close()
    damage(tmp_path / "text", how)
    with pytest.raises(errors.DerivedIndexError):
        text.TextIndex(tmp_path / "text")
    index, was_damaged = text.open_or_set_aside(tmp_path / "text")
    assert (True, 0) == (was_damaged, index.count())
    assert [tmp_path / "text.damaged-1"] == list(tmp_path.glob("*.damaged-*"))
    index.write([document(1, "word")], [])
    index.commit()
    assert [1] == found(index, "word")
    index.close()
    assert text.open_or_set_aside(tmp_path / "text")[1] is False


def test_only_the_last_damaged_indexes_are_kept(tmp_path: Path) -> None:
    """A disk that eats bytes does not fill itself with what is left of them."""
    for _ in range(5):
        text.open_or_set_aside(tmp_path / "text")[0].close()
        damage(tmp_path / "text", "garbage schema")
    index, _ = text.open_or_set_aside(tmp_path / "text")
    index.close()
    assert {"text.damaged-4", "text.damaged-5"} == {path.name for path in tmp_path.glob("*.damaged-*")}
    assert 2 == intact.KEPT_ASIDE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_X09_an_unreadable_folder_stops_with_a_message_and_wipes_nothing(tmp_path: Path) -> None:
    """Permissions are no damage: the person mends them and the index is still there."""
    filled(tmp_path / "text", document(1, "word")).close()
    (tmp_path / "text" / "long").chmod(0)
    try:
        with pytest.raises(errors.IndexUnavailable, match="ermission"):
            text.open_or_set_aside(tmp_path / "text")
    finally:
        (tmp_path / "text" / "long").chmod(0o700)
    assert (1, False) == (text.TextIndex(tmp_path / "text").count(), bool(list(tmp_path.glob("*.damaged-*"))))


def test_X09_a_disk_that_refuses_is_told_apart_from_damage(tmp_path: Path) -> None:
    """A file where the folder should be is an I/O error: it is named and left as it is."""
    (tmp_path / "text").write_text("mine")
    with pytest.raises(errors.IndexUnavailable):
        text.open_or_set_aside(tmp_path / "text")
    assert "mine" == (tmp_path / "text").read_text()


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (PermissionError(13, "Permission denied"), errors.IndexUnavailable),
        (OSError(28, "No space left on device"), errors.IndexUnavailable),
        (ValueError("An IO error occurred: 'Read-only file system (os error 30)'"), errors.IndexUnavailable),
        (ValueError("An IO error occurred: 'No such file or directory (os error 2)'"), errors.DerivedIndexError),
        (
            ValueError(
                "Failed to open file for write: 'IoError { io_error: Custom { kind: PermissionDenied, error: PathError "
                '{ path: "/x", err: Os { code: 13, kind: PermissionDenied, message: "Permission denied" } } } }\''
            ),
            errors.IndexUnavailable,
        ),
        (ValueError("Schema error: 'An index exists but the schema does not match.'"), errors.DerivedIndexError),
    ],
)
def test_causes_are_told_apart_by_what_cures_them(cause: Exception, expected: type[errors.EverosdError]) -> None:
    """What a rebuild cures is damage; what the disk refuses is to be tried again; either way the writer is dropped."""
    dropped: list[bool] = []
    with pytest.raises(expected) as caught, intact.translated(lambda: dropped.append(True)):
        raise cause
    assert (cause, [True]) == (caught.value.__cause__, dropped)


def _commit_each(index: text.TextIndex, keys: range) -> None:
    for key in keys:
        index.write([document(key, "word")], [])
        index.commit()


def test_the_index_may_be_deleted_while_it_is_open(tmp_path: Path) -> None:
    """Searches go on from what is open; writing reports damage; opening begins anew."""
    index = filled(tmp_path / "text", document(1, "word"))
    shutil.rmtree(tmp_path / "text")
    assert [1] == found(index, "word")
    with pytest.raises(errors.DerivedIndexError):
        _commit_each(index, range(2, 40))
    index.close()
    again, _ = text.open_or_set_aside(tmp_path / "text")
    again.write([document(1, "word")], [])
    again.commit()
    assert [1] == found(again, "word")


def test_X07_X16_searches_go_on_while_everything_is_written_anew(tmp_path: Path) -> None:
    """Two writers and two searchers at once: nothing fails, no search misses an entry, none is lost."""
    n = 100
    index = filled(tmp_path / "text", *(document(key, "word") for key in range(1, n + 1)))
    is_done = threading.Event()

    def search() -> set[int]:
        counts = set()
        while not is_done.is_set():
            counts.add(len(found(index, "word", k=2 * n)))
        return counts

    def write(keys: range) -> None:
        for key in keys:
            index.write([document(key, f"word again {key}")], [])
            if key % 20 == 0:
                index.commit()

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        searches = [threads.submit(search) for _ in range(2)]
        writes = [threads.submit(write, range(start, n + 1, 2)) for start in (1, 2)]
        concurrent.futures.wait(writes)
        is_done.set()
    index.commit()
    assert [None, None] == [one.result() for one in writes]
    assert [{n}, {n}] == [one.result() for one in searches]
    assert (n, n) == (index.count(), len(found(index, "again", k=2 * n)))


def test_an_untouched_shelf_and_an_idle_index_write_nothing(tmp_path: Path) -> None:
    """Committing nothing, or removing what is not there, leaves every file as it was."""
    index = filled(tmp_path / "text", document(1, "word"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "text").rglob("*")}
    index.commit()
    index.write([], [types.EntryKey(5)])
    index.commit()
    assert [1] == found(index, "word")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "text").rglob("*")}


def test_an_edit_is_found_before_the_disk_has_it(tmp_path: Path) -> None:
    """What is shown is found by its new words only, within its bounds, weighed by what the owner has on disk."""
    bodies = {n: f"pike number{n}" for n in range(1, 41)} | {41: "tench one", 42: "tench two"}
    index = filled(tmp_path / "text", *(document(key, body) for key, body in bodies.items()))
    edited = [document(41, "carp one"), document(43, "tench three", owner=OTHER), document(44, "pike tench")]
    index.show(edited, [types.EntryKey(42)])
    shown = {word: sorted(found(index, word, 100)) for word in ("carp", "tench", "two", "pike")}
    weights = scores(index, "pike tench")
    index.write(edited, [types.EntryKey(42)])
    index.commit()
    assert {word: sorted(found(index, word, 100)) for word in shown} == shown
    assert {"carp": [41], "tench": [44], "two": [], "pike": [*range(1, 41), 44]} == shown
    assert pytest.approx(scores(index, "pike tench"), abs=0.1) == weights
    assert [43] == found(index, "tench", owner=OTHER)
    index.close()


def test_what_was_shown_and_not_committed_is_gone_after_a_restart(tmp_path: Path) -> None:
    """Showing promises nothing to the disk: the ledger's checkpoint does not move before the commit."""
    index = filled(tmp_path / "text", document(1, "pike"))
    index.show([document(1, "carp")], [])
    index.close()
    again = text.TextIndex(tmp_path / "text")
    assert ([1], []) == (found(again, "pike"), found(again, "carp"))
    again.close()
