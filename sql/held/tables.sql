-- Held operations: what may be held, what is held, who voted, what happened, who was told.
--
-- Votes, events and tickets have no foreign key to their operation, and operations none to their
-- type: the triggers look at the parent anyway, under its lock and at its state, and refuse to let
-- it go before its children. A foreign key would check less, and every request of one type would
-- share-lock the same row.

create table underseal.operation_type (
  type text not null,
  version integer not null,
  mode text not null,
  armed boolean not null default true,
  parameters jsonb not null,
  salted boolean not null,
  votes_required integer not null,
  rejections_to_end integer not null,
  approvers text[],
  approver_hook text,
  hold_for interval not null,
  run_within interval not null,
  policy text not null,
  policy_digest bytea not null,
  sql_estimate text,
  sql_check_run text,
  sql_run text,
  safe_sqlstates text[] not null default '{}',
  constraint operation_type_pkey primary key (type, version),
  constraint operation_type_digest_length check (octet_length(policy_digest) = 32),
  constraint operation_type_name check (type ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  constraint operation_type_version_positive check (version > 0),
  constraint operation_type_mode_known check (mode in ('ON_APPROVAL', 'BY_REQUESTER')),
  constraint operation_type_votes_positive check (votes_required >= 1),
  constraint operation_type_rejections_positive check (rejections_to_end >= 1),
  constraint operation_type_quorum_reachable
    check (approvers is null or votes_required <= cardinality(approvers)),
  constraint operation_type_someone_decides check (approvers is not null or approver_hook is not null),
  constraint operation_type_durations
    check (hold_for between interval '1 second' and interval '365 days'
      and run_within between interval '1 second' and interval '365 days'),
  constraint operation_type_sql_whole
    check ((sql_run is null) = (sql_estimate is null) and (sql_run is null) = (sql_check_run is null)),
  constraint operation_type_sql_in_background check (sql_run is null or (mode = 'ON_APPROVAL' and not salted))
);
comment on table underseal.operation_type is
  'What may be held: a type and version, the JSON Schema of its parameters, its mode and its policy. The highest version of a type is the one in force.';
comment on column underseal.operation_type.type is 'Name of the type, for example account.close.';
comment on column underseal.operation_type.version is 'Version of the type, from 1. Parameters, mode and redaction never change within a version.';
comment on column underseal.operation_type.mode is 'ON_APPROVAL runs in the background; BY_REQUESTER runs when the requester asks again.';
comment on column underseal.operation_type.armed is 'The switch: off refuses new requests and runs. It never lets a gated call run unheld.';
comment on column underseal.operation_type.parameters is 'JSON Schema of the parameters.';
comment on column underseal.operation_type.salted is
  'True where the redacted copy can differ from the parameters: the hash then covers a random salt kept in the seal.';
comment on column underseal.operation_type.votes_required is 'Approvals needed, 1 or more.';
comment on column underseal.operation_type.rejections_to_end is 'Rejections that end the operation, 1 or more.';
comment on column underseal.operation_type.approvers is 'Principals who may approve, by name; null where only the hook decides.';
comment on column underseal.operation_type.approver_hook is
  'Function of the host (principal text, type text, version integer, operation_id uuid) returns boolean that says who else may approve; null where only the list decides.';
comment on column underseal.operation_type.hold_for is 'How long a request waits for its votes before it expires.';
comment on column underseal.operation_type.run_within is 'How long an approved operation may wait for its run.';
comment on column underseal.operation_type.policy is 'The policy as canonical JSON: what the digest covers and what the request seals.';
comment on column underseal.operation_type.policy_digest is 'SHA-256 of policy; set by the trigger, as policy is.';
comment on column underseal.operation_type.sql_estimate is 'SQL provider: function that gives effect and state_key; null for a provider in a service.';
comment on column underseal.operation_type.sql_check_run is 'SQL provider: function that agrees (null) or says why not.';
comment on column underseal.operation_type.sql_run is 'SQL provider: function that does it.';
comment on column underseal.operation_type.safe_sqlstates is 'SQL provider: SQLSTATEs whose message may be recorded.';

create table underseal.held_operation (
  operation_id uuid not null,
  type text not null,
  type_version integer not null,
  mode text not null,
  requester text not null,
  auth_kind text not null,
  token_id text,
  params_hash bytea not null,
  policy_digest bytea not null,
  votes_required integer not null,
  run_within interval not null,
  state_key text not null,
  requested_at timestamptz not null,
  expires_at timestamptz not null,
  request_audit_id uuid not null,
  effect text not null,
  redacted text not null,
  row_version bigint not null,
  state text not null,
  changed_by text not null,
  changed_at timestamptz not null,
  approved_at timestamptz,
  run_deadline timestamptz,
  run_id uuid,
  run_audit_id uuid,
  run_worker text,
  run_token_hash bytea,
  run_lease_until timestamptz,
  ended_at timestamptz,
  outcome_reason text,
  outcome_detail text,
  result jsonb,
  fingerprint bytea,
  fingerprint_key_id text,
  sealed_payload jsonb,
  payload_key_id text,
  constraint held_operation_pkey primary key (operation_id),
  constraint held_operation_mode_known check (mode in ('ON_APPROVAL', 'BY_REQUESTER')),
  constraint held_operation_state_known check (state in ('HELD', 'APPROVED', 'EXECUTING',
    'REJECTED', 'CANCELLED', 'EXPIRED', 'SUCCEEDED', 'FAILED', 'REFUSED', 'OUTCOME_UNKNOWN')),
  constraint held_operation_hash_length check (octet_length(params_hash) = 32 and octet_length(policy_digest) = 32),
  constraint held_operation_sizes check (octet_length(effect) <= 65536 and octet_length(redacted) <= 65536
    and octet_length(state_key) <= 1024 and octet_length(result::text) <= 65536
    and octet_length(outcome_reason) <= 1024 and octet_length(outcome_detail) <= 8192),
  constraint held_operation_ended check ((ended_at is not null) = (state in
    ('REJECTED', 'CANCELLED', 'EXPIRED', 'SUCCEEDED', 'FAILED', 'REFUSED', 'OUTCOME_UNKNOWN'))),
  constraint held_operation_payload_while_open check ((sealed_payload is null) = (ended_at is not null)),
  constraint held_operation_fingerprint_while_open check ((fingerprint is null) = (ended_at is not null)),
  constraint held_operation_key_ids check ((payload_key_id is null) = (sealed_payload is null)
    and (fingerprint_key_id is null) = (fingerprint is null)),
  constraint held_operation_payload_key_named check (payload_key_id is not distinct from (sealed_payload ->> 'kid')),
  constraint held_operation_approved check ((approved_at is null) = (run_deadline is null)
    and case state when 'HELD' then approved_at is null when 'REJECTED' then approved_at is null
      when 'CANCELLED' then true when 'EXPIRED' then true else approved_at is not null end),
  constraint held_operation_run check (
    (run_id is not null) = (state in ('EXECUTING', 'SUCCEEDED', 'FAILED', 'REFUSED', 'OUTCOME_UNKNOWN')) and
    (run_id is null) = (run_token_hash is null) and (run_id is null) = (run_lease_until is null)
    and (run_id is null) = (run_worker is null) and (run_id is null) = (run_audit_id is null)),
  constraint held_operation_result_of_success
    check (result is null or (state = 'SUCCEEDED' and mode = 'ON_APPROVAL'))
) with (fillfactor = 80);
comment on table underseal.held_operation is
  'One row a held operation. The lock on it is the order of everything that happens to the operation.';
comment on column underseal.held_operation.operation_id is 'Id, chosen by the client, since the seal is bound to it.';
comment on column underseal.held_operation.type is 'Type of the operation.';
comment on column underseal.held_operation.type_version is 'Version of the type at the request.';
comment on column underseal.held_operation.mode is 'ON_APPROVAL or BY_REQUESTER, from the type.';
comment on column underseal.held_operation.requester is 'Principal who asked, and as whom it runs.';
comment on column underseal.held_operation.auth_kind is 'How the requester was authenticated, in the service''s own words.';
comment on column underseal.held_operation.token_id is 'Token the request was bound to, if any.';
comment on column underseal.held_operation.params_hash is 'SHA-256 over type, version, canonical parameters and, where the type is salted, a salt that is in the seal alone.';
comment on column underseal.held_operation.policy_digest is 'Digest of the policy in force at the request.';
comment on column underseal.held_operation.votes_required is 'Approvals the policy demanded at the request.';
comment on column underseal.held_operation.run_within is 'How long after its approval it may run, as the policy said at the request.';
comment on column underseal.held_operation.state_key is 'What the estimate said the state of the world was; it must be the same at the run.';
comment on column underseal.held_operation.requested_at is 'Database instant of the request.';
comment on column underseal.held_operation.expires_at is 'From this instant on nobody can vote.';
comment on column underseal.held_operation.request_audit_id is 'Audit entry of the request.';
comment on column underseal.held_operation.effect is 'What the estimate said would happen, as canonical JSON; never a secret.';
comment on column underseal.held_operation.redacted is 'The parameters as approvers may see them, as canonical JSON.';
comment on column underseal.held_operation.row_version is 'Counts the changes of what an approver sees; a vote echoes it.';
comment on column underseal.held_operation.state is
  'HELD, APPROVED, EXECUTING, or one of the ends REJECTED, CANCELLED, EXPIRED, SUCCEEDED, FAILED, REFUSED, OUTCOME_UNKNOWN.';
comment on column underseal.held_operation.changed_by is 'Who made the latest change of state, or cast the latest vote: a principal, or worker:<name>, or underseal:sweep.';
comment on column underseal.held_operation.changed_at is 'Database instant of the latest change of state, or of the latest vote.';
comment on column underseal.held_operation.approved_at is 'When the last vote needed was cast.';
comment on column underseal.held_operation.run_deadline is 'From this instant on it is no longer run.';
comment on column underseal.held_operation.run_id is 'The one run, if it was claimed.';
comment on column underseal.held_operation.run_audit_id is 'Audit entry of the run.';
comment on column underseal.held_operation.run_worker is 'Worker that claimed the run.';
comment on column underseal.held_operation.run_token_hash is 'SHA-256 of the token that the claim returned.';
comment on column underseal.held_operation.run_lease_until is 'The run''s lease; once it has passed the outcome is unknown.';
comment on column underseal.held_operation.ended_at is 'When it reached its end.';
comment on column underseal.held_operation.outcome_reason is 'Why it ended as it did, in one hyphenated word.';
comment on column underseal.held_operation.outcome_detail is 'More about the end, for people: the words of who rejected or cancelled, a safe message of a failure; never a secret.';
comment on column underseal.held_operation.result is 'Result of an ON_APPROVAL run; that of a BY_REQUESTER run is stored nowhere.';
comment on column underseal.held_operation.fingerprint is 'Keyed digest by which an open duplicate is found.';
comment on column underseal.held_operation.fingerprint_key_id is 'Key of the fingerprint.';
comment on column underseal.held_operation.sealed_payload is 'The sealed request; wiped by the statement that ends the operation.';
comment on column underseal.held_operation.payload_key_id is 'Key that sealed it, kept equal to the seal''s own header.';

create unique index held_operation_open_fingerprint on underseal.held_operation (fingerprint)
  where ended_at is null;
create index held_operation_held on underseal.held_operation (expires_at) where state = 'HELD';
create index held_operation_approved on underseal.held_operation (run_deadline) where state = 'APPROVED';
create index held_operation_executing on underseal.held_operation (run_lease_until) where state = 'EXECUTING';
create index held_operation_ended on underseal.held_operation (ended_at) where ended_at is not null;
create index held_operation_open on underseal.held_operation (requested_at, operation_id) where ended_at is null;
create index held_operation_requester on underseal.held_operation (requester, requested_at, operation_id)
  where ended_at is null;
create index held_operation_requester_past on underseal.held_operation (requester, requested_at, operation_id)
  where ended_at is not null;
create index held_operation_past on underseal.held_operation (requested_at, operation_id) where ended_at is not null;
comment on index underseal.held_operation_open_fingerprint is 'One open operation a fingerprint.';
comment on index underseal.held_operation_held is 'Finds expiries.';
comment on index underseal.held_operation_approved is 'Finds runs to claim and runs that were missed.';
comment on index underseal.held_operation_executing is 'Finds lost leases.';
comment on index underseal.held_operation_ended is 'Finds what may be purged.';
comment on index underseal.held_operation_open is 'Lists what is open.';
comment on index underseal.held_operation_requester is 'Lists what one requester asked for and is open.';
comment on index underseal.held_operation_requester_past is 'Lists what one requester asked for and has ended.';
comment on index underseal.held_operation_past is 'Lists what has ended.';

create table underseal.held_vote (
  operation_id uuid not null,
  approver text not null,
  decision text not null,
  reason text,
  params_hash bytea not null,
  row_version bigint not null,
  cast_at timestamptz not null,
  sealed_decision jsonb not null,
  decision_key_id text not null,
  constraint held_vote_pkey primary key (operation_id, approver),
  constraint held_vote_decision_known check (decision in ('approve', 'reject')),
  constraint held_vote_decision_key_named check (decision_key_id = sealed_decision ->> 'kid'),
  constraint held_vote_reason_size check (octet_length(reason) <= 8192),
  constraint held_vote_rejection_says_why check (decision = 'approve' or coalesce(length(trim(reason)), 0) > 0)
);
comment on table underseal.held_vote is 'One row a vote; one vote an approver.';
comment on column underseal.held_vote.operation_id is 'The operation voted on.';
comment on column underseal.held_vote.approver is 'Who voted.';
comment on column underseal.held_vote.decision is 'approve or reject.';
comment on column underseal.held_vote.reason is 'Why; a rejection always says.';
comment on column underseal.held_vote.params_hash is 'The hash the vote echoed.';
comment on column underseal.held_vote.row_version is 'The row version the vote echoed.';
comment on column underseal.held_vote.cast_at is 'Database instant of the vote.';
comment on column underseal.held_vote.sealed_decision is 'The sealed decision, bound to operation and approver.';
comment on column underseal.held_vote.decision_key_id is 'Key that sealed it, kept equal to the seal''s own header.';

create table underseal.held_event (
  operation_id uuid not null,
  seq integer not null,
  type text not null,
  actor text not null,
  from_state text,
  to_state text not null,
  reason text,
  detail jsonb,
  recorded_at timestamptz not null,
  constraint held_event_pkey primary key (operation_id, seq),
  constraint held_event_type_known check (type in ('requested', 'voted', 'approved', 'rejected', 'cancelled',
    'expired', 'claimed', 'succeeded', 'failed', 'refused', 'outcome-unknown', 'late-finish'))
);
comment on table underseal.held_event is 'The timeline, append-only: one row for each change of state, one for each vote, one for each late finish.';
comment on column underseal.held_event.operation_id is 'The operation.';
comment on column underseal.held_event.seq is 'Place in the operation''s timeline, from 1 without gaps.';
comment on column underseal.held_event.type is 'What happened.';
comment on column underseal.held_event.actor is 'Who did it.';
comment on column underseal.held_event.from_state is 'State before; null for the request.';
comment on column underseal.held_event.to_state is 'State after; the same as before where the state did not change.';
comment on column underseal.held_event.reason is 'Why, where there is a reason.';
comment on column underseal.held_event.detail is 'More, for people and consumers; never a parameter.';
comment on column underseal.held_event.recorded_at is 'Database instant.';

-- A state is entered once in an operation's life (the state machine has no cycle), so one event for
-- each state entered is the same as one event for each change of state.
create unique index held_event_one_a_state on underseal.held_event (operation_id, to_state)
  where from_state is distinct from to_state;
comment on index underseal.held_event_one_a_state is 'At most one event for each change of state.';

create table underseal.held_event_pending (
  operation_id uuid not null,
  seq integer not null,
  arrival bigint generated always as identity,
  constraint held_event_pending_pkey primary key (operation_id, seq)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
comment on table underseal.held_event_pending is
  'Events that no reader has numbered yet; keeps an empty poll of the outbox cheap.';
comment on column underseal.held_event_pending.operation_id is 'The operation.';
comment on column underseal.held_event_pending.seq is 'The event.';
comment on column underseal.held_event_pending.arrival is
  'Order of writing. Within one operation it is the order of the events, since writers of an operation hold its lock.';

create table underseal.held_event_position (
  operation_id uuid not null,
  seq integer not null,
  position bigint not null,
  constraint held_event_position_pkey primary key (operation_id, seq),
  constraint held_event_position_position_key unique (position),
  constraint held_event_position_event_fkey foreign key (operation_id, seq)
    references underseal.held_event (operation_id, seq) on delete cascade
);
comment on table underseal.held_event_position is 'Positions in the outbox, given to committed events by the reader.';
comment on column underseal.held_event_position.operation_id is 'The operation.';
comment on column underseal.held_event_position.seq is 'The event.';
comment on column underseal.held_event_position.position is 'Its position, from 1 without gaps.';

create table underseal.outbox_head (
  only_row boolean not null default true,
  last_position bigint not null default 0,
  purged_through bigint not null default 0,
  constraint outbox_head_pkey primary key (only_row),
  constraint outbox_head_only_row check (only_row)
) with (fillfactor = 50);
comment on table underseal.outbox_head is 'One row: the end of the outbox. Readers lock it to give positions; writers never touch it.';
comment on column underseal.outbox_head.only_row is 'Always true.';
comment on column underseal.outbox_head.last_position is 'Highest position given.';
comment on column underseal.outbox_head.purged_through is 'Highest position that was purged; a new consumer starts after it at the earliest.';
insert into underseal.outbox_head default values;

create table underseal.outbox_consumer (
  consumer text not null,
  acknowledged bigint not null,
  registered_at timestamptz not null,
  acknowledged_at timestamptz not null,
  constraint outbox_consumer_pkey primary key (consumer),
  constraint outbox_consumer_name check (consumer ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$')
) with (fillfactor = 50);
comment on table underseal.outbox_consumer is 'Who reads the outbox, and how far each got. Purging waits for the slowest.';
comment on column underseal.outbox_consumer.consumer is 'Name of the consumer.';
comment on column underseal.outbox_consumer.acknowledged is 'Position up to which it has acknowledged.';
comment on column underseal.outbox_consumer.registered_at is 'When it was registered.';
comment on column underseal.outbox_consumer.acknowledged_at is 'When it acknowledged last, or was registered.';

create table underseal.replay_ticket (
  operation_id uuid not null,
  run_id uuid not null,
  principal text not null,
  ticket_hash bytea not null,
  issued_at timestamptz not null,
  consumed_at timestamptz,
  constraint replay_ticket_pkey primary key (operation_id, run_id),
  constraint replay_ticket_hash_length check (octet_length(ticket_hash) = 32)
);
comment on table underseal.replay_ticket is 'One-use tickets under which a gated method runs its body; one a run.';
comment on column underseal.replay_ticket.operation_id is 'The operation.';
comment on column underseal.replay_ticket.run_id is 'The run it was issued to.';
comment on column underseal.replay_ticket.principal is 'The requester, as whom the method runs.';
comment on column underseal.replay_ticket.ticket_hash is 'SHA-256 of the ticket; the ticket itself is in no table.';
comment on column underseal.replay_ticket.issued_at is 'When it was issued.';
comment on column underseal.replay_ticket.consumed_at is 'When it was used; a used ticket is of no use.';

create table underseal.held_waiter (
  operation_id uuid not null,
  chain_id text collate "C" not null,
  line text collate "C" not null,
  constraint held_waiter_pkey primary key (operation_id, chain_id, line)
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
comment on table underseal.held_waiter is
  'Lines of executions that are told when an operation ends. The transaction that ends it puts the message into their inboxes and removes the rows.';
comment on column underseal.held_waiter.operation_id is 'The operation, which is open.';
comment on column underseal.held_waiter.chain_id is 'The chain.';
comment on column underseal.held_waiter.line is 'The line of the chain, whose inbox gets the message.';

create index held_waiter_line on underseal.held_waiter (chain_id);
comment on index underseal.held_waiter_line is 'Finds what goes with a chain.';
