-- The sweep disposes of what has expired, also where nobody drives. Sweepers never wait for each other, nor for a driver.
create or replace function underseal.expire_inbox(max_messages integer default 100)
returns table (outcome text, reason text, message text, expired integer)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  most integer := least(coalesce(max_messages, 100), 10000);
  began timestamptz := underseal.clock();
  due record;
  done text[] := '{}';
  dropped integer;
  total integer := 0;
begin
  perform underseal._require_read_committed();
  for due in
    -- more than is asked for: lines that are locked must not hide the others
    select m.chain_id, m.line from underseal.inbox_message m
    where m.expires_at <= began
    order by m.expires_at
    limit most * 10
  loop
    exit when total >= most;
    continue when underseal._execution_id(due.chain_id, due.line) = any (done);
    done := done || underseal._execution_id(due.chain_id, due.line);
    begin
      dropped := underseal._expire_line(due.chain_id, due.line, most - total);
      total := total + dropped;
    exception when others then
      if underseal._is_no_fault_of_a_row(sqlstate) then
        raise;
      end if;
      perform underseal._report(underseal._execution_id(due.chain_id, due.line), 'expire-failed', format(
        'What has expired in its inbox could not be disposed of (SQLSTATE %s). Run underseal doctor; a row may have been edited.', sqlstate));
    end;
  end loop;
  return query select case when total > 0 then 'expired' else 'unchanged' end, null::text, null::text, total;
end
$$;
comment on function underseal.expire_inbox(integer) is
  'Disposes of up to max_messages (at most 10,000) messages that have expired, and records each, without its payload, in the log of the execution that goes on with its line. Executions that somebody has locked are left for the next sweep; one that fails is reported and stops no other. Outcomes: expired, unchanged. expired: how many (I3).';

create or replace function underseal._expire_line(chain_id text, line text, max_messages integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  going_on text;
begin
  select coalesce(e.current_member, e.member) into going_on
  from underseal.execution e
  where e.chain_id = _expire_line.chain_id and e.member = _expire_line.line
  for no key update skip locked;
  if not found then
    return 0;
  end if;
  if going_on <> line then
    perform from underseal.execution e
    where e.chain_id = _expire_line.chain_id and e.member = going_on
    for no key update skip locked;
    if not found then
      return 0;
    end if;
  end if;
  return underseal._expire_messages(chain_id, line, going_on, underseal.clock(), null, max_messages);
end
$$;
comment on function underseal._expire_line(text, text, integer) is
  'Disposes of what has expired in one line''s inbox, if nobody has it locked. How many there were.';
