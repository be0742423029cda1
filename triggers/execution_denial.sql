create or replace function underseal._keep_execution_denial() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if old.denied_at > underseal.clock() - interval '30 days' then
    raise exception using errcode = 'US007',
      message = 'underseal.execution_denial expected to keep a denial for 30 days, found a DELETE',
      hint = 'Call underseal.sweep_denials.';
  end if;
  return old;
end
$$;
comment on function underseal._keep_execution_denial() is 'Keeps denials for 30 days (E12).';

create or replace trigger execution_denial_kept
before delete on underseal.execution_denial
for each row execute function underseal._keep_execution_denial();
alter table underseal.execution_denial enable always trigger execution_denial_kept;
comment on trigger execution_denial_kept on underseal.execution_denial is 'Kept for 30 days.';

create or replace trigger execution_denial_append_only
before update on underseal.execution_denial
for each row execute function underseal._refuse_change();
alter table underseal.execution_denial enable always trigger execution_denial_append_only;
comment on trigger execution_denial_append_only on underseal.execution_denial is 'Denials are append-only.';

create or replace trigger execution_denial_no_truncate
before truncate on underseal.execution_denial
for each statement execute function underseal._refuse_change();
alter table underseal.execution_denial enable always trigger execution_denial_no_truncate;
comment on trigger execution_denial_no_truncate on underseal.execution_denial is 'Denials are append-only.';
