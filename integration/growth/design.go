package main

import (
	"context"
	"fmt"
)

// design is a way to index the records, and what it takes.
type design struct {
	Name       string
	One, Two   indexBytes // with one lifetime, and with two in equal shares
	statements []string
}

// indexBytes are bytes per record.
type indexBytes struct{ PrimaryKey, ExpiryIndex float64 }

// Both is what the two indexes take together.
func (b indexBytes) Both() float64 { return b.PrimaryKey + b.ExpiryIndex }

// designs are measured on a table of their own that has the two indexed
// columns only: the size of an index depends on nothing else.
var designs = []design{
	{Name: "as shipped", statements: []string{
		"alter table trial add primary key (id)",
		"create index trial_expires_at on trial (expires_at)",
	}},
	{Name: "primary key with fillfactor 70", statements: []string{
		"alter table trial add primary key (id) with (fillfactor = 70)",
		"create index trial_expires_at on trial (expires_at)",
	}},
	{Name: "hash index in place of the primary key", statements: []string{
		"alter table trial add constraint trial_pkey exclude using hash (id with =)",
		"create index trial_expires_at on trial (expires_at)",
	}},
	{Name: "expiry index on the second of the expiry", statements: []string{
		"alter table trial add primary key (id)",
		"create index trial_expires_at on trial (date_trunc('second', expires_at at time zone 'UTC'))",
	}},
	{Name: "BRIN index on the expiry", statements: []string{
		"alter table trial add primary key (id)",
		"create index trial_expires_at on trial using brin (expires_at)",
	}},
	{Name: rebuilt, statements: []string{
		"alter table trial add primary key (id)",
		"create index trial_expires_at on trial (expires_at)",
	}},
}

const rebuilt = "as shipped, after REINDEX"

// trialSQL adds $1 records as they come at 10 million a day, the second
// lifetime being $2.
const trialSQL = `
insert into trial
select gen_random_uuid(), statement_timestamp() + n * (interval '1 day' / 10000000)
    + case n % 2 when 0 then interval '1 day' else $2::interval end
from generate_series(1, $1::integer) as n`

const trialBytesSQL = `select pg_relation_size('trial_pkey'), pg_relation_size('trial_expires_at')`

// measureDesigns lets each design grow record by record.
func (l *lab) measureDesigns(ctx context.Context, records int) ([]design, error) {
	var measured []design
	for _, d := range designs {
		progress("index design: %s", d.Name)
		var err error
		if d.One, err = l.empty.try(ctx, d, records, "1 day"); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		if d.Two, err = l.empty.try(ctx, d, records, "1 hour"); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		measured = append(measured, d)
	}
	return measured, nil
}

// try measures one design with one second lifetime.
func (d *database) try(ctx context.Context, tried design, records int, lifetime string) (indexBytes, error) {
	var b indexBytes
	if err := d.exec(ctx, "create table trial (id uuid, expires_at timestamptz not null)"); err != nil {
		return b, err
	}
	if err := d.exec(ctx, tried.statements...); err != nil {
		return b, err
	}
	if _, err := d.async.Exec(ctx, trialSQL, records, lifetime); err != nil {
		return b, err
	}
	if tried.Name == rebuilt {
		if err := d.exec(ctx, "reindex table trial"); err != nil {
			return b, err
		}
	}
	err := d.pool.QueryRow(ctx, trialBytesSQL).Scan(&b.PrimaryKey, &b.ExpiryIndex)
	b.PrimaryKey /= float64(records)
	b.ExpiryIndex /= float64(records)
	if err != nil {
		return b, err
	}
	return b, d.exec(ctx, "drop table trial")
}
