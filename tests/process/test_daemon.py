"""The daemon as a process: how it starts, refuses, serves, reloads and stops."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from everosd import daemon as daemons
from everosd import errors, lock, process
from tests import effort
from tests.process import conftest

EPISODES = Path("default_app", "default_project", "users", "u_mara", "episodes")


def write_day(root: Path, day: str, *texts: str, user: str = "u_mara") -> Path:
    """Write a daily log as an editor would, and return its path."""
    folder = root / "default_app" / "default_project" / "users" / user / "episodes"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"episode-{day}.md"
    compact = day.replace("-", "")
    blocks = [
        f"<!-- entry:ep_{compact}_{n:08d} -->\n## ep_{compact}_{n:08d}\n\n**owner_id**: {user}\n"
        f"**timestamp**: {day}T10:00:00+00:00\n\n### Subject\n{text[:40]}\n\n### Content\n{text}\n"
        f"<!-- /entry:ep_{compact}_{n:08d} -->\n"
        for n, text in enumerate(texts, start=1)
    ]
    head = f"---\nid: episode_log_{user}_{day}\ntype: episode_daily\nuser_id: {user}\ndate: '{day}'\n---\n"
    path.write_text(head + "\n".join(blocks), encoding="utf-8")
    return path


def write_many(root: Path, n_days: int, per_day: int) -> None:
    """Write `n_days * per_day` entries."""
    for number in range(n_days):
        day = time.strftime("%Y-%m-%d", time.gmtime(86_400 * (19_000 + number)))
        write_day(root, day, *(f"Note {number} {k}: the ferry left the harbour late" for k in range(per_day)))


def test_saved_text_is_found_and_a_stop_is_clean(daemon: conftest.Daemon, root: Path) -> None:
    """From a save to an answer, then SIGTERM, then the same answer after a restart."""
    write_day(root, "2026-03-02", "Mara looks for a flat near the canal")
    daemon.start()
    assert [hit["id"] for hit in daemon.search("canal", "u_mara")] == ["u_mara_ep_20260302_00000001"]
    write_day(root, "2026-03-03", "The cat Pixel learned to open doors")
    conftest.wait_for(lambda: daemon.search("Pixel", "u_mara"), "the saved text")
    assert daemon.stop() == daemons.OK
    daemon.start()
    assert len(daemon.search("Pixel", "u_mara")) == 1
    assert daemon.stop() == daemons.OK


def test_O01_health_answers_within_a_second_while_a_large_root_is_read(daemon: conftest.Daemon, root: Path) -> None:
    """A first read of 20,000 entries (6,000 but with `make long`) neither delays /health, compared with an empty root, nor makes it slow."""
    began_s = time.monotonic()
    daemon.start(ready=False)
    empty_s = time.monotonic() - began_s
    daemon.stop()
    n_each = effort.rounds(200, 60)
    write_many(root, 100, n_each)
    began_s = time.monotonic()
    daemon.start(ready=False)
    first_s = time.monotonic() - began_s
    slowest_s, seen_reading = 0.0, False
    while not (health := daemon.health())["ready"]:
        asked_s = time.monotonic()
        daemon.health()
        slowest_s = max(slowest_s, time.monotonic() - asked_s)
        seen_reading = seen_reading or health["cascade"]["done"] < health["cascade"]["total"]
        assert time.monotonic() - began_s < 30
    daemon.wait_settled()
    assert first_s < 2 * empty_s + 0.5
    assert slowest_s < 1.0  # beside other tests; the bench has the figure of a quiet machine
    assert seen_reading
    assert daemon.health()["cascade"]["entries"] == 100 * n_each


def test_O02_locked_ledger_is_named_and_work_goes_on_when_it_is_free(daemon: conftest.Daemon, root: Path) -> None:
    """Somebody holds a transaction on the ledger: health says so, and the edit is found once it ends."""
    daemon.start(env={"EVEROS_SQLITE__BUSY_TIMEOUT_MS": "100", "EVEROS_DAEMON__STALLED_AFTER_S": "0.5"})
    holder = sqlite3.connect(root / ".index" / "sqlite" / "system.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    write_day(root, "2026-03-02", "A kestrel nests on the roof")
    conftest.wait_for(lambda: "locked by another program" in str(daemon.health().get("degraded")), "the reason")
    conftest.wait_for(lambda: "nothing has moved for" in str(daemon.health().get("degraded")), "the stall")
    assert daemon.search("kestrel", "u_mara") == []
    holder.execute("ROLLBACK")
    holder.close()
    conftest.wait_for(lambda: daemon.search("kestrel", "u_mara"), "the edit")
    conftest.wait_for(lambda: "degraded" not in daemon.health(), "a healthy daemon")


def test_O03_stop_in_the_middle_of_a_first_read_is_clean_and_taken_up_again(
    daemon: conftest.Daemon, root: Path
) -> None:
    """SIGTERM while 20,000 entries (6,000 but with `make long`) are read, twice in a row; then everything is there."""
    n_each = effort.rounds(200, 60)
    write_many(root, 100, n_each)
    for _ in range(2):
        daemon.start(ready=False)
        assert daemon.stop() == daemons.OK
    daemon.start()
    daemon.wait_settled()
    assert daemon.health()["cascade"]["entries"] == 100 * n_each


def test_O04_idle_daemon_is_gone_within_two_seconds_of_sigterm(daemon: conftest.Daemon) -> None:
    """Code 0, also with a client that keeps its connection open."""
    daemon.start()
    began_s = time.monotonic()
    assert daemon.stop() == daemons.OK
    assert time.monotonic() - began_s < 2


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15, 0.3])
def test_O04_sigterm_at_any_moment_of_the_start_is_a_clean_stop(daemon: conftest.Daemon, delay_s: float) -> None:
    """Also before there is an event loop; only before Python runs our code may the signal itself end the process."""
    process = daemon.spawn()
    conftest.wait_for((daemon.root / lock.FILE_NAME).exists, "the lock file")
    threading.Event().wait(delay_s)
    process.terminate()
    assert daemon.wait(3) == daemons.OK


def test_O04_taken_port_has_its_own_code_and_says_what_to_do(daemon: conftest.Daemon) -> None:
    """Nothing is opened: the port is the first thing that is tried."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        daemon.spawn("--port", str(port))
        assert daemon.wait(3) == 5
    assert f"127.0.0.1:{port}" in daemon.log()
    assert "--port" in daemon.log()
    assert not (daemon.root / ".index").exists()


def test_a_person_in_a_terminal_is_told_in_words_and_a_program_in_fields(daemon: conftest.Daemon, root: Path) -> None:
    """A refused start ends with the same message and hint as any other command, where a terminal is looked at."""
    daemon.start()
    reader, terminal = pty.openpty()
    command = [*conftest.command(), "serve", "--root", str(root), "--port", "0"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=terminal, timeout=20, check=False)
    os.close(terminal)
    said = os.read(reader, 4096).decode()
    os.close(reader)
    assert daemons.exit_code(errors.LockHeld("", pid=1, port=1)) == done.returncode
    assert re.fullmatch(r"everosd: .* is already served .*\r\n {9}use that daemon, or stop it first .*\r\n", said), said
    assert '"event":"daemon_failed"' in conftest.run("serve", "--root", str(root), "--port", "0").stderr


def test_O04_wrong_settings_have_their_own_code_and_name_the_line(daemon: conftest.Daemon, root: Path) -> None:
    """File, line, key and the nearest known one."""
    (root / "everos.toml").write_text("[api]\nprot = 8000\n")
    daemon.spawn("--port", "0")
    assert daemon.wait(3) == 3
    assert "everos.toml:2" in daemon.log()
    assert "did you mean port?" in daemon.log()


def test_missing_root_has_its_own_code_and_is_not_made(daemon: conftest.Daemon, root: Path) -> None:
    """It may be a mount that is not there yet."""
    root.rmdir()
    daemon.spawn()
    assert daemon.wait(3) == 6
    assert not root.exists()
    assert "everosd init" in daemon.log()


def test_ledger_of_a_newer_everosd_is_refused_and_left_alone(daemon: conftest.Daemon, root: Path) -> None:
    """Its own code, so that systemd does not try for ever."""
    daemon.start()
    daemon.stop()
    path = root / ".index" / "sqlite" / "system.db"
    with sqlite3.connect(path) as ledger:
        ledger.execute("PRAGMA user_version = 9999")
    ledger.close()
    daemon.spawn()
    assert daemon.wait(5) == 9
    assert "9999" in daemon.log()
    assert path.exists()


def test_X05_damaged_ledger_is_set_aside_and_read_again(daemon: conftest.Daemon, root: Path) -> None:
    """Garbage where the ledger was: one line in the log, and everything is found as before."""
    write_day(root, "2026-03-02", "The lighthouse keeper plays chess")
    daemon.start()
    daemon.stop()
    (root / ".index" / "sqlite" / "system.db").write_bytes(b"no database " * 1000)
    daemon.start()
    assert len(daemon.search("lighthouse", "u_mara")) == 1
    assert daemon.log().count("ledger_set_aside") == 1


def test_X05_ledger_damaged_deep_inside_is_replaced_while_serving(daemon: conftest.Daemon, root: Path) -> None:
    """What opens well and is malformed further on: the daemon starts over by itself, on the same pid."""
    write_many(root, 20, 50)
    daemon.start()
    daemon.stop()
    path = root / ".index" / "sqlite" / "system.db"
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (path.stat().st_size - 8192))
    daemon.start(ready=False)
    conftest.wait_for(lambda: "ledger_set_aside" in daemon.log(), "the discovery")
    conftest.wait_for(lambda: daemon.log().count('"ready"'), "the second start")
    port = conftest.wait_for(lambda: (found := lock.holder(root)) and found.port, "the port")
    daemon.http.base_url = f"http://127.0.0.1:{port}"
    daemon.wait_ready()
    assert daemon.health()["cascade"]["entries"] == 1000


@pytest.mark.parametrize("gone", [".index", ".index/text", ".index/sqlite", ".index/sqlite/system.db-wal"])
def test_index_folder_deleted_under_the_daemon(daemon: conftest.Daemon, root: Path, gone: str) -> None:
    """`rm -r .index` while it serves: within moments everything is found again, the next save too, and verify is clean."""
    write_many(root, 5, 10)
    daemon.start()
    victim = root / gone
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    write_day(root, "2026-03-02", "The lighthouse keeper plays chess")

    def is_whole() -> bool:
        found = lock.holder(root)
        daemon.http.base_url = f"http://127.0.0.1:{(found and found.port) or 0}"  # a new start may have another
        try:
            now = daemon.health()["cascade"]
            n_found = len(daemon.search("lighthouse", "u_mara"))
        except httpx.TransportError:
            return False
        is_begun_anew = gone.endswith("text") or '"ledger_set_aside"' in daemon.log()
        return is_begun_anew and n_found == 1 and now["index_rows"]["text"] == 51

    conftest.wait_for(is_whole, "everything to be found")
    assert conftest.run("verify", "--root", str(root)).returncode == 0


def test_O05_second_daemon_is_refused_with_pid_and_port(daemon: conftest.Daemon, root: Path, tmp_path: Path) -> None:
    """By path, by symlink; before any write; and the lock is free after kill -9."""
    client = daemon.start()
    assert daemon.process is not None
    link = tmp_path / "link"
    link.symlink_to(root)
    for path in (root, link):
        second = conftest.run("serve", "--root", str(path), "--port", "0")
        assert second.returncode == 4
        assert str(daemon.process.pid) in second.stderr
        assert str(client.base_url.port) in second.stderr
    daemon.kill()
    assert lock.holder(root) is None
    daemon.start()
    assert daemon.health()["ready"]


def test_O05_second_daemon_is_refused_through_a_bind_mount(daemon: conftest.Daemon, root: Path, tmp_path: Path) -> None:
    """Another path, the same inode, the same lock."""
    other = tmp_path / "bound"
    other.mkdir()
    daemon.start()
    inner = f"mount --bind {root} {other} && exec {' '.join(conftest.command())} serve --root {other} --port 0"
    try:
        second = subprocess.run(
            ["unshare", "--mount", "sh", "-c", inner], capture_output=True, text=True, timeout=20, check=False
        )
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if "permitted" in second.stderr or "denied" in second.stderr:
        pytest.skip(f"no bind mounts here: {second.stderr.strip()}")
    assert second.returncode == 4


def test_O11_service_manager_hears_ready_only_when_everything_is_searchable(
    daemon: conftest.Daemon, root: Path, manager: conftest.Manager
) -> None:
    """EXTEND_TIMEOUT while a first read moves on, READY after it, once."""
    n_each = effort.rounds(200, 60)
    write_many(root, 50, n_each)
    daemon.start(ready=False, env=manager.env | {"WATCHDOG_USEC": "600000"})
    conftest.wait_for(lambda: manager.heard("READY=1"), "READY")
    assert daemon.health()["ready"]
    assert daemon.health()["cascade"]["entries"] == 50 * n_each
    assert manager.heard("EXTEND_TIMEOUT_USEC")
    assert manager.heard("EXTEND_TIMEOUT_USEC")[0] < manager.heard("READY=1")[0]
    assert len(manager.heard("READY=1")) == 1


def test_O11_watchdog_is_fed_three_times_a_period(daemon: conftest.Daemon, manager: conftest.Manager) -> None:
    """Often enough that one late turn is no failure."""
    daemon.start(env=manager.env | {"WATCHDOG_USEC": "300000"})
    conftest.wait_for(lambda: len(manager.heard("WATCHDOG")) >= 8, "eight signs of life", 5)
    times = manager.heard("WATCHDOG")
    assert (times[-1] - times[0]) / (len(times) - 1) < 0.2


def test_O11_stopping_is_said_once(daemon: conftest.Daemon, manager: conftest.Manager) -> None:
    """And nothing says READY after it."""
    daemon.start(env=manager.env)
    conftest.wait_for(lambda: manager.heard("READY=1"), "READY")
    assert daemon.stop() == daemons.OK
    assert len(manager.heard("STOPPING=1")) == 1
    assert manager.heard("READY=1")[-1] < manager.heard("STOPPING=1")[0]


def test_second_signal_ends_at_once(daemon: conftest.Daemon) -> None:
    """Whatever still drains; everything may be cut off at any moment."""
    daemon.start()
    daemon.signal(signal.SIGTERM)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait(2) == daemons.OK


def test_reload_takes_what_it_can_and_a_mistake_changes_nothing(
    daemon: conftest.Daemon, root: Path, manager: conftest.Manager
) -> None:
    """SIGHUP, and a save without a signal; a wrong file is said in the log and the old settings stay."""
    daemon.start(env=manager.env)
    conftest.wait_for(lambda: manager.heard("READY=1"), "READY")
    settings = root / "everos.toml"
    settings.write_text("[log]\nlevel = 'debug'\n")
    daemon.signal(signal.SIGHUP)
    conftest.wait_for(lambda: '"applied":["log.level"]' in daemon.log(), "the reload")
    conftest.wait_for(lambda: len(manager.heard("READY=1")) == 2, "READY after the reload")
    assert manager.heard("RELOADING=1")
    settings.write_text("[log]\nlevel = 'loud'\n")
    conftest.wait_for(lambda: "settings_refused" in daemon.log(), "the refusal", 5)
    assert daemon.health()["ready"]
    assert daemon.stop() == daemons.OK


def test_W21_start_on_an_emptied_root_is_an_alarm_and_the_tree_comes_back(daemon: conftest.Daemon, root: Path) -> None:
    """The Markdown is gone and the ledger is not: nothing is deleted, nothing is written where the files were."""
    for number in range(1, 10):
        write_day(root, f"2026-03-0{number}", "Oskar keeps bees behind the mill")
    daemon.start()
    assert len(daemon.search("bees", "u_mara")) == 9
    daemon.stop()
    (root / "default_app").rename(root.parent / "elsewhere")
    daemon.start(ready=False, env={"EVEROS_WATCH__SCAN_INTERVAL_S": "0.5"})  # a mount makes no event
    conftest.wait_for(lambda: daemon.health()["cascade"]["index_emptied"], "the alarm")
    assert len(daemon.search("bees", "u_mara")) == 9
    assert not (root / "default_app").exists()
    (root.parent / "elsewhere").rename(root / "default_app")
    conftest.wait_for(lambda: not daemon.health()["cascade"]["index_emptied"], "the end of the alarm")
    daemon.wait_ready()
    assert len(daemon.search("bees", "u_mara")) == 9


def test_W21_a_tree_that_is_moved_back_ends_the_alarm_at_once(daemon: conftest.Daemon, root: Path) -> None:
    """Files that come back just as they were are noticed by their folder, long before the next full comparison."""
    day = write_day(root, "2026-03-02", "Oskar keeps bees behind the mill")
    os.utime(day, (1_770_000_000, 1_770_000_000))  # long ago: what was written just now would be read once more anyway
    daemon.start(env={"EVEROS_WATCH__SCAN_INTERVAL_S": "3600"})
    (root / "default_app").rename(root.parent / "elsewhere")
    conftest.wait_for(lambda: daemon.health()["cascade"]["index_emptied"], "the alarm")
    (root.parent / "elsewhere").rename(root / "default_app")
    conftest.wait_for(lambda: not daemon.health()["cascade"]["index_emptied"], "the end of the alarm")
    daemon.wait_settled()
    assert "degraded" not in daemon.health()
    assert len(daemon.search("bees", "u_mara")) == 1


def test_W21_root_that_is_replaced_under_the_daemon_is_opened_afresh(daemon: conftest.Daemon, root: Path) -> None:
    """A mount over the root, or a restored backup, is another root: what was open belonged to the old one."""
    write_day(root, "2026-03-02", "An old diary")
    daemon.start()
    replacement = root.parent / "replacement"
    write_day(replacement, "2026-03-02", "A brand new journal")
    root.rename(root.parent / "old")
    replacement.rename(root)
    conftest.wait_for(lambda: "root_replaced" in daemon.log(), "the discovery")
    assert daemon.process is not None
    process = daemon.process
    port = conftest.wait_for(lambda: (found := lock.holder(root)) and found.port, "the lock of the new root")
    assert process.poll() is None
    daemon.http.base_url = f"http://127.0.0.1:{port}"
    conftest.wait_for(daemon._answers, "an answer")
    conftest.wait_for(lambda: daemon.search("journal", "u_mara"), "the new text")
    assert daemon.search("diary", "u_mara") == []
    assert daemon.stop() == daemons.OK


def test_W21_root_that_is_out_of_sight_for_a_while_is_served_on(daemon: conftest.Daemon, root: Path) -> None:
    """Unmounted and mounted again: the daemon answers from what it has open, and goes on as if nothing had been."""
    write_day(root, "2026-03-02", "The lighthouse keeper plays chess")
    daemon.start()
    root.rename(root.parent / "elsewhere")
    time.sleep(2 * process.GUARD_S)
    assert len(daemon.search("lighthouse", "u_mara")) == 1
    (root.parent / "elsewhere").rename(root)
    write_day(root, "2026-03-03", "The cat Pixel learned to open doors")
    conftest.wait_for(lambda: daemon.search("Pixel", "u_mara"), "the saved text")
    assert "ledger_set_aside" not in daemon.log()


def test_X06_kill_and_restart_at_once_with_a_stale_lock_text(daemon: conftest.Daemon, root: Path) -> None:
    """What a killed daemon leaves behind never blocks the next one."""
    for _ in range(3):
        daemon.start()
        daemon.kill()
    assert json.loads((root / lock.FILE_NAME).read_bytes())["pid"]
    daemon.start()


def test_save_caught_between_two_names_by_a_crash_is_back_after_the_start(daemon: conftest.Daemon, root: Path) -> None:
    """The daemon was killed in the middle of a swap: what a person saved then returns, half a file does not."""
    path = write_day(root, "2026-03-02", "A zebra crosses the square")
    caught = path.with_name(f".{path.name}.tmp.everosd-00000001.{'1' * 16}.{'2' * 16}")
    half = path.with_name(f".{path.name}.tmp.everosd-00000002")
    path.rename(caught)
    half.write_bytes(b"---\nid: half")
    daemon.start()
    assert len(daemon.search("zebra", "u_mara")) == 1
    assert path.exists()
    assert [path] == list(path.parent.iterdir())


def test_request_that_does_not_end_does_not_hold_up_a_stop(daemon: conftest.Daemon) -> None:
    """A client that sends half a body and waits is cut off within the drain's limits."""
    daemon.start()
    url = daemon.http.base_url
    assert url.port
    with socket.create_connection((url.host, url.port)) as line:
        line.sendall(b"POST /api/v1/memory/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        daemon.health()
        began_s = time.monotonic()
        assert daemon.stop() == daemons.OK
    assert time.monotonic() - began_s < 8


def test_Z08_everything_it_makes_is_its_users_alone(daemon: conftest.Daemon, root: Path) -> None:
    """Under umask 022, with `init`, `serve` and a rewrite: 0700 for folders, 0600 for files."""
    shutil.rmtree(root)
    before = os.umask(0o022)
    try:
        assert conftest.run("init", "--root", str(root)).returncode == 0
        daemon.start()
        path = root / EPISODES / "episode-2026-03-02.md"
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_text("## The pear tree\n\nIt blossoms.\n")
        path.chmod(0o600)
        conftest.wait_for(lambda: daemon.search("blossoms", "u_mara"), "the text")
        answer = daemon.http.post("/api/v1/admin/adopt", json={})
        assert answer.status_code == 200
        conftest.wait_for(lambda: "entry:ep_" in path.read_text(), "the markers")
        daemon.stop()
    finally:
        os.umask(before)
    made = [root, *(found for found in root.rglob("*") if (root / "default_app") not in [found, *found.parents])]
    wide = [found for found in [*made, path] if stat.S_IMODE(found.lstat().st_mode) & 0o077]
    assert wide == []
