-- For people with psql and for dashboards: nothing secret, no seal.
create or replace view underseal.pending_operations as
select o.operation_id, o.type, o.type_version as version, o.mode, o.state, o.requester, o.effect, o.redacted,
  (select count(*) from underseal.held_vote v where v.operation_id = o.operation_id and v.decision = 'approve') as approvals,
  o.votes_required, o.requested_at, o.expires_at, o.run_deadline, o.run_worker, o.run_lease_until
from underseal.held_operation o
where o.ended_at is null
order by o.requested_at;
comment on view underseal.pending_operations is 'Every open operation: held, approved or executing.';
comment on column underseal.pending_operations.operation_id is 'The operation.';
comment on column underseal.pending_operations.type is 'Its type.';
comment on column underseal.pending_operations.version is 'Version of the type.';
comment on column underseal.pending_operations.mode is 'ON_APPROVAL or BY_REQUESTER.';
comment on column underseal.pending_operations.state is 'HELD, APPROVED or EXECUTING.';
comment on column underseal.pending_operations.requester is 'Who asked.';
comment on column underseal.pending_operations.effect is 'What the estimate said would happen.';
comment on column underseal.pending_operations.redacted is 'The parameters as approvers see them.';
comment on column underseal.pending_operations.approvals is 'Approvals so far.';
comment on column underseal.pending_operations.votes_required is 'Approvals demanded at the request.';
comment on column underseal.pending_operations.requested_at is 'When it was requested.';
comment on column underseal.pending_operations.expires_at is 'When it can no longer be voted on.';
comment on column underseal.pending_operations.run_deadline is 'When it can no longer be run.';
comment on column underseal.pending_operations.run_worker is 'Who runs it.';
comment on column underseal.pending_operations.run_lease_until is 'Until when the run''s lease holds.';

create or replace view underseal.operation_timeline as
select e.operation_id, e.seq, o.type as operation_type, o.requester, e.type, e.actor, e.from_state, e.to_state, e.reason,
  e.detail, e.recorded_at, n.position
from underseal.held_event e
join underseal.held_operation o on o.operation_id = e.operation_id
left join underseal.held_event_position n on n.operation_id = e.operation_id and n.seq = e.seq
order by e.operation_id, e.seq;
comment on view underseal.operation_timeline is 'Who did what, when, from which state to which, in order for each operation (H3.6).';
comment on column underseal.operation_timeline.operation_id is 'The operation.';
comment on column underseal.operation_timeline.seq is 'Place in its timeline, from 1.';
comment on column underseal.operation_timeline.operation_type is 'Type of the operation.';
comment on column underseal.operation_timeline.requester is 'Who asked.';
comment on column underseal.operation_timeline.type is 'What happened.';
comment on column underseal.operation_timeline.actor is 'Who did it.';
comment on column underseal.operation_timeline.from_state is 'State before.';
comment on column underseal.operation_timeline.to_state is 'State after.';
comment on column underseal.operation_timeline.reason is 'Why.';
comment on column underseal.operation_timeline.detail is 'More, for people.';
comment on column underseal.operation_timeline.recorded_at is 'When.';
comment on column underseal.operation_timeline.position is 'Position in the outbox; null until a reader numbered it.';

create or replace view underseal.operation_health as
select 'state' as kind, o.state as name, count(*) as amount,
  extract(epoch from underseal.clock() - min(o.requested_at)) as oldest_seconds
from underseal.held_operation o where o.ended_at is null group by o.state
union all
select 'stuck-run', coalesce(o.run_worker, '?'), count(*), extract(epoch from underseal.clock() - min(o.run_lease_until))
from underseal.held_operation o
where o.state = 'EXECUTING' and o.run_lease_until <= (select underseal.clock()) group by o.run_worker
union all
select 'overdue', o.state, count(*), extract(epoch from underseal.clock() - min(coalesce(o.run_deadline, o.expires_at)))
from underseal.held_operation o
where (o.state = 'HELD' and o.expires_at <= (select underseal.clock()))
  or (o.state = 'APPROVED' and o.run_deadline <= (select underseal.clock()))
group by o.state
union all
select 'ended-today', o.state, count(*), extract(epoch from underseal.clock() - min(o.ended_at))
from underseal.held_operation o
where o.ended_at > (select underseal.clock()) - interval '1 day' group by o.state
union all
select 'outbox-lag', c.consumer, h.last_position - c.acknowledged
  + (select count(*) from underseal.held_event_pending), extract(epoch from underseal.clock() - c.acknowledged_at)
from underseal.outbox_consumer c cross join underseal.outbox_head h;
comment on view underseal.operation_health is
  'Counts and oldest ages: open operations by state, runs whose lease has passed, what the sweep is late with, what ended within a day, and how far each outbox consumer is behind.';
comment on column underseal.operation_health.kind is 'state, stuck-run, overdue, ended-today or outbox-lag.';
comment on column underseal.operation_health.name is 'The state, the worker or the consumer.';
comment on column underseal.operation_health.amount is 'How many rows, or how many events behind.';
comment on column underseal.operation_health.oldest_seconds is 'Age of the oldest, in seconds; for a consumer, since it acknowledged last.';
