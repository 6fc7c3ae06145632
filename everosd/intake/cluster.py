"""Clustering: an entry joins the cluster that it is most like, if it is like one of its time, or begins one.

Episodes of a user and cases of an agent. What is decided is a row in `.clusters/`; everything else is computed from rows:
people may move a member by editing one, or take it out by removing one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import heapq
import importlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from everosd import clock, config, errors, types
from everosd.cascade import embed
from everosd.engine import strategy
from everosd.intake import arrival
from everosd.log import entry as entries
from everosd.log import entry_text, view, writer
from everosd.store import cluster, read, row

if TYPE_CHECKING:
    from everosd.intake import centroid

log = structlog.get_logger(__name__)

_FOLLOWS: dict[strategy.Topic, strategy.Topic] = {
    "episode_written": "episode_clustered",
    "case_written": "case_clustered",
}

_DAY_US = 86_400_000_000
_PATIENCE_S = 1.0
"""How long an entry's vectors are waited for while nothing else waits: others want to run as well."""
_FEW = 8
"""Entries that a model does in about that time."""
_RATE = 20.0
"""Entries a second that a model does, at a guess: when to ask again while many wait."""
_RETRY_S = (1.0, 60.0)
_SEEN_S = 30.0
"""How long it may take until the ledger has read what was appended."""
_UNREAD_RETRY_S = 5.0
_MEMORY_BYTES = 16 << 20
"""For centroids; those of the owner who was last are kept whatever they take."""
_CHUNK = 1_000
"""Members whose vectors are in memory at once beside the centroids."""
_MAX_LACKING = 500
"""Members without vectors that are looked at again at once."""


class Clustering:
    """The strategies `trigger_profile_clustering` and `trigger_skill_clustering`. Lives on the event loop."""

    def __init__(
        self,
        reader: read.Reader,
        pen: writer.Writer,
        embedding: embed.Embedding | None,
        settings: Callable[[], config.Clustering],
        emit: Callable[[strategy.Event], None],
        time: clock.Clock,
    ) -> None:
        """Wire the parts; `embedding` is None where no vectors are made."""
        self._reader = reader
        self._pen = pen
        self._embedding = embedding
        self._settings = settings
        self._emit = emit
        self._clock = time
        self._turns = _Turns()
        self._known: collections.OrderedDict[types.Owner, centroid.Centroids] = collections.OrderedDict()
        self._n_seen = 0
        self._arrivals = arrival.Arrivals(time, _PATIENCE_S)
        self._appended: dict[tuple[types.Owner, str], str] = {}
        """Clusters that entries have joined, until the ledger knows."""

    async def run(self, event: strategy.Event) -> str:
        """Have the event's entry join a cluster, once, and tell that it did.

        Calls for one owner take turns, those that wait in the order of their entries' moments. Where no vectors are made,
        or not of this text, nothing is decided; of an Episode what follows is told all the same.

        Raises:
            LLMUnavailable: the entry's vectors, or those of what it is compared with, are not there yet.
            WriteRefused, StoreError: the log or the ledger cannot be used.
        """
        entry = await self._find(event)
        if entry is None:
            return "the entry is not there any more"
        async with self._turns.of(event.owner, entry.timestamp_us):
            cluster_id, note = await self._cluster(entry)
        if cluster_id or event.topic == "episode_written":
            follows = strategy.Event(
                topic=_FOLLOWS[event.topic], owner=event.owner, subject=event.subject, origin=event.origin
            )
            self._emit(follows)
        return note

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of what is known of an owner whose files have been deleted."""
        self._known.pop(owner, None)
        self._arrivals.forget(owner)
        for key in [key for key in self._appended if key[0] == owner]:
            del self._appended[key]

    # -- the entry -------------------------------------------------------------------------------------------------

    async def _find(self, event: strategy.Event) -> row.EntryRow | None:
        """Return the entry once the ledger has it; None where it is gone."""
        found = await self._arrivals.find(
            event.owner,
            event.subject,
            lambda: self._reader.find(event.owner, event.subject),
            lambda: _unread(event.subject),
        )
        return None if found is None or found.status == "deleted" else found

    async def _cluster(self, entry: row.EntryRow) -> tuple[str, str]:
        """Return the cluster that an entry is in now, empty where it is in none, and what was done."""
        at = (entry.owner, entry.entry_id)
        known = await cluster.cluster_of(self._reader, *at)
        if known is None and (appended := self._appended.get(at)) is not None:
            await self._until_seen(entry)
            known = appended
        if known is not None:
            return known, f"in {known} already"
        embedding = self._embedding
        if embedding is None or not embedding.is_wanted:
            return "", "no vectors are made: nothing is clustered"
        if not _has_text(entry):
            return "", "it has no text"
        vector = await self._vector(embedding, entry)
        if vector is None:
            return "", "the embedding model refuses its text"
        return await self._join(embedding, entry, *vector)

    async def _vector(
        self, embedding: embed.Embedding, entry: row.EntryRow
    ) -> tuple[types.Space, centroid.Vector] | None:
        """Return what an entry is about; None where the model refuses its text.

        Raises:
            LLMUnavailable: the model has not come to it yet.
        """
        began_s = self._clock.monotonic_s()
        while True:
            space, found = await embedding.vectors([entry.key])
            if entry.key in found:
                centroids = await asyncio.to_thread(importlib.import_module, "everosd.intake.centroid")
                return space, centroids.of_entry(found[entry.key])
            if embedding.refuses(entry.key):
                return None
            n = embedding.n_owed()
            if n > _FEW or self._clock.monotonic_s() - began_s > _PATIENCE_S:
                raise _not_yet(n)
            await self._clock.sleep(arrival.POLL_S)

    async def _join(
        self, embedding: embed.Embedding, entry: row.EntryRow, space: types.Space, vector: centroid.Vector
    ) -> tuple[str, str]:
        settings = self._settings()
        window_us = int(settings.time_window_days * _DAY_US)
        centroids = await self._centroids(embedding, entry.owner, space)
        if (n := embedding.n_owed()) and centroids.is_lacking(entry.timestamp_us, window_us):
            raise _not_yet(n)  # it might belong there
        nearest = await asyncio.to_thread(
            centroids.nearest, vector, entry.timestamp_us, window_us, settings.threshold
        )  # ten thousand clusters take some milliseconds
        cluster_id = _new_id(entry, centroids) if nearest is None else nearest.cluster_id
        fields = {
            "timestamp": self._clock.now().isoformat(timespec="seconds"),
            "event": "joined",
            "cluster_id": cluster_id,
            "member_id": entry.entry_id,
            "member_type": entry.kind,
        }
        if nearest is not None:
            fields["similarity"] = f"{nearest.similarity:.4f}"
        fields["digest"] = hashlib.blake2b(entry.raw.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        await self._pen.append(entry.owner, "cluster", [entries.Draft(fields=fields)])
        self._appended[entry.owner, entry.entry_id] = cluster_id
        await self._until_seen(entry)
        log.debug("entry_clustered", entry_id=entry.entry_id, cluster_id=cluster_id, is_new=nearest is None)
        if nearest is None:
            return cluster_id, f"began {cluster_id}"
        return cluster_id, f"joined {cluster_id} at {nearest.similarity:.2f}"

    async def _until_seen(self, entry: row.EntryRow) -> None:
        """Wait until the ledger has a row that was appended: the next entry, and who is told, look there."""
        began_s = self._clock.monotonic_s()
        while await cluster.cluster_of(self._reader, entry.owner, entry.entry_id) is None:
            if self._clock.monotonic_s() - began_s > _SEEN_S:
                raise _unread(entry.entry_id)
            await self._clock.sleep(arrival.POLL_S)
        self._appended.pop((entry.owner, entry.entry_id), None)

    # -- the clusters ----------------------------------------------------------------------------------------------

    async def _centroids(
        self, embedding: embed.Embedding, owner: types.Owner, space: types.Space
    ) -> centroid.Centroids:
        """Return an owner's clusters as they are now; what was computed before is kept, as far as it still holds."""
        await self._follow()
        known = self._known.get(owner)
        if known is None or known.space != space:
            known = await self._load(embedding, owner, space)
        else:
            await self._refresh(embedding, owner, known)
        self._known[owner] = known
        self._known.move_to_end(owner)
        while len(self._known) > 1 and sum(each.n_bytes for each in self._known.values()) > _MEMORY_BYTES:
            self._known.popitem(last=False)
        return known

    async def _follow(self) -> None:
        """Note which members have changed since the last time, in the clusters that are kept."""
        found = await cluster.changes(self._reader, self._n_seen) if self._known else None
        if found is None:
            self._known.clear()
            self._n_seen = await cluster.n_changes(self._reader)
            return
        self._n_seen, changed = found
        for each in changed:
            if (known := self._known.get(each.owner)) is not None:
                known.changed.add(each.member_id)

    async def _load(self, embedding: embed.Embedding, owner: types.Owner, space: types.Space) -> centroid.Centroids:
        module = await asyncio.to_thread(importlib.import_module, "everosd.intake.centroid")
        made: centroid.Centroids = module.Centroids(space)
        members = await cluster.all_members(self._reader, owner)
        for start in range(0, len(members), _CHUNK):
            part = members[start : start + _CHUNK]
            await asyncio.to_thread(made.load, part, await self._vectors(embedding, [each.key for each in part], space))
        return made

    async def _refresh(self, embedding: embed.Embedding, owner: types.Owner, known: centroid.Centroids) -> None:
        """Make those clusters anew whose members have changed, or have their vectors now."""
        stale: set[str] = set()
        joined: list[cluster.Member] = []
        changed, known.changed = known.changed, set()
        try:
            for entry_id in changed:
                now = await cluster.member(self._reader, owner, entry_id)
                before = known.cluster_of.get(entry_id)
                if before is not None:
                    stale.add(before)
                if now is not None and before is None:
                    joined.append(now)
                elif now is not None:
                    stale.add(now.cluster_id)
            lacking = list(itertools.islice(known.lacking, _MAX_LACKING))
            keys = [*lacking, *(each.key for each in joined)]
            vectors = await self._vectors(embedding, keys, known.space)
            stale.update(known.lacking[key] for key in lacking if key in vectors)
            for each in joined:
                if each.cluster_id not in stale:
                    known.add(each, vectors)
            for cluster_id in sorted(stale):
                members = await cluster.members(self._reader, owner, cluster_id)
                vectors = await self._vectors(embedding, [each.key for each in members], known.space)
                known.put(cluster_id, members, vectors)
        except BaseException:
            self._known.pop(owner, None)  # half of it is done
            raise

    async def _vectors(
        self, embedding: embed.Embedding, keys: Sequence[types.EntryKey], space: types.Space
    ) -> centroid.Vectors:
        if not keys:
            return {}
        now, found = await embedding.vectors(keys)
        if now != space:
            raise _not_yet(embedding.n_owed())
        return found


class _Turns:
    """One at a time for each owner; of those that wait, the one with the oldest entry is next."""

    def __init__(self) -> None:
        self._waiting: dict[types.Owner, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._n = itertools.count()

    @contextlib.asynccontextmanager
    async def of(self, owner: types.Owner, at_us: int) -> AsyncIterator[None]:
        """Be the only one of an owner."""
        if owner in self._waiting:
            turn = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting[owner], (at_us, next(self._n), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # it had just come
                    self._pass_on(owner)
                raise
        else:
            self._waiting[owner] = []
        try:
            yield
        finally:
            self._pass_on(owner)

    def _pass_on(self, owner: types.Owner) -> None:
        waiting = self._waiting[owner]
        while waiting:
            turn = heapq.heappop(waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[owner]


def _unread(entry_id: str) -> errors.LLMUnavailable:
    return errors.LLMUnavailable(
        "the ledger", f"what was written about {entry_id} has not been read yet", retry_after_s=_UNREAD_RETRY_S
    )


def _not_yet(n_owed: int) -> errors.LLMUnavailable:
    least, most = _RETRY_S
    retry_after_s = min(most, max(least, n_owed / _RATE))
    return errors.LLMUnavailable("the embedding model", "has not come to this entry yet", retry_after_s=retry_after_s)


def _has_text(entry: row.EntryRow) -> bool:
    read_of = entry_text.read(entry.kind, entry.entry_id, entry.raw, form=entry.form)
    return bool(view.title(read_of) or view.body(read_of))


def _new_id(entry: row.EntryRow, centroids: centroid.Centroids) -> str:
    """Return the id of the cluster that an entry begins: the same for the same entry, and nobody's else."""
    owner = entry.owner
    for n in itertools.count():
        text = json.dumps([owner.app, owner.project, owner.type, owner.id, entry.entry_id, n])
        cluster_id = f"cl_{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"
        if cluster_id not in centroids:
            return cluster_id
    raise AssertionError
