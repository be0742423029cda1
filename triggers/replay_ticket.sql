-- A ticket is issued to a run that is under way, and used once.
create or replace function underseal._check_replay_ticket() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  op underseal.held_operation;
begin
  if tg_op = 'INSERT' then
    select o.* into op from underseal.held_operation o where o.operation_id = new.operation_id for no key update;
    if op.state is distinct from 'EXECUTING' or op.run_id is distinct from new.run_id
      or op.requester is distinct from new.principal or new.consumed_at is not null then
      raise exception using errcode = 'US002',
        message = 'underseal.replay_ticket expected an unused ticket of the present run and its requester, found another',
        hint = 'Call underseal.issue_ticket.';
    end if;
    return new;
  end if;
  if tg_op = 'DELETE' then
    if not coalesce(underseal._may_be_purged(old.operation_id), false) then
      raise exception using errcode = 'US007',
        message = 'underseal.replay_ticket expected to keep a ticket with its operation, found a DELETE',
        hint = 'Call underseal.purge_operations.';
    end if;
    return old;
  end if;
  if old.consumed_at is not null or new.consumed_at is null
    or (old.operation_id, old.run_id, old.principal, old.ticket_hash, old.issued_at)
      is distinct from (new.operation_id, new.run_id, new.principal, new.ticket_hash, new.issued_at) then
    raise exception using errcode = 'US004',
      message = 'underseal.replay_ticket expected a ticket to be used once and otherwise to stay, found another change',
      hint = 'Call underseal.consume_ticket.';
  end if;
  return new;
end
$$;
comment on function underseal._check_replay_ticket() is 'A ticket is used once (H6.6).';

create or replace trigger replay_ticket_check
before insert or update or delete on underseal.replay_ticket
for each row execute function underseal._check_replay_ticket();
alter table underseal.replay_ticket enable always trigger replay_ticket_check;
comment on trigger replay_ticket_check on underseal.replay_ticket is 'Used once.';

create or replace trigger replay_ticket_no_truncate
before truncate on underseal.replay_ticket
for each statement execute function underseal._refuse_change();
alter table underseal.replay_ticket enable always trigger replay_ticket_no_truncate;
comment on trigger replay_ticket_no_truncate on underseal.replay_ticket is 'Never truncated.';
