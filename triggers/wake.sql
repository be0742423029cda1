-- A wake says when, for whom and by whom; what it is for never changes. One that is deleted or put off by hand delays an
-- execution and cannot harm it: what next moves its status makes it again, and `verify` tells that it is missing.
create or replace trigger wake_fixed
before update of chain_id, member, kind, flow on underseal.wake
for each row
when ((old.chain_id, old.member, old.kind, old.flow) is distinct from (new.chain_id, new.member, new.kind, new.flow))
execute function underseal._refuse_identity('chain_id, member, kind or flow');
alter table underseal.wake enable always trigger wake_fixed;
comment on trigger wake_fixed on underseal.wake is 'What it is for never changes.';

create or replace trigger wake_no_truncate
before truncate on underseal.wake
for each statement execute function underseal._refuse_change();
alter table underseal.wake enable always trigger wake_no_truncate;
comment on trigger wake_no_truncate on underseal.wake is 'Wakes are never truncated.';
