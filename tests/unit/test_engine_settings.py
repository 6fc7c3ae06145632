"""ome.toml: what a person writes comes into force however it is saved, and never half of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from pathlib import Path

import pytest
import structlog

from everosd import config, toml
from everosd.engine import settings
from tests import fast_clock

REFLECT, FACTS = "reflect_episodes", "extract_atomic_facts"


class StepClock(fast_clock.FastClock):
    """Time that stands still until the test moves it."""

    def __init__(self) -> None:
        """Begin at zero."""
        super().__init__()
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        """Return what the test says."""
        return self.now_s

    def now(self) -> dt.datetime:
        """Return a moment that moves along."""
        return dt.datetime(2026, 3, 2, tzinfo=dt.UTC) + dt.timedelta(seconds=self.now_s)


class Desk:
    """A watcher whose looks the test makes."""

    def __init__(self, root: Path) -> None:
        """Watch `root`."""
        self.time = StepClock()
        self.path = root / settings.FILE_NAME
        self.watcher = settings.Watcher(root, self.time)

    async def pass_s(self, seconds: float) -> None:
        """Look as the engine does, for so long."""
        for _ in range(max(1, round(seconds / settings.LOOK_S))):
            self.time.now_s += settings.LOOK_S
            await self.watcher.look()

    @property
    def cron(self) -> str | None:
        """What is in force for Reflection."""
        return self.watcher.of(REFLECT).cron

    @property
    def said(self) -> list[str]:
        """What is wrong."""
        return [str(error) for error in self.watcher.errors]


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    """A watcher over an empty root, after its first look."""
    made = Desk(tmp_path)
    await made.watcher.look()
    return made


def wanted(cron: str, *, enabled: bool = True) -> str:
    """Return an ome.toml."""
    return f'[strategies.{REFLECT}]\nenabled = {str(enabled).lower()}\ncron = "{cron}"\n'


def test_the_shipped_defaults_are_right_by_the_rules_for_people() -> None:
    """They hold every strategy, Reflection off, and what they say could stand in ome.toml."""
    found = settings.read(config.defaults(settings.DEFAULTS), "default_ome.toml")
    assert ((), ()) == (found.errors, found.notes)
    assert settings.defaults() == found.settings
    assert (False, "0 2 * * 1") == (found.settings[REFLECT].enabled, found.settings[REFLECT].cron)
    assert {FACTS, "trigger_profile_clustering", "extract_user_profile", "extract_agent_case", REFLECT} < set(
        found.settings
    )


async def test_M12_each_save_is_in_force_within_two_seconds_however_it_is_saved(desk: Desk, tmp_path: Path) -> None:
    """By rename five times, in place, by another target of a symlink, and as a file that was there before."""
    for minute in range(5):
        beside = tmp_path / ".ome.toml.tmp"
        beside.write_text(wanted(f"{minute} 2 * * 1"))
        beside.replace(desk.path)
        await desk.pass_s(2)
        assert f"{minute} 2 * * 1" == desk.cron
    desk.path.write_text(wanted("9 2 * * 1"))
    await desk.pass_s(2)
    assert "9 2 * * 1" == desk.cron
    for day in (3, 4):
        target = tmp_path / f"v{day}.toml"
        target.write_text(wanted(f"0 2 * * {day}"))
        link = tmp_path / "link"
        link.symlink_to(target)
        link.replace(desk.path)
        await desk.pass_s(2)
        assert f"0 2 * * {day}" == desk.cron
    stat = desk.path.stat()
    desk.path.write_text(wanted("0 2 * * 5"))  # same length
    os.utime(desk.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    await desk.pass_s(2)
    assert "0 2 * * 5" == desk.cron
    assert [] == desk.said


async def test_F01_the_last_good_settings_stay_through_halves_and_mistakes(desk: Desk) -> None:
    """Whatever is saved that is wrong, its line is said; the next good save is in force."""
    good = wanted("0 2 * * 1")
    desk.path.write_text(good)
    await desk.pass_s(2)
    bad = {
        "[strategies.reflect_episodes]\nenabled = tru": "ome.toml:2: is not TOML",
        "[strategies.reflect_episodes]\nenabled = true\nenabled = false\n": "ome.toml:3: is not TOML",
        '[strategies.reflect_episodes]\ncron = "0 3 * * 1"\nenabled = "yes"\n': (
            "ome.toml:3: strategies.reflect_episodes.enabled: Expected true or false, got a text"
        ),
        "": "ome.toml: is empty",
        " \n": "ome.toml: is empty",
    }
    for text, said in bad.items():
        desk.path.write_text(text)
        await desk.pass_s(2)
        assert (True, "0 2 * * 1") == (desk.watcher.of(REFLECT).enabled, desk.cron), text
        (found,) = desk.said
        assert said in found
        assert desk.watcher.error_of(REFLECT) == found
        desk.path.write_text(good)
        await desk.pass_s(2)
        assert [] == desk.said
    half = '[strategies.reflect_episodes]\nenabled = true\ncron = "0 4'
    desk.path.write_text(half)
    await desk.pass_s(settings.LOOK_S)
    assert [] == desk.said, "it may be on its way"
    await desk.pass_s(3)
    assert desk.said
    assert "0 2 * * 1" == desk.cron
    with desk.path.open("a") as file:
        file.write(' * * 1"\n')
    await desk.pass_s(2)
    assert ("0 4 * * 1", []) == (desk.cron, desk.said)
    desk.path.unlink()
    await desk.pass_s(settings.LOOK_S * 2)
    desk.path.write_text(wanted("0 5 * * 1"))
    await desk.pass_s(settings.LOOK_S)
    assert "0 4 * * 1" == desk.cron
    await desk.pass_s(2)
    assert "0 5 * * 1" == desk.cron


async def test_F01_a_half_that_could_stand_for_itself_is_not_in_force_before_the_other_comes(desk: Desk) -> None:
    """An editor writes the first table, and the second a moment later: both come into force together."""
    first, second = f"[strategies.{FACTS}]\nmax_retries = 9\n", wanted("0 7 * * 1")
    seen = set()
    for text in (first, first + second):
        desk.path.write_text(text)
        for _ in range(1 if text == first else 4):
            await desk.pass_s(settings.LOOK_S)
            seen.add((desk.watcher.of(FACTS).max_retries, desk.cron))
    assert {(None, "0 2 * * 1"), (9, "0 7 * * 1")} == seen


async def test_what_is_taken_out_of_the_file_has_its_default_again_and_so_has_all_of_it(desk: Desk) -> None:
    """A key, a table, then the file itself."""
    desk.path.write_text(wanted("0 5 * * 1") + f"[strategies.{FACTS}]\nmax_retries = 9\n")
    await desk.pass_s(2)
    assert (True, "0 5 * * 1", 9) == (
        desk.watcher.of(REFLECT).enabled,
        desk.cron,
        desk.watcher.of(FACTS).max_retries,
    )
    desk.path.write_text(f"[strategies.{REFLECT}]\nenabled = true\n")
    await desk.pass_s(2)
    assert (True, "0 2 * * 1", None) == (
        desk.watcher.of(REFLECT).enabled,
        desk.cron,
        desk.watcher.of(FACTS).max_retries,
    )
    desk.path.unlink()
    await desk.pass_s(2)
    assert (False, []) == (desk.watcher.of(REFLECT).enabled, desk.said)


async def test_a_root_out_of_sight_is_no_removed_file(tmp_path: Path) -> None:
    """The root is moved away, as an unmount does: the settings stay, and are read again when it is back."""
    root = tmp_path / "root"
    root.mkdir()
    desk = Desk(root)
    desk.path.write_text(wanted("0 5 * * 1"))
    await desk.watcher.look()
    root.rename(tmp_path / "away")
    await desk.pass_s(5)
    assert "0 5 * * 1" == desk.cron
    assert ["out of reach"] == [said.rpartition("is ")[2] for said in desk.said]
    (tmp_path / "away").rename(root)
    await desk.pass_s(2)
    assert ("0 5 * * 1", []) == (desk.cron, desk.said)


async def test_F03_a_mistake_is_said_until_it_is_mended_and_logged_once_per_change(desk: Desk) -> None:
    """Five minutes of looking at one bad value write one line; another bad value writes another."""
    with structlog.testing.capture_logs() as lines:
        desk.path.write_text(f"[strategies.{FACTS}]\nmax_retries = -1\n")
        await desk.pass_s(300)
        os.utime(desk.path)
        await desk.pass_s(10)
        assert ["error"] == [line["log_level"] for line in lines]
        assert "ome.toml:2: strategies.extract_atomic_facts.max_retries: Expected a whole number >= 0" in desk.said[0]
        desk.path.write_text(f"[strategies.{FACTS}]\nmax_retries = 1000\n")
        await desk.pass_s(10)
        assert 2 == len(lines)
        desk.path.write_text(f"[strategies.{FACTS}]\nmax_retries = 5\n")
        await desk.pass_s(2)
    assert ([], 5) == (desk.said, desk.watcher.of(FACTS).max_retries)
    assert ["strategies_refused"] * 2 == [line["event"] for line in lines if line["log_level"] != "info"]


WRONG = {
    "[strategies.reflect_episode]\nenabled = true\n": (1, "unknown strategy; did you mean reflect_episodes?"),
    '[strategies.reflect_episodes]\ncrom = "0 2 * * 1"\n': (2, "unknown key; did you mean cron?"),
    "[strategies.reflect_episodes]\nmax_retries = 101\n": (2, "Expected a whole number <= 100"),
    "[strategies.reflect_episodes]\nmax_retries = true\n": (2, "Expected a whole number, got true or false"),
    "[strategies.reflect_episodes]\nidle_seconds = -1\n": (2, "Expected a number > 0.0"),
    "[strategies.reflect_episodes]\nidle_seconds = nan\n": (2, "Expected"),
    '[strategies.reflect_episodes]\ncron = "0 2 * *"\n': (2, "expected five fields"),
    '[strategies.reflect_episodes]\ncron = "0 25 * * 1"\n': (2, "names no moments"),
    '[strategies.reflect_episodes]\ncron = "0 0 31 2 *"\n': (2, "names no moments"),
    "[strategies.reflect_episodes]\ncron = 5\n": (2, "Expected a text"),
    "[strategies]\nreflect_episodes = { enabled = true, crom = 1 }\n": (2, "unknown key; did you mean cron?"),
    "[strategies]\nreflect_episodes = true\n": (2, "expected a table [strategies.reflect_episodes]"),
    "[strategy.reflect_episodes]\nenabled = true\n": (1, "unknown table; did you mean [strategies.…]?"),
    "[reflect_episodes]\nenabled = true\n": (1, "unknown table; did you mean [strategies.reflect_episodes]?"),
    "strategies = 3\n": (1, "expected tables [strategies.<name>]"),
    "[[strategies.reflect_episodes]]\nenabled = true\n": (1, "expected a table"),
}


@pytest.mark.parametrize("text", WRONG)
def test_F06_what_nobody_knows_is_refused_with_the_nearest_name_and_its_line(text: str) -> None:
    """The line, the reason, and that nothing of it is in force."""
    line, reason = WRONG[text]
    (found,) = settings.read(text, "ome.toml").errors
    assert line == found.line
    assert reason in str(found)
    assert "nothing of it is in force" in found.hint


def test_F06_all_mistakes_are_named_at_once_in_order() -> None:
    """Three in one file, each with its line; what has no effect is said beside them."""
    text = (
        "[strategies.reflect_episodes]\nenabled = 1\nmax_retries = -3\n\n"
        '[strategies.extract_atomic_fact]\n\n[strategies.extract_atomic_facts]\ncron = "0 2 * * 1"\n'
    )
    found = settings.read(text, "ome.toml")
    assert [2, 3, 5] == [error.line for error in found.errors]
    assert [
        "ome.toml:8: strategies.extract_atomic_facts.cron: has no effect: this strategy is fired by events"
    ] == list(found.notes)


def test_what_a_strategy_of_the_clock_uses_is_not_said_to_have_no_effect() -> None:
    """Reflection is fired by silence too, where somebody says so; what events fire is not."""
    text = "".join(
        f'[strategies.{name}]\ncron = "0 2 * * 2"\nidle_seconds = 600\ngate = "x"\n' for name in (REFLECT, FACTS)
    )
    found = settings.read(text, "ome.toml")
    assert () == found.errors
    assert 600 == found.settings[REFLECT].idle_seconds
    assert [f"ome.toml:{line}: strategies.{FACTS}.{key}" for line, key in ((6, "cron"), (7, "idle_seconds"))] == [
        note.partition(": has no effect")[0] for note in found.notes
    ]


@pytest.mark.parametrize("kind", ["pipe", "folder", "large", "binary", "dangling"])
async def test_what_cannot_be_read_is_said_and_changes_nothing(desk: Desk, tmp_path: Path, kind: str) -> None:
    """A pipe is not opened, a folder and a huge file are not settings."""
    match kind:
        case "pipe":
            os.mkfifo(desk.path)
        case "folder":
            desk.path.mkdir()
        case "large":
            await asyncio.to_thread(desk.path.write_bytes, b"#" * (toml.MAX_BYTES + 1))
        case "binary":
            desk.path.write_bytes(b"a = 1\n\xff\xfe")
        case _:
            desk.path.symlink_to(tmp_path / "nothing")
    await desk.pass_s(2)
    assert 1 == len(desk.said)
    assert not desk.watcher.of(REFLECT).enabled


async def test_a_byte_order_mark_and_an_empty_file_in_a_new_root_are_no_mistakes(desk: Desk) -> None:
    """Editors write the one, `touch` the other."""
    desk.path.write_bytes(b"")
    await desk.pass_s(2)
    assert [] == desk.said
    desk.path.write_bytes(b"\xef\xbb\xbf" + wanted("0 6 * * 1").encode())
    await desk.pass_s(2)
    assert ([], "0 6 * * 1") == (desk.said, desk.cron)


async def test_a_gate_is_accepted(desk: Desk) -> None:
    """EverOS writes one in several shapes."""
    desk.path.write_text(f'[strategies.{REFLECT}]\ngate = {{ a = 1 }}\n[strategies.{FACTS}]\ngate = "x"\n')
    await desk.pass_s(2)
    assert [] == desk.said
