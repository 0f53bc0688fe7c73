-- name: RecordsSize :one
-- Costs a few pages, however large the table is.
select
    greatest(0, relation.reltuples)::bigint as estimate,
    pg_total_relation_size(relation.oid)::bigint as bytes,
    coalesce(greatest(0, extract(epoch from statement_timestamp() - (select min(expires_at) from idem.records))), 0)::float8 as backlog_seconds
from pg_catalog.pg_class as relation
where relation.oid = 'idem.records'::regclass;

-- name: JobCounts :many
-- River's index has the states that it counts, which are not those of jobs that
-- are done: there are few.
select
    queues.name as queue, states.state::text as state, count(jobs.id) as jobs,
    coalesce(greatest(0, extract(epoch from statement_timestamp() - min(jobs.scheduled_at))), 0)::float8 as oldest_seconds
from river.river_queue as queues
cross join unnest(array['available', 'running', 'retryable', 'scheduled', 'discarded']) as states (state)
left join river.river_job as jobs on jobs.queue = queues.name and jobs.state = states.state::river.river_job_state
group by queues.name, states.state;
