"""The console as a component: finds the page of a request, checks the session, and renders the answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from waypost.api.api import Api
from waypost.api.routing import ManagedHub
from waypost.console.page import ROOT, ApiCaller, Done, InvalidForm, Page, Refused, View, make_fields
from waypost.console.pages import PAGES
from waypost.console.rendering import (
    SECURITY_HEADERS,
    compile_templates,
    find_static,
    redirect,
    render,
    serve_static,
    to_answer,
)
from waypost.console.sign_in import (
    MAX_LINK_CHARACTERS,
    LinkRedemption,
    Session,
    Sessions,
    WrongKeys,
    digest_token,
    hash_key,
    new_token,
    read_attempt,
    write_attempt,
    write_cookie,
)
from waypost.errors import DefinitionError
from waypost.identity.sign_in import ProviderSignIn, SignInFailed
from waypost.policy.audit import Refusals
from waypost.runtime.component import Component
from waypost.settings import is_loopback
from waypost.transports.http.app import AnswerStream, OperatorAnswer, OperatorRequest
from waypost.version import __version__

_log: Final = logging.getLogger(__name__)
_FORM: Final = b"application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 500
_CSRF_HEADER: Final = b"x-csrf-token"
_HTMX: Final = b"hx-request"
_FORWARDED: Final = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
SESSION_CHECK_S: Final = 10.0
"""How long a stream goes on after its session was ended on another replica."""
HOME: Final = "approvals"
"""The page of people who may decide, and read nothing else."""


class Console(Component):
    """Everything under `/console/`."""

    name = "console"

    def __init__(self, hub: ManagedHub, api: Api, components: Iterable[Component]) -> None:
        self._hub = hub
        self._api = api
        self._sessions = Sessions(
            hub.core.store, hub.authentication, hub.core.replica, lambda: hub.replicas.others.keys()
        )
        self._wrong_keys = WrongKeys(time.monotonic)
        oauth = hub.authentication.oauth
        self._provider = None if oauth is None or oauth.console is None else ProviderSignIn(oauth, oauth.console)
        audit = hub.core.guard.audit
        self._refusals = None if audit is None else Refusals(audit)
        self._has_answered = False
        self.pages: list[Page] = list(PAGES)
        for component in components:
            for page in component.pages:
                self.register_page(page)

    def register_page(self, page: Page) -> None:
        """Add a page; its path must be free."""
        if any(page.path == other.path for other in self.pages):
            raise DefinitionError(f"The console has a page {page.path!r} already; choose another path.")
        self.pages.append(page)

    async def stop(self) -> None:
        """Record the refusals that were only counted."""
        if self._refusals is not None:
            self._refusals.flush()

    async def answer(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer a request; no exception leaves this method."""
        try:
            # With the first request only: where the console is never opened, no template is loaded.
            if not self._has_answered:
                self._has_answered = True
                self._hub.core.spawn(asyncio.to_thread(compile_templates))
            return await self._answer(request)
        except Exception:  # a person gets a page in any case, and the log the traceback
            _log.exception("the console failed")
            return self._render_error(request, None, 500, "The hub failed to answer; see its log.")

    async def _answer(self, request: OperatorRequest) -> OperatorAnswer:
        path, method = request.path.removeprefix(ROOT), request.scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            return self._render_error(request, None, 405, f"{request.path} does not allow {method}; use GET or POST.")
        if path.startswith("static/"):
            return serve_static(path.removeprefix("static/"), request.headers)
        if path in ("sign-in/provider", "sign-in/callback") and method == "GET":
            return await (self._go_to_provider if path.endswith("provider") else self._return_from_provider)(request)
        if path == "sign-in":
            return await (self._sign_in(request) if method == "POST" else self._show_sign_in(request))
        session = await self._sessions.find(request.headers)
        if session is None:
            return self._ask_to_sign_in(request)
        if method == "POST":
            return await self._act(request, session, path)
        if path == "events":
            return await self._follow(request, session)
        if path.startswith("api/"):
            api = self._caller(request, session)
            answer = await api.send("GET", path.removeprefix("api/"), request.scope.get("query_string", b""))
            return answer._replace(headers=(*answer.headers, (b"cache-control", b"no-store"), *SECURITY_HEADERS))
        return await self._show(request, session, path)

    # Pages and actions.

    async def _show(self, request: OperatorRequest, session: Session, path: str) -> OperatorAnswer:
        page, variables = self._find(path)
        if page is None:
            return self._render_error(request, session, 404, f"There is no page at {request.path}.")
        view = View(self._caller(request, session), session.principal, _read_query(request), variables)
        if path == "" and not view.can("viewer"):
            return redirect(f"{_base(request)}/{HOME}")
        return await self._render_page(request, session, page, view)

    async def _act(self, request: OperatorRequest, session: Session, path: str) -> OperatorAnswer:
        form = _read_form(request)
        if form is None:
            return self._render_error(request, session, 400, "The form cannot be read; go back and send it again.")
        if not session.accepts(request.headers.get(_CSRF_HEADER, b"").decode("latin-1") or form.get("csrf", "")):
            self._record_refusal(request, session.principal.id, "form")
            return self._render_error(
                request, session, 403, "The form is from another session; load the page again and repeat the action."
            )
        if path == "sign-out":
            await self._sessions.end(session)
            cookie = write_cookie("", _prefix(request), is_secure=_is_secure(request))
            return _leave(request, f"{_base(request)}/sign-in", cookie)
        page, variables = self._find(path)
        action = None if page is None else page.actions.get(form.get("action", ""))
        if page is None or action is None:
            return self._render_error(request, session, 404, f"There is no such action at {request.path}.")
        view = View(self._caller(request, session), session.principal, _read_query(request), variables, form)
        try:
            done = await action(view)
        except (Refused, InvalidForm) as error:
            status = error.status if isinstance(error, Refused) else 400
            return await self._render_page(request, session, page, view, status, alert=error.message)
        view.form = {}  # what was typed is done
        return await self._render_page(request, session, page, view, done=done)

    def _find(self, path: str) -> tuple[Page | None, dict[str, str]]:
        segments = [unquote(part) for part in path.split("/")]
        for page in self.pages:
            variables = page.match(segments)
            if variables is not None:
                return page, variables
        return None, {}

    async def _render_page(
        self,
        request: OperatorRequest,
        session: Session,
        page: Page,
        view: View,
        status: int = 200,
        *,
        done: Done | None = None,
        alert: str = "",
    ) -> OperatorAnswer:
        try:
            data = await page.load(view)
        except Refused as error:
            return self._render_error(request, session, error.status, error.message)
        except InvalidForm as error:
            return self._render_error(request, session, 400, error.message)
        context = self._context(request, session, page.title)
        context |= {
            "page": page,
            "view": view,
            "alert": alert,
            "status": "" if done is None else done.message,
            "live": ",".join(page.live),
            "every": page.every,
            "make_fields": make_fields,
            **data,
            **({} if done is None else done.data),
        }
        if done is None and status == 200 and _HTMX not in request.headers:
            # A page may show what it has although the request was wrong, such as a filter to be corrected. An open page
            # that loads itself again, such as that of an approval which was decided meanwhile, did nothing wrong.
            status = data.get("http_status", 200)
        return to_answer(render(page.template, context), status)

    def _render_error(
        self, request: OperatorRequest, session: Session | None, status: int, message: str
    ) -> OperatorAnswer:
        """A page with the same sentence as the API's."""
        context = self._context(request, session, HTTPStatus(status).phrase)
        return to_answer(render("error.html", {**context, "code": status, "message": message}), status)

    def _context(self, request: OperatorRequest, session: Session | None, title: str) -> dict[str, Any]:
        prefix = _prefix(request)

        def static(name: str) -> str:
            file = find_static(name)
            assert file is not None, name
            return f"{prefix}{ROOT}static/{file.digest}/{name}"

        query = request.scope.get("query_string", b"").decode("latin-1")
        return {
            "title": title,
            "base": f"{prefix}/console",
            "here": f"{prefix}{quote(request.path)}" + (f"?{query}" if query else ""),
            "path": request.path.removeprefix(ROOT),
            "static": static,
            "sections": {} if session is None else self._sections(session),
            "person": None if session is None else session.principal,
            "csrf": "" if session is None else session.csrf,
            "version": __version__,
            "live": "",
            "every": 0,
            "alert": "",
            "status": "",
        }

    def _sections(self, session: Session) -> dict[str, list[Page]]:
        """The navigation; people without a role that reads get what is open to every key."""
        reads = View(ApiCaller(self._api.answer, session.principal), session.principal).can("viewer")
        found: dict[str, list[Page]] = {}
        for page in self.pages:
            if page.section and (reads or page.path == HOME):
                found.setdefault(page.section, []).append(page)
        return found

    def _caller(self, request: OperatorRequest, session: Session) -> ApiCaller:
        return ApiCaller(self._api.answer, session.principal, _address(request))

    # Events.

    async def _follow(self, request: OperatorRequest, session: Session) -> OperatorAnswer:
        answer = await self._caller(request, session).send("GET", "events", request.scope.get("query_string", b""))
        headers = (*answer.headers, *SECURITY_HEADERS)
        if answer.stream is None:
            return answer._replace(headers=headers)
        stream = _SessionStream(answer.stream, self._sessions, request.headers)
        return answer._replace(headers=headers, stream=stream)

    # Signing in and out.

    def _ask_to_sign_in(self, request: OperatorRequest) -> OperatorAnswer:
        if request.path.removeprefix(ROOT).startswith(("api/", "events")):
            return OperatorAnswer(401, b'{"error":"Not signed in"}', headers=SECURITY_HEADERS)
        query = request.scope.get("query_string", b"").decode("latin-1")
        wanted = quote(request.path) + (f"?{query}" if query and request.scope["method"] == "GET" else "")
        after = "" if request.path == ROOT else "?" + urlencode({"next": wanted})
        return _leave(request, f"{_base(request)}/sign-in{after}")

    async def _show_sign_in(self, request: OperatorRequest) -> OperatorAnswer:
        query = _read_query(request)
        if "token" in query:
            # The link is for a browser on the hub's machine; one that leaks is worth nothing elsewhere.
            session = await self._open_link(query["token"]) if _is_local(request) else None
            if session is not None:
                return self._begin(request, session, query.get("next", ""))
            self._record_refusal(request, "anonymous", "link")
            return self._render_sign_in(
                request, 403, "This link was used or has expired; `waypost console` opens a new one.", query
            )
        if await self._sessions.find(request.headers) is not None:
            return redirect(_prefix(request) + _safe_target(query.get("next", "")))
        if request.headers.get(b"sec-fetch-site") == b"cross-site":
            # A link on another site, such as one to an approval in a chat, comes without the cookie of a person who is
            # signed in. A person who is not signed in gets here again from this site, and sees the form.
            return self._lead_on(request, "One moment", query.get("next", ""))
        return self._render_sign_in(request, 200, "", query)

    async def _sign_in(self, request: OperatorRequest) -> OperatorAnswer:
        form, address = _read_form(request) or {}, _address(request)
        # A session cannot protect the form that begins one: another site could sign its visitor in as someone else.
        if request.headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            return self._render_sign_in(request, 403, "This form was sent by another site.", form)
        if self._wrong_keys.is_blocked(address):
            return self._render_sign_in(request, 429, "Too many wrong keys; try again in a minute.", form)
        hashed = hash_key(form.get("key", "").strip())
        if self._hub.authentication.find_key(hashed) is None:
            self._wrong_keys.count(address)
            self._record_refusal(request, "anonymous", "key")
            message = "This key is unknown, revoked or expired." if form.get("key") else "Enter a key."
            return self._render_sign_in(request, 401, message, form)
        session = await self._sessions.open(hashed)
        if session is None:
            return self._render_sign_in(request, 401, "This key is unknown, revoked or expired.", form)
        return self._begin(request, session, form.get("next", ""))

    async def _go_to_provider(self, request: OperatorRequest) -> OperatorAnswer:
        """Send the browser to the authorization server."""
        query = _read_query(request)
        if self._provider is None:
            return self._render_sign_in(request, 404, "This hub has no sign-in at an authorization server.", query)
        try:
            place, attempt = await self._provider.begin(_safe_target(query.get("next", "")))
        except SignInFailed as error:
            return self._render_sign_in(request, 503, error.message, query)
        return redirect(place, write_attempt(attempt, _prefix(request), is_secure=_is_secure(request)))

    async def _return_from_provider(self, request: OperatorRequest) -> OperatorAnswer:
        """Sign in the person whom the authorization server sent back."""
        attempt, address = read_attempt(request.headers), _address(request)
        over = write_attempt(None, _prefix(request), is_secure=_is_secure(request))
        if self._provider is None or self._wrong_keys.is_blocked(address):
            message = "Too many sign-ins failed; try again in a minute."
            return self._render_sign_in(request, 404 if self._provider is None else 429, message, {})
        try:
            principal = await self._provider.finish(attempt, _read_query(request))
        except SignInFailed as error:
            self._wrong_keys.count(address)
            self._record_refusal(request, "anonymous", "provider")
            return self._render_sign_in(request, 403, error.message, {} if attempt is None else {"next": attempt.next})
        assert attempt is not None
        session = await self._sessions.open_for(principal)
        self._record_sign_in(request, session)
        cookie = write_cookie(session.token, _prefix(request), is_secure=_is_secure(request))
        return self._lead_on(request, "Signed in", attempt.next, cookie, over)

    def _lead_on(
        self, request: OperatorRequest, title: str, target: str, *headers: tuple[bytes, bytes]
    ) -> OperatorAnswer:
        """A page that goes on to another by itself.

        A redirect would still be a navigation from the other site, with which browsers send no Strict cookie; that of a
        page is one within this site.
        """
        context = self._context(request, None, title) | {"target": _prefix(request) + _safe_target(target)}
        return to_answer(render("lead-on.html", context), 200, *headers)

    async def _open_link(self, link: str) -> Session | None:
        """The session of a one-time link, of this hub's own key or that of another replica; `None` if it is refused."""
        hashed = await self._sessions.redeem(link)
        if hashed is not None:
            return await self._sessions.open(hashed)
        if len(link) > MAX_LINK_CHARACTERS:
            return None
        token = new_token()
        await self._hub.peers.ask("sign_in", LinkRedemption(link, digest_token(token)), bool)
        # What was answered over the bus does not count: only a session that the other replica wrote to the store does.
        return await self._sessions.find_token(token)

    async def answer_peer(self, question: bytes) -> bool:
        """Open a session for a link of this hub's own key that was opened at another replica."""
        return await self._sessions.redeem_for(msgspec.json.decode(question, type=LinkRedemption))

    def _begin(self, request: OperatorRequest, session: Session, target: str) -> OperatorAnswer:
        self._record_sign_in(request, session)
        cookie = write_cookie(session.token, _prefix(request), is_secure=_is_secure(request))
        return redirect(_prefix(request) + _safe_target(target), cookie)

    def _render_sign_in(
        self, request: OperatorRequest, status: int, alert: str, form: Mapping[str, str]
    ) -> OperatorAnswer:
        context = self._context(request, None, "Sign in")
        context |= {"alert": alert, "next": _safe_target(form.get("next", ""))}
        context["provider"] = None if self._provider is None else self._provider.name
        headers = ((b"retry-after", b"60"),) if status == 429 else ()
        return to_answer(render("sign-in.html", context), status, *headers)

    def _record_sign_in(self, request: OperatorRequest, session: Session) -> None:
        person, address = session.principal.id, _address(request)
        self._hub.core.guard.record_act("console.signed_in", person, "console", "console", caller=address)

    def _record_refusal(self, request: OperatorRequest, principal: str, what: str) -> None:
        if self._refusals is not None:
            self._refusals.add("console.refused", principal, "console", _address(request), what)


class _SessionStream:
    """The events of a session, which end with it; on another replica it may have been ended unseen."""

    def __init__(self, events: AnswerStream, sessions: Sessions, headers: Mapping[bytes, bytes]) -> None:
        self._events = events
        self._sessions = sessions
        self._headers = headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        checked = time.monotonic()
        async for chunk in self._events:
            if time.monotonic() - checked > SESSION_CHECK_S:
                if await self._sessions.find(self._headers) is None:
                    return
                checked = time.monotonic()
            yield chunk

    def close(self) -> None:
        """Stop receiving events."""
        self._events.close()


def _leave(request: OperatorRequest, location: str, *headers: tuple[bytes, bytes]) -> OperatorAnswer:
    """A redirect of the whole page, also where a script asked for a part of it."""
    if _HTMX in request.headers:
        return OperatorAnswer(
            200, b"", b"text/plain", ((b"hx-redirect", location.encode()), *SECURITY_HEADERS, *headers)
        )
    return redirect(location, *headers)


def _safe_target(target: str) -> str:
    """Where to go after signing in: a page of the console and nothing else."""
    is_page = target.startswith(ROOT) and target.isascii() and target.isprintable()
    is_plain = "\\" not in target and ".." not in target and not target.startswith(f"{ROOT}sign-")
    return target if is_page and is_plain else ROOT


def _read_query(request: OperatorRequest) -> dict[str, str]:
    text = request.scope.get("query_string", b"").decode("latin-1")
    return dict(parse_qsl(text, keep_blank_values=True, errors="replace"))


def _read_form(request: OperatorRequest) -> dict[str, str] | None:
    if request.headers.get(b"content-type", b"").split(b";")[0].strip().lower() != _FORM:
        return None
    try:
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    # Browsers send line breaks of a text as CR LF.
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def _prefix(request: OperatorRequest) -> str:
    return str(request.scope.get("root_path") or "")


def _base(request: OperatorRequest) -> str:
    return f"{_prefix(request)}/console"


def _address(request: OperatorRequest) -> str:
    return str((request.scope.get("client") or ("",))[0])


def _is_local(request: OperatorRequest) -> bool:
    """Whether a request comes from this machine, and not through a proxy on it."""
    return is_loopback(_address(request)) and not any(name in request.headers for name in _FORWARDED)


def _is_secure(request: OperatorRequest) -> bool:
    """Whether the browser uses TLS; a client that lies about it only keeps its own cookie from being sent."""
    return request.scope.get("scheme") == "https" or request.headers.get(b"x-forwarded-proto") == b"https"
