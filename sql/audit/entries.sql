-- Reading the audit trail of one operation: how far it got.
create or replace view underseal.audit_entries as
select a.operation_id, a.id, a.parent_id, a.action, a.principal, a.detail, a.recorded_at
from underseal.audit_entry a
order by a.operation_id, a.recorded_at;
comment on view underseal.audit_entries is 'What was asked and done, in whose name; kept when the operation is purged.';
comment on column underseal.audit_entries.operation_id is 'The operation.';
comment on column underseal.audit_entries.id is 'Id of the entry.';
comment on column underseal.audit_entries.parent_id is 'The entry it follows from: request, then run, then progress and result.';
comment on column underseal.audit_entries.action is 'request, run, progress or result.';
comment on column underseal.audit_entries.principal is 'In whose name.';
comment on column underseal.audit_entries.detail is 'What the entry says; never a parameter.';
comment on column underseal.audit_entries.recorded_at is 'When.';
