-- Whose data a chain holds is what its first event says: nobody gives it another subject, or takes it away.
create or replace function underseal._check_chain_subject() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.subject is distinct from (
      select v.data ->> 'subject' from underseal.event v where v.chain_id = new.chain_id and v.member = '' and v.seq = 0) then
    raise exception using errcode = 'US005',
      message = format('underseal.chain_subject expected the subject that the first event of %s names, found another', new.chain_id),
      hint = 'Name the subject when you start the execution.';
  end if;
  return new;
end
$$;
comment on function underseal._check_chain_subject() is 'A chain''s subject is the one its first event names (X1).';

create or replace function underseal._keep_chain_subject() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  if exists (
      select from deleted_subjects d join underseal.execution e on e.chain_id = d.chain_id and e.member = '') then
    perform underseal._refuse_delete('chain_subject', 'It goes with its chain. Call underseal.delete_chain.');
  end if;
  return null;
end
$$;
comment on function underseal._keep_chain_subject() is 'Keeps the subject of a chain that is there (X1).';

create or replace trigger chain_subject_check
before insert on underseal.chain_subject
for each row execute function underseal._check_chain_subject();
alter table underseal.chain_subject enable always trigger chain_subject_check;
comment on trigger chain_subject_check on underseal.chain_subject is 'The one that its log names.';

create or replace trigger chain_subject_fixed
before update on underseal.chain_subject
for each row execute function underseal._refuse_change();
alter table underseal.chain_subject enable always trigger chain_subject_fixed;
comment on trigger chain_subject_fixed on underseal.chain_subject is 'Never changes.';

create or replace trigger chain_subject_kept
after delete on underseal.chain_subject
referencing old table as deleted_subjects
for each statement execute function underseal._keep_chain_subject();
alter table underseal.chain_subject enable always trigger chain_subject_kept;
comment on trigger chain_subject_kept on underseal.chain_subject is 'Goes with its chain.';

create or replace trigger chain_subject_no_truncate
before truncate on underseal.chain_subject
for each statement execute function underseal._refuse_change();
alter table underseal.chain_subject enable always trigger chain_subject_no_truncate;
comment on trigger chain_subject_no_truncate on underseal.chain_subject is 'Goes with its chain.';
