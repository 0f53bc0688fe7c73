-- name: OpenAccount :one
-- No row: the tenant has an account of that id.
insert into ledger.accounts (tenant, id, currency, min_balance)
values (@tenant, @id, @currency, sqlc.narg(min_balance))
on conflict (tenant, id) do nothing
returning *;

-- name: Account :one
-- due: what holds still count in held although their time is over.
select sqlc.embed(a), coalesce((
    select sum(h.amount) from ledger.holds h
    where h.tenant = a.tenant and h.from_account = a.id and h.state = 'pending' and h.expires_at <= clock_timestamp()
), 0)::bigint as due
from ledger.accounts a where a.tenant = @tenant and a.id = @id;

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

-- name: Entries :many
select e.version, e.transfer_id, e.amount, e.balance, t.created_at
from ledger.entries e
join ledger.transfers t on t.tenant = e.tenant and t.id = e.transfer_id
where e.tenant = @tenant and e.account_id = @account_id and e.version < @before_version
order by e.version desc
limit @row_limit;
