-- Operator reports: the true cause goes here, the caller gets a refusal.
create or replace function underseal._report(subject text, kind text, cause text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  moment timestamptz := underseal.clock();
  counted bigint;
begin
  insert into underseal.operator_report as r (subject, kind, cause, times, first_at, last_at)
  values (_report.subject, _report.kind, _report.cause, 1, moment, moment)
  on conflict on constraint operator_report_pkey do update
    set cause = excluded.cause, times = r.times + 1, last_at = moment
  returning r.times into counted;
  return counted = 1 or counted % 16 = 0;
end
$$;
comment on function underseal._report(text, text, text) is
  'Counts a report for operators. True when it is due to be shown: the first time and then every 16th.';

create or replace view underseal.operator_reports as
select r.subject, r.kind, r.cause, r.times, r.first_at, r.last_at
from underseal.operator_report r
order by r.last_at desc;
comment on view underseal.operator_reports is 'What operators should know: what, where, cause, how often, first and last.';
comment on column underseal.operator_reports.subject is 'What it is about: an operation, a type, a consumer.';
comment on column underseal.operator_reports.kind is 'What is the matter, in one hyphenated word.';
comment on column underseal.operator_reports.cause is 'The latest cause, in words.';
comment on column underseal.operator_reports.times is 'How often it has been reported.';
comment on column underseal.operator_reports.first_at is 'When it was reported first.';
comment on column underseal.operator_reports.last_at is 'When it was reported last.';

create or replace function underseal.clear_report(subject text, kind text, principal text)
returns table (outcome text, reason text, message text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if underseal._effective_principal('{operator}', clear_report.principal) is null then
    return query select * from underseal._denied();
    return;
  end if;
  delete from underseal.operator_report r where r.subject = clear_report.subject and r.kind = clear_report.kind;
  if found then
    return query select 'cleared', null::text, format('The report %s on %s is cleared.', kind, subject);
  else
    return query select 'not-found', null::text,
      format('Expected a report %s on %s, found none. See the view operator_reports.', kind, subject);
  end if;
end
$$;
comment on function underseal.clear_report(text, text, text) is
  'Forgets a report that was dealt with, so that the next one counts as the first. Outcomes: cleared, not-found, denied.';
