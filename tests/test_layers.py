"""Imports point down the layers and use public names only; modules, functions and classes stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "waypost"
MODULES = sorted(SOURCE.rglob("*.py"))

LAYERS = (
    {"cli"},
    {"testing"},
    {"hub"},
    {"runtime"},
    {"console"},
    {"api", "hooks", "hub_options"},
    {"gateway"},
    {"imports", "search"},
    {"workflows"},
    {"skills"},
    {"documents"},
    {"worker"},
    {"workers"},
    {"upstreams", "identity.key_ring"},
    {"runtime.core", "runtime.component", "runtime.replicas", "runtime.feed"},
    {"transports"},
    {"protocol"},
    {"policy"},
    {"identity"},
    {"execution"},
    {"capabilities"},
    {"queues"},
    {"stores"},
    {"buses"},
    {"outbound"},
    {"config", "settings"},
    {"wire"},
    {"errors", "kinds", "loops", "redaction", "suggestions", "version"},
)
"""The packages from top to bottom; a package imports from those below it."""

LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
ENTRY_POINTS = {"__init__", "__main__"}
"""`import waypost` and `python -m waypost` may use everything."""

PUBLIC = {
    "api": "Api Changes ManagedHub PREFIX Role VIA_HEADER match_segments may_act_as",
    "buses": "Bus LocalBus MAX_MESSAGE_BYTES Subscription choose_bus_url create_bus",
    "capabilities": """
        ANONYMOUS ANSWER_TIMEOUT_S Caller CallerType Capability Catalog Chain Change Component Context DetachedCaller
        FROM_OUTSIDE GATEWAY_TOOLS Handler HeaderParameter InputNeeded Kind ListKind MAX_CALL_DEPTH MAX_URI_CHARACTERS
        MULTIPLYING McpFeatures Metadata OPEN Offer OpenForm Options PREFIXES Pausable Principal Priority Prompt
        PromptMessage Question RawForm Registry Resource ResourceOptions Result RowKey Services Session Tool ToolOptions
        Toolkit Unknown UriTemplate Validator ask_client check_limits check_list check_name check_supported counted
        decode_result disambiguate encode_json expand failure fold_name follow_reference form_question instantiate
        is_declared is_input_needed is_raw is_readable_hint is_readable_icon is_wire_name list_everything make_tool
        models needs_portable_names parse_options parse_roots parse_sampling_answer pause_deadline prompt_from_function
        prompt_from_template questions read_header_parameters require resolve_pointer resource_from_function returns
        roots_question round_trip_json sampling_question signatures to_contents to_messages to_older_form to_portable
        to_result tool tool_from_function tool_options unknown_tool wire_icons with_defaults
    """,
    "cli": "main",
    "console": "Console",
    "config": """
        CLIENTS Client JSON Machine Server TOML Unreadable YAML append_items remove_entry set_entry this_machine
        Branch Capability CliConnection ClientServer Command Composer Config Connection DAY_MS Decoder Directory
        Environment ErrorClass Evidence EvidenceNeed ExpandedCapability ExpandedWorkflow Expose Fallback Finding
        Idempotent Import ItemName KeyPath Loaded McpConnection Millis Name Node OnEnter OnTimeout Proxy Refused
        Reliability RestConnection Retry Schema Search State Step StepRoute Transition UNKNOWN Workflow changes
        check_prompts dotted escape events examine expand_data find_variables load models printable quoted quoted_file
        refuse reload rules schema to_prefix watch_folders
    """,
    "documents": """
        Delegation Documents FetchLimits FolderPaths FolderSnapshots LinkFound NAME OPERATOR SkillFolders
        build_documents check_new_id did_you_mean host_documents manifest open_directory problems read_beginning
        read_settings skill_uri
    """,
    "execution": """
        ARGUMENT_ERRORS BreakerState Breakers Budgets Bulkheads CallCount CallHistory CircuitChange Counters Deadline
        FairSlots Lease LeaseNeeded MAX_ATTEMPTS MAX_LEASES MinuteSample Permit Pipeline Pool SharedBulkheads
        ProcessResult STEP_S Shares Ticker check_output error_result make_environment run_process span ticker tracing
    """,
    "gateway": "Directory Gateway Item ItemKind",
    "identity": """
        ATTEMPT_TTL_S Attempt Authentication HUB INVALID Key KeyChange KeyEntry KeyRing MISSING ProviderSignIn
        RevocationWatcher SIGN_IN_TOKEN_TTL_S SignInFailed Unauthorized Vault authentication derive_link_key digest
        digest_for_session make_sign_in_token new_key problems read_sign_in_token
    """,
    "imports": """
        Exposed Exposures FOREIGN HeldTool Imports Offer Pending UpstreamRow build_offers find_missing_tools
    """,
    "outbound": """
        Address ConnectionPool Egress EgressFailed EgressRefused EgressResponse EventStream Feed HttpError Reason
        Request Response TooLarge find_proxy parse_address
    """,
    "policy": """
        AdministrativeAction Anchors AuditChains AuditLog CapabilityTokens HUB Policy PolicyGuard Record Refusals Rule
        TokenRefused Verdict Via decider hidden onlookers writer
    """,
    "protocol": """
        Broadcast CALL_FAILED Connection Direction Engine EventStream Exchange Host LegacySession LoggedMessage
        MAX_MESSAGE_BYTES METHOD MessageLog Page REPEATED_HEADER Relay Response STOPPING Seal SessionOutlet SkillSource
        StreamReader Subscription VERSION legacy methods modern track_request unwrap_message wrap_message
    """,
    "queues": "Delivery StoreQueue",
    "runtime": """
        Change ChangeFeed Component ConfigurationFile Core CoreOptions Launch Listener Peers Replicas Runtime
        STOP_TIMEOUT_S Switch build_app check find find_usual load_module print_ready serve_http to_component
    """,
    "search": "Document Embeddings Found Matrix Ranking Reason SearchIndex View is_installed",
    "skills": "BRANCH CORE SkillSet Skills decode media_type tool_name",
    "stores": """
        AuditEntry Block Budget BudgetStore DATA_VARIABLE DEFAULT_RETENTION_S HIDDEN_SCOPE Database Document Documents
        Entry HistoryEntry Holding InstanceFilter InstanceRecord Job Jobs LAST MAX_KEY_BYTES Note
        Place RequestRecord Reservation Secret SessionRecord SqliteDatabase Store StoredEvent TaskCall TaskRecord
        WORKFLOW_PREFIX data_directory derive_key detect_persisted directory from_json is_key schema shorten_key
        PROXY Replica ReplicaStatus ReplicaStore WorkerRecord WorkerStore sqlite to_json urls
    """,
    "transports": """
        AnswerStream DeferredApp Endpoint Gate HttpApp LoggedApp OperatorAnswer OperatorRequest PendingRequests
        encode_refusal find_bound_hosts headers_too_large server stdio
    """,
    "upstreams": """
        Answerer Client ELICITATION_COMPLETE HttpTransport Limits Listener Offers ProgressReporter Reply
        ResourceSubscriptions SERVER_REQUESTS UpstreamStatus UpstreamUnavailable Upstreams
        open_client requires_task task_in
    """,
    "wire": """
        ALL Annotations Audio BlobContents Block CLIENT_CAPABILITIES CLIENT_INFO CONTENT_TYPES Cancelled Contents
        DIRECTORY Definition EmbeddedResource Icon Image Implementation LATEST_LEGACY LEGACY LOG_LEVEL LOG_LEVELS
        ListenFilter Message PROTOCOL_VERSION PromptArgument PromptDefinition RequestId RequestMeta
        ResourceDefinition ResourceLink SERVER_INFO SUBSCRIPTION_ID SkillEntry SkillFile TemplateDefinition Text
        TextContents ToolAnnotations ToolDefinition ToolExecution V2025_03_26 V2025_06_18 V2025_11_25 V2026_07_28
        at_least contents decode decode_cursor downgrade encode encode_cursor encode_lossy find_id is_modern messages
        negotiate params replace_surrogates versions
    """,
    "worker": "InvocationFailed Worker register_worker",
    "workers": """
        Action Binding Call DEFAULT Failure Filter Function FunctionRegistered Given HubListener InvocationResult
        InvokeFunction MAX_MESSAGE_BYTES Observable Observe ObserverAdded ObserverInfo Origin RegisterFunction
        RegisterTrigger TriggerRegistrationResult TriggerType UNKNOWN WorkerRegistered Workers caller_of describe_worker
        encode find_function_tool frames function_not_found hosted is_internal is_open_to_all read_failure share_workers
        trace_here
    """,
    "workflows": """
        ADMIN Answer Capabilities CapabilityCall Created Definition Engine ExecutorContext IDEMPOTENCY_KEY ISOLATED
        Instance MOST_HISTORY Mcp NonInteractiveCaller Noop Outcome PROXY Page RESUME Replay Report Rest Run RunFilter
        Runs Scope Supervised Trouble Workflows build_tool call_key called_names check_workflows compile_guards
        executors_in format_time graph input_schema instance_id_of is_idempotent mask_answer may_bring may_decide
        nearest no_instance_error parse_recording replay resolve resolve_capability simulate supervise to_result views
        with_defaults
    """,
}
"""What each package offers to the others; everything else in it is private to it."""

MAX_MODULES = 340
MAX_MODULES_WITHOUT_KINDS = 220
KINDS = ("api", "cli", "console", "buses", "workflows/executors", "workflows/guards", "skills/core")
"""Where each resource of the API, command, page, adapter or kind is one file: these grow with what the hub can do."""
MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_ATTRIBUTES = 15
MAX_SHORT_SHARE = 0.1
"""A helper of a few lines that is used once says little more than its body."""


class Import(NamedTuple):
    package: str
    line: int


def package_of(file: Path) -> str:
    """The package a file belongs to: its folder, its own name, or both where a module is a layer of its own."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return package if (package := ".".join(parts[:2])) in LAYER else parts[0]


def imports(tree: ast.Module) -> Iterator[Import]:
    """Every import from `waypost`, at any level of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _imported(name.name, (), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from _imported(node.module or "", tuple(name.name for name in node.names), node.lineno)


def _imported(module: str, names: tuple[str, ...], line: int) -> Iterator[Import]:
    top, _, rest = module.partition(".")
    if top != "waypost":
        return
    if rest:
        package = ".".join(rest.split(".")[:2])
        yield Import(package if package in LAYER else rest.partition(".")[0], line)
        return
    # `from waypost import config` names a package; any other name comes from `waypost/__init__.py`.
    for name in names or ("__init__",):
        yield Import(name if name in LAYER else "__init__", line)


def upward(file: Path) -> list[str]:
    """The imports of a module that point up the layers."""
    own = LAYER[package_of(file)]
    tree = ast.parse(file.read_text())
    return [
        f"{file.relative_to(SOURCE)}:{found.line} imports {found.package}"
        for found in imports(tree)
        if found.package in ENTRY_POINTS or LAYER[found.package] < own
    ]


def test_every_module_belongs_to_a_layer() -> None:
    assert {package_of(file) for file in MODULES} - ENTRY_POINTS == set(LAYER)


def test_imports_point_down_the_layers() -> None:
    found = [violation for file in MODULES if package_of(file) not in ENTRY_POINTS for violation in upward(file)]

    assert found == []


@pytest.mark.parametrize(
    ("line", "violations"),
    [
        ("import waypost.hub", 1),
        ("from waypost import Hub", 1),
        ("from waypost import hub", 1),
        ("import waypost", 1),
        ("if TYPE_CHECKING:\n    from waypost.transports.http.app import HttpApp", 1),
        ("def f():\n    from waypost.cli import main", 1),
        ("from waypost import config, hub", 1),
        ("from waypost.capabilities.registry import Registry", 0),
        ("from waypost.wire import messages", 0),
        ("import asyncio", 0),
    ],
)
def test_an_upward_import_is_found_anywhere_in_a_module(
    line: str, violations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    module = tmp_path / "capabilities" / "sample.py"
    module.parent.mkdir()
    module.write_text(line)

    assert len(upward(module)) == violations


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_has_a_docstring_and_at_most_700_lines(file: Path) -> None:
    text = file.read_text()
    said = ast.get_docstring(ast.parse(text))

    assert said
    assert text.startswith('"""')
    assert len(text.splitlines()) <= MAX_MODULE_LINES


def test_every_folder_is_a_package() -> None:
    folders = {file.parent for file in MODULES}

    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "manager"])
def test_no_module_has_a_meaningless_name(word: str) -> None:
    assert [file.name for file in MODULES if word in file.stem or word in file.parent.name] == []


def borrowed(tree: ast.Module, own: str) -> Iterator[tuple[str, str]]:
    """Each package that a module of another package imports from, with a name it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            top, _, rest = (node.module or "").partition(".")
            package = rest.partition(".")[0]
            if top == "waypost" and package not in ("", own) and (SOURCE / package).is_dir():
                yield from ((package, name.name) for name in node.names)


def test_packages_import_only_public_names_of_each_other() -> None:
    used: dict[str, set[str]] = {}
    for file in MODULES:
        for package, name in borrowed(ast.parse(file.read_text()), package_of(file).partition(".")[0]):
            used.setdefault(package, set()).add(name)

    assert used == {package: set(names.split()) for package, names in PUBLIC.items()}


def test_two_modules_that_always_change_together_are_one() -> None:
    kinds = tuple(f"{folder}/" for folder in KINDS)
    others = [file for file in MODULES if not str(file.relative_to(SOURCE)).startswith(kinds)]

    assert len(others) <= MAX_MODULES_WITHOUT_KINDS
    assert len(MODULES) <= MAX_MODULES


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_functions_and_classes_stay_small(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, f"{node.name}, line {node.lineno}"
        elif isinstance(node, ast.ClassDef) and file.name != "settings.py":
            assert len(attributes(node)) <= MAX_ATTRIBUTES, f"{node.name}: {sorted(attributes(node))}"


def test_few_private_functions_are_short_and_used_once() -> None:
    private = short = 0
    for file in MODULES:
        text = file.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match("_[^_]", node.name):
                private += 1
                is_short = (node.end_lineno or 0) - node.lineno + 1 < 5
                short += is_short and len(re.findall(rf"\b{node.name}\b", text)) <= 2

    assert short < private * MAX_SHORT_SHARE, f"{short} of {private}"


def attributes(node: ast.ClassDef) -> set[str]:
    """The attributes of a class's instances: its declared fields, and those its methods assign to `self`."""
    fields = {
        part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return fields | {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
        and part.value.id == "self"
    }
