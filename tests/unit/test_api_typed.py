"""The routes that write typed memories, over a real root: what is written, found, changed, forgotten and brought back."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from everosd import errors, types
from everosd.cascade import verify
from everosd.lifecycle import desk
from everosd.log import entry as log_entry
from tests import steps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Door, Open, Said

MARA = types.Owner(app="default", project="default", type="user", id="mara")
BASE = "default_app/default_project/users/mara"


async def ask(door: Door, route: str, *, status: int = 200, **body: object) -> dict[str, Any]:
    """Post to a route and return what stands under `data`; of a refusal the error."""
    answer = await door.client.post(f"/api/v1/memory/{route}", json=body)
    assert status == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()["data" if status == 200 else "error"]
    return found


async def remember(door: Door, content: str, *, status: int = 200, **body: object) -> dict[str, Any]:
    """Remember something of mara under `projects/atlas`."""
    return await ask(
        door, "remember", status=status, **{"path": "projects/atlas", "user_id": "mara"} | body, content=content
    )


async def found(door: Door, query: str, **body: object) -> list[str]:
    """Return the ids that a search of mara's memory finds."""
    data = await door.search(query, user_id="mara", **body)
    return [one["id"] for one in data["episodes"]]


async def history(door: Door, public_id: str, **query: str) -> dict[str, Any]:
    """Return the history of an entry."""
    answer = await door.client.get(f"/api/v1/entries/{public_id}/history", params=query)
    assert 200 == answer.status_code, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


def save(path: Path, text: str) -> None:
    """Save as an editor does, long enough ago."""
    other = path.with_name("saving")
    other.write_text(text)
    steps.age(other)
    other.replace(path)


async def settled(door: Door) -> None:
    """Wait until everything on disk is searchable."""
    await door.node.cascade.reconcile("test")
    await door.node.cascade.settled(20.0)


async def is_clean(door: Door) -> None:
    """Make sure that what is live is what a rebuild would make."""
    report = await verify.verify(door.node.cascade)
    assert report.is_clean, report.differences


def files(root: Path) -> dict[str, str]:
    """Return every Markdown file below a root."""
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*.md"))
        if ".tmp" not in path.parts
    }


async def test_what_is_remembered_is_in_its_file_and_found_by_the_next_search(open_door: Open) -> None:
    """The answer tells id and file; the file lies in the folder of its path, with the fields that were given."""
    async with open_door({}) as door:
        made = await remember(
            door,
            "Atlas ships from the Hamburg warehouse.",
            subject="Warehouse",
            importance=0.8,
            metadata={"ticket": "A-7"},
            provenance='{"tool": "cli"}',
            expires_at="2099-01-01T00:00:00Z",
            pinned=True,
            source_ids=["mara_ep_20260302_00000001", "x"],
        )
        assert [made["id"]] == await found(door, "Hamburg warehouse")
        shown = await door.entry(made["id"])
        text = (door.root / made["file"]).read_text()
        await is_clean(door)

    today = dt.datetime.now(dt.UTC).date().isoformat()
    assert ("created", 1, "semantic", "projects/atlas", "active") == (
        made["outcome"],
        made["version"],
        made["memory_type"],
        made["path"],
        made["status"],
    )
    assert f"{BASE}/memories/projects/atlas/semantic-{today}.md" == made["file"]
    assert f"mara_{made['entry_id']}" == made["id"]
    assert ("Warehouse", "Atlas ships from the Hamburg warehouse.") == (shown["subject"], shown["content"])
    assert 0.8 == shown["importance"]
    assert {
        "owner_id": "mara",
        "memory_type": "semantic",
        "importance": "0.8",
        "expires_at": "2099-01-01T00:00:00Z",
        "pinned": "true",
        "sources": "[ep_20260302_00000001, x]",
        "metadata": '{"ticket":"A-7"}',
        "provenance": '{"tool":"cli"}',
    } == {name: value for name, value in shown["fields"].items() if name != "timestamp"}
    assert "### Subject\nWarehouse" in text


async def test_a_memory_with_a_session_is_episodic_and_one_without_is_semantic(open_door: Open) -> None:
    """`auto` decides so; a type that is given holds, and names the file."""
    async with open_door({}) as door:
        told = [
            await remember(door, "We met at nine.", session_id="s/1 'x'"),
            await remember(door, "Atlas is a ship."),
            await remember(door, "Always answer in German.", memory_type="identity"),
        ]
        shown = await door.entry(told[0]["id"])
    assert ["episodic", "semantic", "identity"] == [one["memory_type"] for one in told]
    assert "/identity-" in told[2]["file"]
    assert "s/1 'x'" == shown["session_id"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("..", "path"),
        ("a/b/../c", "path"),
        ("a//b", "path"),
        (".", "path"),
        ("/", "path"),
        ("", "path"),
        ("a\x00b", "path"),
        ("a\nb", "path"),
        ("x" * 513, "path"),
        ("a/" + "ü" * 101, "path"),
    ],
)
async def test_z01_a_hostile_path_is_refused_and_nothing_is_written(open_door: Open, path: str, reason: str) -> None:
    """422 with the field at fault, and no file anywhere."""
    async with open_door({}) as door:
        error = await remember(door, "x", status=422, path=path)
        assert {} == files(door.root)
    assert "INVALID_INPUT" == error["code"]
    assert error["message"].endswith(f": {reason}")


@pytest.mark.parametrize("path", ["Ideen/Größe 🎈", "a\\b", "con/aux.", "x" * 190, "%2e%2e/x", " lead", "a:b|c?"])
async def test_odd_paths_are_folders_of_their_own_below_the_owner(open_door: Open, path: str) -> None:
    """What a file system would not take is encoded; the path is given back as it came."""
    async with open_door({}) as door:
        made = await remember(door, "Balloons rise.", path=path)
        assert [made["id"]] == await found(door, "balloons")
        await is_clean(door)
    assert path == made["path"]
    assert made["file"].startswith(f"{BASE}/memories/")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": ""}, "content"),
        ({"content": " \n\t"}, "content"),
        ({"content": "x" * 200_001}, "content"),
        ({"importance": 1.1}, "importance"),
        ({"confidence": -0.1}, "confidence"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"timestamp": "9999-99-99"}, "timestamp"),
        ({"memory_type": "dream"}, "memory_type"),
        ({"metadata": "[1]"}, "metadata"),
        ({"metadata": {"x": "y" * 70_000}}, "metadata"),
        ({"provenance": "{"}, "provenance"),
        ({"semantic_key": "a\nb"}, "semantic_key"),
        ({"bucket": "a\x00"}, "bucket"),
        ({"session_id": "a\x00"}, "session_id"),
        ({"userid": "theo"}, "userid"),
        ({"agent_id": "bot"}, "agent_id"),
        ({"app_id": "../x"}, "app_id"),
    ],
)
async def test_a07_what_cannot_be_remembered_is_refused_by_the_name_of_its_field(
    open_door: Open, body: dict[str, Any], field: str
) -> None:
    """422, and nothing is written."""
    async with open_door({}) as door:
        asked = {"path": "projects/atlas", "user_id": "mara", "content": "x"} | body
        error = await ask(door, "remember", status=422, **asked)
        assert {} == files(door.root)
    assert field in error["message"]


async def test_credentials_are_made_unreadable_before_anything_is_written(open_door: Open) -> None:
    """In the text, in metadata, in a reason: no file of the root holds them."""
    key = "sk-proj-abcdefghijklmnopqrstuvwx"
    async with open_door({}) as door:
        made = await remember(
            door,
            f"The key is {key}.",
            subject=key,
            metadata={"deep": [{"token": key}]},
            provenance={"api_key": "hunter22!"},
        )
        await ask(door, "update", memory_id=made["id"], content=f"Now {key}!", reason=f"because {key}")
        await ask(door, "forget", memory_id=made["id"], reason=f"because {key}")
        await settled(door)
        assert [] == steps.holders(door.root, key)
        assert [] == steps.holders(door.root, "hunter22!")


async def test_the_second_write_under_a_key_updates_the_one_memory_and_keeps_its_version(open_door: Open) -> None:
    """One active memory a key; the same once more changes nothing; another bucket, scope or team is another memory."""
    async with open_door({}) as door:
        first = await remember(door, "Mara drinks tea.", semantic_key="drink", importance=0.9)
        second = await remember(door, "Mara drinks coffee.", semantic_key="drink")
        third = await remember(door, "Mara drinks coffee.", semantic_key="drink")
        other = await remember(door, "Mara drinks water.", semantic_key="drink", scope="work")
        assert sorted([first["id"], other["id"]]) == sorted(await found(door, "Mara drinks"))
        assert [] == await found(door, "tea")
        told = await history(door, first["id"])
        shown = await door.entry(first["id"])
        await is_clean(door)
    assert ["created", "updated", "unchanged", "created"] == [one["outcome"] for one in (first, second, third, other)]
    assert [1, 2, 2] == [one["version"] for one in (first, second, third)]
    assert first["id"] == second["id"] == third["id"]
    assert second["digest"] == third["digest"] == told["digest"] != first["digest"]
    assert [(1, "Mara drinks tea.")] == [(one["version"], one["before"]["content"]) for one in told["versions"]]
    assert "0.9" == shown["fields"]["importance"]


async def test_many_at_once_under_one_key_make_one_memory(open_door: Open) -> None:
    """Twenty requests side by side: one is created, the others are its versions, none is lost."""
    async with open_door({}) as door:
        texts = [f"The door code is number {n}." for n in range(20)]
        made = await asyncio.gather(*(remember(door, text, semantic_key="door code") for text in texts))
        told = await history(door, made[0]["id"])
        shown = await door.entry(made[0]["id"])
        await is_clean(door)
    assert 1 == len({one["id"] for one in made})
    assert ["created"] + ["updated"] * 19 == sorted(one["outcome"] for one in made)
    assert list(range(1, 21)) == sorted(one["version"] for one in made)
    assert sorted(texts) == sorted([shown["content"], *(one["before"]["content"] for one in told["versions"])])


async def test_what_is_known_already_is_not_written_again_where_that_is_wished(open_door: Open) -> None:
    """`dedupe` compares what is said, not how it is spelt, at the same path and for the same people only."""
    async with open_door({}) as door:
        first = await remember(door, "Atlas ships from Hamburg.")
        again = await remember(door, "atlas   ships from HAMBURG", dedupe=True)
        others = [
            await remember(door, "Atlas ships from Hamburg.", dedupe=True, path="other"),
            await remember(door, "Atlas ships from Hamburg.", dedupe=True, bucket="private"),
            await remember(door, "Atlas ships from Hamburg."),
        ]
        await ask(door, "forget", memory_id=first["id"])
        await ask(door, "forget", memory_id=others[2]["id"])
        anew = await remember(door, "Atlas ships from Hamburg.", dedupe=True)
    assert ("duplicate", first["id"]) == (again["outcome"], again["id"])
    assert ["created"] * 4 == [one["outcome"] for one in (*others, anew)]


async def test_many_at_once_that_say_the_same_make_one_memory(open_door: Open) -> None:
    """With `dedupe`: one is created, the others are told its id."""
    async with open_door({}) as door:
        made = await asyncio.gather(*(remember(door, "The sky is blue.", dedupe=True) for _ in range(8)))
    assert ["created"] + ["duplicate"] * 7 == sorted(one["outcome"] for one in made)
    assert 1 == len({one["id"] for one in made})


async def test_an_update_changes_what_it_names_and_nothing_else(open_door: Open) -> None:
    """Text, fields and what is cleared; the version before has all of it as it was."""
    async with open_door({}) as door:
        made = await remember(door, "Tea.", subject="Drink", importance=0.4, expires_at="2099-01-01", metadata={"a": 1})
        changed = await ask(
            door,
            "update",
            memory_id=made["id"],
            content="Coffee.",
            confidence=1,
            memory_type="procedural",
            clear=["expires_at", "metadata"],
            reason="she said so",
        )
        shown = await door.entry(made["id"])
        (ended,) = (await history(door, made["id"]))["versions"]
        same = await ask(door, "update", memory_id=made["id"], content="Coffee.")
        error = await ask(door, "update", status=422, memory_id=made["id"])
        await ask(door, "update", status=422, memory_id=made["id"], subject="x", clear=["subject"])
        await is_clean(door)
    assert ("updated", 2, "procedural") == (changed["outcome"], changed["version"], changed["memory_type"])
    assert ("unchanged", 2) == (same["outcome"], same["version"])
    assert ("Drink", "Coffee.", 0.4, 1.0, None) == tuple(
        shown[name] for name in ("subject", "content", "importance", "confidence", "expires_at")
    )
    assert "metadata" not in shown["fields"]
    assert "2" == shown["fields"]["version"]
    assert (1, "update", "she said so", "Tea.", "Drink") == (
        *(ended[name] for name in ("version", "action", "reason")),
        ended["before"]["content"],
        ended["before"]["subject"],
    )
    assert '{"a":1}' == ended["before"]["fields"]["metadata"]
    assert error["message"].startswith("say what is to be another")


async def test_an_update_of_another_version_than_is_expected_is_refused_with_the_present_one(open_door: Open) -> None:
    """By number, and by the digest of the text it was made on; nothing is written, no row either."""
    async with open_door({}) as door:
        made = await remember(door, "One.")
        second = await ask(door, "update", memory_id=made["id"], content="Two.", expected_version=1)
        before = files(door.root)
        late = await ask(door, "update", status=409, memory_id=made["id"], content="Three.", expected_version=1)
        other = await ask(
            door, "update", status=409, memory_id=made["id"], content="Three.", expected_digest=made["digest"]
        )
        assert before == files(door.root)
        third = await ask(door, "update", memory_id=made["id"], content="Three.", expected_digest=second["digest"])
    assert ("CONFLICT", "CONFLICT") == (late["code"], other["code"])
    assert "is at version 2, not 1" in late["message"]
    assert 3 == third["version"]


async def test_what_a_person_wrote_into_a_memory_meanwhile_becomes_a_version(open_door: Open) -> None:
    """Their edit is not lost, and refused by whoever read the text before it."""
    async with open_door({}) as door:
        made = await remember(door, "Tea at four.")
        path = door.root / made["file"]
        save(path, path.read_text().replace("Tea at four.", "Tea at five, says Mara."))
        error = await ask(
            door, "update", status=409, memory_id=made["id"], content="Coffee.", expected_digest=made["digest"]
        )
        changed = await ask(door, "update", memory_id=made["id"], content="Coffee.")
        told = await history(door, made["id"])
        await is_clean(door)
    assert "something else" in error["message"]
    assert 2 == changed["version"]
    assert ["Tea at five, says Mara."] == [one["before"]["content"] for one in told["versions"]]


@pytest.mark.parametrize(
    "written", ["999999999", "999999999999999999", "999999", "9" * 40, "1000000", "0", "-3", "many"]
)
async def test_a_version_that_a_person_wrote_is_never_where_counting_ends(open_door: Open, written: str) -> None:
    """Each update counts one up from there, or from what it was where no memory has that many; each stays in its history."""
    async with open_door({}) as door:
        made = await remember(door, "Text 1.")
        path = door.root / made["file"]
        save(path, path.read_text().replace("**owner_id**: mara\n", f"**owner_id**: mara\n**version**: {written}\n"))
        first = await ask(door, "update", memory_id=made["id"], content="Text 2.")
        last = first["version"]
        for nth in (3, 4):
            last += 1
            got = await ask(door, "update", memory_id=made["id"], content=f"Text {nth}.", expected_version=last - 1)
            assert last == got["version"]
        told = await history(door, made["id"])
        await is_clean(door)
    assert (1_000_000 if written == "999999" else 2) == first["version"]
    assert ["Text 3.", "Text 2.", "Text 1."] == [one["before"]["content"] for one in told["versions"]]
    assert list(range(last - 1, last - 4, -1)) == [one["version"] for one in told["versions"]]


@pytest.mark.parametrize("instead", ["", "**version**: 1\n"])
async def test_a_version_that_a_person_took_back_does_not_come_a_second_time(open_door: Open, instead: str) -> None:
    """Whoever read version 2 is refused, also where it stands in the file again: something else was version 3."""
    async with open_door({}) as door:
        made = await remember(door, "Text 1.")
        for nth in (2, 3):
            await ask(door, "update", memory_id=made["id"], content=f"Text {nth}.")
        path = door.root / made["file"]
        save(path, path.read_text().replace("**version**: 3\n", instead).replace("Text 3.", "By hand."))
        await ask(door, "update", status=409, memory_id=made["id"], content="Late.", expected_version=2)
        got = await ask(door, "update", memory_id=made["id"], content="Text 4.", expected_version=3)
        told = await history(door, made["id"])
        await is_clean(door)
    assert 4 == got["version"]
    assert ["By hand.", "Text 2.", "Text 1."] == [one["before"]["content"] for one in told["versions"]]


async def test_a_memory_moves_to_another_path_under_its_own_id(open_door: Open) -> None:
    """It is in one file afterwards, the other one's, and found all the time."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas is a ship.", path="projects/old")
        stays = await remember(door, "Zeus is a ship, too.", path="projects/old")
        moved = await ask(door, "update", memory_id=made["id"], path="projects/new")
        assert sorted([made["id"], stays["id"]]) == sorted(await found(door, "ship"))
        again = await ask(door, "update", memory_id=made["id"], path="projects/new", content="Atlas sank.")
        texts = files(door.root)
        told = await history(door, made["id"])
        await is_clean(door)
    assert ("projects/new", "projects/new", 2, 3) == (moved["path"], again["path"], moved["version"], again["version"])
    assert [moved["file"]] == [
        path for path, text in texts.items() if f"entry:{made['entry_id']} " in text and "memories" in path
    ]
    assert 2 == len(told["versions"])


async def test_a_memory_that_moves_to_where_a_person_keeps_a_second_copy_leaves_their_text_in_the_log(
    open_door: Open,
) -> None:
    """An editor that had the old file open brought it back there, with an edit: that is not overwritten without a trace."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas is a ship.", path="b")
        path = door.root / made["file"]
        old = path.read_text()
        await ask(door, "update", memory_id=made["id"], path="a")
        save(path, old.replace("Atlas is a ship.", "Atlas is a ship, says Mara."))
        await settled(door)
        back = await ask(door, "update", memory_id=made["id"], path="b", content="Atlas sank.")
        texts = files(door.root)
        told = await history(door, made["id"])
        await is_clean(door)
    holding = [path for path, text in texts.items() if "says Mara" in text]
    assert [True] == [".lifecycle/" in path for path in holding]
    assert [made["file"]] == [path for path, text in texts.items() if "Atlas sank." in text]
    assert [2, 1] == [one["version"] for one in told["versions"]]
    assert 3 == back["version"]


async def test_an_agent_removed_the_memory_of_a_person_of_the_same_name_for_good(open_door: Open) -> None:
    """Where an id alone does not say whose it is, it is refused, also once one of the two is gone."""
    async with open_door({}) as door:
        mine = await ask(door, "remember", path="p", content="Mara's.", user_id="mara")
        its = await ask(door, "remember", path="p", content="The agent's.", agent_id="mara")
        assert mine["id"] == its["id"]
        before = files(door.root)
        for route, body in (
            ("forget", {"mode": "hard_delete", "confirm": True}),
            ("update", {"content": "x"}),
            ("restore", {}),
        ):
            error = await ask(door, route, status=422, memory_id=its["id"], **body)
            assert "send user_id or agent_id" in error["message"]
        answer = await door.client.get(f"/api/v1/entries/{its['id']}")
        assert (422, False) == (answer.status_code, "Mara's" in answer.text)
        answer = await door.client.get(f"/api/v1/entries/{its['id']}", params={"owner_type": "agent"})
        assert "The agent's." in answer.text
        assert before == files(door.root)
        removal = {"memory_id": its["id"], "mode": "hard_delete", "confirm": True}
        await ask(door, "forget", agent_id="mara", **removal)
        await ask(door, "forget", status=422, **removal)
        assert "Mara's." in files(door.root)[mine["file"]]


@pytest.mark.parametrize("key", ["", "atlas.state"])
async def test_a_memory_was_said_not_to_exist_while_a_person_moved_its_file(open_door: Open, key: str) -> None:
    """Until the ledger has taken note it is a conflict, and the same request goes through a moment later."""
    named: dict[str, Any] = {"semantic_key": key} if key else {}
    async with open_door({}) as door:
        await remember(door, "Zeus stays.", path="projects/zeus")  # or all files would be gone for a moment
        made = await remember(door, "Atlas is a ship.", **named)
        route, body = "update", {"memory_id": made["id"], "content": "Atlas sank."}
        if key:
            route, body = "remember", {"path": "projects/moved", "user_id": "mara", "content": "Atlas sank.", **named}
        old = door.root / made["file"]
        new = door.root / made["file"].replace("projects/atlas", "projects/moved")
        new.parent.mkdir(parents=True)
        old.rename(new)
        error = await ask(door, route, status=409, **body)
        await door.node.cascade.reconcile("test")
        await door.node.cascade.settled(20.0)
        again = await ask(door, route, **body)
        await is_clean(door)
    assert "a moment ago" in error["message"]
    assert (made["id"], "updated", "projects/moved") == (again["id"], again["outcome"], again["path"])


async def test_a_hand_written_memory_is_updated_in_its_place(open_door: Open) -> None:
    """What stood under a person's heading becomes the version; the heading stays, and it has its markers then."""
    path = f"{BASE}/memories/notes/semantic-2026-03-02.md"
    async with open_door({path: "# Notes\n\n## Passport\n\nIt is in the blue drawer.\n"}) as door:
        (one,) = (await door.search("passport", user_id="mara"))["episodes"]
        changed = await ask(door, "update", memory_id=one["id"], content="It is in the red drawer.", importance=0.9)
        told = await history(door, one["id"])
        assert [one["id"]] == await found(door, "red drawer passport")
        assert [] == await found(door, "blue")
        text = (door.root / path).read_text()
        await is_clean(door)
    assert ("updated", 2, path) == (changed["outcome"], changed["version"], changed["file"])
    assert "## Passport" in text
    assert "It is in the blue drawer." == told["versions"][0]["before"]["content"]


async def test_a_pin_is_a_version_of_its_own_and_can_be_taken_out(open_door: Open) -> None:
    """Its row says `pin`; pinned twice changes nothing."""
    async with open_door({}) as door:
        made = await remember(door, "Mara is allergic to nuts.")
        done = [
            await ask(door, "update", memory_id=made["id"], pinned=pinned, reason="vital")
            for pinned in (True, True, False)
        ]
        told = await history(door, made["id"])
        log = await door.client.get("/api/v1/memory/audit", params={"user_id": "mara", "action_type": "pin"})
        await ask(door, "forget", memory_id=made["id"], mode="redact", confirm=True)
        bare = await door.client.get("/api/v1/memory/audit", params={"user_id": "mara", "action_type": "pin"})
        await is_clean(door)
    assert ["updated", "unchanged", "updated"] == [one["outcome"] for one in done]
    assert ["pin", "pin"] == [one["action"] for one in told["versions"]]
    rows = log.json()["data"]["items"]
    assert [("pinned", "true", "false"), ("pinned", "false", "true")] == [
        (one["field"], one["was"], one["value"]) for one in rows
    ]
    assert not any("was" in one for one in bare.json()["data"]["items"])  # what says it is gone


async def test_one_key_has_one_active_memory_whoever_asks_for_it(open_door: Open) -> None:
    """An update to a key that another one has, and a restore of one whose key is taken, name the other one."""
    async with open_door({}) as door:
        first = await remember(door, "Tea.", semantic_key="drink")
        second = await remember(door, "Bread.", semantic_key="food")
        taken = await ask(door, "update", status=409, memory_id=second["id"], semantic_key="drink")
        await ask(door, "forget", memory_id=first["id"])
        anew = await remember(door, "Coffee.", semantic_key="drink")
        back = await ask(door, "restore", status=409, memory_id=first["id"])
        await ask(door, "forget", memory_id=anew["id"])
        await ask(door, "restore", memory_id=first["id"])
        await is_clean(door)
    assert first["id"] in taken["message"]
    assert anew["id"] in back["message"]
    assert "created" == anew["outcome"]


async def test_y04_a_deleted_memory_is_restored_by_its_id_with_file_and_index(open_door: Open) -> None:
    """Deleted: found by nobody who does not ask for it, with reason and time; restored: as it was."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas ships from Hamburg.")
        before = (door.root / made["file"]).read_text()
        gone = await ask(door, "forget", memory_id=made["id"], reason="sold")
        assert [] == await found(door, "Hamburg")
        assert [made["id"]] == await found(door, "Hamburg", include_status=["deleted"])
        again = await ask(door, "forget", memory_id=made["id"])
        told = await history(door, made["id"])
        back = await ask(door, "restore", memory_id=made["id"], reason="not sold")
        assert [made["id"]] == await found(door, "Hamburg")
        assert before == (door.root / made["file"]).read_text()
        once_more = await ask(door, "restore", memory_id=made["id"])
        changes = (await history(door, made["id"]))["changes"]
        await is_clean(door)
    assert ("active", "deleted") == (gone["was"], gone["status"])
    assert ("deleted", "deleted") == (again["was"], again["status"])
    assert ("deleted", "active") == (back["was"], back["status"])
    assert ("active", "active") == (once_more["was"], once_more["status"])
    assert [("delete", "active", "deleted", "sold")] == [
        tuple(one[name] for name in ("action", "was", "value", "reason")) for one in told["changes"]
    ]
    assert ["restore", "delete"] == [one["action"] for one in changes]


async def test_y04_what_a_person_took_out_of_its_file_after_it_was_deleted_comes_back_from_its_snapshot(
    open_door: Open,
) -> None:
    """With its id, in its file, word for word; without a snapshot nobody invents one."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas ships from Hamburg.", subject="Ship", metadata={"a": 1})
        other = await remember(door, "Zeus ships from Kiel.", path="x")
        shown = await door.entry(made["id"])
        await ask(door, "forget", memory_id=made["id"])
        for one in (made, other):
            (door.root / one["file"]).unlink()
        await settled(door)
        gone = (await history(door, made["id"]))["status"]
        await ask(door, "restore", status=404, memory_id=other["id"])
        back = await ask(door, "restore", memory_id=made["id"])
        assert [made["id"]] == await found(door, "Hamburg")
        after = await door.entry(made["id"])
        await is_clean(door)
    assert ("gone", "gone", "active", made["file"]) == (gone, back["was"], back["status"], back["file"])
    assert shown["text"] == after["text"]
    assert shown["fields"] == after["fields"]


async def test_y04_a_deleted_episode_is_restored_with_its_facts(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Neither it nor what was taken from it is found while it is deleted."""
    one = episode(1, "Mara adopted a puppy called Bilbo.")
    public_id = f"mara_{one.id}"
    async with open_door({f"{BASE}/episodes/episode-2026-03-02.md": log_of("mara", "2026-03-02", one)}) as door:
        fields = {
            "owner_id": "mara",
            "timestamp": "2026-03-02T00:01:00+00:00",
            "parent_type": "episode",
            "parent_id": one.id,
        }
        fact = log_entry.Draft(fields=fields, sections=(("Fact", "Bilbo is a beagle."),))
        await door.node.cascade.writer.append(MARA, "atomic_fact", [fact], date="2026-03-02")
        await settled(door)
        assert [public_id] == await found(door, "beagle")
        await ask(door, "forget", memory_id=public_id)
        assert [] == await found(door, "beagle")
        assert [] == await found(door, "puppy")
        back = await ask(door, "restore", memory_id=public_id)
        assert [public_id] == await found(door, "beagle")
        assert [public_id] == await found(door, "puppy")
        await is_clean(door)
    assert ("deleted", "active") == (back["was"], back["status"])


async def test_a_restore_takes_an_expiry_away_that_has_passed(open_door: Open) -> None:
    """Otherwise it would be over again at once; one that lies ahead stays."""
    async with open_door({}) as door:
        over = await remember(door, "The offer holds until March.", expires_at="2026-03-01T00:00:00Z")
        ahead = await remember(door, "The other one holds for long.", expires_at="2099-03-01T00:00:00Z")
        assert "expired" == over["status"]
        assert [] == await found(door, "March")
        back = await ask(door, "restore", memory_id=over["id"])
        assert [over["id"]] == await found(door, "March")
        await ask(door, "forget", memory_id=ahead["id"])
        await ask(door, "restore", memory_id=ahead["id"])
        told = await history(door, over["id"])
        assert "2099-03-01T00:00:00Z" == (await door.entry(ahead["id"]))["expires_at"]
        await is_clean(door)
    assert ("expired", "active") == (back["was"], back["status"])
    assert [1] == [one["version"] for one in told["versions"]]


async def test_what_is_written_under_the_key_of_one_that_is_over_is_not_over(open_door: Open) -> None:
    """The memory is updated, and without the old expiry."""
    async with open_door({}) as door:
        over = await remember(door, "Tea this week.", semantic_key="drink", expires_at="2026-03-01T00:00:00Z")
        anew = await remember(door, "Coffee from now on.", semantic_key="drink")
        assert [over["id"]] == await found(door, "coffee")
    assert ("updated", "active") == (anew["outcome"], anew["status"])


async def test_z03_nobody_changes_forgets_or_restores_what_is_another_ones(open_door: Open) -> None:
    """404 for ids of others, in another app or project, and for near misses; nothing is written."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas is a ship.")
        await remember(door, "Theo sails.", user_id="theo")
        before = files(door.root)
        near = made["id"][:-1] + "9"
        for route, body in (
            ("update", {"content": "x"}),
            ("forget", {}),
            ("forget", {"mode": "hard_delete", "confirm": True}),
            ("restore", {}),
        ):
            for scope in (
                {"memory_id": made["id"], "user_id": "theo"},
                {"memory_id": made["id"], "agent_id": "mara"},
                {"memory_id": made["id"], "app_id": "other"},
                {"memory_id": made["id"], "project_id": "other"},
                {"memory_id": near},
                {"memory_id": near, "user_id": "mara"},
                {"memory_id": "mara_mem_20260302"},
                {"memory_id": "../mara_mem_20260302_00000001"},
                {"memory_id": "%"},
            ):
                error = await ask(door, route, status=404, **body, **scope)
                assert "NOT_FOUND" == error["code"]
            error = await ask(door, route, status=422, **body, memory_id=made["entry_id"])
            assert error["message"].endswith("user_id")
            await ask(door, route, status=422, **body, memory_id="mara_af_20260302_00000001")
        answer = await door.client.get(f"/api/v1/entries/{made['id']}/history", params={"user_id": "theo"})
        assert 404 == answer.status_code
        assert before == files(door.root)
        assert (
            "unchanged"
            == (await ask(door, "update", memory_id=made["entry_id"], user_id="mara", content="Atlas is a ship."))[
                "outcome"
            ]
        )


async def test_an_agent_has_memories_of_its_own(open_door: Open) -> None:
    """The same routes, below `agents/`; the id alone finds it."""
    async with open_door({}) as door:
        made = await remember(door, "Use tabs.", user_id=None, agent_id="coder", semantic_key="style")
        again = await remember(door, "Use spaces.", user_id=None, agent_id="coder", semantic_key="style")
        changed = await ask(door, "update", memory_id=made["id"], importance=1)
        await ask(door, "forget", memory_id=made["id"])
        back = await ask(door, "restore", memory_id=made["id"])
        await is_clean(door)
    assert "default_app/default_project/agents/coder/memories/projects/atlas" in made["file"]
    assert (made["id"], made["id"]) == (again["id"], changed["id"])
    assert "active" == back["status"]


async def test_removing_for_good_has_to_be_confirmed(open_door: Open) -> None:
    """What would go is said, under a code of its own; nothing is written."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas is a ship.")
        await ask(door, "update", memory_id=made["id"], content="Atlas sank.")
        before = files(door.root)
        for mode in ("redact", "hard_delete"):
            error = await ask(door, "forget", status=409, memory_id=made["id"], mode=mode)
            assert "CONFIRMATION_REQUIRED" == error["code"]
            assert made["file"] in error["message"]
            assert "1 row " in error["message"]
        await ask(door, "forget", status=422, memory_id=made["id"], replacement_content="x")
        assert before == files(door.root)


@pytest.mark.parametrize("mode", ["redact", "hard_delete"])
async def test_a_memory_that_was_removed_for_good_leaves_no_trace(open_door: Open, mode: str) -> None:
    """Not in any file of the root, indexes and caches included: text, versions, snapshots; what names it is listed."""
    word = "Zanzibarquartz"
    async with open_door({}) as door:
        other = await remember(door, "Zeus stays.")
        made = await remember(
            door,
            f"Atlas carries {word}.",
            subject=word,
            metadata={"x": word},
            semantic_key=f"k {word}",
            provenance={"y": word},
        )
        built = await remember(door, "Ships carry stones.", source_ids=[made["id"]], path="reflections/episodic")
        await ask(door, "update", memory_id=made["id"], content=f"Atlas carries much {word}.", reason=f"more {word}")
        await ask(door, "forget", memory_id=made["id"], reason=f"too much {word}")
        await ask(door, "restore", memory_id=made["id"])
        assert steps.holders(door.root, word)
        done = await ask(door, "forget", memory_id=made["id"], mode=mode, confirm=True, reason="secret")
        assert [] == steps.holders(door.root, word)
        assert [] == await found(door, word)
        assert [other["id"]] == await found(door, "Zeus")
        told = await history(door, made["id"])
        restored = await ask(door, "restore", status=409, memory_id=made["id"])
        again = await ask(door, "forget", memory_id=made["id"], mode=mode, confirm=True)
        await is_clean(door)
    assert [built["id"]] == done["narratives"]
    assert ["git", "backups", "editor files"] == done["out_of_reach"]
    assert made["file"] in [one["file"] for one in done["removed"]]
    assert mode in [one["action"] for one in told["changes"]]
    assert all(one["before"] is None for one in told["versions"])
    assert "for good" in restored["message"]
    assert again["status"] == done["status"] == ("active" if mode == "redact" else "deleted")


@pytest.mark.parametrize("mode", ["redact", "hard_delete"])
async def test_a_removed_text_was_in_tmp_where_its_memory_had_just_been_moved(open_door: Open, mode: str) -> None:
    """What the file that it stood in before has left in `.tmp/` goes, too, before the answer comes."""
    word = "Zanzibarquartz"
    async with open_door({}) as door:
        made = await remember(door, f"Atlas carries {word}.")
        await ask(door, "update", memory_id=made["id"], content=f"Atlas carries much {word}.")
        await ask(door, "update", memory_id=made["id"], path="somewhere/else")
        await ask(door, "forget", memory_id=made["id"], mode=mode, confirm=True)
        assert [] == steps.holders(door.root, word)
        await is_clean(door)


async def test_a_redacted_memory_says_what_is_put_in_its_place(open_door: Open) -> None:
    """And nothing else is written into it any more."""
    async with open_door({}) as door:
        made = await remember(door, "Her PIN was told.", importance=0.7, semantic_key="pin")
        await ask(
            door, "forget", memory_id=made["id"], mode="redact", confirm=True, replacement_content="A PIN was told."
        )
        shown = await door.entry(made["id"])
        await ask(door, "update", status=409, memory_id=made["id"], content="x")
        anew = await remember(door, "The PIN is changed.", semantic_key="pin")
        await is_clean(door)
    assert ("A PIN was told.", 0.7) == (shown["content"], shown["importance"])
    assert "created" == anew["outcome"]


async def test_usage_is_handed_over_and_unknown_ids_are_named(open_door: Open) -> None:
    """Where nothing takes note of uses, that is said."""
    async with open_door({}) as door:
        made = await remember(door, "Atlas is a ship.")
        error = await ask(door, "usage", status=503, memory_ids=[made["id"]])
        none = await ask(door, "usage", memory_ids=["mara_mem_20260302_00000009"])
    assert "CAPABILITY_UNAVAILABLE" == error["code"]
    assert {"noted": 0, "unknown": ["mara_mem_20260302_00000009"]} == none


def talk(word: str, *, others: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a conversation of mara with her assistant, and what others say in it."""
    said = [
        ("mara", "user", f"My ring has a {word}."),
        ("helper", "assistant", f"A {word} is rare."),
        ("mara", "user", "I know."),
    ]
    said += [(other, "user", f"{other.title()} likes the {word}, too.") for other in others]
    return {
        "session_id": "s/1",
        "messages": [
            {"sender_id": sender, "role": role, "timestamp": 1_772_442_000_000 + nth * 60_000, "content": text}
            for nth, (sender, role, text) in enumerate(said)
        ],
    }


async def extracted(door: Door, **body: Any) -> None:
    """Have messages taken, extracted and followed up."""
    await ask(door, "add", **body)
    await ask(door, "flush", session_id=body["session_id"])
    assert door.node.learning is not None
    await door.node.learning.settled(20.0)
    await settled(door)


PLAIN = '[embedding]\nmodel = "none"\n'


@pytest.mark.parametrize("mode", ["redact", "hard_delete"])
async def test_an_episode_that_was_removed_for_good_is_not_brought_back_by_the_same_messages(
    open_door: Open, mode: str
) -> None:
    """Messages, facts and versions go with it; whoever sends the same once more changes nothing, after a restart either."""
    word = "chrysoberyl"
    async with open_door({}, settings=PLAIN, learns=True) as door:
        await extracted(door, **talk(word))
        (one,) = (await door.get("episode", user_id="mara"))["episodes"]
        assert any("sessions" in path for path in steps.holders(door.root, word))
        assert any("atomic_facts" in path for path in steps.holders(door.root, word))
        error = await ask(door, "forget", status=409, memory_id=one["id"], mode=mode)
        assert "3 messages of session s/1" in error["message"]
        done = await ask(door, "forget", memory_id=one["id"], mode=mode, confirm=True)
        assert [] == steps.holders(door.root, word)
        await extracted(door, **talk(word))
        assert [] == steps.holders(door.root, word)
    async with open_door({}, settings=PLAIN, learns=True) as door:
        await extracted(door, **talk(word))
        assert [] == steps.holders(door.root, word)
        assert [] == (await door.search("ring", user_id="mara"))["episodes"]
        told = await history(door, one["id"])
        await extracted(
            door,
            session_id="s/1",
            messages=[
                {"sender_id": "mara", "role": "user", "timestamp": 1_772_452_000_000, "content": "I have a dog."}
            ],
        )
        assert 1 == len((await door.search("dog", user_id="mara"))["episodes"])
        await is_clean(door)
    assert () == tuple(done["left"])
    assert {one["file"].split("/")[2] for one in done["removed"]} == {"users", "sessions"}
    (tombstone,) = [one for one in told["changes"] if one["action"] == mode]
    assert "" == tombstone["reason"]


async def test_what_another_one_said_stays_when_an_episode_is_removed(open_door: Open) -> None:
    """Their messages and their Episode are theirs: it is said that they are there."""
    word = "chrysoberyl"
    async with open_door({}, settings=PLAIN, learns=True) as door:
        await extracted(door, **talk(word, others=("theo",)))
        (mine,) = (await door.get("episode", user_id="mara"))["episodes"]
        (theirs,) = (await door.get("episode", user_id="theo"))["episodes"]
        done = await ask(door, "forget", memory_id=mine["id"], mode="hard_delete", confirm=True)
        assert [theirs["id"]] == [one["id"] for one in (await door.search(word, user_id="theo"))["episodes"]]
        kept = (await door.entry(theirs["id"]))["messages"]
        assert [] == [path for path in steps.holders(door.root, word) if "/mara/" in path]
        await is_clean(door)
    assert theirs["id"] in done["narratives"]
    assert 1 == len(done["left"])
    assert ["helper", "theo"] == [one["sender_id"] for one in kept]


async def test_a_restore_said_active_and_the_forgetting_came_after_it(
    open_door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the ledger takes nothing, as on a full disk, a row on disk is not passed over: the restore is refused, then undoes it."""
    monkeypatch.setattr(desk, "PATIENCE_S", 0.1)
    async with open_door({}) as door:
        made = await remember(door, "Atlas ships in May.")
        ingest = door.node.cascade._ingest
        apply, apply_grown = ingest.apply, ingest.apply_grown
        monkeypatch.setattr(ingest, "apply", _takes_nothing)
        monkeypatch.setattr(ingest, "apply_grown", _takes_nothing)
        refused = await ask(door, "forget", status=503, memory_id=made["id"])
        waits = await ask(door, "restore", status=503, memory_id=made["id"])
        monkeypatch.setattr(ingest, "apply", apply)
        monkeypatch.setattr(ingest, "apply_grown", apply_grown)
        await door.node.cascade.settled(20.0)
        assert [] == await found(door, "Atlas")
        back = await ask(door, "restore", memory_id=made["id"])
        assert [made["id"]] == await found(door, "Atlas")
        await is_clean(door)
    assert "on disk" in refused["message"]
    assert "on disk" in waits["message"]
    assert ("deleted", "active") == (back["was"], back["status"])


async def _takes_nothing(*_: object) -> None:
    message = "no space left on device"
    raise errors.StoreError(message)
