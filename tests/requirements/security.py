"""The attacks the hub is made to withstand, how many cases of each are tried, and the tests that try them.

The number is a floor: parameters are counted, and where a test goes through a table by itself the rows of it. Inputs
that must be accepted are among them, as a check that refuses everything shows nothing. Fuzzed tests count as one.
"""

from __future__ import annotations

from typing import NamedTuple


class Threat(NamedTuple):
    """An attack: what the hub does about it, at least how many cases are tried, and the tests."""

    sentence: str
    cases: int
    shown_by: tuple[str, ...]


TABLES = {
    "outbound/test_egress_urls.py::test_no_trick_of_the_table_makes_a_connection": "TABLE",
    "skills/core/test_shell.py::test_a_quoted_injection_arrives_unchanged_as_one_word": "PAYLOADS",
    "skills/core/test_shell.py::test_an_injection_without_quotes_is_split_into_words_or_refused": "PAYLOADS",
    "skills/core/test_shell.py::test_an_injection_in_place_of_the_command_is_refused": "PAYLOADS",
    "requirements/test_security_gaps.py::test_deeply_nested_json_is_a_bad_request": "DEEP",
}

THREATS = {
    "DNS rebinding": Threat(
        "A request with an unknown Host or Origin is refused with 403 on every route.",
        186,
        (
            "transports/http/test_gate.py::test_other_hosts_are_refused",
            "transports/http/test_gate.py::test_other_origins_are_refused",
            "transports/http/test_gate.py::test_a_refused_origin_is_refused_every_time",
            "transports/http/test_gate.py::test_configured_hosts_and_origins_pass_and_similar_ones_do_not",
            "transports/http/test_gate.py::test_both_host_and_origin_must_be_allowed",
            "transports/http/test_gate.py::test_a_server_on_loopback_expects_no_other_host",
            "transports/http/test_gate.py::test_any_bytes_as_host_or_origin_pass_or_are_refused_with_403",
            "transports/http/test_app.py::test_an_unknown_host_or_origin_is_refused_on_every_route",
            "transports/http/test_app.py::test_a_repeated_host_or_origin_header_is_refused",
        ),
    ),
    "Token audience": Threat(
        "A token that is not for this hub, from its issuer, in its time and under one of its keys is refused with 401.",
        99,
        (
            "identity/test_tokens.py::test_a_hostile_token_is_refused",
            "identity/test_tokens.py::test_an_algorithm_without_a_public_key_cannot_be_allowed",
            "identity/test_tokens.py::test_issuer_and_audience_must_be_given",
            "identity/test_tokens.py::test_a_path_with_a_trailing_slash_is_another_audience",
            "identity/test_tokens.py::test_a_key_is_used_only_for_its_declared_purpose",
            "identity/test_tokens.py::test_a_private_key_that_was_published_is_not_used",
            "identity/test_key_source.py::test_keys_are_fetched_over_tls_or_loopback_only",
        ),
    ),
    "Token passthrough": Threat(
        "The credential of a caller is never forwarded and is in no log, and keys stay with their origin.",
        6,
        (
            "requirements/test_security_gaps.py::test_the_key_of_the_caller_is_never_sent_on",
            "identity/test_authentication.py::test_tokens_are_neither_stored_nor_logged",
            "outbound/test_egress_redirects.py::test_credentials_are_not_sent_to_another_origin",
        ),
    ),
    "State-handle hijack": Threat(
        "A session, stream, task or state of another principal is answered as if it did not exist.",
        40,
        (
            "transports/http/test_auth.py::test_a_session_of_another_principal_is_not_found",
            "transports/http/test_auth.py::test_a_session_without_its_key_is_not_enough",
            "transports/http/test_endpoint_sessions.py::test_an_unknown_session_is_not_found",
            "transports/http/test_reply.py::test_another_session_cannot_take_up_a_stream",
            "transports/http/test_reply.py::test_another_session_cannot_cancel_a_call",
            "transports/http/test_endpoint_streams.py::test_resuming_a_stream_never_replays_events_of_another",
            "protocol/test_task_methods.py::test_another_principals_task_is_refused_like_an_unknown_one",
            "protocol/test_task_methods.py::test_a_listen_stream_gets_the_status_of_the_tasks_it_names_and_may_see",
            "protocol/test_rounds.py::test_a_request_state_is_refused_for_another_principal",
            "protocol/test_rounds.py::test_a_request_state_is_valid_only_for_its_request",
            "protocol/test_sealing.py::test_a_sealed_state_is_refused_for_another_request",
            "protocol/test_sealing.py::test_every_altered_byte_is_detected",
            "protocol/test_sealing.py::test_a_text_that_was_never_sealed_is_refused",
        ),
    ),
    "SSRF": Threat(
        "No spelling, name, redirect or change of a name makes the hub connect to a private address.",
        171,
        (
            "outbound/test_egress_urls.py::test_no_trick_of_the_table_makes_a_connection",
            "outbound/test_egress_urls.py::test_unusual_spellings_are_refused_even_if_private_addresses_are_allowed",
            "outbound/test_egress_redirects.py::test_no_redirect_leads_to_a_private_address",
            "outbound/test_egress.py::test_a_name_is_resolved_once_and_the_checked_address_is_used",
            "outbound/test_egress.py::test_a_name_that_becomes_private_is_refused",
            "outbound/test_egress.py::test_a_name_that_becomes_private_during_a_redirect_is_refused",
            "outbound/test_egress_redirects.py::test_https_is_checked_by_name_and_never_redirected_to_http",
            "outbound/test_egress.py::test_loopback_is_reached_without_a_proxy",
            "outbound/test_egress.py::test_a_header_that_changes_the_message_is_refused",
            "outbound/test_egress.py::test_an_unusual_method_is_refused",
            "skills/core/test_core.py::test_no_skill_fetches_from_a_private_address_unless_allowed",
            "identity/test_key_source.py::test_redirects_are_not_followed",
        ),
    ),
    "Header/body mismatch": Threat(
        "A header that says something else than the body, or that is given twice, is refused.",
        64,
        (
            "transports/http/test_endpoint_stateless.py::test_a_stateless_request_is_checked_in_order",
            "transports/http/test_endpoint_stateless.py::test_a_routing_header_given_twice_is_a_mismatch",
            "transports/http/test_endpoint_stateless.py::test_two_headers_do_not_add_up_to_one_argument",
            "transports/http/test_endpoint_stateless.py::test_parameter_headers_agree_with_the_arguments",
            "transports/http/test_endpoint.py::test_an_envelope_without_the_header_is_a_mismatch",
            "transports/http/test_endpoint.py::test_an_envelope_under_the_header_of_an_older_version_is_a_mismatch",
            "capabilities/test_headers.py::test_a_header_that_cannot_be_sent_is_refused",
        ),
    ),
    "Tool names": Threat(
        "A name has up to 128 plain letters, digits and five signs, so none can hide or imitate; no two are the same.",
        46,
        (
            "requirements/test_security_gaps.py::test_a_name_that_deceives_is_refused",
            "capabilities/test_names.py::test_other_names_are_refused",
            "capabilities/test_names.py::test_wire_names_pass",
            "capabilities/test_names.py::test_portable_names_are_unique_and_both_names_find_the_tool",
            "capabilities/test_toolkits_refused.py::test_two_registrations_of_one_name_are_refused_and_change_nothing",
            "skills/test_refusals.py::test_names_of_core_skills_and_of_other_tools_are_taken",
        ),
    ),
    "Prompt injection": Threat(
        "Texts are data: they are passed on as they are, are never templates, and no tool is called because of one.",
        69,
        (
            "requirements/test_security_gaps.py::test_text_that_gives_orders_is_passed_on_as_it_is_and_nothing_follows_from_it",
            "configured/test_prompts.py::test_a_value_is_data_and_never_a_template",
            "configured/test_prompts.py::test_a_template_cannot_access_attributes_of_its_values",
            "skills/core/test_llm_transform.py::test_a_template_only_inserts_the_input",
            "skills/core/test_core.py::test_skills_that_fetch_foreign_text_are_declared_external",
        ),
    ),
    "Shell injection": Threat(
        "A command is a list of words that begins with allowed ones; no shell reads it, and each word arrives exactly.",
        1083,
        (
            "skills/core/test_shell.py::test_a_quoted_injection_arrives_unchanged_as_one_word",
            "skills/core/test_shell.py::test_an_injection_without_quotes_is_split_into_words_or_refused",
            "skills/core/test_shell.py::test_an_injection_in_place_of_the_command_is_refused",
            "skills/core/test_shell.py::test_a_command_must_begin_with_exactly_the_allowed_words",
            "skills/core/test_shell.py::test_an_allowed_command_ending_with_two_dashes_accepts_no_options_before_them",
            "skills/core/test_shell.py::test_a_malformed_command_is_an_error",
            "skills/core/test_shell.py::test_the_skill_is_off_until_the_operator_allows_something",
        ),
    ),
    "Path traversal": Threat(
        "A file is named inside its directory, links followed, or it is refused.",
        24,
        (
            "skills/test_refusals.py::test_an_invalid_file_path_is_refused",
            "skills/test_refusals.py::test_a_template_of_a_skill_is_created_once_and_works",
            "skills/test_fuzz.py::test_any_name_of_a_file_is_read_or_refused",
            "skills/core/test_rss_collector.py::test_the_body_of_a_feed_is_never_opened_as_a_file_or_url",
            "skills/core/test_rss_collector.py::test_entities_neither_explode_nor_read_files",
        ),
    ),
    "Zip bombs": Threat(
        "What is packed is unpacked up to the limit of a body and no further; entities and aliases do not explode.",
        10,
        (
            "outbound/test_egress_bodies.py::test_a_zip_bomb_is_decompressed_only_up_to_the_limit",
            "outbound/test_egress_bodies.py::test_a_body_in_another_or_broken_encoding_is_a_failure",
            "outbound/test_egress_bodies.py::test_an_endless_body_is_stopped_at_the_limit",
            "skills/core/test_rss_collector.py::test_entities_neither_explode_nor_read_files",
            "config/test_source.py::test_aliases_cannot_grow_a_small_file_without_bound",
            "config/test_source.py::test_aliases_cannot_nest_a_file_without_bound",
        ),
    ),
    "JSON depth and size": Threat(
        "What is too deep is a bad request and what is too large 413, without recursion and without reading on.",
        113,
        (
            "requirements/test_security_gaps.py::test_deeply_nested_json_is_a_bad_request",
            "transports/http/test_endpoint.py::test_a_body_that_is_not_a_message_is_400_in_every_era",
            "transports/http/test_endpoint.py::test_a_message_as_deep_as_allowed_is_served",
            "transports/http/test_endpoint.py::test_an_unclosed_string_is_refused_in_no_time",
            "transports/http/test_endpoint.py::test_a_body_over_the_limit_is_refused_with_the_limit",
            "transports/http/test_gate.py::test_an_announced_body_over_the_limit_is_refused_unread",
            "transports/http/test_gate.py::test_a_body_over_the_limit_is_refused_with_the_limit",
            "transports/http/test_gate.py::test_an_endless_body_is_not_read_to_its_end",
            "wire/test_messages.py::test_depth_is_found_without_recursion",
            "wire/test_messages.py::test_depth_is_found_in_linear_time",
            "policy/test_capability_tokens.py::test_too_deeply_nested_json_is_refused",
        ),
    ),
    "ReDoS": Threat(
        "Patterns of schemas are matched in linear time, and schemas and addresses cannot be made to take long.",
        16,
        (
            "requirements/test_security_gaps.py::test_a_pattern_made_to_be_slow_is_quick",
            "capabilities/schemas/test_validators.py::test_a_hostile_pattern_is_matched_in_linear_time",
            "capabilities/schemas/test_validators.py::test_nesting_is_bounded",
            "capabilities/schemas/test_validators.py::test_the_number_of_subschemas_is_bounded",
            "capabilities/schemas/test_validators.py::test_the_number_of_problems_is_bounded",
            "capabilities/test_uri_templates.py::test_a_hostile_address_is_refused_quickly",
        ),
    ),
    "Slow and greedy clients": Threat(
        "Clients that send or read slowly, or take all they can get, cost a bounded amount, and others are served.",
        33,
        (
            "transports/http/test_pending.py::test_a_head_without_end_is_answered_431_long_before_it_was_all_sent",
            "transports/http/test_pending.py::test_trailers_without_end_are_refused",
            "transports/http/test_pending.py::test_a_request_that_does_not_arrive_in_time_is_answered_408",
            "transports/http/test_pending.py::test_connections_with_half_a_request_make_room_for_others",
            "transports/http/test_pending.py::test_responses_that_clients_do_not_read_are_bounded_in_bytes",
            "transports/http/test_pending.py::test_a_client_that_reads_nothing_is_disconnected_after_a_while",
            "transports/http/test_shares.py::test_sessions_of_one_key_make_room_for_those_of_another",
            "transports/http/test_shares.py::test_tasks_of_one_key_leave_some_for_another",
            "transports/http/test_shares.py::test_synchronous_calls_of_one_key_leave_a_thread_for_another",
            "transports/http/test_shares.py::test_streams_of_one_key_leave_some_for_another",
            "transports/http/test_shares.py::test_the_client_info_and_capabilities_of_a_session_are_bounded",
            "transports/http/test_stream_bytes.py::test_the_memory_of_abandoned_calls_is_bounded",
            "transports/http/test_stream_bytes.py::test_the_stored_events_of_abandoned_calls_are_bounded",
            "transports/http/test_stream_bytes.py::test_abandoned_calls_of_one_key_take_no_memory_from_another",
            "skills/test_pool.py::test_one_principal_leaves_a_process_for_another",
            "workers/test_port.py::test_connections_without_a_handshake_make_room_for_workers",
        ),
    ),
}

LATER = {
    "Tool poisoning and rug pulls": "The hub offers no tools of other servers yet, so there is nothing to pin.",
    "Tool shadowing": "Two servers with one name can only meet when the hub offers the tools of both.",
    "Confused deputy": "The hub is no OAuth client yet and asks no user for consent on behalf of another client.",
    "stdio upstreams": "The hub starts no servers of others yet; its own skills run without its environment.",
    "Mix-up, redirects and scopes": "These are attacks on an OAuth client, which the hub is not yet.",
}
