create or replace trigger schedule_fixed
before update of name, owner, created_at on underseal.schedule
for each row
when ((old.name, old.owner, old.created_at) is distinct from (new.name, new.owner, new.created_at))
execute function underseal._refuse_identity('name, owner or created_at');
alter table underseal.schedule enable always trigger schedule_fixed;
comment on trigger schedule_fixed on underseal.schedule is 'Whose it is never changes.';

create or replace trigger schedule_no_truncate
before truncate on underseal.schedule
for each statement execute function underseal._refuse_change();
alter table underseal.schedule enable always trigger schedule_no_truncate;
comment on trigger schedule_no_truncate on underseal.schedule is 'Schedules are never truncated.';
