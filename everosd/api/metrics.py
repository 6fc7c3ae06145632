"""What is counted, and how Prometheus reads it.

Counting is plain arithmetic on the event loop; `prometheus_client` is imported when somebody first asks for /metrics,
because it costs more than the rest of this package together. No registry is shared: each `Metrics` has its own.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from everosd.cascade import status as cascade_status

if TYPE_CHECKING:
    from prometheus_client import metrics_core

    from everosd.engine import shown
    from everosd.intake import online

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper edges of the latency histogram: the budgets of a search lie among the first."""

CONTENT_TYPE = "text/plain; version=0.0.4"
"""Litestar adds the charset."""


class _Latency(msgspec.Struct):
    """Latencies of one route, by bucket; mutated in place."""

    counts: list[int]
    sum_s: float = 0.0


class Metrics:
    """Counters of one application. All methods but `render` run on the event loop."""

    def __init__(self, version: str) -> None:
        """Start at zero."""
        self._version = version
        self._requests: dict[tuple[str, str, str], int] = {}
        self._latencies: dict[str, _Latency] = {}
        self._degraded = 0

    def request(self, route: str, method: str, status: int, took_s: float, *, is_degraded: bool = False) -> None:
        """Count a request.

        Args:
            route: A template, never a path: labels stay few.
            method: Of HTTP.
            status: Of the answer; 0: the client left.
            took_s: From its arrival to the end of the answer.
            is_degraded: It was answered, but not as asked.
        """
        self._degraded += is_degraded
        key = (route, method if method in {"GET", "POST"} else "other", str(status))
        self._requests[key] = self._requests.get(key, 0) + 1
        latency = self._latencies.get(route)
        if latency is None:
            latency = self._latencies[route] = _Latency(counts=[0] * (len(BUCKETS_S) + 1))
        latency.counts[bisect.bisect_left(BUCKETS_S, took_s)] += 1
        latency.sum_s += took_s

    def render(
        self,
        status: cascade_status.Status,
        uptime_s: float,
        queue: online.Status | None = None,
        strategies: Sequence[shown.StrategyStatus] = (),
    ) -> bytes:
        """Return the text that Prometheus reads. Blocking: imports and reads /proc; runs in a thread.

        `queue` is what the intake says of itself, None where nothing takes messages; `strategies` what the engine runs.
        """
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot(self, status, uptime_s, queue, strategies))
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def families(self) -> Iterator[metrics_core.Metric]:
        """Yield what was counted, as Prometheus families."""
        from prometheus_client import metrics_core  # noqa: PLC0415

        requests = metrics_core.CounterMetricFamily(
            "everosd_http_requests", "Requests answered.", labels=("route", "method", "status")
        )
        for labels, count in sorted(self._requests.copy().items()):
            requests.add_metric(labels, count)
        yield requests
        latencies = metrics_core.HistogramMetricFamily(
            "everosd_http_request_seconds", "Time to answer.", labels=("route",)
        )
        for route, latency in sorted(self._latencies.copy().items()):
            latencies.add_metric((route,), _cumulative(latency.counts), latency.sum_s)
        yield latencies
        yield metrics_core.CounterMetricFamily(
            "everosd_degraded_answers", "Answers that could not be given as asked.", value=self._degraded
        )
        yield metrics_core.InfoMetricFamily(
            "everosd",
            "What is running.",
            value={"version": self._version, "python": ".".join(str(part) for part in sys.version_info[:3])},
        )


class _Snapshot:
    """What one scrape sees."""

    def __init__(
        self,
        counted: Metrics,
        status: cascade_status.Status,
        uptime_s: float,
        queue: online.Status | None,
        strategies: Sequence[shown.StrategyStatus],
    ) -> None:
        self._counted, self._status, self._uptime_s = counted, status, uptime_s
        self._queue, self._strategies = queue, strategies

    def collect(self) -> Iterator[metrics_core.Metric]:
        """Yield every family."""
        from prometheus_client import metrics_core  # noqa: PLC0415

        yield from self._counted.families()
        for name, help_text, value in self._gauges():
            yield metrics_core.GaugeMetricFamily(f"everosd_{name}", help_text, value=value)
        for name, help_text in _PROJECTION_GAUGES:
            family = metrics_core.GaugeMetricFamily(f"everosd_index_{name}", help_text, labels=("index",))
            for index, projection in sorted(self._status.projections.items()):
                family.add_metric((index,), float(getattr(projection, name)))
            yield family
        for name, help_text in _STRATEGY_GAUGES:
            family = metrics_core.GaugeMetricFamily(f"everosd_strategy_{name}", help_text, labels=("strategy",))
            for one in self._strategies:
                family.add_metric((one.name,), float(getattr(one, name)))
            yield family

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        status = self._status
        yield "uptime_seconds", "Time since the daemon started.", self._uptime_s
        yield "ready", "1 while keyword search serves what is on disk.", float(status.phase == "ready")
        yield "lsn", "Highest number of a change in the ledger.", status.lsn
        yield "files_on_disk", "Memory files that the last scan saw.", status.files_on_disk
        yield "files_indexed", "Memory files in the ledger.", status.files_indexed
        yield "entries", "Memories in the ledger.", status.entries
        yield "rows", "Rows of logs that only machines write, in the ledger.", status.rows
        yield "owners", "Users and agents with any memory.", status.owners
        yield "pending", "Changes noticed and not yet in every index.", status.pending
        yield "failed_retryable", "Work that failed and is tried again.", status.failed_retryable
        yield "failed_permanent", "Work that somebody has to look at.", status.failed_permanent
        yield "problem_files", "Files that are not read as they should be.", status.n_problems
        yield "deletions_held", "1 while a mass deletion is held back.", float(bool(status.alarm))
        yield "watch_healthy", "1 while changes are noticed at once.", float(status.watch_healthy)
        yield "scan_age_seconds", "Time since the last full comparison with the disk.", status.scan_age_s
        if (model := status.embedding) is not None:
            yield "embedding_healthy", "1 while the embedding model answers.", float(not model.error)
            yield "embedding_owed", "Entries that wait for their vectors.", model.owed
            yield "embedding_refused", "Entries whose text the model refuses.", model.refused
            yield "embedding_requested_texts", "Texts that the model was asked for since the start.", model.requested
            yield "embedding_cached_texts", "Texts since the start whose vectors were there already.", model.from_cache
        if (queue := self._queue) is not None:
            yield "intake_pending", "Requests and stretches of conversation that wait.", queue.pending
            yield "intake_oldest_seconds", "How long the oldest of them has waited.", queue.oldest_pending_age_s or 0.0
            yield "intake_failed", "Stretches of conversation whose last try failed.", queue.failed
            yield "intake_running", "1 while messages are taken.", float(queue.is_running)


_STRATEGY_GAUGES = (
    ("waiting", "Events that have not been run, those that are to be tried again included."),
    ("running", "Events that are being run."),
    ("dead", "Events that a strategy gave up on."),
)

_PROJECTION_GAUGES = (
    ("lsn", "Every change up to here is searchable."),
    ("behind", "Changes in the ledger that are not in the index yet."),
    ("documents", "Documents that a search can reach."),
    ("age_s", "Seconds without progress while there is something to do."),
)


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    """Return bucket edges with the number of observations up to each, `+Inf` last."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for edge, count in zip((*map(str, BUCKETS_S), "+Inf"), counts, strict=True):
        total += count
        buckets.append((edge, total))
    return buckets
