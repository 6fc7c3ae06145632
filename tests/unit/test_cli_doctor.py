"""The doctor: what is wrong, and what to type."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from everosd import config
from everosd.cascade import problems
from everosd.cli import doctor, root
from everosd.watch import mount
from tests import chat_stub


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """Give a root as init makes it."""
    folder = tmp_path / "memory"
    root.make(folder)
    return folder


def found(memory: Path, about: str) -> list[doctor.Finding]:
    return [one for one in doctor.examine(memory) if one.about == about]


def test_a_missing_root_says_how_to_make_one(tmp_path: Path) -> None:
    """Nothing is looked at in a root that is not there, and nothing is made."""
    missing = tmp_path / "missing"
    finding = found(missing, "root")[0]
    assert finding.level == "fail"
    assert f"everosd init --root {missing}" in finding.hint
    assert not missing.exists()


def test_a_file_is_not_a_root(tmp_path: Path) -> None:
    """A root that is a file is told from one that is missing."""
    (tmp_path / "file").write_text("")
    assert "is not a folder" in found(tmp_path / "file", "root")[0].text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_root_names_the_command(memory: Path) -> None:
    """A root of somebody else comes with the command that mends it."""
    memory.chmod(0o000)
    try:
        assert "chown" in found(memory, "root")[0].hint
    finally:
        memory.chmod(0o700)


def test_wrong_settings_are_shown_with_line_and_nearest_key(memory: Path) -> None:
    """A misspelt key is named with file, line and the key that was meant."""
    (memory / "everos.toml").write_text("[api]\nprot = 8000\n")
    finding = found(memory, "settings")[0]
    assert finding.level == "fail"
    assert "everos.toml:2" in finding.text
    assert "did you mean port?" in finding.text
    assert finding.hint == f"correct {memory / 'everos.toml'} and save it"


def test_keys_of_everos_without_a_use_here_are_listed(memory: Path) -> None:
    """A person who comes from EverOS learns which of their settings do nothing."""
    (memory / "everos.toml").write_text('[rerank]\nmodel = "x"\n')
    assert [one.text for one in found(memory, "settings") if one.level == "note"] == ["accepted and not used: [rerank]"]
    (memory / "everos.toml").write_text('[rerank]\nmodel = "x"\n\n[index]\nbackend = "lancedb"\n')
    assert [one.text for one in found(memory, "settings") if one.level == "note"] == [
        "accepted and not used: [rerank], index.backend"
    ]


def test_beside_a_broken_ome_toml_reflection_is_told_as_the_defaults_have_it(memory: Path) -> None:
    """What is wrong is not in force."""
    (memory / "ome.toml").write_text("[strategies.reflect_episode]\nenabled = true\n")
    said = {one.about: one.text for one in doctor.examine(memory)}
    assert said["reflection"].startswith("switched off")


@pytest.mark.parametrize(
    ("text", "level", "said"),
    [
        ("", "ok", "switched off: everosd lifecycle run --dry-run"),
        ("enabled = true", "warn", "nothing fires it"),
        ('enabled = true\npreset = "weekly"', "ok", "switched on: weekly"),
        ('enabled = true\npreset = "weekly"\ncron = "0 4 * * *"', "ok", "switched on: 0 4 * * *"),
    ],
)
def test_whether_passes_over_memories_come_by_themselves_is_told(
    memory: Path, text: str, level: str, said: str
) -> None:
    """Switched on without a time they never do, which is a warning that says what to type."""
    (memory / "ome.toml").write_text(f"[strategies.run_lifecycle]\n{text}\n")
    (finding,) = found(memory, "lifecycle")
    assert (level, True) == (finding.level, said in finding.text)
    assert ("preset weekly" in finding.hint) == (level == "warn")


def test_mistakes_in_ome_toml_are_named_with_their_lines(memory: Path) -> None:
    """All of them at once; what has no effect is a note."""
    (memory / "ome.toml").write_text("[strategies\n")
    assert [one.level for one in found(memory, "settings")] == ["ok", "warn"]
    (memory / "ome.toml").write_text(
        "[strategies.extract_user_profile]\nenable = false\nmax_retries = -1\n"
        '[strategies.extract_atomic_facts]\ncron = "0 2 * * 1"\n'
    )
    _, first, second, third = found(memory, "settings")
    assert (first.level, second.level, third.level) == ("warn", "warn", "note")
    assert "ome.toml:2: strategies.extract_user_profile.enable: unknown key; did you mean enabled?" in first.text
    assert "ome.toml:3:" in second.text


def test_without_a_root_nothing_is_said_of_ome_toml(tmp_path: Path) -> None:
    """A file in a folder that is not there is no second mistake."""
    assert ["ok"] == [one.level for one in found(tmp_path / "missing", "settings")]


def reader(memory: Path, settings: str) -> doctor.Finding:
    (memory / "everos.toml").write_text(f"[llm]\n{settings}\n")
    (finding,) = doctor._reader(config.load(memory, {}))
    return finding


def test_the_model_for_conversations_is_asked_for_a_word(memory: Path) -> None:
    """None is fine, half of one is not; one that is set up answers, or is named with the reason and what to do."""
    none = reader(memory, "")
    assert ("ok", True) == (none.level, "extraction is verbatim" in none.text)
    half = reader(memory, 'model = "gpt"')
    assert ("warn", "set EVEROS_LLM__API_KEY") == (half.level, half.hint)
    half = reader(memory, 'base_url = "http://127.0.0.1:1/v1"\napi_key = "k"')
    assert ("warn", True) == (half.level, "model is missing" in half.text)
    with chat_stub.ChatStub() as model:
        settings = f'model = "stub"\nbase_url = "{model.url}"\nmax_retries = 0'
        well = reader(memory, settings)
        assert ("ok", True) == (well.level, " answers in " in well.text)
        model.status = 500
        down = reader(memory, settings)
        assert ("fail", True, doctor.SEE_LLM) == (down.level, "500" in down.text, down.hint)
        model.status = 401
        assert "EVEROS_LLM__API_KEY" in reader(memory, settings).hint


def test_what_the_daemon_repeats_is_said_once(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in ome.toml is one thing to mend, however many found it; what only the daemon knows is said."""
    (memory / "ome.toml").write_text("[strategies.extract_user_profil]\n")
    wrong = found(memory, "settings")[1].text
    notices = [doctor.Finding(level="warn", about="daemon", text=text) for text in (f"{wrong}; as before", "a stall")]
    monkeypatch.setattr(doctor, "_memory", lambda _: iter(notices))
    said = [one.text for one in found(memory, "daemon") if one in notices]
    assert ["a stall"] == said


def test_prompts_that_are_not_used_are_named(memory: Path) -> None:
    """Broken ones, and those whose name no prompt has."""
    (memory / "prompts").mkdir()
    for name in ("episode.md", "epsiode.md", "README.md"):
        (memory / "prompts" / name).write_text("tell it briefly")
    broken, misnamed = doctor._prompts(config.load(memory, {}))
    assert ("warn", True) == (broken.level, "episode.md: is no prompt" in broken.text)
    assert ("warn", True) == (misnamed.level, "did you mean episode.md?" in misnamed.text)


def test_memory_that_others_can_read_is_a_warning(memory: Path) -> None:
    """A root open to other users of the machine comes with the chmod."""
    memory.chmod(0o755)
    finding = found(memory, "privacy")[0]
    assert finding.level == "warn"
    assert finding.hint == f"chmod -R go= {memory}"


def test_what_is_to_be_typed_can_be_typed(tmp_path: Path) -> None:
    """A root with a space in its name is quoted wherever it is part of a command."""
    folder = tmp_path / "my memory"
    assert f"everosd init --root '{folder}'" in found(folder, "root")[0].hint
    folder.mkdir()
    folder.chmod(0o755)
    assert found(folder, "privacy")[0].hint == f"chmod -R go= '{folder}'"


def test_folders_made_by_hand_in_a_shut_root_are_no_warning(memory: Path) -> None:
    """Who cannot enter the root cannot enter what is in it, whatever umask made that."""
    (memory / "default_app").mkdir(mode=0o755)
    assert found(memory, "privacy")[0].level == "ok"


def test_a_taken_port_is_found_before_the_start(memory: Path) -> None:
    """Where another program has the port, the doctor says so although no daemon was started."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (memory / "everos.toml").write_text(f"[api]\nport = {port}\n")
        finding = found(memory, "daemon")[0]
    assert finding.level == "warn"
    assert f"port {port} is not free" in finding.text


def test_too_few_watches_come_with_the_sysctl(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root with more folders than inotify allows names the limit to raise."""
    limit = tmp_path / "max_user_watches"
    limit.write_text("1\n")
    monkeypatch.setattr(doctor, "WATCHES", limit)
    finding = next(one for one in found(memory, "watching") if one.level == "warn")
    assert "sysctl fs.inotify.max_user_watches=" in finding.hint


def test_a_full_disk_is_found(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is a failure, little room a warning."""
    monkeypatch.setattr(doctor, "NO_DISK_BYTES", 2**80)
    monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 2**80)
    assert found(memory, "disk")[0].level == "fail"
    monkeypatch.setattr(doctor, "NO_DISK_BYTES", 0)
    assert found(memory, "disk")[0].level == "warn"


def test_a_network_mount_is_polled_or_should_be(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where changes made elsewhere send no events, that is said; a person who insists on events is warned."""
    monkeypatch.setattr(mount, "remote_type", lambda _: "nfs4")
    (said,) = [one for one in found(memory, "watching") if one.text.startswith("nfs4")]
    assert ("note", "") == (said.level, said.hint)
    (memory / "everos.toml").write_text('[watch]\nmode = "inotify"\n')
    (said,) = [one for one in found(memory, "watching") if one.text.startswith("nfs4")]
    assert ("warn", 'set [watch] mode = "auto" in everos.toml') == (said.level, said.hint)


def test_every_kind_of_file_problem_has_a_hint(memory: Path) -> None:
    """A problem that the cascade can report is never shown without its meaning."""
    kinds = set(problems.ORDER)
    assert set(doctor.KINDS) == kinds
    said = [{"path": "a.md", "reason": "r", "kind": kind, "line": 3} for kind in sorted(kinds)]
    findings = list(doctor._files(memory, {"problems": said}))
    assert [one.text for one in findings] == ["a.md:3: r"] * len(kinds)
    assert [one.hint != "" for one in findings] == [kind not in ("warning", "healed") for kind in sorted(kinds)]


def test_an_index_that_waits_for_the_model_is_not_to_be_rebuilt(memory: Path) -> None:
    """A wrong key is no damage: a rebuild mends only what the index itself is to blame for."""
    said = "m at 127.0.0.1:1: refuses the key"
    data = {"projections": {"text": {"error": "torn"}, "vectors": {"error": said}}, "embedding": {"error": said}}
    text, vectors = doctor._indexes(memory, data)
    assert ("index text", f"everosd rebuild --root {memory}") == (text.about, text.hint)
    assert ("index vectors", said, doctor.MODEL_FAILS) == (vectors.about, vectors.text, vectors.hint)


def test_a_file_that_cannot_be_read_is_told_what_helps(memory: Path) -> None:
    """A link that leads away and a name in another encoding are not a matter of rights."""
    (memory / "link.md").symlink_to("/etc/hostname")
    hints = [doctor._allow(memory, path) for path in ("link.md", "a\\udcff.md", "shut.md")]
    assert ["put the file itself there" in hints[0], "UTF-8" in hints[1], "chmod u+rX" in hints[2]] == [True] * 3


def test_long_lists_of_files_are_cut_and_counted(memory: Path) -> None:
    """Hundreds of odd files do not push everything else off the screen."""
    strays = [{"path": f"{n}.md", "reason": "r", "kind": "stray"} for n in range(100)]
    findings = list(doctor._files(memory, {"problems": strays, "n_problems": 300}))
    assert len(findings) == doctor.MAX_FILES + 1
    assert findings[-1].text == f"… and {300 - doctor.MAX_FILES} more"
    assert "everosd status --json" in findings[-1].hint


def test_the_report_counts_what_needs_a_look() -> None:
    """The last line says whether there is anything to do."""
    fine = doctor.Finding(level="ok", about="root", text="/x")
    bad = doctor.Finding(level="fail", about="disk", text="full", hint="make room")
    assert doctor.report([fine]).endswith("all is well")
    assert doctor.report([fine, bad]).splitlines()[1:] == [
        "FAIL  disk       full",
        "                 → make room",
        "",
        "1 thing needs a look",
    ]
