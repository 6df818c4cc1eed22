//! The lists of cases, by topic. A topic is the module that holds its cases.

/// Calls `$then!` with `$args` and the list of all cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_cases {
    ($then:path, $($args:tt)*) => {
        $then! { $($args)*
            sending {
                a_sent_unit_is_ready_and_whole
                sending_the_same_id_again_changes_nothing
                answers_come_in_the_order_of_the_units
                a_refused_unit_does_not_hold_up_its_neighbours
                an_invalid_unit_fails_the_whole_send
                an_oversized_payload_is_refused
                a_unit_for_another_tenants_queue_is_refused
                a_unit_for_later_waits_for_its_time
                a_unit_for_the_past_is_ready_at_once
                bytes_survive_whatever_they_are
                an_empty_send_is_harmless
            }
            dedup {
                a_taken_key_answers_with_the_first
                a_taken_key_is_refused_if_the_sender_wants_it
                a_key_is_taken_as_long_as_its_unit_lives
                a_key_is_free_again_when_its_unit_ended
                a_kept_key_is_taken_until_its_unit_is_pruned
                keys_of_tenants_and_queues_do_not_meet
                two_units_with_one_key_in_one_send_become_one
                a_retry_never_makes_two_live_units_with_one_key
                a_retried_unit_takes_its_key_again
                a_key_is_taken_by_what_ended_since_the_named_time
                a_key_that_was_taken_over_does_not_come_back
                one_that_asks_for_live_units_only_takes_the_key_of_an_ended_one
            }
            batch_sums {
                a_definition_is_kept_with_its_batch
                a_checkpoint_moves_the_sums_of_its_batch
                a_state_kept_twice_is_summed_once
                a_lost_lease_adds_nothing
                a_sum_stops_at_the_largest_number
                a_unit_of_no_batch_has_nothing_to_add_to
                a_pruned_batch_leaves_no_sums_to_its_namesake
            }
            claim_order {
                units_of_one_sender_go_in_the_order_of_sending
                older_units_go_before_newer_ones
                high_goes_before_normal_before_low
                a_low_unit_that_has_aged_passes_a_new_high_one
                a_unit_ranks_by_when_it_became_ready
                only_the_asked_kinds_are_claimed
                only_the_asked_queues_are_claimed
                only_the_asked_batch_is_claimed
                a_claim_for_nothing_gets_nothing
            }
            leases {
                one_holder
                a_claimed_unit_shows_its_holder
                a_claim_starts_what_fits_and_adds_the_rest_unstarted
                starting_counts_the_attempt_once
                a_unit_that_was_taken_away_does_not_start
                a_unit_with_a_cancel_request_does_not_start
                a_unit_past_its_deadline_does_not_start
                a_released_unit_uses_no_attempt
                a_started_unit_cannot_be_released
                what_was_started_ahead_is_started_for_everybody
                the_end_of_a_run_that_was_not_started_counts_it
                stale_holder_cannot_finish
                a_former_run_of_the_same_session_is_stale
                anothers_lease_is_of_no_use
                merely_late_is_not_stale
                a_finish_heard_twice_is_recorded_once
                a_second_word_on_the_same_run_is_not_heard
                a_lost_lease_does_not_hold_up_its_neighbours
                an_unknown_unit_cannot_be_finished
                a_checkpoint_is_there_for_the_next_run
                a_checkpoint_survives_whatever_ends_the_run
                a_checkpoint_replaces_the_one_before
                a_checkpoint_may_come_with_the_end_of_a_run
                a_unit_that_is_done_has_no_checkpoint
                progress_is_shown_while_a_unit_runs
                held_lists_every_lease
                an_unknown_session_claims_nothing
                an_oversized_result_leaves_the_unit_held
            }
            outcomes {
                done_keeps_its_result
                fail_ends_a_unit_at_once
                cancel_ends_a_unit_at_once
                retry_waits_as_long_as_it_was_told
                retry_without_a_delay_is_ready_at_once
                retry_waits_by_policy_if_it_was_not_told
                the_last_attempt_fails_the_unit
                the_senders_policy_goes_before_the_kinds
                age_ends_retries
                a_retry_that_would_miss_its_deadline_fails_now
                snooze_uses_no_attempt
                an_interruption_uses_no_attempt
                a_run_that_its_holder_lost_is_repeated_until_it_was_lost_too_often
                a_unit_that_its_holder_lost_twice_runs_alone
                failures_are_listed_oldest_first
                done_in_spite_of_a_cancel_request_is_done
                no_other_run_follows_a_cancel_request
                cancelling_every_state
                retrying_every_state
                waking_every_state
                a_woken_unit_keeps_its_attempts_and_what_it_reached
                finishing_works_on_leased_units_only
            }
            batches {
                an_opened_batch_is_kept_whole
                opening_again_finds_the_batch_and_its_cursor
                a_chunk_and_its_cursor_go_in_together
                a_chunk_sent_twice_is_taken_once
                a_duplicate_in_a_chunk_is_not_counted_twice
                a_chunk_that_finds_no_room_leaves_nothing_behind
                a_sealed_batch_takes_no_more
                an_unknown_batch_is_not_found
                an_empty_batch_is_complete_when_sealed
                a_batch_goes_from_queued_to_running_to_complete
                a_batch_does_not_end_before_it_is_sealed
                tally_is_exact
                a_paused_batch_gives_nothing_until_resumed
                a_cancelled_batch_ends_what_waits_and_asks_what_runs
                a_batch_given_up_takes_no_more
                an_ended_batch_refuses_what_makes_no_sense
                claims_ahead_start_a_batch_too
            }
            generations {
                a_threshold_pauses_its_batch
                a_batch_stopped_by_its_threshold_says_so_when_its_last_units_have_ended
                a_threshold_fails_its_batch_and_ends_what_waits
                the_callback_is_sent_once_when_the_batch_ends
                a_cancelled_batch_calls_back_too
                retrying_failures_opens_a_new_generation
                retrying_failures_before_the_end_opens_none
                retrying_one_unit_of_an_ended_batch_opens_a_new_generation
                retrying_a_cancelled_unit_reopens_its_ended_batch
                a_batch_given_up_is_not_retried_while_its_last_units_run
                retrying_one_unit_after_the_threshold_lets_it_run
                new_failures_count_although_old_ones_were_forgiven
                two_units_are_retried_at_once
                a_batch_whose_failures_are_gone_is_not_retried
            }
            dependencies {
                a_blocked_unit_is_ready_when_all_it_waits_for_are_done
                a_retry_of_a_dependency_unblocks_nothing
                a_failed_dependency_cancels_down_the_chain
                thousands_of_dependants_are_unblocked_in_the_end
                a_cancelled_dependency_cancels_too
                a_released_unit_runs_whatever_became_of_the_others
                what_has_ended_before_is_seen_at_once
                an_unknown_dependency_is_refused
                a_dependency_in_the_same_send_counts
                a_blocked_unit_still_waits_for_its_time
                a_blocked_unit_can_be_cancelled_and_is_not_woken_again
                a_pruned_dependant_does_not_hinder_what_it_waited_for
                too_many_dependencies_are_refused
                the_most_dependencies_delay_other_writers_little
            }
            weights {
                units_fill_the_free_slots_by_weight
                a_heavy_unit_at_the_head_keeps_slots_free
                a_heavy_unit_is_not_overtaken_for_ever_by_another_lane
                a_unit_too_heavy_for_this_worker_is_passed_over
                a_resource_that_is_not_there_is_passed_over
                resources_are_not_given_twice
                a_unit_that_waits_is_not_overtaken_by_units_claimed_ahead
                a_unit_waits_for_a_resource_that_is_in_use
                a_unit_lost_twice_runs_alone
                a_unit_lost_once_runs_among_others
                a_worker_hears_that_one_waits_to_run_alone_without_taking_any
                a_unit_that_runs_alone_needs_its_slots_and_resources
                a_unit_that_runs_alone_keeps_to_its_caps
                an_expired_unit_that_would_run_alone_does_not_empty_the_claim
            }
            caps {
                units_of_a_key_at_its_limit_are_passed_over
                every_end_of_a_lease_frees_its_key
                capped_units_are_never_claimed_ahead
                keys_of_tenants_and_queues_are_counted_apart
            }
            lanes {
                nobody_starves
                small_claims_are_shared_too
                shares_follow_the_weights
                what_one_lane_leaves_goes_to_the_others
                a_lane_that_was_silent_earned_no_credit
                a_tenant_that_is_passed_over_keeps_its_turn
                a_lanes_cap_bounds_what_is_leased
                nothing_is_claimed_ahead_from_a_capped_lane
                a_paused_lane_is_passed_by
                a_queues_pause_and_a_lanes_are_told_apart
                a_paused_queue_is_passed_by
                a_lane_shows_its_settings_and_counts
                shares_hold_beside_a_group_that_is_served_much_faster
                who_joins_a_fast_group_starts_level_with_it
            }
            shares {
                many_queues_are_one_share
                many_kinds_are_one_share
                priorities_do_not_count_between_tenants
                many_cap_keys_are_one_share
                many_batches_are_one_share
                new_queues_are_no_new_share
                units_that_cannot_run_save_up_no_turns
            }
            capacity {
                bounded
                leased_and_scheduled_units_take_up_room
                an_ended_unit_makes_room
                bytes_are_bounded_too
                every_part_of_a_unit_counts_towards_the_bytes
                a_refused_unit_leaves_no_queue
                a_tenant_has_a_bounded_number_of_queues
                a_tenant_has_a_bounded_number_of_streams
                ended_units_are_bounded_in_bytes_until_they_are_pruned
                a_lanes_bound_leaves_the_others_alone
                a_queues_bound_is_for_all_its_lanes
                one_send_into_two_lanes_keeps_to_the_queues_bound
                lifting_the_bound_lets_units_in_again
                sending_the_same_id_again_needs_no_room
                a_unit_that_ends_as_soon_as_it_is_in_leaves_its_room
            }
            tenants {
                a_tenant_is_made_by_its_first_change
                a_change_of_a_tenant_leaves_the_rest
                a_tenant_of_no_weight_or_cap_is_refused
                a_tenant_has_the_kinds_that_were_opened_to_it
                a_unit_keeps_the_rights_that_it_was_sent_with
                a_tenant_shows_what_it_has_over_all_queues
                only_who_is_in_charge_steers_tenants
                a_tenant_sees_its_own_record_only
                a_tenant_with_live_units_is_not_removed
                a_removed_tenant_works_as_if_it_had_never_been_set
                tenants_share_by_weight
                a_lanes_share_is_its_weight_times_its_tenants
                a_tenants_cap_is_over_all_its_queues
                a_lanes_cap_and_its_tenants_both_hold
                nothing_is_claimed_ahead_of_a_capped_tenant
                a_unit_that_runs_alone_keeps_to_its_tenants_cap
                the_end_of_a_unit_of_a_capped_tenant_wakes
                a_tenants_bound_is_over_all_its_queues
                one_send_into_two_queues_keeps_to_the_tenants_bound
                a_tenants_bytes_are_bounded_too
                a_suspended_tenant_is_passed_by_and_its_sends_refused
                a_suspended_tenant_opens_no_batch
                what_was_claimed_ahead_of_a_suspended_tenant_is_unwanted
                a_suspended_tenants_running_units_retry_and_end
                callbacks_and_retries_are_never_refused
                a_chunk_of_a_suspended_tenant_leaves_nothing_behind
                a_suspended_tenant_earned_no_credit
                a_paused_lane_earned_no_credit
                a_change_of_a_tenant_is_announced_and_wakes
            }
            sessions {
                an_open_session_is_listed
                a_worker_says_how_much_time_it_has_used
                every_beat_moves_the_counter
                a_beat_counts_leases_and_brings_cancel_requests
                a_beat_carries_progress
                an_order_is_heard_with_the_next_beat
                a_closed_session_gives_everything_back
                an_ended_session_is_told_so
                the_units_of_the_dead_run_again
                neighbours_that_had_not_started_are_not_blamed
                a_unit_lost_too_often_fails
                a_unit_that_must_not_run_twice_fails_when_lost
                a_lost_unit_with_a_cancel_request_is_cancelled
                a_session_that_beat_meanwhile_is_not_reclaimed
                no_clock_takes_a_lease_away
                a_restarted_process_adopts_its_former_leases
                only_known_sessions_adopt_and_are_adopted
                opening_a_session_twice_is_harmless
                a_session_does_not_adopt_itself
                an_adoption_whose_answer_was_lost_is_told_again
                a_run_that_came_to_its_end_clears_its_unit
                a_unit_with_a_checkpoint_goes_on_after_its_worker_died
            }
            maintenance {
                promotion_is_bounded_and_says_if_there_is_more
                next_due_is_the_time_to_the_first_scheduled_unit
                a_waiting_unit_fails_at_its_deadline
                an_expired_unit_is_not_claimed
                expiry_reaches_batch_and_dependants
                ended_units_are_kept_as_long_as_they_should
                pruning_is_bounded_and_says_if_there_is_more
                queues_without_units_and_settings_are_pruned
                the_first_and_last_failures_of_a_unit_are_kept
                a_batch_still_counts_its_pruned_units
                ended_batches_are_pruned_and_open_ones_kept
                one_session_leads_at_a_time
                a_leader_from_before_the_clock_went_back_does_not_lead_for_ever
                a_session_that_ended_leads_no_more
            }
            admin {
                a_retried_unit_has_fresh_attempts
                a_retried_scheduled_unit_need_not_wait
                a_retry_after_a_cancel_request_runs
                one_unknown_id_leaves_all_units_alone
                a_queue_is_purged_by_cancelling_what_is_ready
                leased_units_of_a_queue_are_asked_to_stop
                failed_units_of_a_queue_are_retried_together
                settings_that_are_not_named_stay
                a_lane_of_no_weight_is_refused
                totals_add_up_over_the_named_queues
            }
            scopes {
                a_tenant_sends_for_itself_only
                a_tenant_reads_its_own_units_only
                a_tenant_claims_its_own_units_only
                a_tenant_operates_on_its_own_units_only
                a_batch_belongs_to_its_tenant
                a_batch_takes_its_own_tenants_units_only
                two_tenants_may_use_the_same_batch_name
                a_tenant_sees_its_own_lanes_and_totals_only
                a_tenant_steers_its_own_queues_only
                a_tenant_cannot_wait_for_anothers_unit
                a_tenant_hears_of_its_own_batches_only
                a_callback_to_another_tenants_queue_is_refused
                anothers_unit_id_is_of_no_use_to_a_sender
                a_pause_is_heard_by_tenants_with_a_lane_only
                a_tenant_pauses_its_lane_but_does_not_set_its_share
                a_tenant_hears_of_its_own_awaited_units_only
            }
            listing {
                units_are_listed_newest_first_without_gap_or_repeat
                new_units_do_not_disturb_a_walk
                filters_choose_by_state_queue_kind_and_batch
                lists_leave_out_what_may_be_large
                a_page_of_large_batches_ends_early
                batches_are_listed_newest_first
                a_cursor_that_is_none_is_refused
                a_cursor_of_batches_tells_nothing_of_other_tenants
            }
            schedules {
                a_schedule_is_kept_whole
                a_name_that_is_taken_is_kept_or_replaced_as_told
                a_tenant_with_schedules_is_not_removed
                a_firing_moves_the_schedule_and_sends_its_unit
                one_firing_per_time_however_many_try
                a_firing_by_hand_that_is_repeated_counts_once
                times_that_are_left_out_are_counted
                a_firing_that_finds_no_room_leaves_everything_as_it_was
                a_paused_schedule_is_not_due_and_what_was_decided_before_is_refused
                a_removed_schedule_does_not_fire
                a_schedule_put_again_does_not_send_the_same_time_twice
                due_schedules_come_in_pages_with_the_time_to_the_next
                a_tenant_sees_and_steers_its_own_schedules_only
                lists_are_in_order_without_gap_or_repeat
                what_opens_a_batch_is_told_its_name
                a_fired_unit_runs_like_any_other
            }
            changes {
                a_change_is_told_once_per_topic_and_call
                changes_come_in_order
                batches_queues_and_sessions_are_topics
                who_waits_for_a_change_is_woken_by_it
                from_now_on_leaves_out_what_was
                waiting_for_changes_ends_in_time
                a_worker_is_woken_by_a_send
                a_send_before_the_wait_is_not_missed
                whatever_makes_a_unit_claimable_wakes
                waiting_for_work_ends_in_time
                the_end_of_an_awaited_unit_is_a_topic
                the_end_of_a_unit_of_a_capped_lane_wakes
                a_chunk_that_found_no_room_is_not_announced
            }
            ledger_profiles {
                a_profile_is_kept_and_its_revision_moves
                a_profile_is_written_only_as_expected
                a_suspended_profile_keeps_what_it_says
                profiles_are_listed_in_pages
                another_tenants_profile_does_not_exist
                a_tenant_that_is_suspended_may_use_no_profile
                settings_are_announced_to_their_tenant
            }
            ledger_keys {
                a_new_version_retires_the_one_before
                a_version_must_be_the_next
                a_revoked_version_stays_revoked
                a_data_key_is_wrapped_anew_once
                keys_are_listed_in_pages
                another_tenants_key_does_not_exist
            }
            ledger_tokens {
                a_token_is_known_by_its_hash_until_it_ends
                a_token_added_twice_is_one
                a_revoked_token_stays_revoked
                a_browser_session_stands_for_its_token_until_either_ends
                a_token_has_a_bounded_number_of_browser_sessions
                another_tenants_token_does_not_exist
                deeds_are_listed_newest_first_to_whom_they_concern
                deeds_are_pruned_when_they_were_kept_long_enough
            }
            ledger_calls {
                an_admitted_call_is_open_and_reserved
                a_call_admitted_twice_is_reserved_once
                the_same_request_of_another_unit_is_a_duplicate
                a_request_that_came_to_nothing_may_be_asked_again
                calls_of_one_list_see_those_before_them
                an_end_settles_what_was_reserved
                an_end_stays
                a_call_may_be_written_without_a_journal
                a_later_word_on_an_open_call_wins
                a_session_that_has_ended_opens_no_call
                numbers_that_cannot_be_added_up_are_refused
                a_text_that_is_too_long_is_refused
                a_clamped_record_is_stored_with_the_others_of_its_write
                calls_are_pruned_long_after_their_month
                calls_are_listed_newest_first_in_pages
                another_tenants_calls_do_not_exist
                a_corrected_price_corrects_its_month
            }
            ledger_session_end {
                a_finish_writes_what_its_calls_came_to
                calls_go_with_any_end
                a_finish_heard_twice_counts_its_calls_once
                a_lost_lease_writes_no_call
                a_checkpoint_writes_what_its_calls_came_to
                a_dead_sessions_open_calls_may_have_been_billed
                a_closed_sessions_open_calls_may_have_been_billed
                a_former_lifes_open_calls_may_have_been_billed
                a_session_that_beats_keeps_its_calls_open
            }
            ledger_budgets {
                a_budget_is_used_up_exactly_however_many_call
                calls_that_end_make_room_for_others
                money_is_a_budget_too
                callers_are_warned_near_the_end_of_a_budget
                a_call_is_counted_in_the_month_it_was_opened_in
                a_lifted_budget_leaves_the_month_counted
                a_budget_is_not_its_tenants_to_lift
                a_month_beyond_all_counting_holds_nobody_up
            }
            ledger_token_buckets {
                draws_share_a_bucket_and_keep_fractions
                draws_of_one_call_see_those_before_them
                a_bucket_gives_no_more_than_it_holds_however_many_draw
                a_draw_that_is_no_number_is_refused
            }
            ledger_provider_batches {
                parked_questions_wait_in_their_order
                a_shipment_holds_what_waited_when_it_was_sealed
                the_first_answer_to_a_question_stays
                what_a_closed_shipment_leaves_waits_again
                an_unparked_question_is_forgotten
                what_is_parked_is_counted_and_what_was_answered_is_listed
            }
            ledger_replies {
                a_reply_queue_is_one_sessions
                what_is_left_in_a_closed_reply_queue_is_cancelled
                a_reply_to_a_queue_that_nobody_reads_is_not_taken
                no_reply_is_left_in_a_queue_that_was_closed_meanwhile
                a_reply_queue_goes_with_its_session
                a_reply_queue_goes_over_to_the_next_life
                a_session_that_has_ended_opens_no_reply_queue
                another_tenants_reply_queue_does_not_exist
            }
            ledger_usage {
                usage_is_summed_by_each_group
                usage_and_calls_are_filtered_alike
                a_sum_that_cannot_be_told_is_an_error
            }
        }
    };
}

/// Calls `$then!` with `$args` and the list of cases that need SQL.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_sql_cases {
    ($then:path, $($args:tt)*) => {
        $then! { $($args)*
            batch_limits {
                a_tenant_has_a_bounded_number_of_batches
            }
            effects {
                effects_exactly_once
                a_stale_holders_effects_do_not_happen
                a_failing_effect_undoes_those_before_it
                another_number_of_rows_undoes_the_effects
                a_failing_unit_does_not_undo_its_neighbours
                values_are_bound_and_never_pasted
                values_are_bound_by_name_and_unused_ones_ignored
                effects_go_with_any_outcome
                an_effect_cannot_end_the_stores_transaction
                a_broken_deferred_key_costs_its_own_unit_only
                a_broken_deferred_key_does_not_stop_the_store
            }
        }
    };
}

/// Calls `$then!` with `$args` and the list of cases of bounded pools.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_permit_cases {
    ($then:path, $($args:tt)*) => {
        $then! { $($args)*
            permits_ordering {
                first_come_first_served
                one_who_comes_does_not_overtake_those_who_wait
                high_goes_before_normal_before_low
                whoever_waited_long_enough_is_passed_by_nobody
                a_light_one_does_not_overtake_a_heavy_one
                a_repeated_ask_keeps_its_place
                a_repeated_ask_is_given_the_same_permit
                one_that_goes_away_leaves_nothing_behind
                one_heavier_than_the_pool_is_told_so
                a_permit_of_no_weight_is_refused
                whoever_leaves_lets_the_next_go
                one_who_waits_and_gives_back_leaves_the_line
                a_dead_waiter_is_in_the_way_no_longer_than_its_place
                a_lost_place_is_taken_anew_at_the_end
            }
            permits_leases {
                a_lease_that_runs_out_gives_its_permit_back
                a_lease_that_is_extended_stays
                asking_again_begins_the_lease_anew
                a_lease_may_be_made_shorter
                extending_tells_which_are_lost
                one_who_waits_holds_nothing_to_extend
                nobody_gives_back_what_is_anothers
                many_are_given_back_at_once
                leaving_gives_back_what_was_granted_meanwhile
                fences_grow_whatever_happens
                what_is_dropped_is_given_back
            }
            permits_resize {
                a_larger_pool_has_more_at_once
                a_smaller_pool_shrinks_as_permits_return
                a_resize_makes_a_pool_known
                of_many_inits_the_first_counts
                those_whom_a_smaller_pool_cannot_serve_hear_of_it
                a_reset_forgets_all_but_the_maximum
                a_pool_of_nothing_gives_nothing
            }
            permits_stats {
                figures_add_up
                waits_are_measured
                a_wait_that_took_too_long_is_counted_once
                pools_are_listed_by_name_and_kept_apart
                one_id_may_hold_of_several_pools
                an_alert_is_told_again_when_its_time_has_come
                of_many_one_may_tell_an_alert
            }
            permits_wakeups {
                a_release_is_heard
                a_release_is_heard_by_another_process
                a_larger_pool_is_heard_of_by_another_process
                a_hint_waits_for_whoever_listens_later
                whoever_stops_listening_loses_no_hint
                the_end_of_a_lease_is_heard_when_somebody_looks
                every_one_that_fits_is_told
                a_turn_that_is_not_taken_goes_to_the_next
                a_line_is_served_by_hints_alone
            }
            permits_regressions {
                setting_up_while_permits_are_out_makes_none
                many_first_users_at_once_make_one_pool
                a_killed_holder_costs_no_permit
                a_second_release_adds_nothing
                a_permit_given_to_nobody_comes_back
                an_ask_that_is_given_up_swallows_no_permit
                a_smaller_maximum_holds
                an_alert_is_told_once_however_many_see_it
                what_is_in_use_is_never_less_than_nothing
            }
            permits_chaos {
                bounded
            }
        }
    };
}
