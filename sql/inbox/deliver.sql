-- Delivery in one call: what needs no key.
create or replace function underseal.deliver(execution_id text, fence bigint)
returns table (outcome text, reason text, message text, answered integer, held boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  chain text := underseal._chain_of(execution_id);
  me text := underseal._member_of(execution_id);
  flaw text;
begin
  perform underseal._require_read_committed();
  perform from underseal.execution e where e.chain_id = chain and e.member = me for no key update;
  flaw := underseal._delivery_flaw(chain, me, deliver.fence);
  if flaw is not null then
    return query select d.outcome, d.reason, d.message, 0, false from underseal._delivery_refusal(flaw) d;
    return;
  end if;
  return query
  select case when a.answered > 0 then 'delivered' when a.held then 'held' else 'none' end, null::text, null::text, a.answered, a.held
  from underseal._answer_what_can_be(chain, me) a;
end
$$;
comment on function underseal.deliver(text, bigint) is
  'Answers every wait of an execution that can be answered without a key, in the order of its park: due instants and plain messages, each by its first arm. For a driver, under its fence. held: a message that may be sealed holds up the rest, take it with next_message and consume_message. Outcomes: delivered (answered: how many waits); held; none; not-found; conflict (stale-fence, ended) (I1, G16).';

create or replace function underseal._delivery_flaw(chain_id text, member text, fence bigint) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when e.chain_id is null then 'not-found'
    when e.fence is distinct from _delivery_flaw.fence then 'stale-fence'
    when underseal._is_ended(e.status) then 'ended' end
  from (select) one
  left join underseal.execution e on e.chain_id = _delivery_flaw.chain_id and e.member = _delivery_flaw.member
$$;
comment on function underseal._delivery_flaw(text, text, bigint) is 'What keeps a driver from delivering to an execution; null for nothing.';

create or replace function underseal._delivery_refusal(flaw text, out outcome text, out reason text, out message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when flaw = 'not-found' then flaw else 'conflict' end, nullif(flaw, 'not-found'),
    case flaw
      when 'stale' then 'Expected this message to be the next one for this wait, found that it is not any more. Call underseal.next_message again.'
      else underseal._append_message(flaw) end
$$;
comment on function underseal._delivery_refusal(text) is 'Outcome, reason and message of a delivery that was refused.';
