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
