"""What a transition can run, and over which connections; each kind of executor is one model."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from waypost.config.names import DAY_MS, Command, Directory, Name

Paths = Annotated[
    dict[str, Any],
    Meta(description="Names and values; a text that is a path such as `$.arguments.name` stands for what is there."),
]
Environment = Annotated[dict[str, str], Meta(description="Variables of the process, beside the few it always has.")]
Millis = Annotated[int, Meta(ge=1, le=365 * DAY_MS)]
OutputLimit = Annotated[int, Meta(ge=1, le=1_073_741_824, description="How much of its output is kept.")]
NonZero = Annotated[bool, Meta(description="Whether an exit code other than 0 is a failure.")]


class McpConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="mcp", tag_field="kind"):
    """An MCP server: a child process, or one that is reached over HTTP."""

    command: Annotated[Command | None, Meta(description="The program to start.")] = None
    args: Annotated[list[str], Meta(description="Its arguments.")] = []
    env: Environment = {}
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    url: Annotated[Name | None, Meta(description="The server's address; it wins over a command.")] = None
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

    base_url: Annotated[Name, Meta(description="Where its paths begin.")]
    headers: Annotated[dict[str, str], Meta(description="Headers of every request.")] = {}
    openapi: Annotated[str | None, Meta(description="Its OpenAPI document.", extra={"path": "file"})] = None
    allow_private: Annotated[bool, Meta(description="Whether it may be at a private address.")] = False


Connection = McpConnection | CliConnection | RestConnection

IdempotencyKey = Annotated[
    bool | str,
    Meta(description="The key's text, with `{workflowId}`, `{transition}`, `{correlationId}`; it is always given."),
]
Idempotent = Annotated[bool, Meta(description="Whether it may be run again when a crash left its outcome unknown.")]


class _Executor(Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind"):
    """What every executor can be told."""

    idempotent: Idempotent = False
    idempotency_key: IdempotencyKey = True


class _Program(_Executor, frozen=True, kw_only=True):
    """What every program can be told."""

    args: Annotated[list[Any], Meta(description="Its arguments, each one word; paths stand for what is there.")] = []
    env: Environment = {}
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    stdin: Annotated[Any, Meta(description="What it reads: text, or a value that is written as JSON.")] = None
    treat_non_zero_as_failure: NonZero = True
    max_output_bytes: OutputLimit = 1_048_576


class Noop(_Executor, frozen=True, kw_only=True, tag="noop"):
    """Does nothing."""

    idempotent: Idempotent = True


class Cli(_Program, frozen=True, kw_only=True, tag="cli"):
    """Runs a program, without a shell."""

    connection: Annotated[Name | None, Meta(description="A connection of the kind `cli`.")] = None
    command: Annotated[Command | None, Meta(description="The program, where there is no connection.")] = None


class Script(_Program, frozen=True, kw_only=True, tag="script"):
    """Runs a file that is what it was when it was approved."""

    file: Annotated[str, Meta(min_length=1, description="The file.", extra={"path": "file"})]
    sha256: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{64}$",
            description="The SHA-256 of the file, in hex.",
            extra={"form": "the 64 hex digits that `sha256sum FILE` gives for the file"},
        ),
    ]
    command: Annotated[
        list[Name], Meta(description="What interprets it, such as `[python3]`; left out, the file is a program.")
    ] = []


class Rest(_Executor, frozen=True, kw_only=True, tag="rest"):
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


class Mcp(_Executor, frozen=True, kw_only=True, tag="mcp"):
    """Calls a tool of another MCP server."""

    connection: Annotated[Name, Meta(description="A connection of the kind `mcp`.")]
    tool: Annotated[Name, Meta(description="The tool.")]
    map: Annotated[
        Paths | None, Meta(description="The tool's arguments; left out, those of the transition as they are.")
    ] = None


class CapabilityCall(_Executor, frozen=True, kw_only=True, tag="capability"):
    """Calls anything this hub offers, or stands for an entry of `capabilities`."""

    capability: Annotated[Name, Meta(description="Its name.")]
    arguments: Annotated[
        Paths | None, Meta(description="Its arguments; left out, those of the transition as they are.")
    ] = None


class WorkerCall(_Executor, frozen=True, kw_only=True, tag="worker"):
    """Calls a function of a remote worker."""

    function: Annotated[Name, Meta(description="The function, such as `mail::send`.")]
    arguments: Annotated[
        Paths | None, Meta(description="Its arguments; left out, those of the transition as they are.")
    ] = None


class Human(_Executor, frozen=True, kw_only=True, tag="human"):
    """Waits until people approve or reject."""

    role: Annotated[Name, Meta(description="The role they need.")] = "human"
    queue: Annotated[Name, Meta(description="Where the request is listed.")] = "default"
    prompt: Annotated[str | None, Meta(description="What they are asked; left out, the transition's title.")] = None
    presents: Annotated[
        Any, Meta(description="What they are shown and approve; left out, the arguments and the context.")
    ] = None
    approvals: Annotated[int, Meta(ge=1, le=100, description="How many different people have to approve.")] = 1
    expires_ms: Annotated[Millis, Meta(description="How long they may take.")] = 7 * DAY_MS
    idempotent: Idempotent = True


class Child(_Executor, frozen=True, kw_only=True, tag="workflow"):
    """Runs another workflow and waits for its end."""

    definition_id: Annotated[Name, Meta(description="The workflow.")]
    input: Annotated[Paths | None, Meta(description="Its input; left out, the arguments of the transition.")] = None
    timeout_ms: Annotated[Millis | None, Meta(description="How long it may take.")] = None
    idempotent: Idempotent = True


class JoinSome(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many branches have to succeed."""

    at_least: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="So many branches.")] = None
    percent: Annotated[Annotated[float, Meta(gt=0, le=100)] | None, Meta(description="That share of them.")] = None


class Parallel(_Executor, frozen=True, kw_only=True, tag="parallel"):
    """Runs several executors side by side."""

    branches: Annotated[list["Executor"], Meta(description="The executors.")] = []
    for_each: Annotated[str | list[Any] | None, Meta(description="A list, or a path to one.")] = None
    do: Annotated["Executor | None", Meta(description="What to run for each item, which is `$.branch.value`.")] = None
    join: Annotated[
        Literal["all", "any"] | JoinSome, Meta(description="How many branches have to succeed for it to succeed.")
    ] = "all"
    max_concurrency: Annotated[int, Meta(ge=1, le=1000, description="How many run at once.")] = 10
    on_branch_failure: Annotated[
        Literal["bail", "continue"], Meta(description="Whether the others are stopped when it can only fail.")
    ] = "bail"
    total_timeout_ms: Annotated[Millis | None, Meta(description="How long all of it may take.")] = None


class Pipeline(_Executor, frozen=True, kw_only=True, tag="pipeline"):
    """Runs several executors one after another; each may use what those before it gave."""

    steps: Annotated[list["Executor"], Meta(min_length=1, description="The executors.")]
    on_step_failure: Annotated[
        Literal["bail", "continue"], Meta(description="Whether the rest is left out when one fails.")
    ] = "bail"
    total_timeout_ms: Annotated[Millis | None, Meta(description="How long all of it may take.")] = None


Executor = Noop | Cli | Script | Rest | Mcp | CapabilityCall | WorkerCall | Human | Child | Parallel | Pipeline
EXECUTORS = (Noop, Cli, Script, Rest, Mcp, CapabilityCall, WorkerCall, Human, Child, Parallel, Pipeline)

ErrorClass = Literal["timeout", "rate_limited", "connection_error", "transient_error", "permanent_error"]


class Retry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How often and how soon something is tried again."""

    max_attempts: Annotated[int, Meta(ge=1, le=100, description="How often it is tried in all.")] = 1
    backoff: Annotated[Literal["none", "fixed", "exponential"], Meta(description="How the delay grows.")] = "none"
    initial_delay_ms: Annotated[int, Meta(ge=0, le=DAY_MS, description="The first delay.")] = 0
    max_delay_ms: Annotated[int, Meta(ge=0, le=DAY_MS, description="The longest delay.")] = 30_000
    jitter: Annotated[
        bool, Meta(description="Whether a delay is shortened by chance, so that not all come at once.")
    ] = True
    retry_on: Annotated[list[ErrorClass], Meta(description="After which failures; never after a permanent one.")] = (
        field(default_factory=lambda: ["timeout", "transient_error", "rate_limited"])
    )


class Fallback(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is run instead when something failed for good."""

    executors: Annotated[list[Executor], Meta(min_length=1, description="Executors, tried in order.")]
    strategy: Annotated[Literal["first_success"], Meta(description="The first that succeeds is the outcome.")] = (
        "first_success"
    )


class Reliability(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is done about failures."""

    timeout_ms: Annotated[Millis | None, Meta(description="How long one attempt may take.")] = None
    retry: Annotated[Retry | None, Meta(description="How it is tried again.")] = None
    fallback: Annotated[Fallback | None, Meta(description="What is run instead.")] = None
