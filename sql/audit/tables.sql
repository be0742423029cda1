-- What was asked and what was done, kept when the operation itself is purged.

create table underseal.audit_entry (
  operation_id uuid not null,
  id uuid not null,
  parent_id uuid,
  action text not null,
  principal text not null,
  detail jsonb not null,
  recorded_at timestamptz not null,
  constraint audit_entry_pkey primary key (operation_id, id),
  constraint audit_entry_parent_fkey foreign key (operation_id, parent_id)
    references underseal.audit_entry (operation_id, id),
  constraint audit_entry_action_known check (action in ('request', 'run', 'progress', 'result')),
  constraint audit_entry_root check ((action = 'request') = (parent_id is null))
);
comment on table underseal.audit_entry is
  'Audit entries, append-only. The request is the parent of the run, the run is the parent of its progress marks and of its result. Not purged with the operation.';
comment on column underseal.audit_entry.operation_id is 'The held operation it belongs to.';
comment on column underseal.audit_entry.id is 'Id of the entry.';
comment on column underseal.audit_entry.parent_id is 'The entry it follows from; null for a request.';
comment on column underseal.audit_entry.action is 'request, run, progress or result.';
comment on column underseal.audit_entry.principal is 'In whose name: for a run always the requester, never the approver.';
comment on column underseal.audit_entry.detail is
  'What the entry says: type, version and hash for a request; run, worker and approvals for a run; the note of a progress mark; state and reason of a result. Never a parameter.';
comment on column underseal.audit_entry.recorded_at is 'Database instant of the entry.';
