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
comment on column underseal.wake.flow is 'The flow whose workers may claim it.';
comment on column underseal.wake.wake_at is 'When it is due.';
comment on column underseal.wake.claimed_by is 'The worker that has claimed it; null for nobody.';
comment on column underseal.wake.claimed_until is 'Until when the claim holds. Not indexed, so that renewing stays cheap.';
comment on column underseal.wake.attempts is 'How often it has been claimed.';
comment on column underseal.wake.head is 'For a refusal: the head of the log at which it was refused.';
comment on column underseal.wake.holds is 'For a refusal: how often it was put off.';

create index wake_due on underseal.wake (flow, wake_at);

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
  created_at timestamptz not null,
  changed_at timestamptz not null,
  constraint schedule_pkey primary key (name),
  constraint schedule_named check (length(name) between 1 and 150 and name !~ '[~[:cntrl:]]'),
  constraint schedule_version_positive check (flow_version > 0),
  constraint schedule_missed_known check (missed in ('skip', 'latest', 'all')),
  constraint schedule_cron_length check (length(cron) between 1 and 200)
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
  'What becomes of instants that no worker was there for: skip starts nothing for them, latest one execution for the last of them, all one for each.';
comment on column underseal.schedule.paused is 'A paused schedule has no wake.';
comment on column underseal.schedule.last_id is 'The execution it started last; null for none.';
comment on column underseal.schedule.created_at is 'When it was first added.';
comment on column underseal.schedule.changed_at is 'When it was last changed.';
