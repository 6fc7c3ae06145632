"""The wheel on its own: in an environment that has nothing else, far from the sources, with the newest of what it allows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import everosd
from tests.process import conftest, talking

pytestmark = [pytest.mark.wheel, pytest.mark.slow, pytest.mark.timeout(1200)]

REPO = Path(__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 600.0
"""Far more than 350 MB take from an index that answers at all."""
COMMAND_TIMEOUT_S = 120.0
VECTORS_TIMEOUT_S = 60.0
"""The sample takes five seconds on a machine of its own."""

GREYHOUND = "lena_ep_20260516_00000001"
PAINKILLERS = "tomas_ep_20260505_00000001"
TALK = "mara: I moved to Porto last week.\nassistant: How is it?\nmara: The flat has a balcony.\n"


def test_O14_the_wheel_works_in_a_fresh_environment_with_the_newest_it_allows(
    tmp_path: Path, daemon: conftest.Daemon
) -> None:
    """Made, installed, and then: init, doctor, demo, search by word and by meaning, add, flush, verify."""
    ours = Installed(install(wheel(), tmp_path / "venv"), tmp_path / "home")
    daemon.root, daemon.command = tmp_path / "sample", [str(ours.program)]
    root = ("--root", str(daemon.root))
    assert everosd.__version__ in ours.run("--version")
    ours.run("init")
    ours.run("doctor")
    ours.run("demo", *root)
    assert GREYHOUND in ours.run("search", *root, "--user", "lena", "retired racing greyhound")
    http = daemon.start(env=ours.env)
    # By meaning, which needs the daemon, the model and the vector index: the question shares no word with its answer.
    asked = ("search", *root, "--user", "tomas", "--method", "hybrid", "dangerous painkillers")
    conftest.wait_for(lambda: PAINKILLERS in ours.run(*asked), f"{PAINKILLERS} by its meaning", VECTORS_TIMEOUT_S)
    # A conversation, through the daemon: the prompts and tables that this needs have to be in the wheel.
    (ours.home / "talk.txt").write_text(TALK, encoding="utf-8")
    ours.run("add", *root, "talk.txt")
    assert "Porto" in ours.run("search", *root, "--user", "mara", "balcony")
    # The same in two steps, as a program does it.
    talking.add(http, "harbour", talking.said("I keep my dinghy in Vila do Conde.", sender="rui"))
    flushed = talking.flush(http, "harbour")
    assert 200 == flushed.status_code, flushed.text
    assert "extracted" == flushed.json()["data"]["status"]
    assert "Vila do Conde" in ours.run("search", *root, "--user", "rui", "dinghy")
    assert 0 == daemon.stop(), daemon.log()
    ours.run("verify", *root)


class Installed:
    """An everosd that was installed somewhere, with a home of its own and nothing of the tests' environment in its way."""

    def __init__(self, venv: Path, home: Path) -> None:
        """Make the home, which is also where commands run."""
        home.mkdir()
        self.home = home
        self.program = venv / "bin" / "everosd"
        self.env: conftest.Env = {
            "HOME": str(home),
            "PYTHONPATH": None,
            "VIRTUAL_ENV": None,
            "EVEROS_EMBEDDING__MODEL": None,
        }

    def run(self, *arguments: str) -> str:
        """Run a command to its end, which has to be a good one, and return what it prints."""
        done = subprocess.run(
            [self.program, *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            cwd=self.home,
            env=conftest._environment(self.env),
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert 0 == done.returncode, f"everosd {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout


def wheel() -> Path:
    """Have `make wheel` make it; return where it lies."""
    _index("make the wheel", "make", "-C", str(REPO), f"VENV={sys.prefix}", "wheel")
    (found,) = (REPO / "dist").glob(f"everosd-{everosd.__version__}-*.whl")
    return found


def install(one: Path, venv: Path) -> Path:
    """Install a wheel, with the newest of what it allows, into an environment of its own; return where that is."""
    subprocess.run([sys.executable, "-m", "venv", venv], timeout=COMMAND_TIMEOUT_S, check=True)
    pip = (str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
    _index("install the wheel", *pip, "install", "--quiet", str(one))
    _index("have what it needs fit together", *pip, "check")
    return venv


def _index(what: str, *command: str) -> None:
    """Run what needs the package index; where it cannot, say so in plain words, without a traceback."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it took more than {INSTALL_TIMEOUT_S:.0f} s to {what}: is the package index slow?", pytrace=False)
    if done.returncode:
        pytest.fail(
            f"{done.stdout}{done.stderr}\ncould not {what}; the reason is above. Where the package index cannot be reached,"
            " nothing here helps but a network or a mirror",
            pytrace=False,
        )
