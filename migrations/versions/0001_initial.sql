-- What every room stands on: settings, who was granted what, who a login or a principal is, and
-- what operators are told.

create type underseal.outcome as (outcome text, reason text, message text);
comment on type underseal.outcome is
  'What a verb answers first: the outcome in one word, the reason of a refusal in one hyphenated word, and a message that says what was expected, what was found and what to do.';

create table underseal.setting (
  key text not null,
  value text not null,
  constraint setting_pkey primary key (key)
);
comment on table underseal.setting is
  'Settings of this installation, one row each. Only the schema owner writes it; never a session setting, since any client could change that.';
comment on column underseal.setting.key is 'Name of the setting, for example held.role_hook.';
comment on column underseal.setting.value is 'Its value as text.';

create table underseal.access_grant (
  grantee text not null,
  access text not null,
  principal text not null,
  constraint access_grant_pkey primary key (grantee, access),
  constraint access_grant_access_known
    check (access in ('client', 'approver', 'worker', 'operator', 'sealer', 'reader')),
  constraint access_grant_principal_known check (principal in ('asserted', 'login'))
);
comment on table underseal.access_grant is
  'What grant_access granted. Grants are made again from here whenever a function had to be dropped and created anew.';
comment on column underseal.access_grant.grantee is 'Role that was granted the access.';
comment on column underseal.access_grant.access is
  'client, approver, worker, operator, sealer or reader: the set of functions and views granted.';
comment on column underseal.access_grant.principal is
  'asserted: the role names the principal it acts for. login: the principal is the one principal_login maps the session''s login to, and any other name is refused.';

create table underseal.principal_login (
  login text not null,
  principal text not null,
  constraint principal_login_pkey primary key (login)
);
comment on table underseal.principal_login is
  'Which principal a database login is, for accesses granted with principal => ''login''.';
comment on column underseal.principal_login.login is 'Name of the login role (session_user).';
comment on column underseal.principal_login.principal is 'The principal it acts as.';

create table underseal.principal_role (
  principal text not null,
  role text not null,
  constraint principal_role_pkey primary key (principal)
);
comment on table underseal.principal_role is
  'Which database role a SQL provider runs under for a principal. Replaceable by the hook in setting held.role_hook.';
comment on column underseal.principal_role.principal is 'The requester.';
comment on column underseal.principal_role.role is 'The role that SET LOCAL ROLE takes for the run.';

create table underseal.operator_report (
  subject text not null,
  kind text not null,
  cause text not null,
  times bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  constraint operator_report_pkey primary key (subject, kind),
  constraint operator_report_times_positive check (times > 0)
) with (fillfactor = 70);
comment on table underseal.operator_report is
  'True causes, for operators only. A report is due the first time and then every 16th; the row counts them all.';
comment on column underseal.operator_report.subject is 'What it is about: an operation, a type, a consumer.';
comment on column underseal.operator_report.kind is 'What is the matter, in one hyphenated word, for example unserved-key.';
comment on column underseal.operator_report.cause is 'The latest cause, in words; never a secret.';
comment on column underseal.operator_report.times is 'How often it has been reported.';
comment on column underseal.operator_report.first_at is 'When it was reported first.';
comment on column underseal.operator_report.last_at is 'When it was reported last.';

-- What was asked and what was done, kept when the operation itself is purged.

create table underseal.audit_entry (
  operation_id uuid not null,
  id uuid not null,
  parent_id uuid,
  action text not null,
  principal text not null,
  detail jsonb not null,
  recorded_at timestamptz not null,
  constraint audit_entry_pkey primary key (operation_id, id),
  constraint audit_entry_parent_fkey foreign key (operation_id, parent_id)
    references underseal.audit_entry (operation_id, id),
  constraint audit_entry_action_known check (action in ('request', 'run', 'progress', 'result')),
  constraint audit_entry_root check ((action = 'request') = (parent_id is null))
);
comment on table underseal.audit_entry is
  'Audit entries, append-only. The request is the parent of the run, the run is the parent of its progress marks and of its result. Not purged with the operation.';
comment on column underseal.audit_entry.operation_id is 'The held operation it belongs to.';
comment on column underseal.audit_entry.id is 'Id of the entry.';
comment on column underseal.audit_entry.parent_id is 'The entry it follows from; null for a request.';
comment on column underseal.audit_entry.action is 'request, run, progress or result.';
comment on column underseal.audit_entry.principal is 'In whose name: for a run always the requester, never the approver.';
comment on column underseal.audit_entry.detail is
  'What the entry says: type, version and hash for a request; run, worker and approvals for a run; the note of a progress mark; state and reason of a result. Never a parameter.';
comment on column underseal.audit_entry.recorded_at is 'Database instant of the entry.';

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

-- Executions and their logs.
--
-- An execution is known to callers by one text: its chain's id, or chain~member. The tables keep the two parts, so that
-- the chain leads every key, an id that exists cannot be taken again under another chain, and nothing is stored twice.
-- The members of a chain: '' is the first execution, '2', '3'… continue it; a child has a name, its successors name.2…
-- Executions, events and the rest have no foreign keys: the triggers fold, check and delete them together.

create type underseal.appended as (
  outcome text, reason text, message text, item integer, execution_id text, status text, head bigint, fence bigint,
  cancel_requested boolean);
comment on type underseal.appended is
  'What became of one write to a log: the outcome, its place in the batch from 1, and the execution as it is now.';

create type underseal.log_item as (
  item integer, verb text, execution_id text, chain_id text collate "C", member text collate "C", fence bigint, head bigint,
  incarnation uuid, flow text, flow_version integer, input json, principal text, after interval, worker text, lease interval,
  waits json, cancel_told boolean, output json, error json, reason text, types text[], datas json[], flaw text);
comment on type underseal.log_item is 'An item of a batch as it came: its events'' types and data, and what is wrong with them.';

create type underseal.log_write as (
  item integer, verb text, execution_id text, chain_id text collate "C", member text collate "C", flaw text, at bigint,
  is_fence bigint, status text, cancel_requested boolean, owner text, flow text, flow_version integer, input json,
  after interval, worker text, lease interval, waits jsonb, types text[], datas json[], ending text,
  subject text, own jsonb, metadatas jsonb[]);
comment on type underseal.log_write is
  'An item of a batch as it was judged: what is wrong with it, its execution before it, and all that is to be written.';

create table underseal.execution (
  chain_id text collate "C" not null,
  member text collate "C" not null,
  line text collate "C" not null,
  incarnation uuid not null default gen_random_uuid(),
  flow text collate "C" not null,
  flow_version integer not null,
  owner text collate "C",
  status text collate "C" not null,
  head bigint not null,
  log_start bigint not null default 1,
  fence bigint not null,
  sealed boolean not null default false,
  cancel_requested boolean not null default false,
  recoveries integer not null default 0,
  waits jsonb,
  current_member text collate "C",
  last_inbox_seq bigint not null default 0,
  started_at timestamptz not null,
  changed_at timestamptz not null,
  constraint execution_pkey primary key (chain_id, member),
  constraint execution_version_positive check (flow_version > 0),
  constraint execution_status_known
    check (status in ('pending', 'running', 'suspended', 'completed', 'failed', 'cancelled', 'continued')),
  constraint execution_waits_while_open
    check (waits is null or (status in ('running', 'suspended') and jsonb_typeof(waits) = 'array')),
  constraint execution_log_start_range check (log_start between 1 and head + 1),
  constraint execution_fence_positive check (fence > 0)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
comment on table underseal.execution is
  'One row an execution: who it is, what its log folds to, and its fence. Everything that writes about an execution locks this row first.';
comment on column underseal.execution.chain_id is 'The chain: the id of its first execution. Never holds a tilde.';
comment on column underseal.execution.member is
  'Which execution of the chain: empty for the first, a number for one that continues it, a name for a child, name.number for one that continues a child.';
comment on column underseal.execution.line is
  'The member that began this line of continuations; the inbox belongs to the line.';
comment on column underseal.execution.incarnation is
  'Random: tells this execution from an earlier one of the same id that was deleted.';
comment on column underseal.execution.flow is 'Name of the flow, for example onboard.';
comment on column underseal.execution.flow_version is 'Version of the flow''s code that drives it, from 1.';
comment on column underseal.execution.owner is 'Principal it belongs to; null where the log does not tell.';
comment on column underseal.execution.status is
  'Folded: pending (started, nothing recorded since), running, suspended (parked on its waits), completed, failed, cancelled, continued (a successor goes on).';
comment on column underseal.execution.head is 'Folded: sequence number of the last event.';
comment on column underseal.execution.log_start is
  'Lowest sequence number above 0 that is kept; what lies between was compacted into a snapshot.';
comment on column underseal.execution.fence is
  'The write guard: only grows, and a driver''s writes carry the number it was given.';
comment on column underseal.execution.sealed is 'Folded: whether an event of the log carries a seal marker.';
comment on column underseal.execution.cancel_requested is 'Folded: somebody asked that it be cancelled; its driver cleans up and ends it.';
comment on column underseal.execution.recoveries is 'Folded: how often it was taken over since it last recorded anything.';
comment on column underseal.execution.waits is
  'Folded: what it waits for, unanswered, in park order: [{"wait": id, "arms": [{"topic": name} or {"due": instant}]}]; null for nothing.';
comment on column underseal.execution.current_member is
  'In the first row of a line: the member that goes on with it now; null where that is the row itself.';
comment on column underseal.execution.last_inbox_seq is
  'In the first row of a line: the last number given to a message of its inbox.';
comment on column underseal.execution.started_at is 'When it was started.';
comment on column underseal.execution.changed_at is 'When its last event was recorded.';

-- Lists go by when an execution was started, which never changes.
create index execution_started on underseal.execution (started_at, chain_id, member);
create index execution_owner on underseal.execution (owner, started_at, chain_id, member);

create table underseal.event (
  chain_id text collate "C" not null,
  member text collate "C" not null,
  seq bigint not null,
  txn xid8 not null default pg_current_xact_id(),
  recorded_at timestamptz not null,
  type text collate "C" not null,
  data json not null,
  metadata jsonb,
  constraint event_pkey primary key (chain_id, member, seq),
  constraint event_seq_range check (seq >= 0),
  constraint event_begins_with_start check ((seq = 0) = (type = 'EXECUTION_STARTED')),
  constraint event_type_length check (length(type) between 1 and 64)
) with (autovacuum_vacuum_insert_scale_factor = 0.05);
comment on table underseal.event is
  'The logs: append-only, contiguous from 0 within an execution. What an insert changes elsewhere is done by the fold trigger, whoever inserts.';
comment on column underseal.event.chain_id is 'The chain.';
comment on column underseal.event.member is 'The execution within its chain.';
comment on column underseal.event.seq is 'Sequence number: 0 is EXECUTION_STARTED, then without a gap.';
comment on column underseal.event.txn is 'The transaction that wrote it: what a live subscription finds it by.';
comment on column underseal.event.recorded_at is 'When it was recorded, by the database''s clock.';
comment on column underseal.event.type is 'What happened. Types beginning with EXECUTION_, MESSAGE_, TIMER_, INBOX_, OUTCOME_, PAYLOAD_ and ERASURE_ are written by their own verbs.';
comment on column underseal.event.data is 'What happened, in detail: a JSON object, kept as the text it came as; sealed members are envelopes.';
comment on column underseal.event.metadata is 'Written by the kernel alone, never by a caller: the seal marker where a member is sealed; null mostly.';

-- A subscription asks for the events of transactions that an earlier snapshot did not see.
create index event_txn on underseal.event (txn);

create table underseal.fence_floor (
  chain_id text collate "C" not null,
  member text collate "C" not null,
  fence bigint not null,
  constraint fence_floor_pkey primary key (chain_id, member)
);
comment on table underseal.fence_floor is
  'The last fence of executions that were deleted: one that takes the id again begins above it.';
comment on column underseal.fence_floor.chain_id is 'The chain.';
comment on column underseal.fence_floor.member is 'The execution within its chain.';
comment on column underseal.fence_floor.fence is 'The last fence it had.';

create table underseal.execution_denial (
  denial_id bigint generated always as identity,
  denied_at timestamptz not null,
  op text not null,
  execution_id text not null,
  principal text,
  cause text not null,
  constraint execution_denial_pkey primary key (denial_id)
);
comment on table underseal.execution_denial is
  'Every denial of an operation on an execution, with the cause that the caller is not told. Kept for 30 days.';
comment on column underseal.execution_denial.denial_id is 'Number of the denial.';
comment on column underseal.execution_denial.denied_at is 'When.';
comment on column underseal.execution_denial.op is 'What was asked: read, send, resume, cancel, migrate, fork, outcome, discard, delete, compact.';
comment on column underseal.execution_denial.execution_id is 'Which execution was named.';
comment on column underseal.execution_denial.principal is 'Who asked; null where nobody could be named.';
comment on column underseal.execution_denial.cause is 'no-principal, missing, foreign, unknown-owner, policy-hook or sealed.';

create table underseal.content (
  chain_id text collate "C" not null,
  hash bytea not null,
  body json not null,
  stored_at timestamptz not null,
  constraint content_pkey primary key (chain_id, hash),
  constraint content_hash_is_the_bodys check (hash = sha256(convert_to(body::text, 'UTF8')))
);
comment on table underseal.content is
  'Large values, stored once a chain under the hash of their bytes; events refer to them by {"$content": "<hex>"}.';
comment on column underseal.content.chain_id is 'The chain whose executions refer to it.';
comment on column underseal.content.hash is 'SHA-256 of the body''s text in UTF-8.';
comment on column underseal.content.body is 'The value, kept as the text it came as.';
comment on column underseal.content.stored_at is 'When it was last stored; what is young is not swept, since its event may be on its way.';

-- The inbox of a line of executions: what was sent and not yet delivered, and what its logs fold to.

create table underseal.inbox_message (
  chain_id text collate "C" not null,
  line text collate "C" not null,
  inbox_seq bigint not null,
  topic text collate "C" not null,
  message_key bytea not null,
  sender text collate "C" not null,
  message_id text collate "C" not null,
  payload json not null,
  metadata jsonb,
  sent_at timestamptz not null,
  expires_at timestamptz,
  constraint inbox_message_pkey primary key (chain_id, line, inbox_seq),
  constraint inbox_message_key_once unique (chain_id, line, message_key),
  constraint inbox_message_seq_positive check (inbox_seq > 0),
  constraint inbox_message_key_length check (octet_length(message_key) = 32),
  constraint inbox_message_topic_named check (length(topic) between 1 and 200 and topic !~ '[[:cntrl:]]'),
  constraint inbox_message_id_length check (length(message_id) between 1 and 321)
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
comment on table underseal.inbox_message is
  'Messages that wait for delivery. A delivered, discarded or expired message leaves in the transaction that records it.';
comment on column underseal.inbox_message.chain_id is 'The chain.';
comment on column underseal.inbox_message.line is 'The line of the chain it was sent to.';
comment on column underseal.inbox_message.inbox_seq is 'Its number in the line''s inbox, in the order in which sends committed.';
comment on column underseal.inbox_message.topic is
  'Its topic; first in, first out within one. Topics that begin with $gate/, $child/ and $hold/ are the kernel''s.';
comment on column underseal.inbox_message.message_key is 'What duplicates are found by: SHA-256 over sender and message id.';
comment on column underseal.inbox_message.sender is 'The principal who sent it; the execution, or the held operation, that ended.';
comment on column underseal.inbox_message.message_id is
  'The id its sender gave it, of at most 256 characters, or one that was drawn for it; of a child''s end the child''s id, of at most 321.';
comment on column underseal.inbox_message.payload is 'What was sent, kept as the text it came as.';
comment on column underseal.inbox_message.metadata is 'Written by the kernel alone: the seal marker; null mostly.';
comment on column underseal.inbox_message.sent_at is 'When it was sent.';
comment on column underseal.inbox_message.expires_at is 'When it expires; null for never.';

create index inbox_message_topic on underseal.inbox_message (chain_id, line, topic, inbox_seq);
create index inbox_message_expiry on underseal.inbox_message (expires_at) where expires_at is not null;

create table underseal.inbox_cursor (
  chain_id text collate "C" not null,
  line text collate "C" not null,
  topic text collate "C" not null,
  inbox_seq bigint not null,
  constraint inbox_cursor_pkey primary key (chain_id, line, topic)
) with (fillfactor = 70);
comment on table underseal.inbox_cursor is
  'Folded: per topic, up to where messages were delivered, discarded or expired. Only grows.';
comment on column underseal.inbox_cursor.chain_id is 'The chain.';
comment on column underseal.inbox_cursor.line is 'The line of the chain.';
comment on column underseal.inbox_cursor.topic is 'The topic.';
comment on column underseal.inbox_cursor.inbox_seq is 'Number of the last message of the topic that was disposed of.';

create table underseal.inbox_seen (
  chain_id text collate "C" not null,
  line text collate "C" not null,
  message_key bytea not null,
  inbox_seq bigint not null,
  turn bigint not null,
  constraint inbox_seen_pkey primary key (chain_id, line, message_key),
  constraint inbox_seen_turn unique (chain_id, line, turn)
);
comment on table underseal.inbox_seen is
  'Folded: keys of messages disposed of lately; a message sent again under one of them is a duplicate. The 1,024 that came last are remembered.';
comment on column underseal.inbox_seen.chain_id is 'The chain.';
comment on column underseal.inbox_seen.line is 'The line of the chain.';
comment on column underseal.inbox_seen.message_key is 'The key.';
comment on column underseal.inbox_seen.inbox_seq is 'The number under which it was disposed of.';
comment on column underseal.inbox_seen.turn is 'The how-manieth key of the line it is, in the order of disposal.';

-- What is due: one table for everything that makes a worker look at something.

create table underseal.wake (
  chain_id text collate "C" not null,
  member text collate "C" not null,
  kind text collate "C" not null,
  flow text collate "C" not null,
  wake_at timestamptz not null,
  claimed_by text collate "C",
  claimed_until timestamptz,
  attempts integer not null default 0,
  head bigint,
  holds integer not null default 0,
  constraint wake_pkey primary key (chain_id, member, kind),
  constraint wake_kind_known check (kind in ('drive', 'timer', 'inbox', 'refusal', 'schedule')),
  constraint wake_flow_unless_schedule check ((flow = '') = (kind = 'schedule')),
  constraint wake_claim_whole check ((claimed_by is null) = (claimed_until is null)),
  constraint wake_counts check (attempts >= 0 and holds >= 0)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0);
comment on table underseal.wake is
  'What is due, or will be. A claim is a lease in the row, never a long transaction: one that expires is the evidence that its worker is gone.';
comment on column underseal.wake.chain_id is 'The chain; for a schedule its name.';
comment on column underseal.wake.member is 'The execution within its chain; empty for a schedule.';
comment on column underseal.wake.kind is
  'drive (there is something to run), timer (a wait''s instant comes), inbox (a message for a wait is there), refusal (a node could not go on, another may), schedule (start an execution).';
comment on column underseal.wake.flow is 'The flow whose workers may claim it; empty for a schedule, which any worker may fire.';
comment on column underseal.wake.wake_at is 'When it is due.';
comment on column underseal.wake.claimed_by is 'The worker that has claimed it; null for nobody.';
comment on column underseal.wake.claimed_until is 'Until when the claim holds. Not indexed, so that renewing stays cheap.';
comment on column underseal.wake.attempts is 'How often it has been claimed since it came to be or was last given back: at more than one, the worker before is gone.';
comment on column underseal.wake.head is 'For a refusal: the head of the log at which it was refused.';
comment on column underseal.wake.holds is 'How often it was put off: given back with a delay, or, for a refusal, met again too early.';

create index wake_due on underseal.wake (flow, wake_at);

create table underseal.wake_floor (
  flow text collate "C" not null,
  floor_at timestamptz not null,
  look_at timestamptz not null,
  sweep_at timestamptz not null,
  constraint wake_floor_pkey primary key (flow)
) with (fillfactor = 50);
comment on table underseal.wake_floor is
  'Where a search for due wakes begins. Below it nothing was left when it was last looked; while somebody holds an old snapshot, what was finished there still stands in the index, and every search would walk through it.';
comment on column underseal.wake_floor.flow is 'The flow; empty for schedules.';
comment on column underseal.wake_floor.floor_at is 'Wakes due before this are looked for only in a sweep.';
comment on column underseal.wake_floor.look_at is 'When the floor is to be raised next.';
comment on column underseal.wake_floor.sweep_at is 'When everything below it is to be looked through next, for what was committed late.';

create table underseal.schedule (
  name text collate "C" not null,
  flow text collate "C" not null,
  flow_version integer not null,
  input json not null,
  owner text collate "C" not null,
  cron text not null,
  time_zone text not null,
  missed text not null,
  paused boolean not null default false,
  last_id text,
  revision uuid not null default gen_random_uuid(),
  created_at timestamptz not null,
  changed_at timestamptz not null,
  constraint schedule_pkey primary key (name),
  constraint schedule_named check (length(name) between 1 and 150 and name !~ '[~[:cntrl:]]'),
  constraint schedule_version_positive check (flow_version > 0),
  constraint schedule_missed_known check (missed in ('skip', 'latest', 'all')),
  constraint schedule_flow_named check (flow ~ '^[^[:cntrl:]]+$' and length(flow) <= 200),
  constraint schedule_cron_fields check (cron ~ '^[0-9A-Za-z*/,#-]+( [0-9A-Za-z*/,#-]+){4,5}$' and length(cron) <= 200),
  constraint schedule_zone_named check (time_zone ~ '^[A-Za-z0-9_+/-]{1,64}$'),
  constraint schedule_owned check (owner <> '')
);
comment on table underseal.schedule is
  'Flows that start again and again. Its next instant is its wake''s; clients work out the distance between two instants of a cron expression, the database does the rest.';
comment on column underseal.schedule.name is 'Name of the schedule; its executions are called name@instant.';
comment on column underseal.schedule.flow is 'The flow to start.';
comment on column underseal.schedule.flow_version is 'The version to start.';
comment on column underseal.schedule.input is 'The input each execution gets.';
comment on column underseal.schedule.owner is 'The owner of the executions.';
comment on column underseal.schedule.cron is 'A cron expression of five fields, or six with seconds first.';
comment on column underseal.schedule.time_zone is 'The IANA time zone in which the expression is read.';
comment on column underseal.schedule.missed is
  'What becomes of instants that no worker was there for: skip starts nothing for them, latest one execution for the last instant due by then, all one for each.';
comment on column underseal.schedule.paused is 'A paused schedule has no wake.';
comment on column underseal.schedule.last_id is 'The execution it started last; null for none.';
comment on column underseal.schedule.revision is
  'Random, another with every change: what a worker has worked out from the schedule counts only while it is the same.';
comment on column underseal.schedule.created_at is 'When it was first added.';
comment on column underseal.schedule.changed_at is 'When it was last changed.';

-- Snapshots: where replay may begin instead of at the beginning.

create table underseal.snapshot (
  chain_id text collate "C" not null,
  member text collate "C" not null,
  seq bigint not null,
  state json not null,
  fold jsonb not null,
  metadata jsonb,
  saved_at timestamptz not null,
  constraint snapshot_pkey primary key (chain_id, member, seq)
);
comment on table underseal.snapshot is
  'A flow''s state as of an event of its log, with what the log had folded to there, so that the log below it can go.';
comment on column underseal.snapshot.chain_id is 'The chain.';
comment on column underseal.snapshot.member is 'The execution within its chain.';
comment on column underseal.snapshot.seq is 'The last event it covers.';
comment on column underseal.snapshot.state is 'The flow''s state, or one envelope that stands for it.';
comment on column underseal.snapshot.fold is 'What the log folds to at this event; no payload in it.';
comment on column underseal.snapshot.metadata is 'Written by the kernel alone: the seal marker; null mostly.';
comment on column underseal.snapshot.saved_at is 'When it was saved.';

-- Whose data a chain holds, and which keys are whose. No key material: keys are in a store outside this database.

create type underseal.log_mark as (
  item integer, subject text, value json, own jsonb, metadatas jsonb[], kids text[]);
comment on type underseal.log_mark is
  'What an item of a batch says of seals: the subject its chain will hold; of the event that the item itself makes, the value, which was judged, and the metadata; the metadata of its events; the ids of the keys.';

create table underseal.chain_subject (
  chain_id text collate "C" not null,
  subject text collate "C" not null,
  set_at timestamptz not null,
  constraint chain_subject_pkey primary key (chain_id)
);
comment on table underseal.chain_subject is
  'Whose data a chain holds, as its first event says. One that has no row here has no subject, and nothing in it is sealed.';
comment on column underseal.chain_subject.chain_id is 'The chain.';
comment on column underseal.chain_subject.subject is 'The subject: an id of the host''s, 1 to 200 characters. It is readable; let it say nothing.';
comment on column underseal.chain_subject.set_at is 'When the chain was started.';

-- An erasure goes over the chains of one subject.
create index chain_subject_subject on underseal.chain_subject (subject, chain_id);

create table underseal.subject_key (
  key_id text collate "C" not null,
  subject text collate "C" not null,
  epoch integer not null,
  registered_at timestamptz not null,
  destroyed_at timestamptz,
  constraint subject_key_pkey primary key (key_id),
  constraint subject_key_epoch unique (subject, epoch),
  constraint subject_key_id_shape check (key_id ~ '^[!-~]+$' and length(key_id) <= 128),
  constraint subject_key_subject_shape check (subject ~ '^[^[:cntrl:]]+$' and length(subject) <= 200),
  constraint subject_key_epoch_positive check (epoch > 0)
);
comment on table underseal.subject_key is
  'Which key ids are whose, so that an envelope under another subject''s key is refused. Rows stay for good.';
comment on column underseal.subject_key.key_id is 'The id that stands in envelopes.';
comment on column underseal.subject_key.subject is 'Whose data it seals.';
comment on column underseal.subject_key.epoch is 'Which of the subject''s keys it is, from 1.';
comment on column underseal.subject_key.registered_at is 'When it was registered.';
comment on column underseal.subject_key.destroyed_at is 'When it was destroyed; nothing is sealed under it from then on. Null while it is there.';

create table underseal.subject_fence (
  subject text collate "C" not null,
  began_at timestamptz not null,
  state text collate "C" not null,
  constraint subject_fence_pkey primary key (subject),
  constraint subject_fence_subject_shape check (subject ~ '^[^[:cntrl:]]+$' and length(subject) <= 200),
  constraint subject_fence_state_known check (state in ('erasing', 'erased'))
);
comment on table underseal.subject_fence is
  'Subjects that are being erased, or were: nothing is sealed for them any more, nothing is started for them, and no key of theirs is registered. A row stays for good. Whoever puts one here commits it, then waits for what was sealed before: he locks the subject''s rows in subject_key FOR UPDATE, in a transaction that holds nothing else, and lastly each chain.';
comment on column underseal.subject_fence.subject is 'The subject.';
comment on column underseal.subject_fence.began_at is 'When its erasure began.';
comment on column underseal.subject_fence.state is 'erasing, then erased.';
