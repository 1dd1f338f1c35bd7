"""The settings of a hub, one frozen struct per section; a configuration file decodes into the same structs."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from waypost.config.models import DAY_MS, Capability, ClientServer, Connection, Directory, Name, Proxy, Search, Workflow

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8420
DEFAULT_WORKER_PORT = 49134
MIB = 1_048_576
DEFAULT_STORE = "sqlite:///waypost.db"
DEFAULT_BUS = "auto"

CoreSkillName = Literal[
    "api_request",
    "llm_transform",
    "rss_collector",
    "send_to_workflow",
    "shell",
    "system_info",
    "web_browse",
    "web_search",
]
ToolkitReference = Annotated[
    str,
    Meta(
        description="A Python file (`./tools.py`, `./tools.py:Kit`) or a module (`package.module:Kit`).",
        examples=["./tools.py", "package.module:Kit"],
        min_length=1,
        extra={"path": "toolkit"},
    ),
]


class Server(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the hub presents itself and serves."""

    name: Annotated[Name, Meta(description="The name of the server that clients see.")] = "waypost"
    version: Annotated[Name, Meta(description="The version of the server that clients see.")] = "0.0.0"
    instructions: Annotated[str | None, Meta(description="How to use this hub, for clients.")] = None
    host: Annotated[Name, Meta(description="The address to listen on.")] = DEFAULT_HOST
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on; 0 takes a free one.")] = DEFAULT_PORT
    surface: Annotated[
        Literal["gateway", "full", "both"],
        Meta(description="What `tools/list` shows: the seven gateway tools, every visible capability, or both."),
    ] = "gateway"
    names: Annotated[
        Literal["auto", "canonical", "portable"],
        Meta(
            description="How tools are named: as they are, fitted to `^[a-zA-Z0-9_-]{1,64}$`, or as the client needs."
        ),
    ] = "auto"
    tool_timeout_ms: Annotated[
        int, Meta(ge=1, le=DAY_MS, description="How long a tool may run unless it sets its own timeout.")
    ] = 30_000
    task_after_ms: Annotated[
        int, Meta(ge=0, le=DAY_MS, description="After how long a call that may become a task is answered as one.")
    ] = 1_000
    page_size: Annotated[int, Meta(ge=1, le=100_000, description="How many items a page of a list holds.")] = 1_000
    session_idle_ms: Annotated[
        int, Meta(ge=1, le=30 * DAY_MS, description="How long a session may be idle before it expires.")
    ] = 1_800_000
    max_body_bytes: Annotated[
        int, Meta(ge=1_024, le=1_073_741_824, description="The largest request body that is accepted.")
    ] = 4_194_304
    max_result_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=1_073_741_824,
            description="The largest result of a tool that is sent; a larger one is replaced by a link.",
        ),
    ] = 10_485_760
    max_sessions: Annotated[
        int, Meta(ge=1, le=10_000_000, description="How many sessions may be open at the same time.")
    ] = 10_000
    max_tasks: Annotated[
        int, Meta(ge=1, le=1_000_000, description="How many tasks may run at the same time; more are refused.")
    ] = 1_000
    allowed_hosts: Annotated[
        list[str], Meta(description="Values of the Host header to accept besides the loopback ones.")
    ] = []
    allowed_origins: Annotated[
        list[str], Meta(description="Values of the Origin header to accept besides the loopback ones.")
    ] = []
    max_running: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="How many executions of one principal run at once; more wait, as long as one may take.",
        ),
    ] = 64
    max_waiting: Annotated[
        int, Meta(ge=1, le=10_000_000, description="How many executions wait in all; more are refused.")
    ] = 10_000
    drain_ms: Annotated[
        int, Meta(ge=0, le=DAY_MS, description="How long running work may take when a replica is asked to stop.")
    ] = 30_000
    processes: Annotated[
        int,
        Meta(ge=1, le=256, description="How many processes `waypost serve` starts; more than one needs PostgreSQL."),
    ] = 1
    request_log: Annotated[
        bool, Meta(description="Whether each HTTP request is logged, in one line with its status and duration.")
    ] = False
    kept_messages: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="How many messages of the protocol are kept in memory for the console; 0 keeps none.",
        ),
    ] = 200
    allow_anonymous_remote: Annotated[
        bool, Meta(description="Whether callers without a key may use a hub that listens beyond loopback.")
    ] = False


class Limits(Struct, frozen=True, kw_only=True, rename="camel"):
    """What clients may take of the hub's time, memory and connections."""

    max_header_bytes: Annotated[
        int, Meta(ge=1_024, le=16 * MIB, description="The largest request line and headers over HTTP; more is 431.")
    ] = 65_536
    header_timeout_ms: Annotated[
        int, Meta(ge=1, le=DAY_MS, description="How long a client may take to send its headers; later is 408.")
    ] = 10_000
    body_timeout_ms: Annotated[
        int, Meta(ge=1, le=DAY_MS, description="How long a client may take to send a request body; later is 408.")
    ] = 30_000
    max_pending_connections: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="How many connections may have sent no whole request; the oldest is closed."
        ),
    ] = 256
    max_idle_connections: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="How many connections may wait for a next request; the oldest is closed."),
    ] = 1_024
    read_timeout_ms: Annotated[
        int, Meta(ge=1, le=DAY_MS, description="How long a client may read nothing of a response before it is closed.")
    ] = 60_000
    max_unread_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=1_048_576 * MIB,
            description="How many bytes of responses wait for slow clients in all; a principal with a quarter waits.",
        ),
    ] = 256 * MIB
    max_request_bytes: Annotated[
        int, Meta(ge=1_024, le=1_048_576 * MIB, description="How many bytes of large requests are answered at once.")
    ] = 256 * MIB
    max_client_bytes: Annotated[
        int, Meta(ge=1_024, le=16 * MIB, description="How large a client's name and capabilities may be in a session.")
    ] = 65_536
    max_streams: Annotated[
        int, Meta(ge=1, le=10_000_000, description="How many streams of notifications may be open; more are refused.")
    ] = 10_000
    max_subscription_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=1_024 * MIB,
            description="How many bytes of URIs and ids a session or stream may be subscribed to.",
        ),
    ] = MIB
    max_total_subscription_bytes: Annotated[
        int,
        Meta(ge=1_024, le=1_048_576 * MIB, description="How many bytes of them all clients may be subscribed to."),
    ] = 16 * MIB
    max_stream_bytes: Annotated[
        int, Meta(ge=1_024, le=1_024 * MIB, description="How many bytes of a stream can be read again.")
    ] = 16 * MIB
    max_session_stream_bytes: Annotated[
        int, Meta(ge=1_024, le=1_024 * MIB, description="How many bytes of all streams of a session are kept.")
    ] = 32 * MIB
    max_total_stream_bytes: Annotated[
        int,
        Meta(
            ge=1_024, le=1_048_576 * MIB, description="How many bytes of streams are kept in memory, and in the store."
        ),
    ] = 256 * MIB
    json_depth: Annotated[
        int, Meta(ge=8, le=256, description="How deeply the JSON of a message may be nested; deeper is refused.")
    ] = 64
    max_fetch_uris: Annotated[
        int, Meta(ge=1, le=10_000, description="How many URIs one call of `skill::fetch` may name.")
    ] = 100
    max_threads: Annotated[
        int, Meta(ge=1, le=10_000, description="How many threads run synchronous handlers; more calls wait.")
    ] = 32
    max_stuck_threads: Annotated[
        int,
        Meta(ge=0, le=10_000, description="How many cancelled synchronous calls are replaced by another thread."),
    ] = 128
    stall_ms: Annotated[
        int,
        Meta(
            ge=10, le=DAY_MS, description="How long a turn of the event loop may take before it is logged and counted."
        ),
    ] = 100


class Store(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the hub keeps what outlives a request."""

    url: Annotated[
        Name,
        Meta(
            description="The database: a SQLite file in the data directory, or a PostgreSQL server.",
            examples=[DEFAULT_STORE, "postgresql://user@host/database"],
        ),
    ] = DEFAULT_STORE
    timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="How long a request waits for the database, such as for a lock, before it is refused.",
        ),
    ] = 5_000


class Bus(Struct, frozen=True, kw_only=True, rename="camel"):
    """How replicas reach each other."""

    url: Annotated[
        Name,
        Meta(
            description="The bus: `auto` is PostgreSQL with a store on PostgreSQL, else `local`, within this process; "
            "`postgres` is the server of the store.",
            examples=[DEFAULT_BUS, "nats://host:4222,host:4222"],
        ),
    ] = DEFAULT_BUS


class Cluster(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which hubs are replicas of each other."""

    id: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9_-]{1,64}$",
            description="The same for all replicas of one store and bus.",
            extra={"form": "1 to 64 letters, digits, `_` and `-`"},
        ),
    ] = "default"


class ToolkitUse(Struct, frozen=True, kw_only=True, rename="camel"):
    """A toolkit together with options for its tools."""

    use: ToolkitReference
    category: Annotated[str | None, Meta(description="The category of its tools.")] = None
    hidden: Annotated[bool | None, Meta(description="Whether its tools are callable but not listed.")] = None
    visible: Annotated[bool | None, Meta(description="Whether its tools are listed; the opposite of `hidden`.")] = None
    name: Annotated[Name | None, Meta(description="The name to register it under.")] = None
    description: Annotated[str | None, Meta(description="What it is for.")] = None
    config: Annotated[dict[str, Any], Meta(description="Keyword arguments for the toolkit's `__init__`.")] = {}


class PromptArgument(Struct, frozen=True, kw_only=True, rename="camel"):
    """An argument of a prompt."""

    name: Annotated[Name, Meta(description="The name the template uses.")]
    description: Annotated[str | None, Meta(description="What to give for it.")] = None
    required: Annotated[bool, Meta(description="Whether it must be given.")] = False


class PromptTemplate(Struct, frozen=True, kw_only=True, rename="camel"):
    """A prompt written in the configuration file."""

    title: Annotated[str | None, Meta(description="The name shown to people.")] = None
    description: Annotated[str | None, Meta(description="What the prompt is for.")] = None
    arguments: Annotated[list[PromptArgument], Meta(description="The arguments it takes.")] = []
    template: Annotated[str, Meta(description="The text, a Jinja2 template over the arguments.")]


class Mcp(Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings that are in `server` too."""

    tool_timeout_ms: Annotated[
        Annotated[int, Meta(ge=1, le=DAY_MS)] | None,
        Meta(description="The same as `server.toolTimeoutMs`; two different values are an error."),
    ] = None


class Anonymous(Struct, frozen=True, kw_only=True, rename="camel"):
    """The rights of anonymous callers."""

    roles: Annotated[list[str], Meta(description="Their roles.")] = []
    permissions: Annotated[list[str], Meta(description="Their permissions.")] = []
    scopes: Annotated[list[str], Meta(description="Their scopes.")] = []


class AuthKey(Struct, frozen=True, kw_only=True, rename="camel"):
    """A key that callers may present."""

    id: Annotated[Name, Meta(description="The id of the principal that presents it.")]
    hash: Annotated[
        str,
        Meta(
            pattern="^sha256:[0-9a-f]{64}$",
            description="Its SHA-256, as `sha256:<hex>`.",
            extra={"form": "`sha256:` and the 64 hex digits that `printf %s KEY | sha256sum` gives for the key"},
        ),
    ]
    roles: Annotated[list[str], Meta(description="Their roles.")] = []
    permissions: Annotated[list[str], Meta(description="Their permissions.")] = []
    scopes: Annotated[list[str], Meta(description="Their scopes.")] = []
    expires: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+-]\d{2}:\d{2})$",
                extra={"form": "a time as in RFC 3339, with its zone: `2027-01-31T12:00:00Z`"},
            ),
        ]
        | None,
        Meta(description="When the key is refused, as in RFC 3339; by default never."),
    ] = None


class Introspection(Struct, frozen=True, kw_only=True, rename="camel"):
    """How opaque tokens are checked: the issuer is asked about each (RFC 7662)."""

    endpoint: Annotated[Name, Meta(description="The introspection endpoint.")]
    client_id: Annotated[Name, Meta(description="The client as which the hub asks.")]
    client_secret: Annotated[str, Meta(description="The secret of that client.")]
    remember_ms: Annotated[
        int, Meta(ge=0, le=DAY_MS, description="How long an answer holds: a revoked token is refused after that.")
    ] = 10_000
    timeout_ms: Annotated[int, Meta(ge=1, le=DAY_MS, description="How long an answer may take.")] = 5_000


class Claims(Struct, frozen=True, kw_only=True, rename="camel"):
    """The claims of a token that become the principal; each a name or a dotted path."""

    id: Annotated[
        Name, Meta(description="The claim that identifies the caller; the issuer must never reassign it.")
    ] = "sub"
    roles: Annotated[Name | None, Meta(description="The claim with the roles; by default there are none.")] = None
    permissions: Annotated[
        Name | None, Meta(description="The claim with the permissions; by default there are none.")
    ] = None


class ConsoleClient(Struct, frozen=True, kw_only=True, rename="camel"):
    """The client as which the console asks the authorization server to sign people in (OpenID Connect)."""

    client_id: Annotated[Name, Meta(description="Its id at the authorization server.")]
    client_secret: Annotated[
        str | None, Meta(description="Its secret; left out, it is a public client, which PKCE protects alone.")
    ] = None
    scopes: Annotated[
        list[str], Meta(description="Scopes to ask for besides `openid`, such as the one that adds the roles.")
    ] = []


class OAuth(Struct, frozen=True, kw_only=True, rename="camel"):
    """The authorization server whose tokens are accepted."""

    issuer: Annotated[Name, Meta(description="The issuer, exactly as its tokens name it.")]
    resource: Annotated[Name, Meta(description="The address of this hub, as tokens name it in their audience.")]
    jwks: Annotated[
        Annotated[Name, Meta(extra={"path": "file or url"})] | None,
        Meta(description="Where the issuer's public keys are: a URL or a file. This or `introspection`."),
    ] = None
    introspection: Annotated[Introspection | None, Meta(description="How opaque tokens are checked.")] = None
    scopes: Annotated[list[str], Meta(description="The scopes to advertise.")] = []
    required_scopes: Annotated[list[str], Meta(description="The scopes that every token must have.")] = []
    audiences: Annotated[list[Name], Meta(description="Audiences to accept besides `resource`.")] = []
    claims: Annotated[Claims, Meta(description="The claims that become the principal.")] = msgspec.field(
        default_factory=Claims
    )
    console: Annotated[
        ConsoleClient | None, Meta(description="How people sign in to the console; by default with keys only.")
    ] = None


class Auth(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may use the hub over HTTP."""

    anonymous: Annotated[
        Anonymous | bool | None,
        Meta(
            description="The rights of callers without a key or token; `false` refuses them. "
            "By default they are accepted only where there are neither keys nor OAuth."
        ),
    ] = None
    keys: Annotated[list[AuthKey], Meta(description="Keys, sent as `Authorization: Bearer`.")] = []
    oauth: Annotated[OAuth | None, Meta(description="The authorization server whose tokens are accepted.")] = None


class SkillLimits(Struct, frozen=True, kw_only=True, rename="camel"):
    """The limits of the processes of dynamic skills."""

    processes: Annotated[
        int, Meta(ge=1, le=1_000, description="How many processes run at the same time; more calls wait.")
    ] = 16
    waiting: Annotated[
        int, Meta(ge=0, le=1_000_000, description="How many calls wait for a process; more are refused.")
    ] = 10_000
    idle_ms: Annotated[
        int, Meta(ge=1, le=DAY_MS, description="How long a process waits for another call before it ends.")
    ] = 60_000
    start_ms: Annotated[int, Meta(ge=100, le=DAY_MS, description="How long the import of a skill may take.")] = 10_000
    cpu_seconds: Annotated[int, Meta(ge=1, le=86_400, description="The CPU time of a call.")] = 60
    memory_bytes: Annotated[
        int, Meta(ge=32 * MIB, le=1_048_576 * MIB, description="The memory of a process, as address space.")
    ] = 512 * MIB
    children: Annotated[
        int, Meta(ge=0, le=1_000, description="How many other processes a skill with `external = True` may have.")
    ] = 8
    files: Annotated[int, Meta(ge=16, le=65_536, description="How many files a process may have open.")] = 64
    file_bytes: Annotated[
        int, Meta(ge=0, le=1_048_576 * MIB, description="How large a file may become that a process writes.")
    ] = 64 * MIB
    result_bytes: Annotated[
        int, Meta(ge=1_024, le=1_024 * MIB, description="How large the result of a call may be, as JSON.")
    ] = 16 * MIB
    output_bytes: Annotated[
        int, Meta(ge=0, le=1_024 * MIB, description="How much of the output of a call is logged.")
    ] = 65_536


class Skills(Struct, frozen=True, kw_only=True, rename="camel"):
    """Skills that run, those that ship with Waypost and those in a directory, and folders of skills to read."""

    core: Annotated[
        list[CoreSkillName] | None,
        Meta(description="The skills that ship with Waypost to offer; by default all but `shell`."),
    ] = None
    dynamic: Annotated[Directory | None, Meta(description="The directory of skills that are loaded at run time.")] = (
        None
    )
    autoload: Annotated[bool, Meta(description="Whether new files of the directory are loaded at start.")] = True
    watch: Annotated[bool, Meta(description="Whether a skill is loaded again when its file changes.")] = False
    folders: Annotated[
        list[Directory], Meta(description="Folders of skills in the Agent Skills format: directories with a SKILL.md.")
    ] = []
    prompts: Annotated[
        list[Directory], Meta(description="Folders of prompts: Markdown files with front matter and a template.")
    ] = []
    timeout_ms: Annotated[
        Annotated[int, Meta(ge=1, le=DAY_MS)] | None,
        Meta(description="How long a skill may run; by default as long as any other tool."),
    ] = None
    limits: Annotated[SkillLimits, Meta(description="The limits of the processes of dynamic skills.")] = msgspec.field(
        default_factory=SkillLimits
    )
    permissions: Annotated[
        list[Name], Meta(description="Permissions that skills may declare besides the standard ones.")
    ] = []
    allow_private: Annotated[bool, Meta(description="Whether core skills may reach private addresses.")] = False
    sanitize: Annotated[
        bool, Meta(description="Whether invisible characters are removed from the results of external skills.")
    ] = False
    searxng: Annotated[
        str | None, Meta(description="The SearXNG server that `web_search` uses; by default DuckDuckGo.")
    ] = None
    shell: Annotated[
        list[Annotated[list[Name], Meta(min_length=1)]],
        Meta(description="The commands that `shell` may run: the words they begin with."),
    ] = []


class Policy(Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule about what callers may do."""

    name: Annotated[Name, Meta(description="Its name in reasons and in the audit; unique.")]
    type: Annotated[
        Literal[
            "rate_limit", "time_window", "chain_restriction", "permission_override", "mcp_restriction", "allow_list"
        ],
        Meta(description="The type of the rule."),
    ]
    config: Annotated[
        dict[str, Any], Meta(description="The parameters of its type.", extra={"holds": "parameters"})
    ] = {}
    description: Annotated[str, Meta(description="Why it is there.")] = ""
    priority: Annotated[int, Meta(description="Rules with a higher priority are checked first.")] = 0
    enabled: Annotated[bool, Meta(description="Whether it applies.")] = True
    principals: Annotated[list[str], Meta(description="The ids of the principals it applies to; by default all.")] = []
    roles: Annotated[list[str], Meta(description="The roles it applies to; by default all.")] = []
    callers: Annotated[
        list[Literal["mcp", "core", "dynamic", "worker", "workflow", "console"]],
        Meta(description="The kinds of callers it applies to; by default all."),
    ] = []
    capabilities: Annotated[
        list[str],
        Meta(
            description="The capabilities it applies to, with `*` as wildcard; by default all.",
            extra={"other name": "tools"},
        ),
    ] = []
    hide: Annotated[bool, Meta(description="Whether capabilities that it denies are hidden from lists too.")] = False


class Anchor(Struct, frozen=True, kw_only=True, rename="camel"):
    """An authority that time-stamps the audit (RFC 3161)."""

    url: Annotated[Name, Meta(description="Where it takes requests for time stamps.")]
    interval_ms: Annotated[
        int, Meta(ge=1000, le=DAY_MS, description="How long after an entry its chain is stamped, at the latest.")
    ] = 3_600_000
    authority: Annotated[
        str | None,
        Meta(
            description="A file with its root certificates (PEM), by which `audit verify` checks its signatures.",
            extra={"path": "file"},
        ),
    ] = None


class Audit(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where decisions and executions are recorded."""

    sink: Annotated[
        Literal["store", "file", "stderr", "none"],
        Meta(description="The store, `audit.jsonl` in the data directory, standard error, or nowhere."),
    ] = "store"
    max_bytes: Annotated[
        int,
        Meta(
            ge=1_000_000,
            description="The size of the entries in the store at which the oldest are deleted, whatever their age.",
        ),
    ] = 1024**3
    retention_days: Annotated[
        int, Meta(ge=1, le=36_500, description="After how many days entries are deleted from the store.")
    ] = 90
    anchor: Annotated[
        Anchor | None, Meta(description="An authority that time-stamps the ends of the chains in the store.")
    ] = None

    @property
    def retention_s(self) -> float:
        """How long entries are kept in the store, in seconds."""
        return self.retention_days * 86_400.0


class Breakers(Struct, frozen=True, kw_only=True, rename="camel"):
    """When a capability that keeps failing is not called for a while."""

    failures: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Failures in a row, of one cause, that open a breaker; 0: none do.")
    ] = 3
    pause_ms: Annotated[
        int, Meta(ge=100, le=DAY_MS, description="How long an open breaker refuses calls before one call is tried.")
    ] = 10_000
    max_pause_ms: Annotated[
        int, Meta(ge=100, le=DAY_MS, description="The longest pause; each trial that fails doubles it.")
    ] = 300_000


class WorkerLimits(Struct, frozen=True, kw_only=True, rename="camel"):
    """What workers may register and have in work."""

    functions: Annotated[int, Meta(ge=0, le=1_000_000, description="How many functions a worker may offer.")] = 10_000
    triggers: Annotated[int, Meta(ge=0, le=1_000_000, description="How many triggers a worker may bind.")] = 10_000
    trigger_types: Annotated[int, Meta(ge=0, le=1_000_000, description="How many trigger types it may provide.")] = (
        1_000
    )
    registration_bytes: Annotated[
        int, Meta(ge=1_024, le=64 * MIB, description="How large one function, trigger or trigger type may be, as JSON.")
    ] = 2 * MIB
    total_bytes: Annotated[
        int, Meta(ge=1_024, le=65_536 * MIB, description="How large everything may be that a worker registers.")
    ] = 4 * MIB
    channels: Annotated[int, Meta(ge=0, le=1_000_000, description="How many channels all workers may have.")] = 10_000
    call_bytes: Annotated[
        int,
        Meta(ge=1_024, le=1_048_576 * MIB, description="How large the large calls may be that run for all workers."),
    ] = 256 * MIB


class Workers(Struct, frozen=True, kw_only=True, rename="camel"):
    """The port that workers connect to."""

    host: Annotated[
        Name, Meta(description="The address to listen on; one that other machines can reach needs a token.")
    ] = DEFAULT_HOST
    port: Annotated[int, Meta(ge=0, le=65535, description="The port; 0 takes any that is free.")] = DEFAULT_WORKER_PORT
    token: Annotated[
        str,
        Meta(
            description="The bearer token that workers send; left out, one is made at the start where `auth` needs it."
        ),
    ] = ""
    tokens: Annotated[
        dict[Name, Name],
        Meta(description="Tokens by the name of a worker: a worker that sends one has that name, and no other has it."),
    ] = {}
    limits: Annotated[WorkerLimits, Meta(description="What workers may register and have in work.")] = msgspec.field(
        default_factory=WorkerLimits
    )
    max_depth: Annotated[
        int, Meta(ge=1, le=1_000, description="How many workers a call may pass through, one calling the next.")
    ] = 32
    state_timeout_ms: Annotated[
        int, Meta(ge=1, le=DAY_MS, description="How long `state::*`, `iii://fn` and prompt handlers may take.")
    ] = 10_000
    registry: Annotated[
        bool, Meta(description="Whether the hub is the registry of the skills and prompts of workers.")
    ] = True
    share: Annotated[bool, Meta(description="Whether a worker may change what another one registered.")] = False
    observe: Annotated[
        bool | None,
        Meta(
            description="Whether workers may observe the calls of functions; left out, where `auth` is not configured."
        ),
    ] = None
    allow_private: Annotated[bool, Meta(description="Whether functions at a URL may be at private addresses.")] = False
    secrets: Annotated[
        list[Name], Meta(description="The environment variables of the hub that functions at a URL may receive.")
    ] = []

    @property
    def state_timeout(self) -> float:
        """`state_timeout_ms` in seconds."""
        return self.state_timeout_ms / 1000


class Settings(Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole configuration."""

    version: Annotated[Literal["1"], Meta(description="The version of the file's format.")] = "1"
    include: Annotated[
        list[Name],
        Meta(description="Other files to merge in: paths or glob patterns, relative to this file."),
    ] = []
    server: Annotated[Server, Meta(description="How the hub presents itself and serves.")] = msgspec.field(
        default_factory=Server
    )
    limits: Annotated[Limits, Meta(description="What clients may take of the hub's time, memory and connections.")] = (
        msgspec.field(default_factory=Limits)
    )
    store: Annotated[Store, Meta(description="Where the hub keeps what outlives a request.")] = msgspec.field(
        default_factory=Store
    )
    bus: Annotated[Bus, Meta(description="How replicas reach each other.")] = msgspec.field(default_factory=Bus)
    cluster: Annotated[Cluster, Meta(description="Which hubs are replicas of each other.")] = msgspec.field(
        default_factory=Cluster
    )
    toolkits: Annotated[
        list[ToolkitReference | ToolkitUse], Meta(description="Toolkits whose functions become tools.")
    ] = []
    prompts: Annotated[dict[Name, PromptTemplate], Meta(description="Prompts by name.")] = {}
    auth: Annotated[Auth | None, Meta(description="Who may use the hub over HTTP; by default every caller.")] = None
    skills: Annotated[
        Skills | None, Meta(description="Executable skills, and folders of documents; by default none.")
    ] = None
    connections: Annotated[
        dict[Name, Connection], Meta(description="Servers, APIs and programs that executors use, by name.")
    ] = {}
    mcp_servers: Annotated[
        dict[Name, ClientServer], Meta(description="MCP servers as clients write them: each is connected and imported.")
    ] = {}
    capabilities: Annotated[dict[Name, Capability], Meta(description="Building blocks for transitions, by name.")] = {}
    workflows: Annotated[dict[Name, Workflow], Meta(description="Workflows, by name.")] = {}
    proxy: Annotated[Proxy, Meta(description="What agents may use directly.")] = msgspec.field(default_factory=Proxy)
    workers: Annotated[Workers | None, Meta(description="The port for workers; by default none.")] = None
    search: Annotated[Search, Meta(description="How `gateway.search` ranks.")] = msgspec.field(default_factory=Search)
    policies: Annotated[list[Policy], Meta(description="Rules about what callers may do.")] = []
    breakers: Annotated[
        Breakers, Meta(description="When a capability that keeps failing is not called for a while.")
    ] = msgspec.field(default_factory=Breakers)
    audit: Annotated[Audit, Meta(description="Where decisions and executions are recorded.")] = msgspec.field(
        default_factory=Audit
    )
    mcp: Annotated[Mcp, Meta(description="Settings that are in `server` too.")] = msgspec.field(default_factory=Mcp)

    @property
    def tool_timeout(self) -> float:
        """How long a tool may run unless it sets its own timeout, in seconds."""
        return (self.mcp.tool_timeout_ms or self.server.tool_timeout_ms) / 1000


IN_PYTHON = Settings(server=Server(surface="full"), audit=Audit(sink="none"))
"""A hub declared in Python lists every tool and keeps no audit unless it says otherwise."""
START_SECTIONS = ("server", "limits", "store", "bus", "audit", "workers")
"""Sections that take effect at the next start."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is one of loopback, in any spelling."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
