"""Models of connections, workflows and the section `proxy`, which `waypost.settings` puts together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from waypost.kinds import ExecutorModel, GuardModel

DAY_MS = 86_400_000

Name = Annotated[str, Meta(min_length=1)]
HttpUrl = Annotated[str, Meta(pattern="^https?://", extra={"form": "an address such as `https://api.example.com`"})]
Command = Annotated[str, Meta(min_length=1, extra={"path": "command", "other name": "cmd"})]
Directory = Annotated[str, Meta(min_length=1, extra={"path": "directory"})]


Environment = Annotated[dict[str, str], Meta(description="Variables of the process, beside the few it always has.")]


class McpConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="mcp", tag_field="kind"):
    """An MCP server: a child process, or one that is reached over HTTP."""

    command: Annotated[Command | None, Meta(description="The program to start.")] = None
    args: Annotated[list[str], Meta(description="Its arguments.")] = []
    env: Environment = {}
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    url: Annotated[HttpUrl | None, Meta(description="The server's address; it wins over a command.")] = None
    headers: Annotated[dict[str, str], Meta(description="Headers of every request.")] = {}
    credentials: Annotated[
        Literal["shared", "user"],
        Meta(description="Whether all callers share one session, or each has one with headers of their own."),
    ] = "shared"
    version: Annotated[
        Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | None,
        Meta(description="The version of MCP to speak with it; left out, the newest that it knows."),
    ] = None

    def __post_init__(self) -> None:
        if self.credentials == "user" and self.transport != "http":
            raise ValueError("credentials of users are headers, so they need a connection with a url")

    @property
    def transport(self) -> Literal["stdio", "http"] | None:
        """How the server is reached; a url wins over a command, and without both there is no way."""
        if self.url is not None:
            return "http"
        return None if self.command is None else "stdio"


class CliConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="cli", tag_field="kind"):
    """A program on this machine."""

    command: Annotated[Command, Meta(description="The program.")]
    args: Annotated[list[str], Meta(description="Its first arguments, before those of an executor.")] = []
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    env: Environment = {}


class RestConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="rest", tag_field="kind"):
    """An HTTP API."""

    base_url: Annotated[HttpUrl, Meta(description="Where its paths begin.")]
    headers: Annotated[dict[str, str], Meta(description="Headers of every request.")] = {}
    openapi: Annotated[
        str | None, Meta(description="Its OpenAPI document: a file, or a URL.", extra={"path": "file or url"})
    ] = None
    allow_private: Annotated[bool, Meta(description="Whether it may be at a private address.")] = False


Connection = McpConnection | CliConnection | RestConnection


class ClientServer(Struct, frozen=True, kw_only=True, rename="camel"):
    """An MCP server as clients write it; each is a connection and an import under its name."""

    command: Annotated[Command | None, Meta(description="The program to start.")] = None
    args: Annotated[list[str], Meta(description="Its arguments.")] = []
    env: Environment = {}
    cwd: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    url: Annotated[Name | None, Meta(description="The server's address, instead of a program.")] = None
    headers: Annotated[dict[str, str], Meta(description="Headers of every request.")] = {}
    type: Annotated[
        Literal["stdio", "http", "sse", "streamable-http", "streamableHttp"] | None,
        Meta(description="The transport, which a command or a url already says."),
    ] = None
    disabled: Annotated[bool, Meta(description="Whether it is left out.")] = False

    def __post_init__(self) -> None:
        if self.command is None and self.url is None and not self.disabled:
            raise ValueError("a server has a `command` that starts it, or a `url`; add one of the two")


Schema = Annotated[dict[str, Any], Meta(description="A JSON Schema.")]
LinkFilter = Literal["all", "byGuards"]
Millis = Annotated[int, Meta(ge=1, le=365 * DAY_MS)]
Idempotent = Annotated[bool, Meta(description="Whether it may be run again when a crash left its outcome unknown.")]
ErrorClass = Literal["timeout", "rate_limited", "connection_error", "transient_error", "permanent_error"]


class Retry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How often and how soon something is tried again."""

    max_attempts: Annotated[int, Meta(ge=1, le=100, description="How often it is tried in all.")] = 1
    backoff: Annotated[Literal["none", "fixed", "exponential"], Meta(description="How the delay grows.")] = "none"
    initial_delay_ms: Annotated[int, Meta(ge=0, le=DAY_MS, description="The first delay.")] = 0
    max_delay_ms: Annotated[int, Meta(ge=0, le=DAY_MS, description="The longest delay.")] = 30_000
    jitter: Annotated[
        bool | None,
        Meta(description="Whether a delay is shortened at random; left out, it is unless `backoff` is `fixed`."),
    ] = None
    retry_on: Annotated[list[ErrorClass], Meta(description="After which failures; never after a permanent one.")] = (
        field(default_factory=lambda: ["timeout", "transient_error", "rate_limited"])
    )


class Fallback(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is run instead when something failed for good."""

    executors: Annotated[list[ExecutorModel], Meta(min_length=1, description="Executors, tried in order.")]
    strategy: Annotated[Literal["first_success"], Meta(description="The first that succeeds is the outcome.")] = (
        "first_success"
    )


class Reliability(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is done about failures."""

    timeout_ms: Annotated[Millis | None, Meta(description="How long one attempt may take.")] = None
    retry: Annotated[Retry | None, Meta(description="How it is tried again.")] = None
    fallback: Annotated[Fallback | None, Meta(description="What is run instead.")] = None


class EvidenceNeed(Struct, frozen=True, kw_only=True, rename="camel"):
    """So much evidence of a kind."""

    kind: Annotated[Name, Meta(description="The kind.")]
    count: Annotated[int, Meta(ge=1, description="From how many different people or agents.")] = 1


class Evidence(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a transition needs and leaves as evidence."""

    requires: Annotated[list[Name | EvidenceNeed], Meta(description="Evidence it needs.")] = []
    provides: Annotated[list[Name], Meta(description="Evidence it leaves beside that of its executor.")] = []


class Branch(Struct, frozen=True, kw_only=True, rename="camel"):
    """Another target, where a guard holds on what the executor left."""

    when: Annotated[GuardModel, Meta(description="The guard.")]
    target: Annotated[Name, Meta(description="The state it leads to then.")]


class Transition(Struct, frozen=True, kw_only=True, rename="camel"):
    """A way from one state to another."""

    target: Annotated[Name, Meta(description="The state it leads to.")]
    title: Annotated[str | None, Meta(description="The name shown to people and agents.")] = None
    description: Annotated[str | None, Meta(description="What it does.")] = None
    tags: Annotated[list[str], Meta(description="Labels; `dangerous` asks for a person on every way to it.")] = []
    actor: Annotated[
        Literal["agent", "human", "system", "deterministic"],
        Meta(description="Who may take it; a deterministic one is taken by itself."),
    ] = "agent"
    input_schema: Annotated[Schema | None, Meta(description="The JSON Schema of its arguments.")] = None
    guards: Annotated[list[GuardModel], Meta(description="Conditions, all of which must hold.")] = []
    executor: Annotated[ExecutorModel | None, Meta(description="What it runs; left out, it only moves on.")] = None
    output: Annotated[dict[Name, Any], Meta(description="What is written into the context.")] = {}
    prefill: Annotated[dict[Name, Any], Meta(description="Arguments that its link already carries.")] = {}
    branches: Annotated[list[Branch], Meta(description="Other targets; the first whose guard holds is taken.")] = []
    evidence: Annotated[Evidence | None, Meta(description="Evidence it needs and leaves.")] = None
    reliability: Annotated[Reliability | None, Meta(description="What is done about failures.")] = None


class OnEnter(Struct, frozen=True, kw_only=True, rename="camel"):
    """What runs when a state is entered."""

    executor: Annotated[ExecutorModel, Meta(description="What runs.")]
    output: Annotated[dict[Name, Any], Meta(description="What is written into the context.")] = {}
    reliability: Annotated[Reliability | None, Meta(description="What is done about failures.")] = None


class State(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a workflow can be."""

    description: Annotated[str | None, Meta(description="What it means to be here.")] = None
    goal: Annotated[str | None, Meta(description="What is to be reached from here.")] = None
    guidance: Annotated[str | None, Meta(description="How to go about it.")] = None
    terminal: Annotated[bool, Meta(description="Whether it is an end.")] = False
    outcome: Annotated[
        Literal["succeeded", "failed", "cancelled"] | None, Meta(description="What it means to end here.")
    ] = None
    link_filter: Annotated[LinkFilter | None, Meta(description="Which links are shown, for this state.")] = None
    on_enter: Annotated[OnEnter | None, Meta(description="What runs when it is entered.")] = None
    transitions: Annotated[dict[Name, Transition], Meta(description="The ways out, by name.")] = {}


class OnTimeout(Struct, frozen=True, kw_only=True, rename="camel"):
    """What happens when the time is over."""

    target: Annotated[Name, Meta(description="The state it goes to.")]


class StepRoute(Struct, frozen=True, kw_only=True):
    """Where a branch leads."""

    branch: Annotated[Name, Meta(description="The branch, such as `on_error`, or `default`.")]
    goto: Annotated[Name | int, Meta(description="A step, by name or by position from 1.")]


class Step(Struct, frozen=True, kw_only=True):
    """A step of a workflow: a skill or another capability to run."""

    name: Annotated[str | None, Meta(description="Its name; left out, the skill's.")] = None
    skill: Annotated[Name | None, Meta(description="The skill it runs.")] = None
    capability: Annotated[Name | None, Meta(description="The capability it runs, where it is not a skill.")] = None
    config: Annotated[dict[str, Any], Meta(description="What the skill gets as `config`.")] = {}
    input_from: Annotated[
        Name | int | None, Meta(description="The step whose output it gets; left out, the one before it.")
    ] = None
    prompt_template: Annotated[str | None, Meta(description="A text with `{input}`, for the skill.")] = None
    llm_tier: Annotated[Literal["light", "medium", "heavy", "local"] | None, Meta(description="Which model.")] = None
    llm_model: Annotated[str | None, Meta(description="The model's name.")] = None
    routes: Annotated[list[StepRoute], Meta(description="Which step follows which branch.")] = []
    on_circuit_open: Annotated[
        Literal["halt", "skip", "fallback"], Meta(description="What to do when its circuit is open.")
    ] = "halt"
    fallback_skill: Annotated[Name | None, Meta(description="The skill that is run instead.")] = None
    on_missing_skill: Annotated[
        Literal["halt", "skip"], Meta(description="What to do when there is no such skill.")
    ] = "halt"
    timeout_ms: Annotated[Millis | None, Meta(description="How long it may take.")] = None
    idempotent: Idempotent = False


class Described(Struct, frozen=True, kw_only=True, rename="camel"):
    """What people, agents and search read about something."""

    title: Annotated[str | None, Meta(description="The name shown to people and agents; by default its id.")] = None
    description: Annotated[str | None, Meta(description="What it is for.")] = None
    tags: Annotated[list[str], Meta(description="Labels.")] = []
    aliases: Annotated[list[str], Meta(description="Additional words for search.")] = []
    examples: Annotated[list[Any], Meta(description="Examples of its input.")] = []


class Workflow(Described, frozen=True, kw_only=True):
    """A workflow: states with transitions, or steps."""

    version: Annotated[Name, Meta(description="The version of the definition.")] = "1.0.0"
    enabled: Annotated[bool, Meta(description="Whether it can be started.")] = True
    input_schema: Annotated[Schema | None, Meta(description="The JSON Schema of its input.")] = None
    initial_state: Annotated[Name | None, Meta(description="The state it begins in.")] = None
    initial_context: Annotated[dict[str, Any], Meta(description="The context it begins with.")] = {}
    timeout_ms: Annotated[Millis | None, Meta(description="How long all of it may take.")] = None
    on_timeout: Annotated[OnTimeout | None, Meta(description="What happens when the time is over.")] = None
    max_chain_depth: Annotated[
        int, Meta(ge=1, le=10_000, description="How many transitions are taken by themselves in a row.")
    ] = 50
    link_filter: Annotated[
        LinkFilter, Meta(description="Which links are shown: all, or those whose guards hold now.")
    ] = "all"
    states: Annotated[dict[Name, State], Meta(description="The states, by name.")] = {}
    steps: Annotated[list[Step], Meta(description="The steps, in order, instead of states.")] = []


class ExpandedWorkflow(Workflow, frozen=True, kw_only=True):
    """A workflow with variables of the environment in it: with their values, and as the file has it."""

    written: Workflow


class Capability(Described, frozen=True, kw_only=True):
    """A building block: an executor with a schema, guards and reliability, to be named elsewhere."""

    wraps: Annotated[Name | None, Meta(description="The capability it is made from.")] = None
    input_schema: Annotated[Schema | None, Meta(description="The JSON Schema of its arguments.")] = None
    executor: Annotated[ExecutorModel | None, Meta(description="What it runs.")] = None
    guards: Annotated[list[GuardModel], Meta(description="Conditions, all of which must hold.")] = []
    reliability: Annotated[Reliability | None, Meta(description="What is done about failures.")] = None


class ExpandedCapability(Capability, frozen=True, kw_only=True):
    """A building block with variables of the environment in it: with their values, and as the file has it."""

    written: Capability


ItemName = Annotated[
    str,
    Meta(
        pattern=r"^[a-zA-Z][a-zA-Z0-9_.-]*$",
        max_length=128,
        description="Letters, digits, `_`, `.` and `-`, a letter first.",
        extra={"form": "letters, digits, `_`, `.` and `-`, a letter first"},
    ),
]


class Expose(Described, frozen=True, kw_only=True):
    """A capability that agents may use: written here, or one of `capabilities` under a name."""

    name: Annotated[ItemName | None, Meta(description="Its name, where it is written here.")] = None
    capability: Annotated[Name | None, Meta(description="An entry of `capabilities`.")] = None
    as_: Annotated[ItemName | None, Meta(description="The name the entry gets; by default its own.")] = field(
        name="as", default=None
    )
    category: Annotated[str | None, Meta(description="The category it is counted under.")] = None
    input_schema: Annotated[Schema | None, Meta(description="The JSON Schema of its arguments.")] = None
    guards: Annotated[list[GuardModel], Meta(description="Conditions, all of which must hold.")] = []
    executor: Annotated[ExecutorModel | None, Meta(description="What it runs.")] = None
    reliability: Annotated[Reliability | None, Meta(description="What is done about failures.")] = None


class Import(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a connection offers, taken over under a prefix."""

    connection: Annotated[Name, Meta(description="A connection of the kind `mcp` or `rest`.")]
    prefix: Annotated[
        ItemName | None, Meta(description="What their names begin with; by default the connection's name.")
    ] = None
    include: Annotated[
        list[Name], Meta(description="Only these tools and prompts, by their exact names; by default all.")
    ] = []
    exclude: Annotated[list[Name], Meta(description="Not these.")] = []
    tags: Annotated[list[str], Meta(description="Labels for all of them.")] = []
    trust: Annotated[
        Literal["quarantine", "flag", "off"],
        Meta(description="What happens to a definition that changed: it is held back, marked, or used."),
    ] = "quarantine"


class Proxy(Struct, frozen=True, kw_only=True, rename="camel"):
    """What agents may use directly."""

    expose: Annotated[list[Expose], Meta(description="Capabilities, one by one.")] = []
    imports: Annotated[list[Import], Meta(description="Whole connections.")] = field(name="import", default=[])


class Search(Struct, frozen=True, kw_only=True, rename="camel"):
    """How `gateway.search` ranks."""

    ranking: Annotated[
        Literal["auto", "weighted", "hybrid"],
        Meta(description="By fields, by words and meaning, or by the length of the query."),
    ] = "auto"
