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
