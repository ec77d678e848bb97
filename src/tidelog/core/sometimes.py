"""The interesting states that brokers mark when they reach them, each with its meaning.

A search in the simulator that never reached a state has not covered it. `tidelog sim run` lists the
missed states, and `make soak` fails on them. Marks stand where something rare happens anyway, never
on the way of an ordinary record; a real broker counts them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SOMETIMES: Final[Mapping[str, str]] = {
    # Leading
    "high_watermark_stale_at_election": "a leader begins with records above its high watermark",
    "empty_epoch_at_election": "a leader begins where the epoch before left no record",
    "led_on_under_new_epoch": "a leader takes its next leader epoch without having rested",
    "acks_waiting_at_lost_leadership": "produces wait for acks=all when a leadership ends",
    "acks_waiting_at_small_isr": "produces wait for acks=all when the ISR falls below the minimum",
    "produce_refused_at_small_isr": "acks=all is refused as the ISR is below the minimum",
    "produce_refused_behind_refused": "a batch comes behind one that was refused for the moment",
    "produce_refused_behind_unanswered": "a stored batch waits for one that timed out",
    "produce_refused_before_skipped": "a new leader gets a batch before those that were refused",
    "fetch_session_outdated": "a late fetch of another session brings a lower offset of a follower",
    "duplicate_batch": "an idempotent producer's batch is repeated",
    # The ISR
    "isr_shrank_while_expand_in_flight": "the controller took a member out while another joined",
    "isr_change_void_by_command": "a command with a newer partition epoch ends a change in flight",
    "isr_change_withdrawn": "a change of the ISR is taken back before it was sent",
    "isr_change_refused_ineligible": "a member is refused that is not in its present incarnation",
    "isr_change_refused_fenced": "a change of a deposed leader is refused",
    "isr_change_refused_old_state": "a change is refused that builds on an older partition epoch",
    "isr_change_asked_again": "the outcome of a change is not known, so it is asked for again",
    "isr_change_superseded": "a newer change is requested while the outcome of one is open",
    "isr_expansion_held": "the controller holds an expansion back, to write it with others",
    "isr_changes_put_to_new_controller": "changes in flight are put to another controller",
    "isr_answer_after_new_controller": "a controller answers changes that were put to the next one",
    "direct_isr_change_unknown": "the store's response to a leader's own ISR change is lost",
    "direct_isr_change_conflict": "a leader's own ISR change meets a newer state node",
    "direct_isr_change_found_made": "a leader finds its own ISR change made when it reads the node",
    "direct_isr_change_overtaken": "another writer's state replaces a leader's own ISR change",
    "direct_isr_change_waits": "a leader's own ISR change waits for the store",
    "direct_isr_changes_read": "a controller learns of ISR changes that leaders made themselves",
    # Following
    "truncated": "a follower truncates its log",
    "truncated_below_high_watermark": "a follower truncates its log below its own high watermark",
    "truncated_over_two_epochs": "a truncation takes records of two leader epochs and more",
    "follower_behind_leader_epoch": "a follower is refused that is behind its leader's epoch",
    "follower_ahead_of_leader_epoch": "a follower is refused by a leader that has not heard of it",
    "follower_without_leader": "a follower waits for a leader to be elected",
    "fetch_answer_overtaken": "a response is dropped, as its partition was requested again",
    "fetch_answer_of_earlier_connection": "an answer is dropped that came on a connection given up",
    "fetch_session_lost": "a leader does not know a follower's fetch session",
    "append_flushed_again": "a follower flushes records whose first flush a full disk refused",
    "append_outlived_role": "a follower's append ends after its role has",
    "truncation_outlived_role": "a follower's truncation ends after its role has",
    "leader_synced": "a leader has synced its log before it acknowledges (flush.before.ack)",
    "follower_synced": "a follower has synced its log before it fetches (flush.before.ack)",
    "sync_outlived_leadership": "a leader's sync ends after its leadership has",
    "sync_outlived_role": "a follower's sync ends after its role has",
    "producers_rebuilt": "producer state is made again from batches after a truncation",
    # Commands
    "command_repeated": "a command of the replica's own epochs comes again",
    "command_of_older_epoch": "a command older than the replica's own state is refused",
    "command_of_deposed_controller": "a command of an earlier controller is refused",
    "command_for_earlier_life": "a command for an earlier registration is refused",
    "command_overtaken": "a command comes behind a later one and is not carried out",
    "command_outlived_registration": "a registration ends while a command is carried out",
    "log_busy_at_role_change": "a role has to wait for what is under way on the log",
    "stray_set_aside": "a replica is moved aside that is not this broker's any more",
    "departure_refused": "a full disk refuses to let a deleted replica or a stray be renamed",
    "departure_repeated": "the directory of a replica that had to leave is renamed again",
    "replica_of_former_life": "a replica of a removed partition is found where its number is used",
    "replica_lost": "a replica is commanded to lead or to be in sync, and is not there",
    "topic_id_adopted": "a replica that lost its topic id takes the commanded one",
    # The controller and the store
    "session_confirmed_after_a_gap": "a broker that was stopped serves after the store's word",
    "store_answer_lost_but_applied": "a write of unknown outcome is found in the store",
    "store_request_lost": "a write of unknown outcome is not in the store, and made again",
    "silent_broker_not_awaited": "a response waits for no broker that has been silent for long",
    "leadership_relinquished": "a leader whose reads hang asks for another leader",
    "leaderships_wait_for_catch_up": "a broker that came back catches up before it leads again",
    "deposed_while_writing": "a controller's write is refused, as another has been elected",
    "election_won_unknowingly": "a controller learns of its election by reading back",
    "controller_node_left_over": "/controller belongs to this session, and no term uses it",
    "controller_stalled": "the store does not respond to a controller, which starts over",
    "controller_race_lost": "another broker was quicker to become controller",
    "controller_resigned_with_waiting": "requests wait for a response when a term ends",
    "registered_unknowingly": "a broker learns of its registration by reading back",
    "broker_id_still_taken": "a broker waits for its earlier session to end",
    "stopped_without_handing_over": "a broker stops although it leads what others might lead",
    "registration_lost_while_session_lives": "a broker's registration was deleted by hand",
    "session_lost_while_registering": "a session ends before its registration is answered",
    # The replication throttle
    "move_paused": "a replica stops copying: its reassignment pauses, or needs it no more",
    "move_throttled": "a replica's role brings the throttle of its reassignment along",
    "move_throttle_ended": "the throttle of a reassignment ends with it",
    "follower_throttled_by_leader": "a leader leaves a follower out that waits for the throttle",
    "throttled_fetch_resumed": "a fetch that waits goes on as the throttle allows reads again",
    "follower_throttled_itself": "a follower leaves a partition out of its fetches",
    "throttle_below_produce_rate": "a throttled replica falls behind, as its rate is too low",
    # Coordinators of groups
    "coordinator_moved_during_rebalance": "a coordinator ends while members join or synchronise",
    "coordinator_moved_while_loading": "a coordinator ends before it has loaded its partition",
    "coordinator_loaded_above_high_watermark": "a coordinator has loaded what is not committed yet",
    "offsets_overdue": "a coordinator's append takes too long, and its request times out",
    # Logs
    "damage_read": "a read finds that a file does not hold what was written",
    "damage_reported": "a broker asks to leave the ISR of a partition whose log is damaged",
    "damage_truncated": "a replica truncates its damaged log, and fetches the records again",
    "log_cut_at_start": "recovery truncates bytes that are no whole batch",
    # Log directories
    "directory_given_up": "a log directory fails, and its broker goes on with the others",
    "duplicate_replica_set_aside": "a starting broker finds a replica in two log directories",
    "replica_offline": "a command names a replica that may be in a failed log directory",
}
