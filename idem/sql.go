package idem

import (
	"fmt"
	"strings"
)

// All SQL of the package, without logic. Every parameter is cast, so that the
// statements mean the same in each pgx.QueryExecMode.

// tryLocks are the branches of a CASE that take the locks of a claim: of the
// payload and of the key, in this order.
func tryLocks(payload, key string) string {
	return fmt.Sprintf(`
        when not pg_try_advisory_xact_lock(%s) then 'in_flight'
        when not pg_try_advisory_xact_lock(%s) then 'reused_in_flight'`, payload, key)
}

// verdictSQL is the CASE that decides what a claim may do, given the record that
// was found, if any, and the two locks.
func verdictSQL(payload, key string) string {
	return `case
        when found.unfinished is not null then 'reentrant'
        when found.expires_at > statement_timestamp() then 'recorded'` + tryLocks(payload, key) + `
        when found.id is not null then 'expired'
        else 'free'
    end as verdict`
}

// claimSQL claims a key or says why not, in one statement.
//
// The record is looked at first, so a replay takes no lock, writes nothing and
// is given no transaction id. The two locks are tried in the order of the CASE,
// payload before key: a duplicate that gets the first but not the second asks
// for something else than the request in flight. The insert runs only for a
// key that is free; it has the last word, through the primary key. A call that
// claims again gives the time of its first claim ($9), which names its record
// among all that the key ever has.
var claimSQL = `
with record as materialized (
    select found.*, ` + verdictSQL("$2::bigint", "$3::bigint") + `
    from (select) as one left join idem.records as found on found.id = $1::uuid
), claim as (
    insert into idem.records (id, created_at, expires_at, scope, key, operation, fingerprint)
    select $1::uuid, at, at + $8::bigint * interval '1 microsecond', $4::text, $5::text, $6::text, $7::bytea
    from record, coalesce($9::timestamptz, statement_timestamp()) as at
    where verdict = 'free'
    on conflict (id) do nothing
    returning created_at, expires_at
)
select case when claim.created_at is not null then 'claimed' else verdict end,
       statement_timestamp(),
       coalesce(claim.created_at, record.created_at),
       coalesce(claim.expires_at, record.expires_at),
       record.scope, record.key, record.operation, record.fingerprint,
       record.state, record.status, record.headers, record.body, record.finished_at
from record left join claim on true`

// claimManySQL is claimSQL for many keys, one in each place of the arrays. Its
// rows begin with the place.
var claimManySQL = `
with asked as materialized (
    select asked.*, found.created_at, found.expires_at, found.operation as used_for, found.fingerprint as used_with,
        found.scope as used_by, found.key as used_key, found.state, found.status, found.headers, found.body, found.finished_at,
    ` + verdictSQL("payload_lock", "key_lock") + `
    from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bigint[])
        with ordinality as asked (id, payload_lock, key_lock, scope, key, operation, fingerprint, ttl, place)
    left join idem.records as found on found.id = asked.id
), claim as (
    insert into idem.records (id, created_at, expires_at, scope, key, operation, fingerprint)
    select id, statement_timestamp(), statement_timestamp() + ttl * interval '1 microsecond', scope, key, operation, fingerprint
    from asked
    where verdict = 'free'
    on conflict (id) do nothing
    returning id, created_at, expires_at
)
select place, case when claim.id is not null then 'claimed' else verdict end,
       statement_timestamp(),
       coalesce(claim.created_at, asked.created_at),
       coalesce(claim.expires_at, asked.expires_at),
       used_by, used_key, used_for, used_with, state, status, headers, body, finished_at
from asked left join claim using (id)`

// takeOverSQL claims a key whose record has expired. It finds no row when a
// rival was faster or a sweep removed the record.
const takeOverSQL = `
update idem.records
set created_at = coalesce($5::timestamptz, statement_timestamp()),
    expires_at = coalesce($5::timestamptz, statement_timestamp()) + $4::bigint * interval '1 microsecond',
    operation = $2::text, fingerprint = $3::bytea, unfinished = 1,
    state = null, status = null, finished_at = null, headers = null, body = null
where id = $1::uuid and expires_at <= statement_timestamp()
returning created_at, expires_at`

// holderSQL tells whether the owner of the key ($2) is who holds the payload
// lock ($1). Someone else does for the short moment in which another duplicate
// of the same refused payload is being answered. When the record ($3) has
// appeared since the claim looked, the holder no longer matters.
const holderSQL = `
with advisory as materialized (
    select pid, (classid::bigint << 32) | objid::bigint as number
    from pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted and mode = 'ExclusiveLock'
      and database = (select oid from pg_database where datname = current_database())
)
select case
    when key.pid is null
      or exists (select from idem.records where id = $3::uuid and expires_at > statement_timestamp()) then 'gone'
    when key.pid = payload.pid then 'same'
    else 'other' -- or nobody holds the payload lock any more
end
from (select 1) as one
left join advisory as key on key.number = $2::bigint
left join advisory as payload on payload.number = $1::bigint`

// freshSnapshotSQL tells whether each statement of the transaction has its own
// snapshot.
const freshSnapshotSQL = `select current_setting('transaction_isolation') like 'read %'`

// awaitSQL waits until nobody holds the payload lock, at most $1 milliseconds.
// The lock it gets is shared and ends with the statement.
const awaitSQL = `
with timeout as materialized (select set_config('lock_timeout', $1::bigint::text, true))
select pg_advisory_xact_lock_shared($2::bigint) from timeout`

// finishSQL turns the claim into a record. It travels with COMMIT, so it must
// fail when the transaction does not hold the claim (a mutation that sent its
// own ROLLBACK): the cast then raises 22007 and COMMIT is not run.
const finishSQL = `
with finished as (
    update idem.records
    set unfinished = null, state = $2::text, status = $3::smallint,
        headers = $4::text::jsonb, body = $5::bytea, finished_at = clock_timestamp()
    where id = $1::uuid and unfinished is not null
    returning finished_at
)
select case count(*) when 1 then min(finished_at)
    else ('this transaction holds no claim: ' || count(*)::text)::timestamptz end
from finished`

// claimGone is the SQLSTATE that finishSQL raises when there is no claim:
// invalid_datetime_format.
const claimGone = "22007"

// claimOrFailSQL is the claim of a pipeline that must stop when the key is not
// free: what follows it is not run then, and the error says why. A record and a
// request in flight make the cast raise 22P02 before anything was written; a
// rival that the locks did not show makes the primary key raise 23505.
var claimOrFailSQL = `
with decision as materialized (
    select case
        when found.id is not null then 'recorded'` + tryLocks("$2::bigint", "$3::bigint") + `
        else 'free'
    end as verdict
    from (select) as one left join idem.records as found on found.id = $1::uuid
)
insert into idem.records (id, created_at, expires_at, scope, key, operation, fingerprint)
select $1::uuid, statement_timestamp(), statement_timestamp() + $8::bigint * interval '1 microsecond',
       $4::text, $5::text, $6::text, $7::bytea
from decision
where case verdict when 'free' then true else ('idem.' || verdict)::boolean end`

// respondSQL makes a record of the row that sql, which has n parameters,
// returns. Like finishSQL it must fail when it cannot, for COMMIT comes next: the
// cast then raises 22007 with the reason.
func respondSQL(sql string, n int) string {
	return fmt.Sprintf(`
with response (status, body) as materialized (
%s
), recorded as (
    update idem.records
    set unfinished = null, state = 'completed', finished_at = clock_timestamp(),
        status = coalesce(response.status::integer, 200)::smallint, headers = $%d::text::jsonb,
        body = case pg_typeof(response.body) when 'bytea'::regtype
            then response.body::text::bytea
            else convert_to(response.body::text, 'UTF8') end
    from response
    where id = $%d::uuid and unfinished is not null
    returning finished_at, expires_at, records.status, records.body
)
select case
        when rows.n <> 1 then ('idem.rows: ' || rows.n)::timestamptz
        when finished_at is null then ('idem.claim: ' || rows.n)::timestamptz
        when octet_length(body) > $%d::bigint then ('idem.body: ' || octet_length(body))::timestamptz
        else finished_at
    end, expires_at, status, body
from (select count(*) as n from response) as rows left join recorded on true`,
		strings.TrimRight(sql, "; \t\r\n"), n+2, n+1, n+3)
}

const lookupSQL = `
select created_at, expires_at, scope, key, operation, fingerprint, state, status, headers, body, finished_at
from idem.records
where id = $1::uuid and expires_at > statement_timestamp() and unfinished is null`

// sweepSQL forgets at most $1 expired records and returns how many, and the
// latest expiry among them. It begins at the expiry $2, where the batch before
// ended: as long as an old snapshot keeps dead rows, the index still leads to all
// that were swept, and each batch would go through them again. The rows are
// locked, so their ctid is theirs until the statement ends; it spares the delete
// a descent of the primary key, to a random page, for each row.
const sweepSQL = `
with swept as (
    delete from idem.records
    where ctid = any (array(
        select ctid from idem.records
        where expires_at >= $2::timestamptz and expires_at <= statement_timestamp() and unfinished is null
        order by expires_at
        limit $1::bigint
        for update skip locked))
    returning expires_at
)
select count(*), coalesce(max(expires_at), $2::timestamptz) from swept`

// barrierSQL commits a WAL record of its own, and so returns only when the
// synchronous standbys have all that was committed before it.
const barrierSQL = `select pg_logical_emit_message(true, 'idem.settle', '')`
