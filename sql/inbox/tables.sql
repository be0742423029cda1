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
