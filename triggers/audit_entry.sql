-- Audit entries are never changed and never deleted, also not with their operation (H6.7).
create or replace trigger audit_entry_append_only
before update or delete on underseal.audit_entry
for each row execute function underseal._refuse_change();
alter table underseal.audit_entry enable always trigger audit_entry_append_only;
comment on trigger audit_entry_append_only on underseal.audit_entry is 'Audit entries are append-only.';

create or replace trigger audit_entry_no_truncate
before truncate on underseal.audit_entry
for each statement execute function underseal._refuse_change();
alter table underseal.audit_entry enable always trigger audit_entry_no_truncate;
comment on trigger audit_entry_no_truncate on underseal.audit_entry is 'Audit entries are append-only.';
