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
