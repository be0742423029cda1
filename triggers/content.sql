-- Stored content never changes (a constraint ties the body to its hash) and goes when nothing refers to it.
create or replace function underseal._check_content() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.chain_id, new.hash) is distinct from (old.chain_id, old.hash) or new.stored_at < old.stored_at then
    raise exception using errcode = 'US003',
      message = 'underseal.content expected stored content to stay and to be stored again later, found another change',
      hint = 'Store another value with underseal.put_content.';
  end if;
  return new;
end
$$;
comment on function underseal._check_content() is 'Content stays what it is (E10).';

create or replace function underseal._keep_content() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if exists (
      select from (select distinct d.chain_id from deleted_content d) c
      cross join lateral underseal._is_referred_to(c.chain_id) r (hash)
      join deleted_content d on d.chain_id = c.chain_id and d.hash = r.hash
      where exists (select from underseal.execution e where e.chain_id = c.chain_id)) then
    perform underseal._refuse_delete('content', 'An event, a snapshot or a message refers to it. Call underseal.sweep_content.');
  end if;
  return null;
end
$$;
comment on function underseal._keep_content() is 'Keeps content that something of its chain refers to (E10).';

create or replace trigger content_fixed
before update on underseal.content
for each row execute function underseal._check_content();
alter table underseal.content enable always trigger content_fixed;
comment on trigger content_fixed on underseal.content is 'Never changes.';

create or replace trigger content_kept
after delete on underseal.content
referencing old table as deleted_content
for each statement execute function underseal._keep_content();
alter table underseal.content enable always trigger content_kept;
comment on trigger content_kept on underseal.content is 'Goes when nothing refers to it.';

create or replace trigger content_no_truncate
before truncate on underseal.content
for each statement execute function underseal._refuse_change();
alter table underseal.content enable always trigger content_no_truncate;
comment on trigger content_no_truncate on underseal.content is 'Content is kept.';
