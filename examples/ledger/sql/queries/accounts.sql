-- name: OpenAccount :one
-- No row: the tenant has an account of that id.
insert into ledger.accounts (tenant, id, currency, min_balance)
values (@tenant, @id, @currency, sqlc.narg(min_balance))
on conflict (tenant, id) do nothing
returning *;

-- name: Account :one
select sqlc.embed(a), ledger.held_beyond_time(a.tenant, a.id) as held_beyond_time
from ledger.accounts a
where a.tenant = @tenant and a.id = @id;

-- name: Accounts :many
select sqlc.embed(a), ledger.held_beyond_time(a.tenant, a.id) as held_beyond_time
from ledger.accounts a
where a.tenant = @tenant and a.id > @after
order by a.id
limit @row_limit;

-- name: LockAccounts :many
-- In the order of their ids, so that crossed transfers queue up and never
-- deadlock. "No key" lets foreign key checks pass.
select * from ledger.accounts
where tenant = @tenant and id = any (@ids::text[])
order by id
for no key update;

-- name: LockAccountsOnce :exec
-- Locks the accounts of all transfers of a transaction, in the order of their
-- ids. Each transfer begins with it, for any may turn out to be the first that
-- runs; with the same lock_id, the others do nothing.
with first as materialized (
    select set_config('ledger.lock_id', @lock_id::text, true)
    where current_setting('ledger.lock_id', true) is distinct from @lock_id::text
)
select a.id
from first, ledger.accounts a
where a.tenant = @tenant and a.id = any (@ids::text[])
order by a.id
for no key update of a;
