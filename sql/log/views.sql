-- For dashboards: no payload.
create or replace view underseal.executions_by_state as
select e.flow, e.status, count(*) as executions, min(e.changed_at) as oldest_change,
  count(*) filter (where e.cancel_requested) as cancel_requested
from underseal.execution e
group by e.flow, e.status
order by e.flow, e.status;
comment on view underseal.executions_by_state is 'How many executions of each flow have which status.';
comment on column underseal.executions_by_state.flow is 'The flow.';
comment on column underseal.executions_by_state.status is
  'pending, running, suspended, completed, failed, cancelled or continued.';
comment on column underseal.executions_by_state.executions is 'How many.';
comment on column underseal.executions_by_state.oldest_change is 'When the one that has been so for longest recorded something last.';
comment on column underseal.executions_by_state.cancel_requested is 'Of how many it was asked that they be cancelled.';

-- A view's functions are called as whoever reads it, who has no private ones.
create or replace view underseal.oldest_parks as
select case when e.member = '' then e.chain_id else e.chain_id || '~' || e.member end as execution_id, e.flow, e.flow_version, e.owner, e.changed_at as parked_at,
  extract(epoch from underseal.clock() - e.changed_at) as parked_seconds, e.waits, e.cancel_requested
from underseal.execution e
where e.status = 'suspended'
order by e.changed_at, e.chain_id, e.member;
comment on view underseal.oldest_parks is 'Executions that wait for something, those that have recorded nothing for longest first.';
comment on column underseal.oldest_parks.execution_id is 'The execution.';
comment on column underseal.oldest_parks.flow is 'Its flow.';
comment on column underseal.oldest_parks.flow_version is 'The version that drives it.';
comment on column underseal.oldest_parks.owner is 'Principal it belongs to; null where the log does not tell.';
comment on column underseal.oldest_parks.parked_at is 'When it recorded something last.';
comment on column underseal.oldest_parks.parked_seconds is 'For how long, in seconds.';
comment on column underseal.oldest_parks.waits is
  'What it waits for: [{"wait": id, "arms": [{"topic": name} or {"due": instant}]}].';
comment on column underseal.oldest_parks.cancel_requested is 'Whether somebody asked that it be cancelled.';
