"""What workers can rely on, row by row, and the tests that show it: P is the protocol."""

REQUIREMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "P1": (
        "Workers of both SDKs connect without a change and with default options, and log no error.",
        (
            "interop/test_iii_workers.py::test_a_worker_connects_with_default_options_and_logs_no_errors",
            "workers/test_workers.py::test_a_worker_gets_an_id_and_a_token_before_its_first_message",
        ),
    ),
    "P2": (
        "The socket for telemetry is accepted and drained.",
        (
            "interop/test_iii_workers.py::test_a_worker_connects_with_default_options_and_logs_no_errors",
            "workers/test_port.py::test_telemetry_of_workers_is_accepted_and_discarded",
        ),
    ),
    "P3": (
        "The result of a call is what its owner answered: null, any text, 20 MiB.",
        (
            "interop/test_iii_workers.py::test_calls_across_languages_return_the_payload",
            "interop/test_iii_workers.py::test_large_payloads_are_sent_and_returned",
            "workers/test_calls.py::test_values_go_there_and_back_as_they_are",
            "workers/test_sockets.py::test_the_longest_message_is_taken_and_a_longer_one_is_not",
        ),
    ),
    "P4": (
        "Metadata reaches the handler.",
        (
            "interop/test_iii_workers.py::test_calls_across_languages_return_the_payload",
            "workers/test_calls.py::test_metadata_trace_and_caller_reach_the_owner",
        ),
    ),
    "P5": (
        "An exception of a handler is invocation_failed with its message.",
        (
            "interop/test_iii_workers.py::test_errors_reach_the_caller_with_their_codes",
            "workers/test_calls.py::test_an_error_of_the_owner_reaches_the_caller",
        ),
    ),
    "P6": (
        "A function that no worker offers is function_not_found.",
        (
            "interop/test_iii_workers.py::test_errors_reach_the_caller_with_their_codes",
            "workers/test_calls.py::test_the_error_for_an_unknown_function_names_it",
        ),
    ),
    "P7": (
        "A void call is never answered, not even when there is no such function.",
        (
            "interop/test_iii_workers.py::test_void_and_queued_calls_arrive",
            "workers/test_calls.py::test_void_calls_are_never_answered",
        ),
    ),
    "P8": (
        "A call for later has a receipt, and its handler runs.",
        (
            "interop/test_iii_workers.py::test_void_and_queued_calls_arrive",
            "workers/test_queued_calls.py::test_a_call_for_later_has_a_receipt_at_once_and_is_made",
            "workers/test_queued_calls.py::test_waiting_for_a_function_does_not_count_as_an_attempt",
            "workers/test_queued_calls.py::test_a_queued_call_without_a_worker_is_made_after_a_restart",
        ),
    ),
    "P9": (
        "A caller gives up by its own clock; a late result is dropped and nothing is left of the call.",
        (
            "interop/test_iii_workers.py::test_a_timed_out_or_stopped_call_leaves_nothing_behind",
            "workers/test_calls.py::test_an_answer_that_is_late_or_from_another_worker_is_dropped",
            "workers/test_floods.py::test_disconnected_workers_leave_nothing_behind",
        ),
    ),
    "P10": (
        "An owner that dies while it is called ends the call with invocation_stopped at once.",
        (
            "interop/test_iii_workers.py::test_a_timed_out_or_stopped_call_leaves_nothing_behind",
            "workers/test_calls.py::test_a_call_ends_at_once_when_its_owner_dies",
        ),
    ),
    "P11": (
        "A function that is taken back is not found.",
        (
            "interop/test_iii_workers.py::test_errors_reach_the_caller_with_their_codes",
            "workers/test_workers.py::test_a_withdrawn_function_is_not_found",
        ),
    ),
    "P12": (
        "A worker that leaves takes its functions, kinds of triggers and bindings with it.",
        (
            "workers/test_workers.py::test_everything_of_a_worker_is_removed_when_it_disconnects",
            "workers/test_sockets.py::test_a_worker_that_half_closes_its_connection_is_removed",
        ),
    ),
    "P13": (
        "After a restart of the hub workers come back and everything is as it was.",
        ("interop/test_iii_restart.py::test_workers_of_a_killed_hub_reconnect_with_their_functions_and_bindings",),
    ),
    "P14": (
        "A worker that comes back with its token retires its old connection; a wrong token does nothing.",
        (
            "workers/test_workers.py::test_a_worker_that_comes_back_with_its_token_retires_its_old_connection",
            "workers/test_workers.py::test_a_wrong_reattach_token_disconnects_no_worker",
            "workers/test_workers.py::test_messages_of_a_replaced_connection_are_ignored",
        ),
    ),
    "P15": (
        "A binding that is made before there is a provider reaches it later.",
        (
            "interop/test_iii_workers.py::test_a_worker_provides_triggers_for_another",
            "workers/test_providers.py::test_the_longest_waiting_provider_gets_the_bindings_when_the_provider",
            "workers/test_triggers.py::test_a_binding_reaches_its_provider_in_either_order",
        ),
    ),
    "P16": (
        "A provider hears when a binding ends, and when its maker dies.",
        (
            "interop/test_iii_workers.py::test_a_worker_provides_triggers_for_another",
            "workers/test_triggers.py::test_a_provider_is_notified_when_a_binding_ends_and_when_its_maker_disconnects",
        ),
    ),
    "P17": (
        "A provider's refusal of a binding reaches its maker's log; no other worker can refuse it.",
        (
            "interop/test_iii_workers.py::test_a_worker_provides_triggers_for_another",
            "workers/test_triggers.py::test_a_providers_refusal_of_a_binding_reaches_only_its_maker",
            "workers/test_triggers.py::test_a_worker_cannot_unbind_or_replace_the_binding_of_another",
        ),
    ),
    "P18": (
        "What is no message closes nothing.",
        (
            "workers/test_sockets.py::test_garbage_closes_nothing_and_is_logged_a_few_times",
            "workers/test_fairness.py::test_a_flood_of_calls_shares_the_event_loop_with_other_clients",
            "workers/test_floods.py::test_a_flood_of_garbage_delays_no_other_worker",
            "workers/test_misread.py::test_a_call_whose_answer_cannot_be_read_fails_at_once",
        ),
    ),
    "P19": (
        "A function that another worker offers is refused; the first keeps serving and the second stays.",
        (
            "interop/test_iii_python.py::test_a_second_owner_of_a_function_gets_an_error_and_serves_its_other_functions",
            "interop/test_iii_node.py::test_a_second_owner_of_a_function_stays_connected_without_an_error",
            "interop/test_iii_succession.py::test_the_second_owner_of_a_function_takes_over_from_the_first",
            "workers/test_claims.py::test_the_longest_waiting_worker_takes_over_when_the_owner_disconnects",
            "workers/test_workers.py::test_a_function_that_another_worker_offers_is_refused_and_the_first_keeps_serving",
        ),
    ),
    "P20": (
        "The functions of the hub are found in the default namespace and from every other.",
        (
            "interop/test_iii_python.py::test_a_worker_in_a_namespace_calls_its_own_and_the_hubs_functions",
            "workers/test_workers.py::test_functions_of_one_namespace_are_not_found_from_another",
        ),
    ),
    "P21": (
        "Channels carry 200 kB; a second reader and a wrong key are refused.",
        (
            "interop/test_iii_workers.py::test_bytes_go_through_a_channel_across_languages",
            "workers/test_channels.py::test_messages_of_a_channel_are_read_in_either_order_of_opening",
            "workers/test_channels.py::test_a_wrong_key_and_a_second_taker_are_refused",
        ),
    ),
    "P22": (
        "An observer of a function that the hub cannot observe is refused as unsupported.",
        ("interop/test_iii_python.py::test_a_worker_can_observe_only_if_the_hub_supports_it",),
    ),
    "P23": (
        "Where a token is needed, none is refused, and the SDK's token opens every socket.",
        (
            "interop/test_iii_workers.py::test_a_token_is_sent_on_every_socket",
            "interop/test_iii_python.py::test_a_worker_without_the_token_is_refused_and_connects_once_it_is_accepted",
            "workers/test_port.py::test_a_token_is_asked_for_on_every_kind_of_socket",
        ),
    ),
    "P24": (
        "Lists of functions leave out the hub's own unless they are asked for.",
        (
            "interop/test_iii_workers.py::test_functions_are_listed_without_those_of_the_hub",
            "workers/test_builtins.py::test_lists_hide_plumbing_and_can_be_narrowed",
        ),
    ),
}
