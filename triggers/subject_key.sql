-- A key id is one subject's for good, so that an envelope under it cannot become another's. It may be destroyed once.
create or replace function underseal._check_subject_key() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- held to the end: whoever fences the subject finds this key committed, or this finds the fence
  perform pg_advisory_xact_lock_shared(underseal._subject_lock(new.subject));
  if exists (select from underseal.subject_fence f where f.subject = new.subject) then
    raise exception using errcode = 'US002',
      message = 'underseal.subject_key expected a subject that is not being erased, found one that is or was',
      hint = 'Nothing is sealed for it any more.';
  end if;
  return new;
end
$$;
comment on function underseal._check_subject_key() is 'No key of a subject that is being erased (X2).';

create or replace function underseal._keep_subject_key() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.key_id, new.subject, new.epoch, new.registered_at) is distinct from (old.key_id, old.subject, old.epoch, old.registered_at)
    or (old.destroyed_at is not null and new.destroyed_at is distinct from old.destroyed_at) then
    raise exception using errcode = 'US003',
      message = 'underseal.subject_key expected a key to stay whose it is, and destroyed once it is, found a change',
      hint = 'Register another key with underseal.register_subject_key.';
  end if;
  return new;
end
$$;
comment on function underseal._keep_subject_key() is 'A key stays whose it is, and is destroyed once (X1, X12).';

create or replace trigger subject_key_check
before insert on underseal.subject_key
for each row execute function underseal._check_subject_key();
alter table underseal.subject_key enable always trigger subject_key_check;
comment on trigger subject_key_check on underseal.subject_key is 'Of a subject that is not being erased.';

create or replace trigger subject_key_fixed
before update on underseal.subject_key
for each row execute function underseal._keep_subject_key();
alter table underseal.subject_key enable always trigger subject_key_fixed;
comment on trigger subject_key_fixed on underseal.subject_key is 'Destroyed once, and nothing else.';

create or replace trigger subject_key_kept
before delete on underseal.subject_key
for each row execute function underseal._refuse_change();
alter table underseal.subject_key enable always trigger subject_key_kept;
comment on trigger subject_key_kept on underseal.subject_key is 'Stays for good.';

create or replace trigger subject_key_no_truncate
before truncate on underseal.subject_key
for each statement execute function underseal._refuse_change();
alter table underseal.subject_key enable always trigger subject_key_no_truncate;
comment on trigger subject_key_no_truncate on underseal.subject_key is 'Stays for good.';
