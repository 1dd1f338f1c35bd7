"""What the gateway promises, row by row, and the tests that show it."""

REQUIREMENTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "Clients get exactly the seven tools, with closed schemas, and the same bytes whatever is behind them.",
        (
            "gateway/test_gateway.py::test_the_list_is_the_same_bytes_for_0_1_and_10_000_capabilities",
            "gateway/test_gateway.py::test_clients_get_exactly_the_seven_tools_with_closed_schemas",
            "gateway/test_gateway.py::test_arguments_beyond_the_schema_are_refused",
            "test_surface.py::test_a_surface_decides_which_tools_are_listed",
            "test_surface.py::test_a_configuration_file_lists_the_seven_by_default",
        ),
    ),
    2: (
        "Home shows everything that the caller may use, each with id, kind, title, description, tags and links, and "
        "links to a search; a long list comes in pages.",
        (
            "gateway/test_tools.py::test_home_shows_everything_with_the_call_that_uses_it",
            "gateway/test_tools.py::test_every_link_of_home_can_be_followed_unchanged",
            "gateway/test_tools.py::test_a_larger_catalog_has_pages_with_counts_and_advice_to_search",
            "gateway/test_gateway.py::test_a_caller_does_not_find_a_denied_tool",
        ),
    ),
    3: (
        "The link of a workflow starts it by its id; that of a capability starts proxy_default with its id.",
        (
            "gateway/test_items.py::test_a_workflow_is_started_by_its_own_id",
            "gateway/test_items.py::test_a_tool_is_a_capability_that_is_started_through_proxy_default",
            "gateway/test_gateway.py::test_an_agent_completes_a_workflow_by_following_links_from_the_catalog",
        ),
    ),
    4: (
        "A search answers scores and items, the best first and ties by id, by the weights and ways of matching that "
        "are documented.",
        (
            "gateway/test_tools.py::test_a_search_answers_scores_items_and_the_ranking",
            "gateway/test_weighted.py::test_a_deployment_pipeline_scores_as_the_documentation_says",
            "gateway/test_weighted.py::test_scores_and_order_are_those_of_the_definition",
        ),
    ),
    5: (
        "An empty query lists everything with 1.0; kind and limit narrow it; terms add up, whatever their case.",
        (
            "gateway/test_tools.py::test_an_empty_query_lists_everything",
            "gateway/test_tools.py::test_only_one_kind_can_be_asked_for",
            "gateway/test_tools.py::test_limits_are_clamped_between_1_and_100",
            "gateway/test_tools.py::test_items_are_found_by_their_aliases_states_transitions_and_goals",
            "gateway/test_weighted.py::test_scores_and_order_are_those_of_the_definition",
        ),
    ),
    6: (
        "An item is described flat with the schema in its link; an unknown id is a refusal with links that lead on.",
        (
            "gateway/test_tools.py::test_an_item_is_described_flat_with_the_schema_in_its_link",
            "gateway/test_tools.py::test_everything_that_is_listed_can_be_described",
            "gateway/test_tools.py::test_an_unknown_id_is_answered_with_the_nearest_and_a_search_link",
            "gateway/test_gateway.py::test_a_denied_tool_is_described_like_one_that_does_not_exist",
        ),
    ),
    28: (
        "A capability is used in a state that leads to itself, with its result in context.lastResult and its schema "
        "and rules enforced; a start without a definition is one of a capability.",
        (
            "gateway/test_proxy.py::test_a_start_is_narrowed_to_one_capability_that_stays_ready",
            "gateway/test_proxy.py::test_arguments_run_the_call_at_once",
            "gateway/test_proxy.py::test_invalid_arguments_are_refused_without_creating_an_instance",
            "gateway/test_proxy.py::test_a_denied_capability_is_refused_before_its_arguments_are_checked",
            "gateway/test_proxy.py::test_a_start_without_a_definition_uses_proxy_default",
        ),
    ),
}
