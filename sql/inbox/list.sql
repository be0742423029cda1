-- What waits, without what it says.
create or replace function underseal.list_inbox(
  execution_id text, principal text, capability jsonb default null, after_seq bigint default 0, max_messages integer default 1000)
returns table (
  outcome text, reason text, message text, topic text, inbox_seq bigint, sender text, message_id text, bytes integer,
  sent_at timestamptz, expires_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not (select a.allowed from underseal._allowed('read', list_inbox.execution_id, list_inbox.principal, '{client,worker,operator}') a) then
    return query select d.outcome, d.reason, d.message, null::text, null::bigint, null::text, null::text, null::integer,
      null::timestamptz, null::timestamptz
    from underseal._execution_denied() d;
    return;
  end if;
  return query
  select 'message', null::text, null::text, m.topic, m.inbox_seq, m.sender, m.message_id, octet_length(m.payload::text),
    m.sent_at, m.expires_at
  from underseal.inbox_message m
  where m.chain_id = underseal._chain_of(list_inbox.execution_id)
    and m.line = underseal._line_of(underseal._member_of(list_inbox.execution_id))
    and m.inbox_seq > coalesce(list_inbox.after_seq, 0)
  order by m.inbox_seq
  limit least(coalesce(list_inbox.max_messages, 1000), 10000);
end
$$;
comment on function underseal.list_inbox(text, text, jsonb, bigint, integer) is
  'The messages that wait in an execution''s inbox, in the order of their numbers, without what they say; what has expired and was not yet disposed of is among them. capability: as of every verb that tells of stored data; nothing sealed is shown, so it leaves nothing out. after_seq, max_messages: a page, of at most 10,000. Outcomes: message, a row each; no row where nothing waits; denied (E12).';
