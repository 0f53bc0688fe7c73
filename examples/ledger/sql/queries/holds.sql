-- name: PlaceHold :one
-- The caller holds the lock of from_account. A trigger counts it in there.
insert into ledger.holds (tenant, id, from_account, to_account, amount, currency, created_at, expires_at)
values (@tenant, @id, @from_account, @to_account, @amount, @currency, statement_timestamp(),
        statement_timestamp() + make_interval(secs => @expires_in_seconds::bigint))
returning *;

-- name: Hold :one
-- due: its time is over, by the clock of the database, though nobody may have
-- released it yet.
select sqlc.embed(h), (h.state = 'pending' and h.expires_at <= clock_timestamp())::bool as due
from ledger.holds h where h.tenant = @tenant and h.id = @id;

-- name: Holds :many
-- Newest first, for ids begin with the time.
select sqlc.embed(h), (h.state = 'pending' and h.expires_at <= clock_timestamp())::bool as due
from ledger.holds h
where h.tenant = @tenant and h.id < @before
order by h.id desc
limit @row_limit;

-- name: EndHold :one
-- The caller holds the lock of from_account, under which it has seen the hold.
update ledger.holds
set state = @state, captured = sqlc.narg(captured), transfer_id = sqlc.narg(transfer_id), ended_at = clock_timestamp()
where tenant = @tenant and id = @id
returning *;

-- name: ReleaseDueHolds :execrows
-- Releases what is reserved beyond its time. The caller holds the locks of the
-- accounts.
update ledger.holds set state = 'expired', ended_at = clock_timestamp()
where tenant = @tenant and from_account = any (@accounts::text[]) and state = 'pending' and expires_at <= clock_timestamp();
