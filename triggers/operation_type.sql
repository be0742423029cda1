-- A registered version stays what it is; only its policy and its switch change.
create or replace function underseal._check_operation_type() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  flaw text;
begin
  if tg_op = 'DELETE' then
    raise exception using errcode = 'US007',
      message = format('underseal.operation_type expected to keep %s version %s, found a DELETE', old.type, old.version),
      hint = 'Disarm it with underseal.set_armed.';
  end if;
  if tg_op = 'UPDATE' and (old.type, old.version, old.mode, old.parameters, old.salted, old.sql_estimate, old.sql_check_run, old.sql_run)
    is distinct from (new.type, new.version, new.mode, new.parameters, new.salted, new.sql_estimate, new.sql_check_run, new.sql_run) then
    raise exception using errcode = 'US003',
      message = format('underseal.operation_type expected %s version %s to keep its mode, parameters and functions, found others', old.type, old.version),
      hint = 'Register a higher version.';
  end if;
  flaw := underseal._schema_flaw(new.parameters);
  if flaw is not null then
    raise exception using errcode = 'US001', message = format('underseal.operation_type: parameters of %s: %s', new.type, flaw);
  end if;
  if not new.salted and underseal._schema_hides(new.parameters) then
    raise exception using errcode = 'US001',
      message = format('underseal.operation_type expected %s to be salted, since its parameters hide a member', new.type);
  end if;
  -- The text is what the digest covers and the request seals: it always says what the columns say.
  new.policy := underseal._policy_text(new.votes_required, new.rejections_to_end, new.approvers, new.approver_hook,
    new.hold_for, new.run_within, array[new.sql_estimate, new.sql_check_run, new.sql_run]);
  new.policy_digest := sha256(convert_to(new.policy, 'UTF8'));
  return new;
end
$$;
comment on function underseal._check_operation_type() is 'Keeps a registered type version as it is, but for its policy and its switch (H1.5, H6.2).';

create or replace trigger operation_type_check
before insert or update or delete on underseal.operation_type
for each row execute function underseal._check_operation_type();
alter table underseal.operation_type enable always trigger operation_type_check;
comment on trigger operation_type_check on underseal.operation_type is 'A registered version stays what it is.';

create or replace trigger operation_type_no_truncate
before truncate on underseal.operation_type
for each statement execute function underseal._refuse_change();
alter table underseal.operation_type enable always trigger operation_type_no_truncate;
comment on trigger operation_type_no_truncate on underseal.operation_type is 'Registered types are kept.';
