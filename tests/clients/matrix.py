"""Drives clients that people use against a hub, each with a scripted model on loopback: `make interop`.

Nothing but the clients and their behaviour is taken from outside: the model is `model.py`, and every client runs in a
home of its own, without telemetry, with proxies that lead nowhere for everything but the loopback interface. What
held is written to `results.json` and to the tables of docs/connecting.md. `python -m tests.clients.matrix codex` tries
one client.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.clients.model import Call, Model, Turn, serve
from tests.clients.sample import ALIKE, LONG
from tests.interop import npm
from tests.interop.processes import served_by

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
MODULES: Final = HERE / "node_modules"
RESULTS: Final = HERE / "results.json"
PAGE: Final = ROOT / "docs" / "connecting.md"
RUN_TIMEOUT_S: Final = 300.0
CHANGE_TIMEOUT_S: Final = 10.0
NOWHERE: Final = "http://127.0.0.1:9"
HELD: Final = "yes"
NOT_OFFERED: Final = "not offered to the model"
ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
Steps = Generator[Call | str, Turn, None]


class Unfinished(Exception):
    """A client did not end in time, which is no result about its features."""


@dataclass
class Conversation:
    """Plays steps as a model, and answers a repeated request as it did the first time."""

    steps: Steps
    _replies: dict[int, Call | str] = field(default_factory=dict)

    def __call__(self, turn: Turn) -> Call | str:
        answered = len(turn.results)
        if answered not in self._replies:
            try:
                reply = next(self.steps) if not self._replies else self.steps.send(turn)
            except StopIteration:
                reply = "Done."
            self._replies[answered] = reply
        return self._replies[answered]


class Player:
    """Takes the steps of a conversation, and records which features worked."""

    def __init__(self, held: dict[str, str]) -> None:
        self.held = held
        self.turn = Turn((), ())

    def script(self, *steps: Callable[[], Steps]) -> Callable[[Turn], Call | str]:
        """A model that takes the steps one after the other."""

        def play() -> Steps:
            for step in steps:
                yield from step()

        conversation = Conversation(play())

        def answer(turn: Turn) -> Call | str:
            self.turn = turn
            return conversation(turn)

        return answer

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Generator[Call | str, Turn, str]:
        """Call a tool by its canonical name and return the result; without such a tool, return that."""
        published = self.turn.find(name)
        if published is None:
            return NOT_OFFERED
        self.turn = yield Call(published, dict(arguments or {}))
        return self.turn.results[-1]

    def expect(self, feature: str, answer: str, wanted: str) -> None:
        """Record whether an answer contains the expected text."""
        self.held[feature] = HELD if wanted in answer else f"no: {shorten(answer)}"

    def list_tools(self) -> Steps:
        """Every tool of the hub is offered to the model."""
        wanted = ["skill:web_search", "catalog.grow", "user.ask", "workflow:publish", "gateway.home", "workflow.submit"]
        missing = [name for name in wanted if self.turn.find(name) is None]
        self.held["list"] = f"no: {', '.join(missing)} missing" if missing else HELD
        yield from ()

    def call_tool(self) -> Steps:
        """A tool with a colon in its canonical name."""
        answer = yield from self.call("skill:web_search", {"query": "waypost"})
        self.expect("call", answer, "Three pages mention waypost.")

    def follow_links(self) -> Steps:
        """A workflow, by nothing but the links of its answers."""
        answer = yield from self.call("workflow.start", {"definitionId": "publish", "input": {}})
        while (link := first_link(answer)) is not None:
            given = {"text": "Hello"} if "inputSchema" in link else {}
            answer = yield from self.call(link["method"], {**link["args"], "arguments": given})
        self.expect("links", answer, '"state":"published"')

    def see_change(self) -> Steps:
        """A tool that comes while the client is connected."""
        yield from self.call("catalog.grow")
        deadline = time.monotonic() + CHANGE_TIMEOUT_S
        while self.turn.find("catalog.grown") is None and time.monotonic() < deadline:
            time.sleep(0.2)  # a model that thinks for a moment, while the client lists the tools again
            yield from self.call("skill:web_search", {"query": "time"})
        answer = yield from self.call("catalog.grown")
        self.expect("list_changed", answer, "The further tool answers.")

    def answer_question(self) -> Steps:
        """A tool that asks the user."""
        answer = yield from self.call("user.ask")
        if "does not support elicitation" in answer:
            self.held["elicitation"] = "not declared"
        else:
            said = re.search(r"The user answered (\w+)", answer)
            accepted = 'accept: {"colour": "blue"}' in answer
            self.held["elicitation"] = HELD if accepted else f"answers {said[1]}" if said else f"no: {shorten(answer)}"

    def call_similar_names(self) -> Steps:
        """Two tools whose names differ in a dot and a colon."""
        answers = []
        for published in [name for name in self.turn.tools if re.search(r"notes[^a-z]+add", name)]:
            self.turn = yield Call(published, {})
            answers.append(self.turn.results[-1])
        reached = [name for name in ALIKE if any(f"Added with {name}." in answer for answer in answers)]
        self.held["alike"] = HELD if len(reached) == len(ALIKE) else f"no: {len(reached)} of {len(ALIKE)} reached"

    def use_long_name(self) -> Steps:
        """A tool with a name of over 64 characters, which clients shorten."""
        published = next((name for name in self.turn.tools if "very_very" in name), None)
        if published is None:
            self.held["long"] = f"no: {NOT_OFFERED}"
            return
        self.turn = yield Call(published, {})
        self.expect("long", self.turn.results[-1], "The long name answers.")


def shorten(text: str) -> str:
    """The first words of an answer, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:100]}..."


def first_link(answer: str) -> dict[str, Any] | None:
    """The first link of a workflow's answer that takes a transition; clients put words around the answer."""
    begin = answer.find('{"workflowId"')
    if begin < 0:
        return None
    found, _ = json.JSONDecoder().raw_decode(answer[begin:])
    links: list[dict[str, Any]] = found.get("links", [])
    return next((link for link in links if link["rel"] == "transition"), None)


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its package, its command without a terminal, and what keeps it to the scripted model."""

    name: str
    title: str
    package: str
    command: Callable[[str], Sequence[str]]
    environment: Callable[[str], Mapping[str, str]]
    prepare: Callable[[Path, str], None] = lambda _home, _model: None

    @property
    def version(self) -> str:
        """The version that is installed."""
        return str(json.loads((MODULES / self.package / "package.json").read_text())["version"])


def _merge(file: Path, more: Mapping[str, Any]) -> None:
    """Add keys to a client's file of settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, **more}))


def _prepare_opencode(home: Path, model: str) -> None:
    options = {"baseURL": f"{model}/v1", "apiKey": "none"}
    models = {"scripted": {"name": "Scripted", "tool_call": True}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": models}
    chosen = {"model": "scripted/scripted", "small_model": "scripted/scripted"}
    file = home / ".config" / "opencode" / "opencode.json"
    _merge(file, {"share": "disabled", "autoupdate": False, "provider": {"scripted": provider}, **chosen})


def _prepare_gemini(home: Path, _model: str) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    _merge(home / ".gemini" / "settings.json", settings)


def _prepare_claude(home: Path, _model: str) -> None:
    answer = {"hookEventName": "Elicitation", "action": "accept", "content": {"colour": "blue"}}
    (home / "answer.json").write_text(json.dumps({"hookSpecificOutput": answer}))
    hook = {"type": "command", "command": f"cat {home / 'answer.json'}"}
    _merge(home / ".claude" / "settings.json", {"hooks": {"Elicitation": [{"hooks": [hook]}]}})


def _codex_command(model: str) -> Sequence[str]:
    provider = f'{{name="Scripted", base_url="{model}/v1", wire_api="responses"}}'
    settings = ["model_provider=scripted", f"model_providers.scripted={provider}", "analytics.enabled=false"]
    overrides = [word for setting in settings for word in ("--config", setting)]
    server = [npm.node(), str(MODULES / "@openai/codex/bin/codex.js"), "app-server", *overrides]
    return [sys.executable, str(HERE / "codex_app.py"), *server]


CLIENTS: Final = (
    Client(
        "claude-code",
        "Claude Code",
        "@anthropic-ai/claude-code",
        lambda _: [
            str(MODULES / "@anthropic-ai/claude-code-linux-x64/claude"),
            *("-p", "Go on.", "--model", "claude-sonnet-4-5", "--allowedTools", "mcp__waypost"),
        ],
        lambda model: {
            "ANTHROPIC_BASE_URL": model,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
        },
        _prepare_claude,
    ),
    Client("codex", "Codex", "@openai/codex", _codex_command, lambda _: {}),
    Client(
        "gemini",
        "Gemini CLI",
        "@google/gemini-cli",
        lambda _: [
            npm.node(),
            str(MODULES / "@google/gemini-cli/bundle/gemini.js"),
            *("--prompt", "Go on.", "--yolo", "--model", "gemini-2.5-pro"),
        ],
        lambda model: {
            "GOOGLE_GEMINI_BASE_URL": model,
            "GEMINI_API_KEY": "none",
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        _prepare_gemini,
    ),
    Client(
        "opencode",
        "opencode",
        "opencode-linux-x64",
        lambda _: [str(MODULES / "opencode-linux-x64/bin/opencode"), "run", "Go on."],
        lambda _: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        _prepare_opencode,
    ),
)


def serve_sample(folder: Path, names: str, tools: str) -> AbstractContextManager[str]:
    """Serve the sample hub; the context is its URL."""
    settings = {"SAMPLE_NAMES": names, "SAMPLE_TOOLS": tools, "SAMPLE_RECORD": str(folder / "record.jsonl")}
    environment = {**os.environ, **settings, "WAYPOST_DATA": str(folder / "data")}
    return served_by([sys.executable, "-m", "tests.clients.sample"], environment)


def run_client(client: Client, names: str, tools: str, steps: Callable[[Player], Sequence[Any]]) -> dict[str, Any]:
    """Let a client talk with the model once; what held, and what the client sent to the hub."""
    held: dict[str, str] = {}
    player = Player(held)
    model = Model(player.script(*steps(player)))
    with tempfile.TemporaryDirectory(prefix="waypost-client-") as name:
        folder = Path(name)
        home, work = folder / "home", folder / "work"
        home.mkdir()
        work.mkdir()
        with serve(model) as address, serve_sample(folder, names, tools) as url:
            enter_hub(client, home, url)
            client.prepare(home, address)
            output = play(client.command(address), work, {**isolate(home), **client.environment(address)})
        record = folder / "record.jsonl"
        requests = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    if "list_changed" in held:
        held["listed_again"] = HELD if lists_again(requests) else "no"
    if model.refused:
        held["refused"] = f"its model refuses {', '.join(model.refused)}"
    return {"held": held, "requests": requests, "output": output, "tools": list(player.turn.tools)}


def lists_again(requests: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a client listed the tools after the call that added one."""
    calls = [place for place, request in enumerate(requests) if request["tool"] in ("catalog.grow", "catalog_grow")]
    return any(request["method"] == "tools/list" for request in requests[calls[0] + 1 :]) if calls else False


def enter_hub(client: Client, home: Path, url: str) -> None:
    """Enter the hub in the client's configuration, as a user does."""
    command = [sys.executable, "-m", "waypost", "install", client.name, "--url", url]
    subprocess.run(command, env={**os.environ, **isolate(home)}, check=True, capture_output=True, timeout=30)


def isolate(home: Path) -> dict[str, str]:
    """An environment with a home of its own, and no way but to the loopback interface."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
    loopback = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    return {"PATH": os.environ["PATH"], "HOME": str(home), **proxies, **loopback}


def play(command: Sequence[str], work: Path, environment: Mapping[str, str]) -> str:
    """Run a client to its end and return what it printed; `Unfinished` if it is killed, with everything it started."""
    process = subprocess.Popen(
        command,
        cwd=work,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=RUN_TIMEOUT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed = ANSI.sub("", process.communicate()[0])
        raise Unfinished(f"no end within {RUN_TIMEOUT_S:g} s; it printed: {shorten(printed[-100:])}") from None


FEATURES: Final = {
    "list": "lists every tool",
    "call": "calls `skill:web_search`",
    "links": "follows the links of a workflow",
    "listed_again": "lists the tools again after `list_changed`",
    "list_changed": "offers a new tool to its model after `list_changed`",
    "elicitation": "answers an elicitation",
}
NAMES: Final = {
    "alike": "`notes.add` beside `notes:add`",
    "long": f"a name of {len(LONG)} characters",
}
_NAME_STEPS: Final[dict[str, Callable[[Player], Sequence[Any]]]] = {
    "alike": lambda player: [player.call_similar_names],
    "long": lambda player: [player.use_long_name],
}


def _take_all_steps(player: Player) -> Sequence[Any]:
    return [player.list_tools, player.call_tool, player.follow_links, player.see_change, player.answer_question]


def try_client(client: Client) -> dict[str, Any]:
    """Everything about one client, with the names of `auto`; those of names also with both settings."""
    run = run_client(client, "auto", "", _take_all_steps)
    seen = run["requests"][0] if run["requests"] else {"client": None, "version": None}
    row: dict[str, Any] = {
        "title": client.title,
        "version": client.version,
        "clientInfo": seen["client"],
        "protocol": seen["version"],
        "features": {feature: outcome(run, feature) for feature in FEATURES},
        "names": {},
    }
    for setting in ("canonical", "portable", "auto"):
        row["names"][setting] = {
            feature: outcome(run_client(client, setting, feature, steps), feature)
            for feature, steps in _NAME_STEPS.items()
        }
    return row


def outcome(run: Mapping[str, Any], feature: str) -> str:
    """The outcome of a feature; if the conversation ended before it, the reason."""
    held: Mapping[str, str] = run["held"]
    if feature in held:
        return held[feature]
    if "refused" in held:
        return "no: the model's API refuses the name"
    return f"no: {shorten(ANSI.sub('', run['output'])[-100:]) or 'the client did not ask its model'}"


def draw_tables(results: Mapping[str, Any]) -> str:
    """The tables of the page, from the results of a run."""
    rows = list(results.values())
    head = ["", *(f"{row['title']} {row['version']}" for row in rows)]
    features = [["connects, with the protocol", *(row["protocol"] for row in rows)]]
    features += [[words, *(row["features"][feature] for row in rows)] for feature, words in FEATURES.items()]
    names = [
        [f"{words}, `{setting}`", *(row["names"][setting][feature] for row in rows)]
        for feature, words in NAMES.items()
        for setting in ("canonical", "portable", "auto")
    ]
    return f"{_draw(head, features)}\n{_draw(['with `server.names`', *head[1:]], names)}"


def _draw(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text.replace("|  |", "| |").replace(" --- ", "---")


def place_tables(page: str, tables: str) -> str:
    """A page with the tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables}{END}{after}"


BEGIN: Final = "<!-- clients: written by make interop -->\n"
END: Final = "\n<!-- end of clients -->\n"


def main(only: Sequence[str]) -> int:
    """Try all clients, or those that are named, and write what held; 1 if one of them could not be driven."""
    if shutil.which("npm") is None:
        sys.stderr.write("npm is missing, so the clients cannot be installed.\n")
        return 1
    npm.install()
    npm.install(HERE, "--ignore-scripts")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    unfinished: list[str] = []
    for client in [one for one in CLIENTS if not only or one.name in only]:
        try:
            results[client.name] = try_client(client)
        except Unfinished as error:
            sys.stderr.write(f"{client.title}: {error}\n")
            unfinished.append(client.name)
            continue
        sys.stdout.write(f"{client.title} {client.version}: {json.dumps(results[client.name], indent=2)}\n")
        sys.stdout.flush()
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    PAGE.write_text(place_tables(PAGE.read_text(), draw_tables(results)))
    return 0 if not unfinished and all(row["features"]["call"] == HELD for row in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
