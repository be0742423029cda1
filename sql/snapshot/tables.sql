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
