-- What waits where, for operators and dashboards.
create or replace view underseal.inbox_backlog as
select case when e.member = '' then e.chain_id else e.chain_id || '~' || e.member end as execution_id, e.flow, e.status, m.topic, m.messages, m.first_inbox_seq,
  extract(epoch from n.now - m.first_sent_at) as oldest_seconds,
  coalesce(e.waits @> jsonb_build_array(jsonb_build_object('arms', jsonb_build_array(jsonb_build_object('topic', m.topic)))), false) as waited_for
from (
  select i.chain_id, i.line, i.topic, count(*) as messages, min(i.inbox_seq) as first_inbox_seq, min(i.sent_at) as first_sent_at
  from underseal.inbox_message i
  group by i.chain_id, i.line, i.topic) m
join underseal.execution f on f.chain_id = m.chain_id and f.member = m.line
join underseal.execution e on e.chain_id = f.chain_id and e.member = coalesce(f.current_member, f.member)
cross join (select underseal.clock() as now) n
order by m.first_sent_at;
comment on view underseal.inbox_backlog is
  'What waits in inboxes, a row for each topic, the oldest first. A message that is waited for and still there is one that is being delivered, or that the nodes at work cannot open.';
comment on column underseal.inbox_backlog.execution_id is 'The execution that goes on with the line.';
comment on column underseal.inbox_backlog.flow is 'Its flow.';
comment on column underseal.inbox_backlog.status is 'Its status; what waits for one that has ended is never delivered.';
comment on column underseal.inbox_backlog.topic is 'The topic.';
comment on column underseal.inbox_backlog.messages is 'How many messages of the topic wait.';
comment on column underseal.inbox_backlog.first_inbox_seq is 'Number of the first of them.';
comment on column underseal.inbox_backlog.oldest_seconds is 'Since when the oldest waits, in seconds.';
comment on column underseal.inbox_backlog.waited_for is 'Whether the execution waits for this topic.';
