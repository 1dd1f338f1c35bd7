"""What the registry of skills and prompts promises: S is the registry, M is how clients see it, and the scenarios."""

from __future__ import annotations

SKILLS = "interop/test_iii_skills.py"
READING = "interop/test_iii_reading.py"
PROMPTS = "interop/test_iii_prompts.py"
CHANGES = "interop/test_iii_changes.py"
INTERFACE = "interop/test_iii_interface.py"
DURABILITY = "interop/test_iii_durability.py"
BRIDGE = "interop/test_iii_bridge.py"
EXAMPLES = "interop/test_iii_examples.py"

REQUIREMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "S1": (
        "Thirteen functions and two kinds of trigger are listed with the schemas that workers know.",
        (
            f"{INTERFACE}::test_thirteen_functions_and_two_kinds_of_trigger_are_listed_with_their_schemas",
            "documents/test_functions.py::test_the_functions_are_declared_as_in_the_interface",
            "documents/test_functions.py::test_answers_match_the_declared_schemas",
        ),
    ),
    "S2": (
        "Every scenario of the original registry holds, with both SDKs, in the hub and with the registry as a worker.",
        (
            f"{SKILLS}::test_skills_register",
            f"{SKILLS}::test_skills_nested",
            f"{READING}::test_skills_resources",
            f"{READING}::test_skills_fetch",
            f"{PROMPTS}::test_prompts_register",
            f"{PROMPTS}::test_prompts_get",
            f"{EXAMPLES}::test_an_agent_drills_down_from_the_index_to_a_leaf_and_a_live_page",
            f"{EXAMPLES}::test_the_worker_of_the_page_publishes_a_skill_a_page_and_a_slash_command",
        ),
    ),
    "S3": (
        "Every refusal holds the text that callers know.",
        (
            f"{INTERFACE}::test_an_invalid_call_is_refused_with_the_reason",
            f"{SKILLS}::test_skills_register",
            f"{READING}::test_skills_resources",
            f"{READING}::test_skills_fetch",
            f"{PROMPTS}::test_prompts_register",
            f"{PROMPTS}::test_prompts_get",
        ),
    ),
    "S4": (
        "A body has up to 262144 bytes of UTF-8.",
        (
            f"{INTERFACE}::test_a_body_is_measured_in_bytes",
            "documents/test_ids.py::test_a_body_of_up_to_262144_bytes_is_accepted",
        ),
    ),
    "S5": (
        "What was registered is there after a hub was killed.",
        (f"{DURABILITY}::test_published_documents_survive_a_killed_hub",),
    ),
    "S6": (
        "Workers fill a store that was wiped by registering again.",
        (
            f"{DURABILITY}::test_workers_refill_a_wiped_store_by_registering_again",
            "worker/test_publications.py::test_everything_is_published_again_after_a_reconnection",
        ),
    ),
    "S7": (
        "Each change is one notification with its payload; a write without a change is none; no subscriber delays one.",
        (
            f"{CHANGES}::test_skills_register_fires",
            f"{CHANGES}::test_skills_unregister_fires",
            f"{CHANGES}::test_3_rapid_mutations_each_notify",
            f"{CHANGES}::test_a_refused_registration_fires_no_trigger",
            f"{CHANGES}::test_an_unbound_subscriber_is_not_called",
            f"{CHANGES}::test_a_hanging_failing_or_dead_subscriber_does_not_delay_registrations",
        ),
    ),
    "S8": (
        "Functions of the nine internal namespaces back neither a section nor a prompt.",
        (
            f"{READING}::test_internal_functions_cannot_be_a_section_or_a_prompt",
            f"{READING}::test_functions_with_a_dot_cannot_be_a_section",
            "documents/test_uris.py::test_infra_namespaces_are_hard_floored",
            "documents/test_uris.py::test_ordinary_namespaces_are_not_hard_floored",
        ),
    ),
    "S9": (
        "A description in the index is cut after 140 characters, whatever their bytes.",
        (
            f"{READING}::test_descriptions_of_the_index_are_cut_between_characters",
            "documents/test_rendering.py::test_a_text_is_cut_between_characters_not_bytes",
        ),
    ),
    "S10": (
        "A fetch keeps the order, trims ends, and works whole or not at all.",
        (
            f"{READING}::test_skills_fetch",
            f"{READING}::test_a_failing_uri_fails_the_whole_fetch_and_later_ones_are_not_read",
        ),
    ),
    "S11": (
        "The old form of a section runs no function.",
        (f"{READING}::test_the_old_uri_form_calls_no_function_and_suggests_the_new_one",),
    ),
    "S12": (
        "The answer of a function is read in three shapes, that of a prompt's in four.",
        (f"{READING}::test_skills_resources", f"{PROMPTS}::test_prompts_get"),
    ),
    "S13": (
        "Sections and handlers of prompts have as long as is set.",
        (
            f"{DURABILITY}::test_sections_and_prompts_have_the_configured_timeout",
            f"{DURABILITY}::test_a_registry_worker_stores_documents_in_the_configured_scopes",
        ),
    ),
    "S14": (
        "A configuration that makes no sense is as if it were not there.",
        (f"{DURABILITY}::test_an_invalid_configuration_is_replaced_by_the_defaults",),
    ),
    "S15": (
        "The manifest says what the worker is.",
        (f"{DURABILITY}::test_the_manifest_describes_the_worker",),
    ),
    "M1": (
        "Clients have the tool skill__fetch, and none of an internal namespace.",
        (f"{BRIDGE}::test_tools_list_exposes_user_functions_and_hides_infra",),
    ),
    "M2": (
        "A call of a hidden function is refused.",
        (f"{BRIDGE}::test_hidden_namespaces_are_refused",),
    ),
    "M3": (
        "Resources, templates and prompts of clients are what the functions answer.",
        (
            f"{BRIDGE}::test_resources_list_read_and_templates_delegate",
            f"{BRIDGE}::test_prompts_list_and_get_delegate",
            "documents/test_content.py::test_clients_get_the_same_lists_and_contents_as_workers",
            "documents/test_delegating.py::test_clients_get_the_lists_and_contents_of_the_worker",
        ),
    ),
    "M4": (
        "What a tool fails with is a result, a wrong request is an error.",
        (
            f"{BRIDGE}::test_handler_failures_are_results_and_wrong_requests_are_errors",
            f"{BRIDGE}::test_resources_read_without_params_or_of_nothing_is_an_error",
            f"{BRIDGE}::test_prompts_get_without_params_or_of_nothing_is_an_error",
        ),
    ),
}

TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "skills_register": (
        f"{SKILLS}::test_skills_register",
        (
            "rejects an empty id",
            "rejects uppercase id",
            "rejects id with a space",
            "rejects leading slash",
            "rejects trailing slash",
            "rejects doubled slash",
            "rejects colon",
            "rejects 65-char id",
            "rejects empty body",
            "rejects body bigger than 256 KiB",
            "accepts a body right at 256 KiB",
            "register then list shows the scoped skill",
            "re-register overwrites the body and refreshes the timestamp",
            "unregister is idempotent",
        ),
    ),
    "skills_nested": (
        f"{SKILLS}::test_skills_nested",
        (
            "single-level sub-skill resolves",
            "deep traversal depths 1/2/3",
            "orphan grandchild readable",
            "skills::list nested entries sorted",
            "index indents nested entries by depth",
            'id "fn" rejected "reserved"',
            'id starting "fn/" rejected',
            '"fn" at a non-first segment succeeds',
            "iii://fn/{a}/{b} triggers a::b",
            "iii://fn/{a}/{b}/{c} triggers a::b::c",
            "skill::fetch concatenates bodies across depths",
        ),
    ),
    "skills_resources": (
        f"{READING}::test_skills_resources",
        (
            "resources-list exposes the index and every registered skill",
            "resources-templates returns the two URI templates",
            "iii://skills renders a markdown index with title and description",
            "iii://{id} returns the registered body",
            "fn returning a markdown string",
            "fn returning {content}",
            "fn returning arbitrary JSON",
            "refuses state::",
            "refuses mcp::",
            "refuses skills::",
            "refuses prompts::",
            "URI without the iii:// prefix is rejected",
            "iii://fn alone is rejected",
            "iii://fn/ (trailing slash) is rejected",
            "unknown skill not-found",
            "unknown deep skill not-found",
        ),
    ),
    "skills_fetch": (
        f"{READING}::test_skills_fetch",
        (
            "single uri returns the body wrapped under the URI heading",
            "uris array concatenates sections separated by ---",
            "skill::fetch alias returns identical output",
            "uris takes precedence over uri",
            "missing uri and uris",
            "non-iii:// URI rejected",
            "blank uri rejected",
            "unknown iii:// id not-found",
            "skill::fetch surfaces the same validation error",
        ),
    ),
    "prompts_register": (
        f"{PROMPTS}::test_prompts_register",
        (
            "rejects an empty name",
            "rejects uppercase name",
            "rejects name with a space",
            "rejects name with ::",
            "rejects blank description",
            "rejects missing function_id",
            "rejects duplicate argument names",
            "rejects empty argument name",
            "register then list surfaces the scoped prompt",
            "re-register overwrites and refreshes the timestamp",
            "unregister is idempotent",
        ),
    ),
    "prompts_get": (
        f"{PROMPTS}::test_prompts_get",
        (
            "string handler wrapped",
            "{content} handler wrapped",
            "{messages} passed through",
            "unsupported shape fails",
            "unknown prompt not-found",
            "infra-namespace handler rejected by the hard floor",
        ),
    ),
}
"""Scenarios that are cases of one test, by the names of the original."""

SCENARIOS: dict[str, dict[str, str]] = {
    "notifications": {
        "skills::register fires": f"{CHANGES}::test_skills_register_fires",
        "skills::unregister fires": f"{CHANGES}::test_skills_unregister_fires",
        "3 rapid mutations each notify": f"{CHANGES}::test_3_rapid_mutations_each_notify",
        "prompts::register fires": f"{CHANGES}::test_prompts_register_fires",
        "prompts::unregister fires": f"{CHANGES}::test_prompts_unregister_fires",
    },
    "mcp_bridge": {
        "resources-list envelope": f"{BRIDGE}::test_resources_list_envelope",
        "resources-read round-trip": f"{BRIDGE}::test_resources_read_round_trip",
        "prompts::mcp-list MCP-shaped arguments": (f"{BRIDGE}::test_prompts_mcp_list_has_arguments_as_mcp_shapes_them"),
        "prompts::mcp-get dispatches the handler": f"{BRIDGE}::test_prompts_mcp_get_dispatches_the_handler",
    },
    "mcp": {
        "initialize negotiates 2025-06-18": f"{BRIDGE}::test_initialize_negotiates_2025_06_18",
        "ping empty": f"{BRIDGE}::test_ping_empty",
        "unknown method -32601": f"{BRIDGE}::test_unknown_method_is_32601",
        "notifications are accepted": f"{BRIDGE}::test_a_notification_is_accepted_without_an_answer",
        "array body and missing jsonrpc -32600": f"{BRIDGE}::test_an_invalid_request_is_32600",
        "list exposes user fns and hides infra": f"{BRIDGE}::test_tools_list_exposes_user_functions_and_hides_infra",
        "call dispatches": f"{BRIDGE}::test_tools_call_dispatches",
        "handler failures isError, no params and an empty name -32602": (
            f"{BRIDGE}::test_handler_failures_are_results_and_wrong_requests_are_errors"
        ),
        "refuses hidden namespaces": f"{BRIDGE}::test_hidden_namespaces_are_refused",
        "resources list/read/templates delegate": f"{BRIDGE}::test_resources_list_read_and_templates_delegate",
        "resources read no params -32602": (f"{BRIDGE}::test_resources_read_without_params_or_of_nothing_is_an_error"),
        "prompts list/get delegate": f"{BRIDGE}::test_prompts_list_and_get_delegate",
        "prompts get no params -32602": f"{BRIDGE}::test_prompts_get_without_params_or_of_nothing_is_an_error",
    },
}
"""Scenarios that are tests of their own."""
