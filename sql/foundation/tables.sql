-- What every room stands on: settings, who was granted what, who a login or a principal is, and
-- what operators are told.

create type underseal.outcome as (outcome text, reason text, message text);
comment on type underseal.outcome is
  'What a verb answers first: the outcome in one word, the reason of a refusal in one hyphenated word, and a message that says what was expected, what was found and what to do.';

create table underseal.setting (
  key text not null,
  value text not null,
  constraint setting_pkey primary key (key)
);
comment on table underseal.setting is
  'Settings of this installation, one row each. Only the schema owner writes it; never a session setting, since any client could change that.';
comment on column underseal.setting.key is 'Name of the setting, for example held.role_hook.';
comment on column underseal.setting.value is 'Its value as text.';

create table underseal.access_grant (
  grantee text not null,
  access text not null,
  principal text not null,
  constraint access_grant_pkey primary key (grantee, access),
  constraint access_grant_access_known
    check (access in ('client', 'approver', 'worker', 'operator', 'sealer', 'reader')),
  constraint access_grant_principal_known check (principal in ('asserted', 'login'))
);
comment on table underseal.access_grant is
  'What grant_access granted. Grants are made again from here whenever a function had to be dropped and created anew.';
comment on column underseal.access_grant.grantee is 'Role that was granted the access.';
comment on column underseal.access_grant.access is
  'client, approver, worker, operator, sealer or reader: the set of functions and views granted.';
comment on column underseal.access_grant.principal is
  'asserted: the role names the principal it acts for. login: the principal is the one principal_login maps the session''s login to, and any other name is refused.';

create table underseal.principal_login (
  login text not null,
  principal text not null,
  constraint principal_login_pkey primary key (login)
);
comment on table underseal.principal_login is
  'Which principal a database login is, for accesses granted with principal => ''login''.';
comment on column underseal.principal_login.login is 'Name of the login role (session_user).';
comment on column underseal.principal_login.principal is 'The principal it acts as.';

create table underseal.principal_role (
  principal text not null,
  role text not null,
  constraint principal_role_pkey primary key (principal)
);
comment on table underseal.principal_role is
  'Which database role a SQL provider runs under for a principal. Replaceable by the hook in setting held.role_hook.';
comment on column underseal.principal_role.principal is 'The requester.';
comment on column underseal.principal_role.role is 'The role that SET LOCAL ROLE takes for the run.';

create table underseal.operator_report (
  subject text not null,
  kind text not null,
  cause text not null,
  times bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  constraint operator_report_pkey primary key (subject, kind),
  constraint operator_report_times_positive check (times > 0)
) with (fillfactor = 70);
comment on table underseal.operator_report is
  'True causes, for operators only. A report is due the first time and then every 16th; the row counts them all.';
comment on column underseal.operator_report.subject is 'What it is about: an operation, a type, a consumer.';
comment on column underseal.operator_report.kind is 'What is the matter, in one hyphenated word, for example unserved-key.';
comment on column underseal.operator_report.cause is 'The latest cause, in words; never a secret.';
comment on column underseal.operator_report.times is 'How often it has been reported.';
comment on column underseal.operator_report.first_at is 'When it was reported first.';
comment on column underseal.operator_report.last_at is 'When it was reported last.';
