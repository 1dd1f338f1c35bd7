"""What toolkits promise, statement by statement, and the tests that show it."""

REQUIREMENTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "A toolkit is one class of many tools; one registration offers every marked function, in the order written.",
        (
            "capabilities/test_toolkits.py::test_one_registration_offers_every_marked_function_in_the_order_they_are_written",
        ),
    ),
    2: (
        "A tool takes names, texts, a category, schemas in every form, annotations, icons, meta and visibility.",
        ("capabilities/test_toolkits.py::test_every_option_may_be_given",),
    ),
    3: (
        "A name that is not given is the function's, or the class name in snake_case.",
        (
            "capabilities/test_toolkits.py::test_a_name_that_is_not_given_is_the_functions",
            "capabilities/test_tools.py::test_a_component_is_named_after_its_class",
            "capabilities/test_names.py::test_class_names_become_snake_case",
        ),
    ),
    4: (
        "Several marks on one function add up; on a conflict the one nearer to the function wins.",
        (
            "capabilities/test_toolkits.py::test_stacked_marks_add_up_and_the_nearest_to_the_function_wins",
            "capabilities/test_toolkits.py::test_marks_are_merged_before_hidden_and_visible_are_weighed",
        ),
    ),
    5: (
        "A mark that is not made of keyword options is refused where it stands.",
        ("capabilities/test_toolkits_refused.py::test_a_mark_that_is_not_made_of_options_is_refused",),
    ),
    6: (
        "A function with overloads, or defined again, is one tool.",
        (
            "capabilities/test_toolkits.py::test_a_function_defined_again_is_one_tool",
            "capabilities/test_toolkits.py::test_a_subclass_inherits_tools_and_may_replace_them",
        ),
    ),
    7: (
        "Annotations in snake_case become wire names, wire names pass, unknown ones are refused.",
        (
            "capabilities/test_toolkits.py::test_annotations_are_translated_and_wire_names_pass",
            "capabilities/test_toolkits_refused.py::test_an_unknown_annotation_is_refused",
        ),
    ),
    8: (
        "Icons and meta pass through; what is not said is not on the wire.",
        (
            "capabilities/test_toolkits.py::test_every_option_may_be_given",
            "capabilities/test_toolkits.py::test_options_that_are_not_given_are_not_on_the_wire",
        ),
    ),
    9: (
        "The raw schema options beat the others and never take a field spec.",
        (
            "capabilities/test_toolkits.py::test_raw_schemas_beat_field_specs_when_both_are_given",
            "capabilities/test_toolkits_refused.py::test_the_raw_options_never_take_a_field_spec",
        ),
    ),
    10: (
        "Without any input the schema is an open object and arguments arrive as they came.",
        (
            "capabilities/test_functions.py::test_a_function_without_annotations_takes_args_and_ctx_as_they_come",
            "capabilities/test_toolkits.py::test_options_that_are_not_given_are_not_on_the_wire",
        ),
    ),
    11: (
        "A function gets as much of args and ctx as it takes; arguments are checked even when it takes none.",
        (
            "capabilities/test_toolkits.py::test_a_function_gets_as_much_of_args_and_ctx_as_it_takes",
            "capabilities/test_toolkits.py::test_a_function_that_takes_nothing_still_has_its_arguments_checked",
        ),
    ),
    12: (
        "Text, data, blocks and whole results each have their shape; failures, crashes and exits are error results.",
        (
            "capabilities/test_results.py::test_text_is_one_block_and_nothing_structured",
            "capabilities/test_results.py::test_data_is_structured_and_written_out_as_text",
            "capabilities/test_results.py::test_blocks_are_sent_as_they_are",
            "capabilities/test_results.py::test_a_whole_result_is_taken_verbatim",
            "capabilities/test_results.py::test_what_a_tool_reports_itself_is_an_error_with_its_words",
            "capabilities/test_results.py::test_a_protocol_error_is_left_to_the_protocol",
            "capabilities/test_results.py::test_a_crash_is_an_error_with_type_and_message",
            "execution/test_pipeline.py::test_a_tool_that_exits_does_not_stop_the_hub",
            "capabilities/test_results.py::test_a_good_result_says_nothing_about_errors",
        ),
    ),
    13: (
        "Structured results are held to the output schema as the client sees them; a misfit is an error result.",
        (
            "capabilities/test_results.py::test_a_structured_result_is_checked_against_the_output_schema",
            "capabilities/test_results.py::test_the_check_sees_what_the_client_will_see",
            "capabilities/test_results.py::test_a_result_without_structured_data_does_not_fit_an_output_schema",
        ),
    ),
    14: (
        "A mark on a private function, or on something that is no function, is refused.",
        (
            "capabilities/test_toolkits_refused.py::test_a_private_function_is_no_tool",
            "capabilities/test_toolkits_refused.py::test_a_mark_on_an_object_that_is_not_a_function_is_refused",
            "capabilities/test_toolkits_refused.py::test_a_mark_that_a_property_would_swallow_is_refused",
        ),
    ),
    15: (
        "More parameters than args and ctx are refused.",
        (
            "capabilities/test_toolkits_refused.py::test_more_than_args_and_ctx_is_refused",
            "capabilities/test_tools.py::test_too_many_parameters_are_refused_naming_the_class",
        ),
    ),
    16: (
        "Two tools of one wire name in a toolkit are refused by name.",
        ("capabilities/test_toolkits_refused.py::test_two_tools_of_one_name_in_a_toolkit_are_refused_by_name",),
    ),
    17: (
        "Malformed JSON text is refused naming the tool.",
        ("capabilities/test_toolkits_refused.py::test_a_malformed_schema_is_refused_naming_the_tool",),
    ),
    18: (
        "JSON text that is not an object is refused naming the tool.",
        ("capabilities/test_toolkits_refused.py::test_a_malformed_schema_is_refused_naming_the_tool",),
    ),
    19: (
        "A schema of another type is refused naming the tool.",
        ("capabilities/test_toolkits_refused.py::test_a_malformed_schema_is_refused_naming_the_tool",),
    ),
    20: (
        "An invalid field spec is refused naming the tool and the field.",
        (
            "capabilities/test_toolkits_refused.py::test_a_wrong_field_spec_is_refused_naming_the_tool",
            "capabilities/schemas/test_fields.py::test_a_wrong_spec_is_refused_naming_the_field",
        ),
    ),
    21: (
        "Duplicate registrations, dangling marks, unknown options, invalid schemas and unusable names are refused too.",
        (
            "capabilities/test_toolkits_refused.py::test_two_registrations_of_one_name_are_refused_and_change_nothing",
            "capabilities/test_toolkits_refused.py::test_a_mark_without_a_function_is_refused",
            "capabilities/test_toolkits_refused.py::test_an_unknown_option_is_refused_with_the_nearest_known_one",
            "capabilities/test_toolkits_refused.py::test_a_wrong_field_spec_is_refused_naming_the_tool",
            "capabilities/schemas/test_validators.py::test_an_invalid_schema_is_refused_with_a_one_line_message",
            "capabilities/test_toolkits_refused.py::test_a_name_that_cannot_go_over_the_wire_is_refused",
            "capabilities/test_tools.py::test_a_class_name_that_cannot_go_over_the_wire_is_refused",
            "capabilities/schemas/test_fields.py::test_array_items_are_a_type_name_or_options",
        ),
    ),
    22: (
        "The data form keeps its order, takes bare types and nested fields, and may be empty.",
        (
            "capabilities/schemas/test_fields.py::test_a_data_form_becomes_a_json_schema",
            "capabilities/schemas/test_fields.py::test_properties_keep_the_declared_order",
            "capabilities/schemas/test_fields.py::test_an_empty_spec_is_an_object_without_properties",
        ),
    ),
    23: (
        "Every type and option of the data form has its JSON Schema keyword.",
        (
            "capabilities/schemas/test_fields.py::test_a_data_form_becomes_a_json_schema",
            "capabilities/schemas/test_fields.py::test_array_items_are_a_type_name_or_options",
            "capabilities/schemas/test_fields.py::test_an_enum_publishes_its_values_and_only_the_types_they_need",
            "capabilities/schemas/test_fields.py::test_defaults_are_published_in_json_form",
        ),
    ),
    24: (
        "Raw schemas and JSON text validate and deliver arguments as they came, for toolkits and components alike.",
        (
            "capabilities/test_functions.py::test_the_data_form_drops_what_is_not_declared_and_raw_schemas_keep_it",
            "capabilities/test_tools.py::test_a_component_is_one_record_that_takes_args_and_ctx",
            "capabilities/schemas/test_forms.py::test_raw_forms_deliver_arguments_as_they_came",
        ),
    ),
    25: (
        "Schemas are JSON Schema 2020-12 unless they say otherwise.",
        ("capabilities/schemas/test_validators.py::test_the_dialect_follows_the_schema_keyword",),
    ),
    26: (
        "The data form drops undeclared keys after validation.",
        (
            "capabilities/test_functions.py::test_the_data_form_drops_what_is_not_declared_and_raw_schemas_keep_it",
            "capabilities/schemas/test_fields.py::test_undeclared_keys_are_dropped_at_every_level",
        ),
    ),
    27: (
        "Defaults fill absent keys only, and nested ones only when the parent is there.",
        (
            "capabilities/schemas/test_fields.py::test_defaults_fill_absent_keys_only",
            "capabilities/schemas/test_fields.py::test_nested_defaults_apply_only_when_the_parent_is_present",
        ),
    ),
    28: (
        "Enum values become members of the declared class at any depth; other scalars stay what they are.",
        (
            "capabilities/test_toolkits.py::test_an_enum_class_is_published_by_value_and_delivered_as_members",
            "capabilities/schemas/test_fields.py::test_enum_values_become_members_only_for_an_enum_class",
            "capabilities/schemas/test_fields.py::test_numbers_are_left_alone_but_for_integral_floats_declared_integer",
        ),
    ),
    29: (
        "Wrong arguments are an error result that names the tool and every problem.",
        (
            "capabilities/test_tools.py::test_wrong_arguments_are_a_result_that_names_each_problem",
            "execution/test_pipeline.py::test_wrong_arguments_never_reach_the_tool",
        ),
    ),
    30: (
        "An unknown tool and a call without a proper name are -32602.",
        (
            "capabilities/test_tools.py::test_an_unknown_tool_is_a_protocol_error",
            "capabilities/test_tools.py::test_a_call_without_a_proper_name_is_a_protocol_error",
        ),
    ),
    31: (
        "A category rides in _meta; registration beats tool beats toolkit, and a tool may refuse its toolkit's.",
        (
            "capabilities/test_toolkits.py::test_a_tools_category_beats_its_toolkits",
            "capabilities/test_toolkits.py::test_a_category_of_none_takes_the_toolkits_away",
            "capabilities/test_toolkits.py::test_a_registrations_category_beats_all_and_covers_the_whole_toolkit",
        ),
    ),
    32: (
        "A category replaces the one in meta, keeps the other keys, and without either there is no _meta.",
        (
            "capabilities/test_toolkits.py::test_a_category_replaces_the_one_in_meta_and_leaves_the_rest",
            "capabilities/test_toolkits.py::test_options_that_are_not_given_are_not_on_the_wire",
        ),
    ),
    33: (
        "A registration's category covers every tool of the toolkit.",
        ("capabilities/test_toolkits.py::test_a_registrations_category_beats_all_and_covers_the_whole_toolkit",),
    ),
    34: (
        "Hidden tools, prompts and resources are off the lists and answer like any other.",
        (
            "capabilities/test_toolkits.py::test_a_hidden_tool_is_not_listed_but_answers_like_any_other",
            "capabilities/test_prompts.py::test_a_hidden_prompt_is_not_listed_but_can_be_got",
            "capabilities/test_resources.py::test_hidden_resources_and_templates_are_not_listed_but_read",
        ),
    ),
    35: (
        "A registration's hidden, then its visible, then the definition decide, in both directions.",
        (
            "capabilities/test_expansion.py::test_a_registration_hides_and_shows_over_the_definition",
            "capabilities/test_toolkits.py::test_hidden_wins_over_visible_where_a_tool_is_defined",
            "capabilities/test_options.py::test_hidden_has_precedence_over_visible",
        ),
    ),
    36: (
        "Only true and false say whether something is hidden.",
        (
            "capabilities/test_toolkits_refused.py::test_only_true_and_false_say_whether_a_tool_is_hidden",
            "capabilities/test_expansion.py::test_a_registration_is_hidden_by_true_and_false_only",
        ),
    ),
    37: (
        "A hidden template is on neither list of resources.",
        ("capabilities/test_resources.py::test_hidden_resources_and_templates_are_not_listed_but_read",),
    ),
    38: (
        "Hiding is no lock: a gated tool answers before it is shown.",
        ("capabilities/test_catalog.py::test_a_list_may_depend_on_the_session_and_changes_for_that_session_alone",),
    ),
    39: (
        "One name or description for several tools is ambiguous; one class may be registered under several names.",
        (
            "capabilities/test_expansion.py::test_one_name_for_several_tools_is_ambiguous",
            "capabilities/test_expansion.py::test_a_toolkit_of_one_function_may_be_renamed",
            "capabilities/test_tools.py::test_one_class_may_be_registered_under_several_names",
        ),
    ),
    40: (
        "The catalog takes a section, a query, a category and whether to show hidden items, and checks them.",
        (
            "capabilities/test_catalog.py::test_only_the_requested_sections_are_returned",
            "capabilities/test_catalog.py::test_hidden_items_can_be_left_out",
            "capabilities/test_catalog.py::test_invalid_arguments_are_an_error_result",
        ),
    ),
    41: (
        "It answers with exactly those sections, each entry the wire definition with hidden and category, and as text.",
        (
            "capabilities/test_catalog.py::test_an_entry_is_the_wire_definition_with_hidden_and_category",
            "capabilities/test_catalog.py::test_only_the_requested_sections_are_returned",
            "capabilities/test_catalog.py::test_the_structured_answer_is_there_as_text_too",
        ),
    ),
    42: (
        "Its filters add up: hidden, text in names, descriptions and addresses, the whole category without case.",
        (
            "capabilities/test_catalog.py::test_filters_add_up",
            "capabilities/test_catalog.py::test_a_query_looks_into_names_descriptions_and_addresses",
            "capabilities/test_catalog.py::test_a_category_is_matched_whole_and_without_case_in_every_section",
        ),
    ),
    43: (
        "Hidden, it is callable and shows itself; it reads what is registered, whatever a list hook says.",
        (
            "capabilities/test_catalog.py::test_the_catalog_may_be_hidden_and_still_be_called",
            "capabilities/test_catalog.py::test_the_catalog_lists_hidden_items_and_itself",
            "capabilities/test_catalog.py::test_the_catalog_ignores_list_hooks",
        ),
    ),
    44: (
        "Lists are paged by name, a list hook decides per request, and a bad cursor is -32602.",
        (
            "capabilities/test_registry.py::test_a_list_comes_in_pages_of_the_chosen_size",
            "capabilities/test_registry.py::test_paging_neither_repeats_nor_skips_what_stays",
            "capabilities/test_registry.py::test_a_bad_cursor_is_a_protocol_error",
            "capabilities/test_registry.py::test_a_thousand_tools_fit_on_the_first_page",
            "capabilities/test_catalog.py::test_a_list_may_depend_on_the_session_and_changes_for_that_session_alone",
        ),
    ),
    45: (
        "Assigns of a call end with it; what is put stays with the session, last write wins, others never see it.",
        ("capabilities/test_context.py::test_values_put_last_for_the_session_and_assigned_ones_for_the_call",),
    ),
    46: (
        "A changed list is notified to all clients, an updated resource to its subscribers.",
        (
            "capabilities/test_catalog.py::test_a_list_change_can_be_sent_to_all_clients",
            "capabilities/test_resources.py::test_updates_are_sent_to_subscribers",
        ),
    ),
    47: (
        "Unlocking grows the list of one session, which is notified, and of no other.",
        ("capabilities/test_catalog.py::test_a_list_may_depend_on_the_session_and_changes_for_that_session_alone",),
    ),
    48: (
        "The flat records, overrides applied, are there for filters of one's own.",
        (
            "capabilities/test_expansion.py::test_a_hub_returns_its_capabilities_for_custom_filters",
            "capabilities/test_expansion.py::test_overrides_leave_the_class_as_it_was",
        ),
    ),
    49: (
        "A tool is one normalised record: owner, arity, definition, cast plan, output schema, hidden.",
        (
            "capabilities/test_toolkits.py::test_a_tool_is_described_by_one_normalised_record",
            "capabilities/test_tools.py::test_a_component_is_one_record_that_takes_args_and_ctx",
        ),
    ),
    50: (
        "Capabilities are derived from what is registered; a hub without name or version is refused.",
        (
            "capabilities/test_catalog.py::test_capabilities_are_derived_from_what_is_registered",
            "capabilities/test_tools.py::test_a_hub_needs_a_name_and_a_version",
        ),
    ),
}
