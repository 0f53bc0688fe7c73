-- name: CreatePayout :one
-- No row: the charge key was used for another payout.
insert into ledger.payouts (tenant, id, hold_id, destination, reference, charge_key, created_at)
values (@tenant, @id, @hold_id, @destination, sqlc.narg(reference), @charge_key, statement_timestamp())
on conflict (charge_key) do nothing
returning *;

-- name: Payout :one
select sqlc.embed(p), sqlc.embed(h)
from ledger.payouts p
join ledger.holds h on h.tenant = p.tenant and h.id = p.hold_id
where p.tenant = @tenant and p.id = @id;

-- name: EndPayout :one
update ledger.payouts
set state = @state, charge_id = sqlc.narg(charge_id), reason = sqlc.narg(reason), ended_at = clock_timestamp()
where tenant = @tenant and id = @id
returning *;

-- name: HoldIsOfPayout :one
select exists (select from ledger.payouts where tenant = @tenant and hold_id = @hold_id and state = 'pending');
