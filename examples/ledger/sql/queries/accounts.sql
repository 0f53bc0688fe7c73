-- name: OpenAccount :one
-- No row: the tenant has an account of that id.
insert into ledger.accounts (tenant, id, currency, min_balance)
values (@tenant, @id, @currency, sqlc.narg(min_balance))
on conflict (tenant, id) do nothing
returning *;

-- name: Account :one
select * from ledger.accounts where tenant = @tenant and id = @id;

-- name: LockAccounts :many
-- In the order of their ids, so that crossed transfers queue up and never
-- deadlock. "No key" lets foreign key checks pass.
select * from ledger.accounts
where tenant = @tenant and id = any (@ids::text[])
order by id
for no key update;

-- name: Entries :many
select e.version, e.transfer_id, e.amount, e.balance, t.created_at
from ledger.entries e
join ledger.transfers t on t.tenant = e.tenant and t.id = e.transfer_id
where e.tenant = @tenant and e.account_id = @account_id and e.version < @before_version
order by e.version desc
limit @row_limit;
