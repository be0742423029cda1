-- An execution from psql alone: a service starts it and answers it, a worker drives it, an operator looks after it.
--
--   psql -d shop -v ON_ERROR_STOP=1 -v client=shop_service -v worker=shop_worker -v operator=fay -f executions.sql
--
-- The three are logins with the accesses of these names (underseal.grant_access). \gset keeps the columns of a row in
-- variables; psql, not the database, puts them in where a colon stands. Every answer is a row: look at its outcome first.

\connect - :client

-- Ann's service begins an execution. Without an id of its own choosing one is made up; a retry then begins another.
select outcome, execution_id as id
from underseal.start_execution('example.order', 'ann', '{"order": 17, "cents": 1200}') \gset

-- A message may come before anybody waits for it. Sent again under its message_id it is a duplicate, delivered once.
select outcome, inbox_seq
from underseal.send(:'id', 'paid', '{"cents": 1200}', 'ann', message_id => 'bank-4711', expires_in => '2 days');

\connect - :worker

-- What is due is claimed for a while; the fence that comes with it is what every write below must show.
select outcome, kind, execution_id, fence
from underseal.claim_due('psql-1', '{example.order}', '30 s') where execution_id = :'id' \gset

select outcome, head
from underseal.append(:'id', :fence, '[{"type": "STEP_COMPLETED", "data": {"step": "quote", "output": 12}}]');

-- It waits for the payment and, for three days, for a person. The payment is there already, so it is answered at once.
select outcome, status, head
from underseal.append_batch(json_build_array(json_build_object(
  'verb', 'park', 'execution_id', :'id', 'fence', :fence, 'waits', json '[
    {"wait": "payment", "arms": [{"topic": "paid"}]},
    {"wait": "approval", "arms": [{"gate": "approve"}, {"for": 259200}]}]')));

-- What it was answered is in the log. It parks again on what is left; now nothing is there, and its claim is over.
select outcome, status, head
from underseal.append_batch(json_build_array(json_build_object(
  'verb', 'park', 'execution_id', :'id', 'fence', :fence, 'waits', json '[
    {"wait": "approval", "arms": [{"gate": "approve"}, {"for": 259200}]}]')));

\connect - :client

-- Ann approves. A second answer is a conflict, already-answered.
select outcome, inbox_seq from underseal.resume_gate(:'id', 'approve', '{"yes": true}', 'ann');

\connect - :worker

-- The answer made it due. A new claim comes with a new fence, and deliver puts the answer into the log.
select outcome, kind, fence
from underseal.claim_due('psql-2', '{example.order}', '30 s') where execution_id = :'id' \gset
select outcome, answered from underseal.deliver(:'id', :fence);

-- Messages that may be sealed are taken one at a time instead: next_message, and then consume_message with what it gave.
select outcome from underseal.next_message(:'id', :fence);

-- A state of up to the last event lets the next run begin there; a large value is stored once and referred to by its hash.
select encode(hash, 'hex') as hash from underseal.put_content(:'id', '{"report": "a long one"}', :fence) \gset
select outcome, head
from underseal.append(:'id', :fence, json_build_array(json_build_object(
  'type', 'REPORTED', 'data', json_build_object('report', json_build_object('$content', :'hash'))))) \gset
select outcome from underseal.save_snapshot(:'id', :fence, :head, '{"reported": true}');

-- It goes on as another execution, with a fresh log; the inbox goes along.
select outcome, status
from underseal.append_batch(json_build_array(json_build_object(
  'verb', 'continue', 'execution_id', :'id', 'fence', :fence, 'input', json '{"order": 17, "round": 2}')));

\connect - :client

select continued_by as next from underseal.get_execution(:'id', 'ann') \gset

-- The new one has not begun, so a cancellation ends it; else its driver would be asked to clean up.
select outcome, message from underseal.cancel_execution(:'next', 'ann', 'no second round');

select seq, recorded_at, type, data from underseal.read_events(:'id', 'ann');
select execution_id, status, head, continued_by from underseal.list_executions('ann', flow => 'example.order');

\connect - :worker

-- Everything that was committed, a page at a time; each row has the cursor to go on after. See docs/log.md.
select outcome, execution_id, seq, type, cursor from underseal.read_all(max_events => 3);

\connect - :operator

-- A login that is bound to a principal names none: null is whom it is mapped to. The views are a reader's too.
select outcome, execution_id, status from underseal.list_executions(null, flow => 'example.order');
select outcome, seq from underseal.record_outcome(:'id', '{"refunded": false}', null);
select flow, status, executions, oldest_change from underseal.executions_by_state;
select flow, kind, due, claimed, expired, lag from underseal.wake_lag;
