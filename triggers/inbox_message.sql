-- A message is never changed. It comes under a number its line has given, and goes when the fold has disposed of it (the
-- topic's cursor has reached it), or with its line.
create or replace function underseal._check_inbox_message() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
-- a plan made while the tables were small must not stay a scan of all executions
set enable_seqscan = off
set jit = off
as $$
declare
  given bigint;
  disposed bigint;
begin
  select e.last_inbox_seq, (
      select c.inbox_seq from underseal.inbox_cursor c
      where c.chain_id = new.chain_id and c.line = new.line and c.topic = new.topic)
    into given, disposed
  from underseal.execution e
  where e.chain_id = new.chain_id and e.member = new.line and e.line = new.line;
  if given is null or new.inbox_seq > given or new.inbox_seq <= disposed then
    raise exception using errcode = 'US002',
      message = format('underseal.inbox_message expected a number that the line of %s has given and that its topic has not passed, found %s', underseal._execution_id(new.chain_id, new.line), new.inbox_seq),
      hint = 'Call underseal.send.';
  end if;
  return new;
end
$$;
comment on function underseal._check_inbox_message() is 'A message has a number that its line gave, above what its topic has disposed of (I1, I2).';

create or replace function underseal._keep_inbox_message() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (
      select from underseal.inbox_cursor c
      where c.chain_id = old.chain_id and c.line = old.line and c.topic = old.topic and c.inbox_seq >= old.inbox_seq)
    and exists (select from underseal.execution e where e.chain_id = old.chain_id and e.member = old.line) then
    perform underseal._refuse_delete('inbox_message', 'Call underseal.discard_inbox, or delete the chain.');
  end if;
  return null;
end
$$;
comment on function underseal._keep_inbox_message() is
  'Keeps messages that nothing has disposed of: one may go when its topic''s cursor has reached its number, or when its line is gone (I1, I3).';

create or replace trigger inbox_message_check
before insert on underseal.inbox_message
for each row execute function underseal._check_inbox_message();
alter table underseal.inbox_message enable always trigger inbox_message_check;
comment on trigger inbox_message_check on underseal.inbox_message is 'Under a number that was given.';

create or replace trigger inbox_message_fixed
before update on underseal.inbox_message
for each row execute function underseal._refuse_change();
alter table underseal.inbox_message enable always trigger inbox_message_fixed;
comment on trigger inbox_message_fixed on underseal.inbox_message is 'What was sent never changes.';

create or replace trigger inbox_message_kept
after delete on underseal.inbox_message
for each row execute function underseal._keep_inbox_message();
alter table underseal.inbox_message enable always trigger inbox_message_kept;
comment on trigger inbox_message_kept on underseal.inbox_message is 'Goes when it was disposed of. Judged after the statement, in which the cursor moves.';

create or replace trigger inbox_message_no_truncate
before truncate on underseal.inbox_message
for each statement execute function underseal._refuse_change();
alter table underseal.inbox_message enable always trigger inbox_message_no_truncate;
comment on trigger inbox_message_no_truncate on underseal.inbox_message is 'Messages are kept until they are disposed of.';
