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
    insert into ledger.transfers (tenant, id, from_account, to_account, amount, currency, reference, metadata, reverses, created_at)
    values (@tenant, @id, @from_account::text, @to_account::text, @amount::bigint, @currency::text,
            sqlc.narg(reference), sqlc.narg(metadata), sqlc.narg(reverses), statement_timestamp())
    returning created_at
), payer as (
    update ledger.accounts set balance = balance - @amount::bigint, version = version + 1
    where tenant = @tenant and id = @from_account::text
    returning id, balance, version
), payee as (
    update ledger.accounts set balance = balance + @amount::bigint, version = version + 1
    where tenant = @tenant and id = @to_account::text
    returning id, balance, version
), posted as (
    insert into ledger.entries (tenant, account_id, version, transfer_id, amount, balance)
    select @tenant::text, id, version, @id::uuid, 0 - @amount::bigint, balance from payer
    union all
    select @tenant::text, id, version, @id::uuid, @amount::bigint, balance from payee
)
select transfer.created_at, payer.balance as from_balance, payee.balance as to_balance
from transfer, payer, payee;

-- name: PostLinkedTransfer :many
-- The same for the legs of a linked transfer, each with an account of its own.
with transfer as (
    insert into ledger.transfers (tenant, id, reference, metadata, reverses, created_at)
    values (@tenant, @id, sqlc.narg(reference), sqlc.narg(metadata), sqlc.narg(reverses), statement_timestamp())
    returning created_at
), leg as (
    select unnest(@accounts::text[]) as account_id, unnest(@amounts::bigint[]) as amount
), changed as (
    update ledger.accounts a set balance = a.balance + leg.amount, version = a.version + 1
    from leg
    where a.tenant = @tenant and a.id = leg.account_id
    returning a.id, a.currency, a.balance, a.version, leg.amount
), posted as (
    insert into ledger.entries (tenant, account_id, version, transfer_id, amount, balance)
    select @tenant::text, id, version, @id::uuid, amount, balance from changed
)
select changed.id as account, changed.amount::bigint as amount, changed.currency, changed.balance, transfer.created_at
from changed, transfer
order by changed.id;

-- name: Transfers :many
-- Newest first, for ids begin with the time. legs: in the order of their accounts.
select sqlc.embed(t), r.id as reversed_by, (
    select json_agg(json_build_object('account', e.account_id, 'amount', e.amount, 'currency', a.currency, 'balance', e.balance)
                    order by e.account_id)
    from ledger.entries e
    join ledger.accounts a on a.tenant = e.tenant and a.id = e.account_id
    where e.tenant = t.tenant and e.transfer_id = t.id
)::json as legs
from ledger.transfers t
left join ledger.transfers r on r.tenant = t.tenant and r.reverses = t.id
where t.tenant = @tenant and t.id = any (cast(@ids::text[] as uuid[]))
order by t.id desc;

-- name: TransferIDs :many
select id from ledger.transfers
where tenant = @tenant and id < @before
order by id desc
limit @row_limit;

-- name: ReversalOf :one
-- The caller holds the locks of the accounts of the transfer.
select id from ledger.transfers where tenant = @tenant and reverses = @id::uuid;

-- name: TransferResponse :exec
-- The status and the body of the answer to a new transfer: the fields, and the
-- spelling of the time, that encoding/json gives to a Transfer. Not jsonb: the
-- metadata is answered as it was sent.
select 201 as status, json_build_object(
    'id', t.id, 'from', t.from_account, 'to', t.to_account, 'amount', t.amount, 'currency', t.currency,
    'from_balance', payer.balance, 'to_balance', payee.balance,
    'reference', t.reference, 'metadata', t.metadata, 'reverses', null, 'reversed_by', null,
    'created_at', rtrim(rtrim(to_char(t.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
) as body
from ledger.transfers t
join ledger.entries payer on payer.tenant = t.tenant and payer.transfer_id = t.id and payer.account_id = t.from_account
join ledger.entries payee on payee.tenant = t.tenant and payee.transfer_id = t.id and payee.account_id = t.to_account
where t.tenant = @tenant and t.id = @id;
