"""Building graphs: in one thread of lower priority, for partitions that are searched, never in the way of a search."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everosd import types
from everosd.index import graph, partition, record

RECALL = 0.99
"""Share of the ten nearest that a graph has to find; one that does not is not used, however long its lists."""

_NICE = 5  # not lower: whoever waits for the interpreter waits for this thread now and then
_CHUNK = 200  # vectors added at once, about 0.2 s: how long a stop waits
_MARKED = 2_000  # vectors that are compared with those of a file at once
_N_PROBES = 60
_K = 10
_SAME = 1e-5  # distances that differ less are equal
_LOOKUP_EF = 32
_MAX_LOST = 0.05  # share of vectors that a search for themselves may miss; they are searched exactly
_MAX_CHANGED = 0.002  # share of vectors that may be replaced while a graph is measured without a say in its recall
_STOP_S = 5.0


class Job(NamedTuple):
    """A partition that wants a graph, or another one."""

    name: str
    """Of its files."""
    part: partition.Partition
    space: types.Space


class Builder:
    """The thread that builds; started with the first job, ended by `close`."""

    def __init__(self, folder: graph.Folder, failed: Callable[[BaseException], None]) -> None:
        """Keep graphs in `folder`; `failed` is told of what went wrong, in the thread."""
        self._folder = folder
        self._failed = failed
        self._jobs: dict[str, Job] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._is_busy = False

    def ask(self, job: Job) -> None:
        """Have a graph built, once what was asked for before is done; returns at once."""
        with self._changed:
            if self._is_stopped or job.name in self._jobs:
                return
            self._jobs[job.name] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="vector-graphs", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is to be done; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._is_busy, timeout_s)

    def close(self) -> None:
        """Stop, in the middle of a graph too."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_S)

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._is_stopped)
                if self._is_stopped:
                    return
                job = next(iter(self._jobs.values()))
                self._is_busy = True
            try:
                self._do(job)
            except _StoppedError:
                return
            except Exception as error:  # noqa: BLE001  # the thread goes on; searches are exact without a graph
                job.part.refuse_graph()
                self._failed(error)
            finally:
                with self._changed:
                    self._jobs.pop(job.name, None)
                    self._is_busy = False
                    self._changed.notify_all()

    def _do(self, job: Job) -> None:
        if not job.part.has_graph:
            self._load(job)
        if job.part.wants_graph:
            self._build(job)

    def _load(self, job: Job) -> None:
        """Take up the graph that an earlier run left."""
        manifest = self._folder.manifest(job.name)
        if manifest is None:
            self._folder.remove(job.name)  # files without their manifest, or with a broken one
        elif manifest.format != graph.FORMAT or manifest.space != job.space:
            self._folder.remove(job.name)
        elif not manifest.ef:
            job.part.refuse_graph(manifest.n)
        elif (found := self._folder.load(manifest)) is None:
            self._folder.set_aside(job.name)
        else:
            self._take_up(job.part, found)

    def _take_up(self, part: partition.Partition, found: graph.Graph) -> None:
        """Search by a graph of an earlier run: its vectors are known again by their marks."""
        plan = part.plan_graph(is_anew=True)
        order = np.argsort(found.marks)
        for start in range(0, len(plan.rows), _MARKED):
            self._check()
            rows, _, marks = part.copy(plan, plan.rows[start : start + _MARKED])
            labels = order[np.minimum(np.searchsorted(found.marks, marks, sorter=order), found.n - 1)]
            is_there = found.marks[labels] == marks
            found.rows[labels[is_there]] = rows[is_there]
        part.take_graph(found, plan)

    def _build(self, job: Job) -> None:
        part, plan = job.part, job.part.plan_graph()
        base = None
        if len(plan.marks) and (manifest := self._folder.manifest(job.name)) is not None and manifest.ef:
            base = self._folder.load(manifest, capacity=len(plan.marks) + len(plan.rows))
        if base is None or not np.array_equal(base.marks, plan.marks):
            plan = part.plan_graph(is_anew=True)
            base = graph.Graph(graph.empty(part.dim, len(plan.rows)), 0, np.zeros(0, dtype=np.uint64))
        made = self._fill(part, plan, base)
        n_changed = part.n_changed(plan)
        if not self._look_up(part, plan, made) or not self._tune(part, plan, made):
            if part.n_changed(plan) - n_changed > _MAX_CHANGED * made.n:
                return  # it was measured against what came meanwhile: the next search has another one built
            part.refuse_graph()
            self._folder.refuse(job.name, part.n_live, job.space)
            return
        try:
            self._folder.save(job.name, made, job.space)
        finally:  # a full disk is no reason to search slowly
            part.take_graph(made, plan)

    def _fill(self, part: partition.Partition, plan: partition.Plan, base: graph.Graph) -> graph.Graph:
        """Return a graph with the rows of a plan, as far as they still are what they were."""
        all_marks, all_rows, n = [base.marks], [base.rows], base.n
        for start in range(0, len(plan.rows), _CHUNK):
            self._check()
            rows, codes, marks = part.copy(plan, plan.rows[start : start + _CHUNK])
            if len(rows):
                base.index.add_items(record.decode(codes), np.arange(n, n + len(rows)), num_threads=1)
                all_marks.append(marks)
                all_rows.append(rows)
                n += len(rows)
        made = graph.Graph(base.index, 0, np.concatenate(all_marks))
        made.rows = np.concatenate(all_rows)
        return made

    def _look_up(self, part: partition.Partition, plan: partition.Plan, made: graph.Graph) -> bool:
        """Search for every new vector by itself: what the graph does not lead to is searched exactly instead.

        Returns:
            Whether that is little enough.
        """
        made.index.set_ef(_LOOKUP_EF)
        n_lost = 0
        for start in range(len(plan.marks), made.n, _CHUNK):
            self._check()
            labels = np.arange(start, min(made.n, start + _CHUNK))
            rows, codes, _ = part.copy(plan, made.rows[labels])
            is_same = np.isin(made.rows[labels], rows)
            made.rows[labels[~is_same]] = -1  # replaced since
            if not len(rows):
                continue
            vectors = record.decode(codes)
            _, distances = made.index.knn_query(vectors, 1, num_threads=1)
            own = 1 - np.einsum("ij,ij->i", vectors, vectors)
            lost = labels[is_same][distances[:, 0] > own + _SAME]
            made.rows[lost] = -1
            n_lost += len(lost)
        return n_lost <= _MAX_LOST * (made.n - len(plan.marks))

    def _tune(self, part: partition.Partition, plan: partition.Plan, made: graph.Graph) -> bool:
        """Choose the shortest list of candidates with the recall that is promised; False where none has."""
        by_label = part.rows_of(made, plan)
        rows = by_label[by_label >= 0]
        if len(rows) < _K:
            return False
        probes = _probes(part.vectors(np.random.default_rng(1).choice(rows, 2 * _N_PROBES)))
        least = []
        for probe in probes:
            self._check()
            least.append(part.kth_cosine(probe, rows, _K))
        for ef in graph.EFS:
            made.ef = ef
            n_found = 0
            for probe, cosine in zip(probes, least, strict=True):
                self._check()
                labels, cosines = made.propose(probe, 2 * _K, ef)
                near = cosines[by_label[labels] >= 0] >= cosine - _SAME
                n_found += min(_K, int(np.count_nonzero(near)))
            if n_found >= RECALL * _K * len(probes):
                return True
        return False

    def _check(self) -> None:
        if self._is_stopped:
            raise _StoppedError


class _StoppedError(Exception):
    """The index is being closed."""


def _probes(vectors: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return what may be asked for: something close to a text, something loosely about it, something between two."""
    dice = np.random.default_rng(2)
    n = len(vectors) // 2
    noise = dice.standard_normal((n, vectors.shape[1])).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    near = np.array([0.3, 1.0, 0.0], dtype=np.float32)[np.arange(n) % 3, None]  # cosines of 0.96 and 0.71
    other = np.array([0.0, 0.0, 1.0], dtype=np.float32)[np.arange(n) % 3, None]
    probes = vectors[:n] + near * noise + other * vectors[n:]
    lengths = np.linalg.norm(probes, axis=1, keepdims=True)
    return list(probes / np.maximum(lengths, 1e-9))
