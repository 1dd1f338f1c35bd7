"""The kind `rest`: makes an HTTP request over the hub's one HTTP client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from waypost.config.findings import KeyPath, quoted
from waypost.config.models import Name, RestConnection
from waypost.errors import ExecutorFailed, class_of_status
from waypost.redaction import redacted, secrets_of, without
from waypost.workflows.executors.cli import OutputLimit, to_text
from waypost.workflows.executors.kind import NO_TIMEOUT_S, Builder, Executor, ExecutorFields, ExecutorKind, Run
from waypost.workflows.scope import Scope, compile_template, find_embedded_path

if TYPE_CHECKING:
    from waypost.outbound.egress import EgressResponse
    from waypost.workflows.data_flow import Report

MAX_BODY_CHARS: Final = 500
"""How much of an answer a failure quotes."""

_REDACTED_CHARS: Final = 8 * MAX_BODY_CHARS
_VARIABLE: Final = re.compile(r"\{([^{}/?#]+)\}")


class Rest(ExecutorFields, frozen=True, kw_only=True, tag="rest"):
    """Makes an HTTP request."""

    connection: Annotated[Name, Meta(description="A connection of the kind `rest`.")]
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"], Meta(description="The method.")
    ] = "GET"
    path: Annotated[
        str, Meta(description="The path; `{name}` is looked up in the arguments, the context and the input.")
    ] = ""
    query: Annotated[dict[str, Any], Meta(description="The query; what is missing is left out.")] = {}
    headers: Annotated[dict[str, Any], Meta(description="Headers beside those of the connection.")] = {}
    body: Annotated[Any, Meta(description="The body, sent as JSON; paths anywhere in it stand for what is there.")] = (
        None
    )
    max_output_bytes: OutputLimit = 10_485_760


class Request:
    """A request to one connection."""

    def __init__(self, model: Rest, builder: Builder) -> None:
        self._model = model
        self._context = builder.context
        self._query = compile_template(model.query, builder.roots)
        self._headers = compile_template(model.headers, builder.roots)
        self._body = None if model.body is None else builder.value(model.body)

    async def run(self, run: Run) -> Any:
        """`{status, body}`; the body is parsed when it says that it is JSON."""
        # Loading the HTTP client takes longer than everything else that a hub needs to start.
        from waypost.outbound.egress import EgressFailed, EgressRefused

        connection = self._context.connection(self._model.connection, RestConnection)
        secrets = secrets_of(connection.headers, self._written_headers())
        body = None if self._body is None else msgspec.json.encode(self._body(run.scope))
        url = self._url(connection.base_url, run.scope)
        headers = self._build_headers(connection, run, body is not None)
        try:
            fetched = await self._context.egress(connection.allow_private).request(
                self._model.method, url, headers, body, within=NO_TIMEOUT_S, most_bytes=self._model.max_output_bytes
            )
        except EgressRefused as error:
            raise ExecutorFailed(redacted(error.message, secrets)) from None
        except EgressFailed as error:
            raise ExecutorFailed(redacted(error.message, secrets), "connection_error") from None
        if fetched.status >= 400:
            raise ExecutorFailed(
                f"{self._model.connection} answered {fetched.status}{_quote_body(fetched, secrets)}",
                class_of_status(fetched.status),
            )
        return {"status": fetched.status, "body": _parse_body(fetched)}

    def _url(self, base: str, scope: Scope) -> str:
        parts = urlsplit(base)
        path, _, asked = self._path(scope).partition("?")
        whole = parts.path.rstrip("/") + "/" + path.lstrip("/") if path else parts.path
        query = "&".join(filter(None, (parts.query, asked, urlencode(list(self._query_pairs(scope)), quote_via=quote))))
        return urlunsplit((parts.scheme, parts.netloc, whole, query, ""))

    def _path(self, scope: Scope) -> str:
        path = _VARIABLE.sub(lambda found: quote(_segment(found[1], scope), safe=""), self._model.path)
        if any(segment in (".", "..") for segment in path.partition("?")[0].split("/")):
            raise ExecutorFailed("A part of the path is `.` or `..`, which would lead elsewhere.")
        return path.partition("#")[0]

    def _query_pairs(self, scope: Scope) -> Iterator[tuple[str, str]]:
        for name, value in self._query.fill(scope).items():
            for item in value if isinstance(value, list) else [value]:
                if item is not None:
                    yield name, to_text(item)

    def _build_headers(self, connection: RestConnection, run: Run, has_body: bool) -> dict[str, str]:
        own = {name: to_text(value) for name, value in self._headers.fill(run.scope).items() if value is not None}
        content = {"Content-Type": "application/json"} if has_body else {}
        last: dict[str, tuple[str, str]] = {}
        # Of the same name the last one counts, so that no setting replaces the idempotency key.
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
    text = to_text(value)
    # Servers decode a segment, some twice, and cut it at `;`, before they look for `..` in it.
    decoded = unquote(unquote(text))
    if any(part.partition(";")[0].strip() in (".", "..") for part in re.split(r"[/\\]", decoded)):
        raise ExecutorFailed(f"The {name} for the path has a part `.` or `..`, which would lead elsewhere.")
    return text


def _content_type(fetched: EgressResponse) -> str:
    return str(fetched.headers.get("Content-Type", ""))


def _quote_body(fetched: EgressResponse, secrets: tuple[str, ...]) -> str:
    """The beginning of an answer; secrets are removed before it is cut, since half of one would not be recognised."""
    from waypost.skills.core.inputs import decode

    text = without(decode(fetched.body, _content_type(fetched)), secrets).strip()
    said = redacted(text[:_REDACTED_CHARS])[:MAX_BODY_CHARS]
    return f": {said}" if said else "."


def _parse_body(fetched: EgressResponse) -> Any:
    from waypost.skills.core.inputs import decode, media_type

    kind = media_type(_content_type(fetched))
    if kind != "application/json" and not kind.endswith("+json"):
        return decode(fetched.body, _content_type(fetched))
    if not fetched.body:
        return None
    try:
        return msgspec.json.decode(fetched.body)
    except (ValueError, RecursionError):
        return decode(fetched.body, _content_type(fetched))


def _variables(model: Rest) -> Iterator[tuple[str, str]]:
    """The names in the path; a path of a template in braces is reported by `_check`."""
    for name in _VARIABLE.findall(model.path):
        if find_embedded_path(f"{{{name}}}") is None:
            yield "path", name


def _check(model: Rest, path: KeyPath, report: Report) -> None:
    meant = find_embedded_path(model.path)
    if meant is not None:
        name = "{" + meant.split(".")[2] + "}" if meant.count(".") > 1 else "{name}"
        sentence = f"{quoted(model.path)} is sent as it is written; write {quoted(name)} for a value in the path"
        report.add((*path, "path"), sentence, "WF026")


REST: Final = ExecutorKind(
    model=Rest,
    build=lambda model, builder: Executor("rest", Request(model, builder).run, "rest_call"),
    plan=None,
    check=_check,
    check_place=None,
    names={"connection": RestConnection},
    templates=("query", "headers", "body"),
    asks_person=False,
    mark="",
    lookups=_variables,
)
