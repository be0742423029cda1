-- A remembered key is forgotten when enough others were disposed of after it, or with its line.
create or replace function underseal._keep_inbox_seen() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if old.turn > underseal._dedupe_floor(old.chain_id, old.line)
    and exists (select from underseal.execution e where e.chain_id = old.chain_id and e.member = old.line) then
    perform underseal._refuse_delete('inbox_seen', 'A key is forgotten when 1,024 others were disposed of after it.');
  end if;
  return old;
end
$$;
comment on function underseal._keep_inbox_seen() is 'Keeps the keys of the window of a line that is there (I2).';

create or replace trigger inbox_seen_append_only
before update on underseal.inbox_seen
for each row execute function underseal._refuse_change();
alter table underseal.inbox_seen enable always trigger inbox_seen_append_only;
comment on trigger inbox_seen_append_only on underseal.inbox_seen is 'Stays what it is.';

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
