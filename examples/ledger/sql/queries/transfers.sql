-- name: AdmitTransfer :exec
-- Raises the name of the first rule that a transfer breaks: the checks of
-- package book, for one that is SQL alone. The caller holds the locks of both
-- accounts.
select ledger.refuse(case
    when payer.id is null or payee.id is null then 'transfers_accounts_found'
    when payer.currency <> @currency::text or payee.currency <> @currency::text then 'transfers_currency'
    when payer.balance - payer.held - @amount::bigint < payer.min_balance then 'accounts_funds'
    when payer.balance - payer.held - @amount::bigint < -9007199254740992
      or payee.balance + @amount::bigint > 9007199254740992 then 'accounts_balance_range'
end)
from (select 1) as one
left join ledger.accounts as payer on payer.tenant = @tenant and payer.id = @from_account::text
left join ledger.accounts as payee on payee.tenant = @tenant and payee.id = @to_account::text;

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

-- name: TransferResponse :exec
-- The status and the body of the answer to a new transfer: the fields, and the
-- spelling of the time, that encoding/json gives to a Transfer. Not jsonb: the
-- metadata is answered as it was sent.
select 201 as status, json_build_object(
    'id', t.id, 'from', t.from_account, 'to', t.to_account, 'amount', t.amount, 'currency', t.currency,
    'from_balance', payer.balance, 'to_balance', payee.balance,
    'reference', t.reference, 'metadata', t.metadata,
    'created_at', rtrim(rtrim(to_char(t.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
) as body
from ledger.transfers t
join ledger.entries payer on payer.tenant = t.tenant and payer.transfer_id = t.id and payer.account_id = t.from_account
join ledger.entries payee on payee.tenant = t.tenant and payee.transfer_id = t.id and payee.account_id = t.to_account
where t.tenant = @tenant and t.id = @id;
