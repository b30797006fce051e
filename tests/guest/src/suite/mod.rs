//! The tests by topic, and the table the judge runs.

mod ages;
mod calling;
mod capability;
mod census;
mod compartment;
mod compiled;
mod crowd;
mod events;
mod exceptions;
pub mod exits;
mod exposed;
mod files;
mod forgetting;
mod freed;
mod full;
mod fuzz;
mod gang;
mod large;
mod life;
mod memory;
mod method;
mod names;
mod neighbours;
mod pipes;
mod predicate;
mod readers;
mod references;
mod region;
mod registers;
pub mod roles;
mod sched;
mod slices;
mod stopped;
mod stretch;
mod stride;
mod threads;
mod token;
mod trace;
mod transfer;
mod types;
mod users;
mod vectors;
mod waits;
mod ways;

use crate::judge::Test;

/// Every test in order: its name says the crime or the promise.
pub const TESTS: &[(&str, Test)] = &[
    ("exceptions_reach_the_program", exceptions::reach_the_program),
    ("exceptions_redirected", exceptions::redirected),
    ("exceptions_by_either_way", exceptions::by_either_way),
    ("exceptions_return_without_the_kernel", exceptions::return_without_the_kernel),
    ("exceptions_without_pages", exceptions::without_pages),
    ("frame_by_number", memory::frame_by_number),
    ("free_list_agrees", names::free_list_agrees),
    ("coloured_beats_random", names::coloured_beats_random),
    ("dirty_without_calls", names::dirty_without_calls),
    ("frame_foreign", memory::frame_foreign),
    ("frame_revoked_everywhere", memory::frame_revoked_everywhere),
    ("frame_revoked_as_save_area", memory::save_area_revoked),
    ("freed_frame_is_clean", freed::frame_is_clean),
    ("last_environment", references::last_environment),
    ("last_attachment", references::last_attachment),
    ("last_filter_reference", references::last_filter_reference),
    ("entry_bits", memory::entry_bits),
    ("own_tables_read_only", memory::own_tables_read_only),
    ("silent_allocation", memory::silent_allocation),
    ("update_batched", memory::update_batched),
    ("frozen_tables", memory::frozen_tables),
    ("large_page_is_its_frames", large::page_is_its_frames),
    ("large_page_revoked_in_part", large::page_revoked_in_part),
    ("large_page_comes_apart", large::page_comes_apart),
    ("memory_type_is_the_frames", types::memory_type_is_the_frames),
    ("compartment_sees_what_it_is_shown", compartment::sees_what_it_is_shown),
    ("compartment_entered_by_its_message", compartment::entered_by_its_message),
    ("compartment_faults_come_home", compartment::faults_come_home),
    ("compartment_leaves_home_alone", compartment::leaves_home_alone),
    ("domain_of_others_is_refused", compartment::domain_of_others_is_refused),
    ("published_read_only", exposed::published_read_only),
    ("published_without_calls", exposed::published_without_calls),
    ("readers_make_no_call", readers::make_no_call),
    ("layouts_have_versions", readers::layouts_have_versions),
    ("ages_agree_with_touches", ages::agree_with_touches),
    ("application_page", exposed::application_page),
    ("trace_refused", trace::refused),
    ("trace_in_order", trace::in_order),
    ("trace_loss_is_told", trace::loss_is_told),
    ("calls_are_counted", trace::calls_are_counted),
    ("counters_only_go_up", trace::counters_only_go_up),
    ("capability_named", capability::named),
    ("capability_narrowed", capability::narrowed),
    ("token_passed_as_data", token::passed_as_data),
    ("capability_retracted", token::retracted),
    ("owner_rule", token::owner_rule),
    ("copy_on_write_child", capability::copy_on_write_child),
    ("yield_directed", sched::yield_directed),
    ("slice_positions", sched::slice_positions),
    ("slice_events", sched::slice_events),
    ("gang_of_two", sched::gang_of_two),
    ("gangs_in_step", gang::in_step),
    ("forgetting_at_a_pace", forgetting::at_a_pace),
    ("siblings_of_a_fault", threads::siblings_of_a_fault),
    ("stride_three_to_two_to_one", stride::three_to_two_to_one),
    ("own_context_switch", vectors::own_context_switch),
    ("vectors_none_or_kept", vectors::none_or_kept),
    ("vectors_of_transfers", vectors::of_transfers),
    ("queue_overflows", events::queue_overflows),
    ("critical_sections_die", events::critical_sections_die),
    ("others_are_long", ways::others_are_long),
    ("transfer_registers", transfer::registers),
    ("transfer_by_either_way", transfer::by_either_way),
    ("transfer_refused", transfer::refused),
    ("transfer_sync_async", transfer::sync_async),
    ("transfer_storm", transfer::storm),
    ("transfer_lone_clients", transfer::lone_clients_find_it_accepting),
    ("transfers_do_not_meet", ways::transfers_do_not_meet),
    ("transfer_access_is_the_callees", transfer::access_is_the_callees),
    ("transfer_callee_dies", transfer::callee_dies),
    ("calls_by_trust", calling::by_trust),
    ("calls_typed", calling::typed),
    ("pipe_only_yields", pipes::only_yields),
    ("pipe_full_and_empty", pipes::full_and_empty),
    ("pipe_garbage", pipes::garbage),
    ("predicate_wakes", predicate::wakes),
    ("predicate_refused", predicate::refused),
    ("predicate_false_sleepers", predicate::false_sleepers),
    ("predicate_no_lost_wakeup", predicate::no_lost_wakeup),
    ("predicate_over_structures", compiled::over_structures),
    ("predicate_as_written", compiled::as_written),
    ("region_no_lost_wakeup", predicate::region_no_lost_wakeup),
    ("region_by_call_alone", region::by_call_alone),
    ("method_no_way_around", method::no_way_around),
    ("method_endless", method::endless),
    ("method_tests_decide", method::tests_decide),
    ("method_whole_or_not_at_all", method::whole_or_not_at_all),
    ("method_unique_names", method::unique_names),
    ("method_as_interpreted", method::as_interpreted),
    ("hold_release_destroy", life::hold_release_destroy),
    ("registers_across_calls", life::registers_across_calls),
    ("registers_across_every_call", registers::across_every_call),
    ("registers_across_user_fault", life::registers_across_user_fault),
    ("deaths_leave_nothing", life::deaths_leave_nothing),
    ("waits_broken_in_every_way", waits::broken_in_every_way),
    ("blocked_use_no_time", waits::blocked_use_no_time),
    ("census_sparse_ids", census::sparse_ids),
    ("census_sums", census::sums),
    ("census_slope", census::slope),
    ("files_without_frames", files::without_frames),
    ("files_give_frames_back", files::give_frames_back),
    ("files_end_in_pieces", files::end_in_pieces),
    ("wild_pointers", fuzz::wild_pointers),
    ("wild_calls", fuzz::wild_calls),
    ("no_kernel_faults", exceptions::no_kernel_faults),
    ("exits_last_page_is_not_mapped", exits::last_page_is_not_mapped),
    ("exits_last_page_by_a_stranger", exits::last_page_by_a_stranger),
    ("exits_behind_the_last_page", exits::behind_the_last_page),
    ("exits_and_entries_clear_ac", exits::entries_clear_ac),
    ("users_are_taken_or_not", users::are_taken_or_not),
    ("users_have_barriers_between_them", users::have_barriers_between_them),
];

/// Tests that fill every table, for the largest machine, whose clock counts instructions.
pub const FULL: &[(&str, Test)] = &[("stretch_by_call", full::by_call)];

/// Tests that make thousands of environments, for a machine with room for them.
pub const CROWDED: &[(&str, Test)] = &[("crowd_costs_its_slots", crowd::costs_its_slots)];

/// Tests that count instructions, for a machine on which time is instructions.
pub const COUNTED: &[(&str, Test)] = &[
    ("sleep_beyond_the_counter", stretch::sleep_beyond_the_counter),
    ("slice_pattern", slices::pattern),
    ("excess_forfeited", slices::excess_forfeited),
    ("critical_sections_are_paid", events::critical_sections_are_paid),
    ("ping_pong_is_short", ways::ping_pong_is_short),
    ("yield_by_either_way", ways::yield_by_either_way),
    ("stretches_by_class", ways::stretches_by_class),
    ("pipe_inlined_is_faster", pipes::inlined_is_faster),
    ("stretch_of_table_updates", stretch::of_table_updates),
    ("stretch_of_large_pages", stretch::of_large_pages),
    ("stretch_of_revocation", stretch::of_revocation),
    ("stretch_of_regions", stretch::of_regions),
    ("stretch_of_methods", stretch::of_methods),
    ("stretch_of_crowds_that_stop", stopped::of_crowds_that_stop),
    ("stretch_of_deaths", stretch::of_deaths),
    ("stretch_of_attachments", full::of_attachments),
    ("stretch_of_taken_regions", full::of_taken_regions),
    ("stretch_of_calls_beside_work", full::of_calls_beside_work),
    ("stretch_of_updates_beside_work", full::of_updates_beside_work),
    ("stretch_of_orphans", full::of_orphans),
    ("stretch_of_predicates", full::of_predicates),
    ("stretch_of_wild_calls", stretch::of_wild_calls),
    ("destruction_costs_its_causer", neighbours::destruction_costs_its_causer),
];
