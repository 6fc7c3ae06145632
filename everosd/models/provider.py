"""From settings to the model that they name."""

from __future__ import annotations

from everosd import clock, config
from everosd.models import builtin, embed, endpoint
from everosd.models import queries as query_vectors


def open_embedder(settings: config.Embedding, time: clock.Clock) -> embed.Embedder | None:
    """Return the embedder that the settings name, None where they want none; nothing is asked of it yet."""
    match settings.provider:
        case "none":
            return None
        case "endpoint":
            return endpoint.Endpoint(settings, time)
        case "builtin":
            return builtin.Builtin()


def open_queries(settings: config.Embedding, time: clock.Clock) -> query_vectors.Queries:
    """Return what asks for the vectors of queries, of no model yet."""
    return query_vectors.Queries(None, time, settings.timeout_seconds)
