-- name: Entries :many
-- Newest first.
select * from ledger.entries
where tenant = @tenant and account_id = @account_id and version < @before_version
order by version desc
limit @row_limit;

-- name: EntryAt :one
select * from ledger.entries
where tenant = @tenant and account_id = @account_id and version = @version;

-- name: StatementBounds :one
-- The versions that an account had at two times, and the later of them, which is
-- not in the future. That of the end is not below that of the start, whatever a
-- clock may have done.
with period as materialized (
    select least(@until::timestamptz, clock_timestamp()) as until
), versions as materialized (
    select coalesce((
        select e.version from ledger.entries e
        where e.tenant = @tenant and e.account_id = @account_id and e.created_at < @since::timestamptz
        order by e.created_at desc, e.version desc limit 1
    ), 0) as opening, coalesce((
        select e.version from ledger.entries e
        where e.tenant = @tenant and e.account_id = @account_id and e.created_at < period.until
        order by e.created_at desc, e.version desc limit 1
    ), 0) as closing
    from period
)
select period.until::timestamptz as until, versions.opening::bigint as opening, greatest(versions.opening, versions.closing)::bigint as closing
from period, versions;

-- name: StatementLines :many
-- Oldest first.
select * from ledger.entries
where tenant = @tenant and account_id = @account_id and version > @after_version and version <= @up_to_version
order by version
limit @row_limit;
