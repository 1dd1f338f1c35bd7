"""The executor that makes an HTTP request, over the one way out of the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from waypost.config import executors as models
from waypost.errors import ExecutorFailed, class_of_status
from waypost.redaction import redacted, secrets_of, without
from waypost.skills.core.charsets import decoded, kind_of
from waypost.upstreams.egress import EgressFailed, EgressRefused, EgressResponse
from waypost.workflows.executors import LONGEST, connection_of, given
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.scope import Scope, compile_template

TOLD: Final = 500
"""How much of an answer a failure tells."""

_LOOKED_AT: Final = 8 * TOLD
_VARIABLE: Final = re.compile(r"\{([^{}/?#]+)\}")


class Rest:
    """A request to one connection."""

    kind: Final = "rest"
    evidence: Final = "rest_call"
    limit: Final = None

    def __init__(self, model: models.Rest, surroundings: Surroundings, roots: frozenset[str]) -> None:
        self._model = model
        self._surroundings = surroundings
        self._query = compile_template(model.query, roots)
        self._headers = compile_template(model.headers, roots)
        self._body = None if model.body is None else compile_template(model.body, roots)

    async def run(self, run: Run) -> Any:
        """`{status, body}`; the body is parsed when it says that it is JSON."""
        connection = connection_of(self._surroundings, self._model.connection, models.RestConnection)
        secrets = secrets_of(connection.headers, self._written_headers())
        body = None if self._body is None else msgspec.json.encode(given(self._body, self._model.body, run.scope))
        url = self._url(connection.base_url, run.scope)
        headers = self._headers_of(connection, run, body is not None)
        try:
            fetched = await self._surroundings.egress(connection.allow_private).request(
                self._model.method, url, headers, body, within=LONGEST, most_bytes=self._model.max_output_bytes
            )
        except EgressRefused as error:
            raise ExecutorFailed(redacted(error.message, secrets)) from None
        except EgressFailed as error:
            raise ExecutorFailed(redacted(error.message, secrets), "connection_error") from None
        if fetched.status >= 400:
            raise ExecutorFailed(
                f"{self._model.connection} answered {fetched.status}{_said(fetched, secrets)}",
                class_of_status(fetched.status),
            )
        return {"status": fetched.status, "body": _data(fetched)}

    def _url(self, base: str, scope: Scope) -> str:
        parts = urlsplit(base)
        path, _, asked = self._path(scope).partition("?")
        whole = parts.path.rstrip("/") + "/" + path.lstrip("/") if path else parts.path
        query = "&".join(filter(None, (parts.query, asked, urlencode(list(self._pairs(scope)), quote_via=quote))))
        return urlunsplit((parts.scheme, parts.netloc, whole, query, ""))

    def _path(self, scope: Scope) -> str:
        path = _VARIABLE.sub(lambda found: quote(_segment(found[1], scope), safe=""), self._model.path)
        if any(segment in (".", "..") for segment in path.partition("?")[0].split("/")):
            raise ExecutorFailed("A part of the path is `.` or `..`, which would lead elsewhere.")
        return path.partition("#")[0]

    def _pairs(self, scope: Scope) -> Iterator[tuple[str, str]]:
        for name, value in self._query.fill(scope).items():
            for item in value if isinstance(value, list) else [value]:
                if item is not None:
                    yield name, _text(item)

    def _headers_of(self, connection: models.RestConnection, run: Run, has_body: bool) -> dict[str, str]:
        own = {name: _text(value) for name, value in self._headers.fill(run.scope).items() if value is not None}
        content = {"Content-Type": "application/json"} if has_body else {}
        last: dict[str, tuple[str, str]] = {}
        for headers in (content, connection.headers, own, {"Idempotency-Key": run.key}):
            last |= {name.lower(): (name, value) for name, value in headers.items()}
        return dict(last.values())

    def _written_headers(self) -> dict[str, str]:
        """The headers that hold the same text in every request."""
        written = self._model.headers.items()
        return {name: value for name, value in written if isinstance(value, str) and not value.startswith("$.")}


def _segment(name: str, scope: Scope) -> str:
    value = next((place[name] for place in (scope.arguments, scope.context, scope.input) if name in place), None)
    if value is None:
        raise ExecutorFailed(f"There is no {name} for the path.")
    if value == "" or isinstance(value, (dict, list)):
        raise ExecutorFailed(f"The {name} for the path is not a text or number, or it is empty.")
    return _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _content_type(fetched: EgressResponse) -> str:
    return str(fetched.headers.get("Content-Type", ""))


def _said(fetched: EgressResponse, secrets: tuple[str, ...]) -> str:
    """The beginning of an answer; secrets leave it first, since half of one would not be recognised."""
    text = without(decoded(fetched.body, _content_type(fetched)), secrets).strip()
    said = redacted(text[:_LOOKED_AT])[:TOLD]
    return f": {said}" if said else "."


def _data(fetched: EgressResponse) -> Any:
    kind = kind_of(_content_type(fetched))
    if kind != "application/json" and not kind.endswith("+json"):
        return decoded(fetched.body, _content_type(fetched))
    if not fetched.body:
        return None
    try:
        return msgspec.json.decode(fetched.body)
    except (ValueError, RecursionError):
        return decoded(fetched.body, _content_type(fetched))
