"""/metrics: figures that Prometheus can read and that add up."""

from __future__ import annotations

import math

from prometheus_client import parser

from everosd.api import metrics
from everosd.cascade import status as cascade_status
from everosd.engine import shown
from everosd.intake import online

STATUS = cascade_status.Status(
    phase="ready",
    lsn=12,
    files_on_disk=3,
    files_indexed=2,
    entries=9,
    rows=6,
    pending=4,
    failed_retryable=0,
    failed_permanent=1,
    problems=(),
    n_problems=0,
    projections={"text": cascade_status.ProjectionStatus(lsn=8, behind=4, documents=7, age_s=0.5)},
)


def samples(counted: metrics.Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = counted.render(STATUS, 5.0).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_method_and_status() -> None:
    """Two of one kind and one of another are two and one."""
    counted = metrics.Metrics("1")
    for status in (200, 200, 422):
        counted.request("memory/search", "POST", status, 0.002)

    found = samples(counted)

    assert [2.0, 1.0] == [
        found["everosd_http_requests_total", (("method", "POST"), ("route", "memory/search"), ("status", status))]
        for status in ("200", "422")
    ]


def test_latencies_fall_into_buckets_that_add_up() -> None:
    """Buckets are cumulative, an edge belongs to its bucket, and the last one holds all."""
    counted = metrics.Metrics("1")
    for took_s in (0.001, 0.002, 99.0):
        counted.request("r", "GET", 200, took_s)

    found = samples(counted)

    name = "everosd_http_request_seconds"
    edges = [found[f"{name}_bucket", (("le", edge), ("route", "r"))] for edge in ("0.001", "0.0025", "10.0", "+Inf")]
    assert [1.0, 2.0, 2.0, 3.0] == edges
    assert 3.0 == found[f"{name}_count", (("route", "r"),)]
    assert math.isclose(99.003, found[f"{name}_sum", (("route", "r"),)])


def test_an_odd_method_does_not_make_a_label() -> None:
    """A client cannot grow the set of labels by inventing methods."""
    counted = metrics.Metrics("1")
    for n in range(50):
        counted.request("other", f"X{n}", 405, 0.0)

    assert (
        50.0
        == samples(counted)["everosd_http_requests_total", (("method", "other"), ("route", "other"), ("status", "405"))]
    )


def test_the_state_of_the_cascade_is_there() -> None:
    """Counts of disk, ledger and indexes, what waits and what failed."""
    found = samples(metrics.Metrics("1"))

    assert [12.0, 3.0, 2.0, 9.0, 6.0, 4.0, 1.0, 1.0, 5.0] == [
        found[f"everosd_{name}", ()]
        for name in (
            "lsn",
            "files_on_disk",
            "files_indexed",
            "entries",
            "rows",
            "pending",
            "failed_permanent",
            "ready",
            "uptime_seconds",
        )
    ]
    assert 4.0 == found["everosd_index_behind", (("index", "text"),)]
    assert found["process_resident_memory_bytes", ()] > 0


def test_two_applications_do_not_share_figures() -> None:
    """Each has its own registry."""
    one, other = metrics.Metrics("1"), metrics.Metrics("1")
    one.request("r", "GET", 200, 0.0)

    assert ("everosd_http_requests_total", (("method", "GET"), ("route", "r"), ("status", "200"))) not in samples(other)


def test_the_intake_and_the_engine_are_told() -> None:
    """What waits, what failed and what was given up; nothing of it where nothing takes messages."""
    queue = online.Status(
        is_running=True, pending=3, oldest_pending_age_s=1.5, failed=1, n_errors=0, last_error_at=None
    )
    strategies = [shown.StrategyStatus(name="facts", enabled=True, trigger="event", cron=None, waiting=2, dead=4)]

    text = metrics.Metrics("1").render(STATUS, 5.0, queue, strategies).decode()

    for line in (
        "everosd_intake_pending 3.0",
        "everosd_intake_oldest_seconds 1.5",
        "everosd_intake_failed 1.0",
        'everosd_strategy_waiting{strategy="facts"} 2.0',
        'everosd_strategy_dead{strategy="facts"} 4.0',
    ):
        assert line in text, line
    assert "everosd_intake" not in metrics.Metrics("1").render(STATUS, 5.0).decode()
