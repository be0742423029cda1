-- The last fence of a deleted execution stays for good: an id that is taken again begins above it.
create or replace function underseal._check_fence_floor() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (new.chain_id, new.member) is distinct from (old.chain_id, old.member) or new.fence < old.fence then
    raise exception using errcode = 'US002',
      message = format('underseal.fence_floor expected the last fence of %s to grow, found it moved back or to another id', underseal._execution_id(old.chain_id, old.member)),
      hint = 'Fences are never issued twice.';
  end if;
  return new;
end
$$;
comment on function underseal._check_fence_floor() is 'The last fence of an id only grows (E2).';

create or replace trigger fence_floor_check
before update on underseal.fence_floor
for each row execute function underseal._check_fence_floor();
alter table underseal.fence_floor enable always trigger fence_floor_check;
comment on trigger fence_floor_check on underseal.fence_floor is 'Only grows.';

create or replace trigger fence_floor_kept
before delete on underseal.fence_floor
for each row execute function underseal._refuse_change();
alter table underseal.fence_floor enable always trigger fence_floor_kept;
comment on trigger fence_floor_kept on underseal.fence_floor is 'Stays for good.';

create or replace trigger fence_floor_no_truncate
before truncate on underseal.fence_floor
for each statement execute function underseal._refuse_change();
alter table underseal.fence_floor enable always trigger fence_floor_no_truncate;
comment on trigger fence_floor_no_truncate on underseal.fence_floor is 'Stays for good.';
