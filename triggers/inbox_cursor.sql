-- A cursor only grows, and stays as long as its line.
create or replace function underseal._check_inbox_cursor() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.chain_id, new.line, new.topic) is distinct from (old.chain_id, old.line, old.topic) or new.inbox_seq < old.inbox_seq then
    raise exception using errcode = 'US002',
      message = format('underseal.inbox_cursor expected a cursor of %s to grow, found it moved back or to another topic', underseal._execution_id(old.chain_id, old.line)),
      hint = 'Cursors follow from the log.';
  end if;
  return new;
end
$$;
comment on function underseal._check_inbox_cursor() is 'A cursor only grows (I2).';

create or replace function underseal._keep_inbox_cursor() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from underseal.execution e where e.chain_id = old.chain_id and e.member = old.line) then
    perform underseal._refuse_delete('inbox_cursor', 'Cursors go with their chain: call underseal.delete_chain.');
  end if;
  return old;
end
$$;
comment on function underseal._keep_inbox_cursor() is 'Keeps the cursors of a line that is there (I2).';

create or replace trigger inbox_cursor_check
before update on underseal.inbox_cursor
for each row execute function underseal._check_inbox_cursor();
alter table underseal.inbox_cursor enable always trigger inbox_cursor_check;
comment on trigger inbox_cursor_check on underseal.inbox_cursor is 'Only grows.';

create or replace trigger inbox_cursor_kept
before delete on underseal.inbox_cursor
for each row execute function underseal._keep_inbox_cursor();
alter table underseal.inbox_cursor enable always trigger inbox_cursor_kept;
comment on trigger inbox_cursor_kept on underseal.inbox_cursor is 'Stays as long as its line.';

create or replace trigger inbox_cursor_no_truncate
before truncate on underseal.inbox_cursor
for each statement execute function underseal._refuse_change();
alter table underseal.inbox_cursor enable always trigger inbox_cursor_no_truncate;
comment on trigger inbox_cursor_no_truncate on underseal.inbox_cursor is 'Cursors are kept.';
