-- An erasure that has begun ends; nothing brings its subject back.
create or replace function underseal._keep_subject_fence() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.subject, new.began_at) is distinct from (old.subject, old.began_at)
    or (new.state is distinct from old.state and old.state <> 'erasing') then
    raise exception using errcode = 'US003',
      message = 'underseal.subject_fence expected an erasure to go on to its end, found another change',
      hint = 'What was erased stays erased.';
  end if;
  return new;
end
$$;
comment on function underseal._keep_subject_fence() is 'An erasure goes from erasing to erased and no other way (X2).';

create or replace function underseal._check_subject_fence() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_advisory_xact_lock(underseal._subject_lock(new.subject));
  return new;
end
$$;
comment on function underseal._check_subject_fence() is
  'Waits for keys that are being registered, and lets none be until the fence is there: none slips in between (X2).';

create or replace trigger subject_fence_check
before insert on underseal.subject_fence
for each row execute function underseal._check_subject_fence();
alter table underseal.subject_fence enable always trigger subject_fence_check;
comment on trigger subject_fence_check on underseal.subject_fence is 'After every key that was registered before it.';

create or replace trigger subject_fence_fixed
before update on underseal.subject_fence
for each row execute function underseal._keep_subject_fence();
alter table underseal.subject_fence enable always trigger subject_fence_fixed;
comment on trigger subject_fence_fixed on underseal.subject_fence is 'From erasing to erased.';

create or replace trigger subject_fence_kept
before delete on underseal.subject_fence
for each row execute function underseal._refuse_change();
alter table underseal.subject_fence enable always trigger subject_fence_kept;
comment on trigger subject_fence_kept on underseal.subject_fence is 'Stays for good.';

create or replace trigger subject_fence_no_truncate
before truncate on underseal.subject_fence
for each statement execute function underseal._refuse_change();
alter table underseal.subject_fence enable always trigger subject_fence_no_truncate;
comment on trigger subject_fence_no_truncate on underseal.subject_fence is 'Stays for good.';
