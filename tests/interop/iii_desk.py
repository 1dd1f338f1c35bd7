"""A served hub and a worker of either SDK that publishes there, for all tests of a module; scenarios as data."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pytest

from tests.cli.shell import COMMAND, PATIENCE, Serving, environment, serving
from tests.interop.iii_peers import Failed, Json, Language, Peer, peer

T = TypeVar("T")
Expected: TypeAlias = Any
"""A value; of a dictionary only what is named, of a type any value, and a function says yes or no."""

SETTINGS = """\
version: "1"
server: {{name: registry, surface: full}}
workers: {{port: {port}, registry: {registry}, stateTimeoutMs: {timeout}}}
"""


class Step(NamedTuple):
    """One call, and its expected answer or the expected text of its error."""

    function: str
    payload: Any
    answers: Expected
    fails: str | None


class Scenario(NamedTuple):
    """Calls one after the other; functions return what the test says."""

    name: str
    steps: tuple[Step, ...]
    gives: Mapping[str, Any] = {}
    then: Callable[[list[Any]], bool] = lambda answers: True


def call(function: str, answers: Expected = ..., fails: str | None = None, **payload: Any) -> Step:
    """A call with its payload by name."""
    return Step(function, payload, answers, fails)


def scenarios(*all_of_them: Scenario) -> pytest.MarkDecorator:
    """One test for each."""
    return pytest.mark.parametrize("scenario", all_of_them, ids=[one.name for one in all_of_them])


def fits(answer: Any, expected: Expected) -> bool:
    """Whether an answer is what was expected."""
    if expected is ...:
        return True
    if isinstance(expected, type):
        return isinstance(answer, expected)
    if callable(expected):
        return bool(expected(answer))
    if isinstance(expected, dict):
        return isinstance(answer, dict) and all(
            key in answer and fits(answer[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(expected)
            and all(fits(one, value) for one, value in zip(answer, expected, strict=True))
        )
    return bool(answer == expected)


class Publisher:
    """A worker on its own event loop, controlled by many tests."""

    def __init__(self, language: Language, address: str, home: Path, name: str) -> None:
        self.address = address
        self.language = language
        self._stack = AsyncExitStack()
        self._offered: list[str] = []
        self._bound: list[tuple[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        options = {"worker_name" if language == "python" else "workerName": name}
        self._peer: Peer = self._run(self._stack.enter_async_context(peer(language, address, home, options)))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def call(self, function: str, **payload: Any) -> Any:
        """The answer of a function."""
        return self._run(self._peer.call(function, payload))

    def refusal(self, function: str, **payload: Any) -> str:
        """The error message of a call."""
        with pytest.raises(Failed) as caught:
            self.call(function, **payload)
        assert caught.value.code == "invocation_failed"
        return caught.value.message

    def offer(self, function: str, behaviour: str = "echo", **more: Any) -> None:
        """Offer a function."""
        self._run(self._peer.offer(function, behaviour, **more))
        self._offered.append(function)

    def give(self, **values: Any) -> None:
        """Register functions with a constant answer; `a__b` is `a::b`."""
        for name, value in values.items():
            self.offer(name.replace("__", "::"), "give", gives=value)

    def follow(self, kind: str, function: str, behaviour: str = "echo") -> None:
        """Register a function and bind it to a trigger type."""
        self.offer(function, behaviour)
        self._run(self._peer.bind(f"{function}:{kind}", kind, function))
        self._bound.append((function, kind))
        self.wait_until_delivered()

    def unfollow(self, kind: str, function: str) -> None:
        """Remove the binding of a function."""
        self._bound.remove((function, kind))
        self._run(self._peer.send_command("unbind", id=f"{function}:{kind}"))

    def payloads_of(self, function: str) -> list[Json]:
        """The payloads of all calls of a function, after messages in transit have arrived."""
        self.wait_until_delivered()
        return [event["data"] for event in self._peer.events if event.get("function") == function]

    def wait_for(self, function: str) -> Any:
        """Wait for the payload of a call of a function."""
        return self._run(self._peer.wait_for_event("called", function=function))["data"]

    def wait_until_delivered(self) -> None:
        """Wait until messages that were sent before have arrived."""
        if "barrier::pass" not in self._offered:
            self.offer("barrier::pass", "give", gives="passed")
        assert self._run(self._peer.call_until_found("barrier::pass", {})) == "passed"

    def play(self, scenario: Scenario) -> None:
        """Make the calls of a scenario and check their answers."""
        for function, value in scenario.gives.items():
            self.offer(function, "give", gives=value)
        answers = []
        for step in scenario.steps:
            if step.fails is not None:
                message = self.refusal(step.function, **step.payload)
                assert step.fails in message
                continue
            answers.append(self.call(step.function, **step.payload))
            assert fits(answers[-1], step.answers), f"{step.function} answers {answers[-1]!r}, not {step.answers!r}"
        assert scenario.then(answers), answers

    def clear(self) -> None:
        """Remove everything that was published or registered."""
        for function, kind in [*self._bound]:
            self.unfollow(kind, function)
        for skill in self.call("skills::list")["skills"]:
            self.call("skills::unregister", id=skill["id"])
        for prompt in self.call("prompts::list")["prompts"]:
            self.call("prompts::unregister", name=prompt["name"])
        while self._offered:
            self._run(self._peer.send_command("unfunction", id=self._offered.pop()))
        self._peer.events.clear()

    def kill(self) -> None:
        """Kill the worker."""
        self._run(self._peer.kill())

    def close(self) -> None:
        """Close the worker."""
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


@contextmanager
def publishing(language: Language, address: str, home: Path, name: str = "publisher") -> Iterator[Publisher]:
    """A worker that is connected until the block ends."""
    publisher = Publisher(language, address, home, name)
    try:
        yield publisher
    finally:
        publisher.close()


class Registry(NamedTuple):
    """The addresses of a hub, for workers and for clients."""

    workers: str
    url: str
    serving: Serving


@contextmanager
def registry(
    folder: Path, *, port: int = 0, kept: bool = True, timeout: int = 10_000, more: str = ""
) -> Iterator[Registry]:
    """A hub with a port for workers, served from a folder until the block ends."""
    settings = SETTINGS.format(port=port, registry=str(kept).lower(), timeout=timeout)
    (folder / "hub.yaml").write_text(settings + more)
    with serving("hub.yaml", "--port", "0", cwd=folder) as hub:
        words = hub.wait_for(" is ready at ").replace(",", "").split()
        yield Registry(words[-1], next(word for word in words if word.startswith("http")), hub)


@contextmanager
def standing_alone(folder: Path, address: str, config: str = "") -> Iterator[Serving]:
    """`waypost skills-worker`, connected to a hub that keeps no skills itself."""
    (folder / "config.yaml").write_text(config)
    process = subprocess.Popen(
        [COMMAND, "skills-worker", "--url", address],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    worker = Serving(process, process.stderr)
    try:
        worker.wait_for("skills-worker is ready")
        yield worker
    finally:
        process.terminate()
        worker.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A hub that keeps skills and prompts, for all tests of a module."""
    with registry(tmp_path_factory.mktemp("hub")) as served:
        yield served


@pytest.fixture(scope="module", params=["python", "node", "skills-worker"])
def connected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    """A worker of either SDK at such a hub, and one at a hub whose registry is a worker itself."""
    home = tmp_path_factory.mktemp("home")
    with ExitStack() as stack:
        if request.param == "skills-worker":
            address = stack.enter_context(registry(home, kept=False)).workers
            stack.enter_context(standing_alone(home, address))
            yield stack.enter_context(publishing("python", address, home))
        else:
            address = request.getfixturevalue("hub").workers
            yield stack.enter_context(publishing(request.param, address, home))


@pytest.fixture
def publisher(connected: Publisher) -> Iterator[Publisher]:
    """A worker that has not published anything yet."""
    yield connected
    connected.clear()
