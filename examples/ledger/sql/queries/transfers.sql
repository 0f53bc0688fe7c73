-- name: PostTransfer :one
-- One statement writes the transfer, both balances and both entries. The caller
-- holds the locks of both accounts and has checked what may happen to them.
with transfer as (
    insert into ledger.transfers (tenant, id, from_account, to_account, amount, currency, reference, metadata, created_at)
    values (@tenant, @id, @from_account, @to_account, @amount, @currency, sqlc.narg(reference), sqlc.narg(metadata), statement_timestamp())
    returning created_at
), payer as (
    update ledger.accounts set balance = balance - @amount, version = version + 1
    where tenant = @tenant and id = @from_account
    returning id, balance, version
), payee as (
    update ledger.accounts set balance = balance + @amount, version = version + 1
    where tenant = @tenant and id = @to_account
    returning id, balance, version
), posted as (
    insert into ledger.entries (tenant, account_id, version, transfer_id, amount, balance)
    select @tenant, id, version, @id, 0 - @amount::bigint, balance from payer
    union all
    select @tenant, id, version, @id, @amount, balance from payee
)
select transfer.created_at, payer.balance as from_balance, payee.balance as to_balance
from transfer, payer, payee;

-- name: Transfer :one
select t.id, t.from_account, t.to_account, t.amount, t.currency,
       payer.balance as from_balance, payee.balance as to_balance,
       t.reference, t.metadata, t.created_at
from ledger.transfers t
join ledger.entries payer on payer.tenant = t.tenant and payer.transfer_id = t.id and payer.account_id = t.from_account
join ledger.entries payee on payee.tenant = t.tenant and payee.transfer_id = t.id and payee.account_id = t.to_account
where t.tenant = @tenant and t.id = @id;
