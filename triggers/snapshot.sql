-- A snapshot is of the log's head when it is saved, says what the log folds to there, and never changes. The newest stays: the
-- log below it may be gone.
create or replace function underseal._check_snapshot() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  head bigint := (
    select e.head from underseal.execution e where e.chain_id = new.chain_id and e.member = new.member);
begin
  if head is distinct from new.seq or new.fold is distinct from underseal._fold(new.chain_id, new.member) then
    raise exception using errcode = 'US002',
      message = format('underseal.snapshot expected a snapshot of the head of %s with what its log folds to, found another', underseal._execution_id(new.chain_id, new.member)),
      hint = 'Call underseal.save_snapshot.';
  end if;
  return new;
end
$$;
comment on function underseal._check_snapshot() is 'A snapshot is of the head, with the fold at the head (E9).';

create or replace function underseal._keep_snapshot() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if exists (
      select from deleted_snapshots d
      join underseal.execution e on e.chain_id = d.chain_id and e.member = d.member
      where not exists (
        select from underseal.snapshot s where s.chain_id = d.chain_id and s.member = d.member and s.seq > d.seq)) then
    perform underseal._refuse_delete('snapshot', 'Save a newer one with underseal.save_snapshot, or delete the chain.');
  end if;
  return null;
end
$$;
comment on function underseal._keep_snapshot() is 'Keeps the newest snapshot of an execution that is there (E9).';

create or replace trigger snapshot_check
before insert on underseal.snapshot
for each row execute function underseal._check_snapshot();
alter table underseal.snapshot enable always trigger snapshot_check;
comment on trigger snapshot_check on underseal.snapshot is 'Of the head.';

create or replace trigger snapshot_fixed
before update on underseal.snapshot
for each row execute function underseal._refuse_change();
alter table underseal.snapshot enable always trigger snapshot_fixed;
comment on trigger snapshot_fixed on underseal.snapshot is 'Never changes.';

create or replace trigger snapshot_kept
after delete on underseal.snapshot
referencing old table as deleted_snapshots
for each statement execute function underseal._keep_snapshot();
alter table underseal.snapshot enable always trigger snapshot_kept;
comment on trigger snapshot_kept on underseal.snapshot is 'The newest stays.';

create or replace trigger snapshot_no_truncate
before truncate on underseal.snapshot
for each statement execute function underseal._refuse_change();
alter table underseal.snapshot enable always trigger snapshot_no_truncate;
comment on trigger snapshot_no_truncate on underseal.snapshot is 'Snapshots are kept.';
