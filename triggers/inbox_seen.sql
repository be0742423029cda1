-- A remembered key is forgotten when a number far enough above its own was disposed of, or with its line.
create or replace function underseal._check_inbox_seen() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.chain_id, new.line, new.message_key) is distinct from (old.chain_id, old.line, old.message_key)
    or new.inbox_seq < old.inbox_seq then
    raise exception using errcode = 'US002',
      message = format('underseal.inbox_seen expected a remembered key of %s to stay, found another or an older number', underseal._execution_id(old.chain_id, old.line)),
      hint = 'Remembered keys follow from the log.';
  end if;
  return new;
end
$$;
comment on function underseal._check_inbox_seen() is 'A remembered key stays, and its number only grows (I2).';

create or replace function underseal._keep_inbox_seen() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if old.inbox_seq > underseal._dedupe_floor(old.chain_id, old.line)
    and exists (select from underseal.execution e where e.chain_id = old.chain_id and e.member = old.line) then
    perform underseal._refuse_delete('inbox_seen', 'A key is forgotten when a number 1,024 above its own was disposed of.');
  end if;
  return old;
end
$$;
comment on function underseal._keep_inbox_seen() is 'Keeps the keys of the window of a line that is there (I2).';

create or replace trigger inbox_seen_check
before update on underseal.inbox_seen
for each row execute function underseal._check_inbox_seen();
alter table underseal.inbox_seen enable always trigger inbox_seen_check;
comment on trigger inbox_seen_check on underseal.inbox_seen is 'Stays what it is.';

create or replace trigger inbox_seen_kept
before delete on underseal.inbox_seen
for each row execute function underseal._keep_inbox_seen();
alter table underseal.inbox_seen enable always trigger inbox_seen_kept;
comment on trigger inbox_seen_kept on underseal.inbox_seen is 'Stays in the window.';

create or replace trigger inbox_seen_no_truncate
before truncate on underseal.inbox_seen
for each statement execute function underseal._refuse_change();
alter table underseal.inbox_seen enable always trigger inbox_seen_no_truncate;
comment on trigger inbox_seen_no_truncate on underseal.inbox_seen is 'Remembered keys are kept.';
