"""Spans for requests, calls and questions to clients; without a running OpenTelemetry SDK there are none."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

SDK: Final = "opentelemetry.sdk.trace"
"""Spans are made while this module is in `sys.modules`; the hot path looks there itself, without a call."""


@contextmanager
def span(name: str, attributes: Mapping[str, Any], carrier: Mapping[str, str] | None = None) -> Iterator[None]:
    """A span around what happens inside; `carrier` is the W3C trace context it belongs to."""
    if SDK not in sys.modules:
        yield
        return
    from opentelemetry import propagate, trace

    context = propagate.extract(carrier) if carrier else None
    with trace.get_tracer("waypost").start_as_current_span(name, context=context, attributes=attributes):
        yield
