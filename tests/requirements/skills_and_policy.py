"""What skills, policy, tokens, audit, breakers and keys promise, row by row, and the tests that show it."""

REQUIREMENTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "Every skill is a tool skill:<name> and every enabled workflow a tool workflow:<name>; dynamic ones end with "
        "[dynamic], what says nothing has a description all the same, and the description of input names the routes.",
        (
            "skills/test_as_tools.py::test_every_skill_is_a_tool_and_dynamic_ones_are_marked",
            "skills/test_changes.py::test_a_tool_has_the_metadata_of_its_skill",
            "skills/core/test_core.py::test_every_core_skill_has_its_typed_fields",
            "configured/test_skills.py::test_the_configured_skills_are_listed",
            "workflows/test_stored_definitions.py::test_every_enabled_workflow_is_a_tool_that_takes_an_input_and_requires_nothing",
            "workflows/test_stored_definitions.py::test_each_change_sends_one_notification_and_is_in_the_next_list",
        ),
    ),
    2: (
        "A skill takes input, config and exactly the fields it declares, none of them required unless it says so: "
        "web_search has query and max_results, a plain one has nothing more; a workflow takes input alone.",
        (
            "workflows/test_stored_definitions.py::test_every_enabled_workflow_is_a_tool_that_takes_an_input_and_requires_nothing",
            "skills/test_as_tools.py::test_a_tool_has_exactly_the_fields_of_its_skill_and_requires_none",
            "skills/test_changes.py::test_a_tool_has_the_metadata_of_its_skill",
            "skills/core/test_core.py::test_every_core_skill_has_its_typed_fields",
        ),
    ),
    3: (
        "Typed fields reach the skill beside config and in it, where the own keys of config win; core skills look at "
        "the typed field first; without llm_tier the model of the client is left to it.",
        (
            "skills/test_as_tools.py::test_typed_fields_reach_the_skill_directly_and_in_config_which_takes_precedence",
            "skills/test_changes.py::test_typed_fields_reach_the_skill_directly_and_in_config",
            "skills/core/test_core.py::test_a_typed_field_takes_precedence_over_config_and_config_over_input",
            "skills/core/test_llm_transform.py::test_a_tier_becomes_a_preference",
            "skills/core/test_llm_transform.py::test_without_options_the_model_gets_only_the_input",
        ),
    ),
    4: (
        "Each load, reload, rollback and unload is one tools/list_changed for every client that is connected, which "
        "expects it by a declared capability, and the next list shows it.",
        (
            "skills/test_as_tools.py::test_the_capability_list_changed_is_declared",
            "skills/test_as_tools.py::test_each_load_reload_and_unload_causes_one_notification",
            "skills/test_changes.py::test_each_change_causes_one_notification",
            "skills/test_changes.py::test_a_failed_reload_leaves_the_old_version_serving",
            "skills/test_changes.py::test_a_running_call_ends_on_the_version_it_started_with",
        ),
    ),
    5: (
        "What is unknown is -32602, with words for tools, skills and workflows, even where a rule would deny it.",
        (
            "policy/test_decisions.py::test_unknown_beats_denied",
            "workflows/test_stored_definitions.py::test_a_missing_workflow_is_unknown_even_if_a_rule_would_deny_it",
        ),
    ),
    6: (
        "An mcp_restriction blocks by substring with -32000 and its reason, for clients alone; disabled rules say "
        "nothing, the higher priority decides, and a change counts at once.",
        (
            "policy/test_rules.py::test_clients_may_not_call_tools_whose_name_holds_a_text",
            "policy/test_rules.py::test_a_restriction_of_clients_does_not_apply_to_other_callers",
            "policy/test_rules.py::test_clients_may_be_restricted_to_what_holds_a_text",
            "policy/test_decisions.py::test_the_first_rule_that_denies_decides_and_is_named",
            "policy/test_decisions.py::test_equal_priorities_go_by_name",
            "policy/test_decisions.py::test_disabled_rules_have_no_effect_but_must_be_valid",
            "policy/test_decisions.py::test_a_rule_that_fails_while_it_decides_denies",
            "policy/test_decisions.py::test_an_invalid_rule_leaves_the_old_rules_in_place",
            "policy/test_decisions.py::test_a_new_rule_applies_at_once_in_a_running_hub",
            "policy/test_guard.py::test_rules_apply_to_tools_prompts_resources_and_resources_of_templates",
            "policy/test_guard.py::test_a_hidden_capability_is_not_listed_for_the_principals_it_is_denied_to",
            "policy/test_guard.py::test_a_capability_denied_without_hide_stays_listed",
        ),
    ),
    7: (
        "A skill whose time is up is answered with the exact words and its process is gone with its children; the time "
        "can be changed while the hub runs; a crash is reported by type and message; the next call works.",
        (
            "skills/test_as_tools.py::test_a_reloaded_timeout_applies_to_skills_and_ends_their_process",
            "skills/test_isolation.py::test_a_deadline_kills_a_busy_skill",
            "skills/test_isolation.py::test_a_deadline_kills_the_children_of_a_skill_too",
            "skills/test_isolation.py::test_a_cancelled_call_kills_the_skill_and_its_children",
            "skills/test_as_tools.py::test_a_crash_is_an_error_and_the_next_call_works",
            "skills/test_isolation.py::test_a_failure_is_named_and_affects_one_call",
            "skills/core/test_shell.py::test_a_command_that_times_out_is_killed_with_its_children",
        ),
    ),
    8: (
        "Text is text; objects, lists and other values are structured and written out as JSON; a pair of a value and a "
        "text is a result and its branch.",
        (
            "skills/test_as_tools.py::test_results_have_a_form_for_text_objects_lists_and_branches",
            "skills/test_context.py::test_results_have_the_form_of_tool_results",
            "skills/core/test_core.py::test_a_result_takes_a_declared_route",
        ),
    ),
    9: (
        "A call of a workflow is answered with run_id, status and result; its input reaches the first step; the run is "
        "on record with what every step came to; a disabled workflow is refused.",
        (
            "workflows/test_steps.py::test_a_run_is_answered_with_its_id_its_status_and_its_result",
            "workflows/test_steps.py::test_an_instance_is_stored_with_the_results_of_its_steps",
            "workflows/test_steps.py::test_without_input_the_first_step_gets_an_empty_text",
            "workflows/test_steps.py::test_an_instance_can_be_started_with_an_input_too",
            "workflows/test_steps.py::test_a_long_output_is_complete_for_the_next_step_and_truncated_in_the_results",
            "workflows/test_stored_definitions.py::test_a_call_of_a_disabled_workflow_is_refused_with_the_reason",
            "skills/core/test_send_to_workflow.py::test_a_workflow_gets_the_input_and_its_answer_is_the_result",
        ),
    ),
    10: (
        "A dynamic skill has the permissions it declares, and what it calls has no more; narrowing never widens; "
        "tampering, expiry and depth are refused; three calls may stand behind a call, four may not.",
        (
            "policy/test_guard_chains.py::test_a_dynamic_skill_calls_others_only_if_it_declares_the_permission",
            "policy/test_guard_chains.py::test_a_running_skill_has_the_permissions_it_declares_and_no_others",
            "policy/test_guard_chains.py::test_a_core_skill_called_by_a_dynamic_one_has_only_its_permissions",
            "policy/test_guard_chains.py::test_rights_do_not_widen_along_a_chain",
            "policy/test_guard_chains.py::test_a_called_capability_has_no_more_rights_than_its_caller",
            "policy/test_guard_chains.py::test_a_dynamic_skill_does_not_borrow_the_permissions_of_its_caller",
            "policy/test_guard_chains.py::test_a_call_may_have_three_calls_behind_it_and_not_four",
            "policy/test_capability_tokens.py::test_no_sequence_of_narrowings_grants_more",
            "policy/test_capability_tokens.py::test_the_tightest_of_all_caveats_counts",
            "policy/test_capability_tokens.py::test_a_token_changed_in_any_byte_is_refused",
            "policy/test_capability_tokens.py::test_caveats_cannot_be_dropped_reordered_or_replaced",
            "policy/test_capability_tokens.py::test_an_unknown_caveat_is_refused",
            "policy/test_capability_tokens.py::test_a_token_expires_at_its_second",
            "policy/test_capability_tokens.py::test_a_depth_limit_is_inclusive",
            "policy/test_capability_tokens.py::test_a_token_of_another_secret_is_refused",
            "policy/test_capability_tokens.py::test_garbage_is_refused",
            "policy/test_capability_tokens.py::test_signatures_are_compared_in_constant_time",
        ),
    ),
    11: (
        "Rate limits slide, for each principal and capability unless it is said otherwise; time windows, chain "
        "restrictions and overrides deny as they are written, in the exact words.",
        (
            "policy/test_rules_rate_limits.py::test_the_default_limit_is_ten_calls_a_minute",
            "policy/test_rules_rate_limits.py::test_the_window_slides_call_by_call",
            "policy/test_rules_rate_limits.py::test_a_window_never_has_more_calls_than_the_limit",
            "policy/test_rules_rate_limits.py::test_a_window_may_be_longer_than_five_minutes",
            "policy/test_rules_rate_limits.py::test_calls_are_counted_for_each_principal_and_capability",
            "policy/test_rules_rate_limits.py::test_the_counting_key_can_be_configured",
            "policy/test_guard.py::test_a_limit_counts_calls_and_not_permission_checks",
            "policy/test_rules_time_windows.py::test_the_default_window_denies_midnight_to_six_utc",
            "policy/test_rules_time_windows.py::test_a_window_may_span_midnight",
            "policy/test_rules_time_windows.py::test_hours_are_those_of_the_time_zone",
            "policy/test_rules_time_windows.py::test_skipped_and_repeated_hours_follow_the_wall_clock",
            "policy/test_rules.py::test_a_chain_restriction_stops_only_calls_out_of_others",
            "policy/test_rules.py::test_a_permission_is_taken_away",
            "policy/test_rules.py::test_all_permissions_are_taken_away_at_once",
            "policy/test_rules.py::test_an_override_ends_when_it_says",
            "policy/test_rules.py::test_only_capabilities_on_an_allow_list_are_allowed",
            "policy/test_rules.py::test_a_rule_applies_only_to_the_principals_and_capabilities_it_names",
            "policy/test_rules.py::test_an_invalid_rule_is_refused_with_a_message_that_names_it",
            "policy/test_rules.py::test_any_json_is_refused_as_a_rule_or_decides",
        ),
    ),
    12: (
        "Denials and executions are on record with all their fields and never with their arguments, can be asked for "
        "by decision, are let go in their time, and tampering shows.",
        (
            "policy/test_guard_audit.py::test_every_outcome_of_a_call_is_audited",
            "policy/test_guard_audit.py::test_nested_calls_are_audited_with_their_caller_and_depth",
            "policy/test_guard_audit.py::test_arguments_are_audited_as_a_digest_only",
            "policy/test_guard_audit.py::test_entries_of_calls_made_together_share_transactions",
            "policy/test_audit.py::test_an_entry_holds_what_the_record_says",
            "policy/test_audit.py::test_the_latest_of_one_decision_can_be_asked_for",
            "policy/test_audit_failing.py::test_records_wait_while_the_store_is_unavailable",
            "policy/test_audit_failing.py::test_an_unacknowledged_commit_does_not_break_the_chain",
            "execution/test_guarded.py::test_a_call_is_refused_when_it_cannot_be_audited",
            "policy/test_verification.py::test_a_change_of_any_field_of_any_entry_is_detected",
            "policy/test_verification.py::test_an_entry_removed_from_an_older_chain_is_detected",
            "policy/test_verification.py::test_a_truncated_older_chain_is_detected",
            "policy/test_verification.py::test_a_rewritten_older_chain_is_detected",
            "policy/test_verification.py::test_entries_deleted_after_their_retention_are_not_reported",
        ),
    ),
    13: (
        "Traversal, missing files, wrong modules, unknown permissions, undeclared reaching out, names of core skills "
        "and the same version are refused; a reload is not; core skills stay; a file that changed while the hub was "
        "down is left out with a log message; skills survive a restart.",
        (
            "skills/test_refusals.py::test_an_invalid_file_path_is_refused",
            "skills/test_refusals.py::test_an_invalid_source_is_refused",
            "skills/test_refusals.py::test_external_access_has_to_be_declared",
            "skills/test_refusals.py::test_declared_or_harmless_use_is_accepted",
            "skills/test_refusals.py::test_a_file_that_is_too_large_or_no_text_is_refused",
            "skills/test_refusals.py::test_names_of_core_skills_and_of_other_tools_are_taken",
            "skills/test_refusals.py::test_the_same_version_is_not_loaded_twice_but_can_be_reloaded",
            "skills/test_refusals.py::test_core_and_unknown_skills_cannot_be_changed",
            "skills/test_refusals.py::test_an_import_that_takes_too_long_is_refused",
            "skills/test_changes.py::test_skills_survive_a_restart",
            "skills/test_changes.py::test_a_skill_with_an_unknown_permission_is_refused_at_the_start",
            "skills/test_changes.py::test_new_files_are_loaded_at_the_start_and_invalid_ones_are_reported",
        ),
    ),
    14: (
        "The branch of a step picks its route, else the default one, else the run ends; failures follow on_error or end"
        " it with what it came to so far; skips ignore routes; coming again is loop_detected; input_from names a step.",
        (
            "workflows/test_steps.py::test_the_branch_of_a_step_picks_the_route",
            "workflows/test_steps.py::test_the_result_is_the_output_of_the_highest_position_that_ran",
            "workflows/test_steps.py::test_a_step_gets_the_output_before_it_or_that_of_the_step_it_names",
            "workflows/test_steps.py::test_the_previous_output_is_by_position_and_not_by_time",
            "workflows/test_steps.py::test_a_step_with_input_from_a_skipped_step_gets_nothing",
            "workflows/test_steps_failing.py::test_a_failing_step_fails_the_instance_with_the_results_so_far",
            "workflows/test_steps_failing.py::test_a_failing_step_follows_its_on_error_route",
            "workflows/test_steps_failing.py::test_the_default_route_is_not_for_failures",
            "workflows/test_steps_failing.py::test_an_instance_that_reaches_a_step_again_fails",
            "workflows/test_steps_failing.py::test_a_missing_skill_fails_the_run",
            "workflows/test_steps_failing.py::test_a_missing_skill_can_be_skipped_whatever_its_routes_say",
            "workflows/test_steps_failing.py::test_a_run_that_ends_with_a_skipped_step_has_its_input_as_result",
            "workflows/test_steps_failing.py::test_a_step_that_takes_too_long_is_stopped",
        ),
    ),
    15: (
        "Three failures open a circuit for five minutes, then exactly one call tries; its success closes it, its "
        "failure opens it again; a reset closes it; a step whose circuit is open halts, is skipped or falls "
        "back.",
        (
            "workflows/test_steps_failing.py::test_a_step_whose_circuit_is_open_halts_is_skipped_or_falls_back",
            "workflows/test_steps_failing.py::test_crashes_of_steps_open_the_circuit_and_a_reload_closes_it",
            "workflows/test_steps_failing.py::test_a_fallback_is_named_in_the_results",
            "execution/test_breakers.py::test_three_failures_in_a_row_open_a_circuit_for_five_minutes",
            "execution/test_breakers.py::test_a_half_open_circuit_lets_exactly_one_probe_through",
            "execution/test_breakers.py::test_a_successful_probe_closes_the_circuit",
            "execution/test_breakers.py::test_a_failed_probe_opens_the_circuit_for_another_five_minutes",
            "execution/test_breakers.py::test_a_success_resets_the_count",
            "execution/test_breakers.py::test_a_reset_breaker_starts_closed_with_a_count_of_zero",
            "execution/test_breakers.py::test_states_are_what_the_metrics_show",
            "execution/test_guarded.py::test_a_tool_that_crashed_three_times_is_not_called_for_five_minutes",
            "execution/test_guarded.py::test_crashes_exits_and_timeouts_count",
            "execution/test_guarded.py::test_errors_reported_by_a_tool_and_invalid_arguments_do_not_count",
            "execution/test_guarded.py::test_denials_do_not_count",
            "execution/test_guarded.py::test_cancellations_do_not_count",
            "execution/test_guarded.py::test_after_the_pause_one_call_probes_while_others_are_refused",
        ),
    ),
    16: (
        "A caller without a valid key gets one of three reasons; keys are created, expire and are revoked at "
        "once; only their hashes are kept.",
        (
            "transports/http/test_auth.py::test_a_missing_or_invalid_key_is_refused_with_the_reason",
            "transports/http/test_auth.py::test_a_hub_without_any_credentials_refuses_every_request",
            "identity/test_key_ring.py::test_over_http_a_key_works_until_it_is_revoked",
            "identity/test_key_ring.py::test_a_new_key_is_accepted_at_once",
            "identity/test_key_ring.py::test_a_revoked_key_is_refused_at_once_and_stays_so",
            "identity/test_key_ring.py::test_a_key_expires_when_it_says",
            "identity/test_key_ring.py::test_the_store_has_the_hash_and_not_the_key",
            "identity/test_key_ring.py::test_two_hubs_on_one_store_share_their_keys",
        ),
    ),
    17: (
        "Workflows, runs and settings are resources by id and as list; a missing one is an error with the exact words; "
        "a run of another principal is not found; secrets are hidden in the list and by key.",
        (
            "workflows/test_resources.py::test_there_are_templates_for_workflows_runs_and_settings",
            "workflows/test_resources.py::test_workflows_are_read_as_a_list_and_by_name",
            "workflows/test_resources.py::test_a_workflow_is_shown_without_its_secrets",
            "workflows/test_resources.py::test_a_run_is_read_with_its_result_and_its_steps",
            "workflows/test_resources.py::test_the_list_of_runs_holds_the_latest_fifty_of_the_caller",
            "workflows/test_resources.py::test_another_principals_instance_is_answered_like_an_unknown_one",
            "workflows/test_resources.py::test_the_error_for_a_missing_resource_names_it",
            "workflows/test_resources.py::test_settings_are_read_all_together_and_by_key",
            "workflows/test_resources.py::test_secrets_are_hidden_in_the_list_and_by_key",
        ),
    ),
    18: (
        "A run can be cancelled where it stands; a crash fails it; one whose process is gone is not forgotten; what is "
        "written out and read in is the same, under a name that is free; a copy cannot be started.",
        (
            "workflows/test_steps_failing.py::test_an_instance_of_steps_can_be_cancelled",
            "workflows/test_steps_failing.py::test_an_instance_is_cancelled_when_its_call_is_cancelled",
            "workflows/test_steps_failing.py::test_a_failing_step_fails_the_instance_with_the_results_so_far",
            "workflows/test_steps_failing.py::test_a_step_whose_process_ended_has_an_unknown_outcome",
            "workflows/test_steps_failing.py::test_an_idempotent_step_is_run_again_with_the_same_key",
            "workflows/test_steps_failing.py::test_an_instance_that_stopped_between_two_steps_continues_by_itself",
            "workflows/test_definition_documents.py::test_an_exported_workflow_is_imported_unchanged",
            "workflows/test_definition_documents.py::test_any_workflow_can_be_exported_and_imported",
            "workflows/test_definition_documents.py::test_an_invalid_document_is_refused_with_the_reason",
            "workflows/test_definition_documents.py::test_a_name_that_is_taken_gets_a_number",
            "workflows/test_definition_documents.py::test_a_copy_has_a_name_of_its_own_and_cannot_be_started",
            "workflows/test_stored_definitions.py::test_workflows_are_exported_imported_and_copied",
        ),
    ),
}
