"""What workflows promise, row by row, and the tests that show it."""

REQUIREMENTS: dict[int, tuple[str, tuple[str, ...]]] = {
    7: (
        "An instance begins at version 1 with its state, context and links; defaults of the input are filled in before "
        "it is looked at, and bad input is a refusal that leaves no instance.",
        (
            "workflows/test_start.py::test_an_instance_begins_at_version_1_in_its_initial_state",
            "workflows/test_start.py::test_defaults_are_filled_in_at_any_depth_before_the_input_is_looked_at",
            "workflows/test_start.py::test_bad_input_is_refused_and_there_is_no_instance",
            "workflows/test_start.py::test_a_refused_start_links_to_the_input_schema",
            "workflows/test_defaults.py::test_missing_values_are_filled_in_at_any_depth",
        ),
    ),
    8: (
        "Deterministic states are passed before a start answers, and the answer lists the hops.",
        (
            "workflows/test_chains.py::test_deterministic_states_are_passed_before_start_answers",
            "workflows/test_start.py::test_the_entry_of_the_first_state_runs_before_the_response",
        ),
    ),
    9: (
        "Looking never changes anything, links carry the version of now, and an end has none.",
        (
            "workflows/test_links.py::test_reading_never_changes_an_instance",
            "workflows/test_links.py::test_links_have_the_current_version",
            "workflows/test_submit.py::test_an_ended_instance_accepts_no_transitions",
            "workflows/test_properties.py::test_every_link_can_be_followed_and_every_version_is_a_row",
        ),
    ),
    10: (
        "The arguments of a link are a call that can be made: followed with arguments that fit, it is never stale and "
        "never invalid, whatever the definition.",
        (
            "workflows/test_properties.py::test_every_link_can_be_followed_and_every_version_is_a_row",
            "workflows/test_links.py::test_a_link_contains_everything_needed_to_follow_it",
        ),
    ),
    11: (
        "Every error code can be had; a rejection leaves state, version and context, and leads on with links, among "
        "them the one to the instance itself.",
        (
            "workflows/test_submit.py::test_each_refusal_leaves_the_instance_unchanged_and_has_links",
            "workflows/test_submit.py::test_a_failure_changes_nothing_and_has_its_error_class",
            "workflows/test_submit.py::test_a_submit_to_an_unknown_instance_is_refused",
            "workflows/test_start.py::test_the_error_for_an_unknown_definition_suggests_similar_names",
            "workflows/test_start.py::test_a_rule_that_denies_a_workflow_denies_its_start_and_its_moves",
            "workflows/test_chains.py::test_no_or_several_candidates_stop_the_chain_and_keep_its_progress",
            "workflows/test_chains.py::test_a_chain_that_is_too_long_stops_and_can_be_continued",
            "workflows/test_unknown_outcomes.py::test_other_transitions_are_refused_before_the_resolution",
            "workflows/test_requests.py::test_the_same_id_with_other_arguments_is_refused",
        ),
    ),
    12: (
        "Checks come in the order timeout, version, transition, actor, schema, guards; nothing runs before all hold.",
        (
            "workflows/test_order_of_checks.py::test_the_first_failing_check_is_reported_and_nothing_runs",
            "workflows/test_order_of_checks.py::test_a_timeout_comes_before_the_version",
            "workflows/test_order_of_checks.py::test_a_move_by_another_hub_is_reported_as_stale_before_other_errors",
        ),
    ),
    13: (
        "A version is a transition, a hop, an entry that runs something or a timeout, never a rejection or failure.",
        (
            "workflows/test_submit.py::test_every_version_is_a_row_of_the_history_with_principal_and_executor",
            "workflows/test_submit.py::test_a_failure_changes_nothing_and_has_its_error_class",
            "workflows/test_chains.py::test_entering_runs_again_each_time_a_state_is_entered",
            "workflows/test_properties.py::test_every_link_can_be_followed_and_every_version_is_a_row",
        ),
    ),
    14: (
        "A step for a person requires the role, and the identity of a principal is never in the arguments.",
        (
            "workflows/test_links.py::test_links_mark_human_transitions_and_omit_deterministic_ones",
            "workflows/test_order_of_checks.py::test_arguments_cannot_set_the_principal",
            "workflows/test_visibility.py::test_links_depend_on_the_asking_principal",
        ),
    ),
    15: (
        "Guards of every kind hold when they should, and one that cannot be read is refused before anything runs.",
        (
            "workflows/test_guards.py::test_a_guard_holds_when_it_should",
            "workflows/test_guards.py::test_an_invalid_guard_is_refused",
            "workflows/test_guards.py::test_guards_inside_guards_hold_when_they_should_and_give_a_reason_when_not",
            "workflows/test_submit.py::test_a_guard_rejection_names_the_guard_and_its_values",
        ),
    ),
    16: (
        "Expressions compare, search and look into context, arguments and input, whatever their quotes and numbers.",
        (
            "workflows/test_expressions.py::test_an_expression_holds",
            "workflows/test_expressions.py::test_an_expression_does_not_hold",
            "workflows/test_expression_parsing.py::test_an_invalid_expression_is_refused_with_the_position",
            "workflows/test_expression_properties.py::test_every_expression_holds_when_it_should",
        ),
    ),
    17: (
        "Mappings calculate with what is missing as 0, divide by 0 to null, join texts, and all see the context as it "
        "was.",
        (
            "workflows/test_mapping.py::test_a_slot_gets_its_value",
            "workflows/test_mapping.py::test_all_values_are_computed_before_any_is_written",
            "workflows/test_submit.py::test_all_of_a_mapping_sees_the_context_as_it_was",
        ),
    ),
    18: (
        "Programs give parsed JSON and may fail or not by their exit code; attempts, delays and what stands in come in "
        "order by class of failure, all with one key, which is new for the next submit.",
        (
            "workflows/executors/test_cli.py::test_the_output_is_exit_code_texts_and_parsed_json",
            "workflows/executors/test_cli.py::test_a_nonzero_exit_code_need_not_be_a_failure",
            "workflows/executors/test_reliability.py::test_a_transient_failure_is_retried_with_the_same_key",
            "workflows/executors/test_reliability.py::test_only_the_configured_error_classes_are_retried_and_never_a_permanent_one",
            "workflows/executors/test_reliability.py::test_delays_grow_as_configured_up_to_the_maximum",
            "workflows/executors/test_reliability.py::test_a_fallback_gets_as_many_attempts_with_the_same_key",
            "workflows/executors/test_reliability.py::test_every_attempt_has_its_own_timeout_and_is_cancelled",
            "workflows/test_submit.py::"
            "test_the_idempotency_key_is_one_for_retries_and_fallbacks_and_new_for_the_next_submit",
        ),
    ),
    19: (
        "Branches choose by what the executor left, prefilled arguments stand in the link, and links can be filtered "
        "by guards for a workflow or a state.",
        (
            "workflows/test_submit.py::test_branches_choose_the_target_by_the_output_of_the_executor",
            "workflows/test_links.py::test_a_link_contains_everything_needed_to_follow_it",
            "workflows/test_links.py::test_links_can_be_filtered_by_guards_for_all_states_or_for_one",
        ),
    ),
    20: (
        "A chain stops where a person decides, at an end, at its depth and at a failure, with a link that goes on; the "
        "guards of a single candidate count.",
        (
            "workflows/test_chains.py::test_a_transition_that_needs_a_decision_stops_the_chain",
            "workflows/test_chains.py::test_a_submit_continues_along_the_chain_to_the_end",
            "workflows/test_chains.py::test_the_guards_of_a_single_candidate_are_checked",
            "workflows/test_chains.py::test_the_candidate_whose_guards_hold_is_taken_or_else_the_one_without_guards",
            "workflows/test_chains.py::test_no_or_several_candidates_stop_the_chain_and_keep_its_progress",
            "workflows/test_chains.py::test_a_failing_hop_keeps_the_progress_and_can_be_resumed",
            "workflows/test_chains.py::test_a_failure_while_entering_keeps_the_state_and_can_be_resumed",
            "workflows/test_chains.py::test_a_chain_that_is_too_long_stops_and_can_be_continued",
        ),
    ),
    21: (
        "Of many who submit one version one runs and the others are stale, in tasks, threads, processes and hubs.",
        (
            "workflows/test_submit.py::test_of_concurrent_submits_of_one_version_one_runs_and_the_others_are_stale",
            "workflows/test_submit.py::test_two_hubs_on_one_store_run_it_once",
            "chaos/test_racing_submits.py::test_of_many_tasks_on_one_version_one_runs",
            "chaos/test_racing_submits.py::test_of_many_threads_with_hubs_of_their_own_on_one_version_one_runs",
            "chaos/test_racing_submits.py::test_of_many_in_two_processes_on_one_version_one_runs",
        ),
    ),
    22: (
        "Evidence is left once for each action, in the transaction of its move, and a quorum is of different people.",
        (
            "workflows/test_submit.py::test_evidence_is_left_once_for_each_action_and_counts_different_people",
            "workflows/test_guards.py::test_evidence_counts_different_people",
            "workflows/test_approvals.py::test_a_quorum_needs_different_people",
            "workflows/test_approvals.py::test_concurrent_approvals_are_each_counted_once",
        ),
    ),
    23: (
        "A timeout leads to its state at the next look or by the hub's own clock, as one version, on record as one.",
        (
            "workflows/test_timeouts.py::test_a_read_applies_a_timeout_once",
            "workflows/test_timeouts.py::test_a_submit_that_comes_too_late_is_stale",
            "workflows/test_timeouts.py::test_a_timeout_without_a_target_ends_the_instance_in_its_state",
            "workflows/test_timeouts.py::test_a_running_hub_applies_timeouts_by_itself",
            "workflows/test_timeouts.py::test_a_timeout_is_audited",
        ),
    ),
    24: (
        "Files include others and are merged, without circles; entries wrap each other and stand wherever something "
        "runs, with their guards.",
        (
            "config/test_includes.py::test_maps_merge_deeply_and_the_including_file_wins",
            "config/test_includes.py::test_lists_concatenate_included_files_first_in_sorted_order",
            "config/test_includes.py::test_a_cycle_is_an_error_where_it_closes",
            "workflows/test_definitions.py::test_an_entry_takes_over_from_what_it_wraps",
            "workflows/test_definitions.py::test_an_entry_that_cannot_be_resolved_is_refused",
            "workflows/test_definitions.py::test_entries_inside_of_executors_bring_their_guards_to_the_transition",
            "workflows/test_definitions.py::test_entries_in_a_fallback_are_put_in_place_with_their_guards",
        ),
    ),
    25: (
        "A bad configuration keeps the old one, and what runs keeps the definition it started with.",
        (
            "configured/test_reloading.py::test_an_invalid_file_keeps_the_old_configuration_and_is_logged",
            "workflows/test_reload.py::test_reloading_a_configuration_does_not_affect_running_instances",
            "workflows/test_reload.py::test_an_invalid_definition_changes_nothing",
            "workflows/test_reload.py::test_running_instances_keep_their_definition_and_new_ones_get_the_new_one",
            "workflows/test_reload.py::test_an_instance_keeps_its_definition_after_removal_and_restart",
        ),
    ),
    26: (
        "Starts, moves, ends, rejections, timeouts and decisions are on record, and nothing but the protocol is on "
        "standard output.",
        (
            "workflows/test_links.py::test_every_rejection_is_audited",
            "workflows/test_timeouts.py::test_a_timeout_is_audited",
            "workflows/test_cancelling.py::test_a_cancellation_is_audited",
            "workflows/test_approvals.py::test_the_audit_names_the_authenticated_approver",
            "cli/test_serve.py::test_only_protocol_messages_go_to_stdout",
        ),
    ),
    27: (
        "A definition and a transition are explained without effects and without secrets; a name used in several "
        "states is explained for each, and an instance adds the allowed transitions.",
        (
            "workflows/test_explanations.py::test_a_whole_definition_is_explained",
            "workflows/test_explanations.py::test_a_transition_is_explained_with_all_its_requirements",
            "workflows/test_explanations.py::test_a_transition_of_several_states_is_explained_for_each",
            "workflows/test_explanations.py::test_explaining_an_instance_shows_allowed_transitions_and_reasons",
            "workflows/test_explanations.py::test_explaining_changes_nothing_even_if_a_timeout_is_due",
            "workflows/test_explanations.py::test_secrets_are_not_explained",
        ),
    ),
    29: (
        "A check fails on mistakes and not on warnings, and each finding names its place.",
        (
            "cli/test_check.py::test_a_process_fails_on_errors_and_prints_json",
            "cli/test_check.py::test_warnings_are_printed_and_do_not_fail",
            "workflows/checks/test_structure.py::test_every_reference_to_an_unknown_state_is_a_finding",
            "workflows/checks/test_reachability.py::test_states_that_only_lead_to_each_other_are_not_reached",
            "workflows/checks/test_references.py::test_names_are_checked_in_all_executors",
            "workflows/checks/test_checking.py::test_a_finding_names_the_key_and_the_file_it_is_in",
        ),
    ),
    30: (
        "A hub that stops starts nothing more and lets what runs go on.",
        (
            "workflows/test_start.py::test_a_stopping_hub_starts_nothing_and_lets_running_moves_finish",
            "workflows/test_start.py::test_stopping_waits_for_moves_that_run",
            "workflows/test_children.py::test_a_hub_that_stops_lets_a_move_start_its_child",
        ),
    ),
}
