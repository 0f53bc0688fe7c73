package main

import "context"

// design is another way to index the records, and what it takes.
type design struct {
	Name                    string
	PrimaryKey, ExpiryIndex float64 // bytes per record
	statements              []string
}

// Indexes is what both indexes take together.
func (d design) Indexes() float64 { return d.PrimaryKey + d.ExpiryIndex }

// designs are measured on a table of their own that has the two indexed
// columns only: the size of an index depends on nothing else.
func designs() []design {
	return []design{
		{Name: "as shipped", statements: []string{
			"alter table trial add primary key (id)",
			"create index trial_expires_at on trial (expires_at)",
		}},
		{Name: "primary key with fillfactor 70", statements: []string{
			"alter table trial add primary key (id) with (fillfactor = 70)",
			"create index trial_expires_at on trial (expires_at)",
		}},
		{Name: "primary key as a hash index", statements: []string{
			"alter table trial add constraint trial_pkey exclude using hash (id with =)",
			"create index trial_expires_at on trial (expires_at)",
		}},
		{Name: "expiry to the second, deduplicated", statements: []string{
			"alter table trial add primary key (id)",
			"alter table trial alter expires_at type timestamptz(0)",
			"create index trial_expires_at on trial (expires_at)",
		}},
		{Name: "expiry as a BRIN index", statements: []string{
			"alter table trial add primary key (id)",
			"create index trial_expires_at on trial using brin (expires_at)",
		}},
	}
}

// A day of records, in the order in which they expire.
const trialSQL = `
insert into trial
select gen_random_uuid(), statement_timestamp() + n * (interval '1 day' / $1::integer)
from generate_series(1, $1::integer) as n`

const trialBytesSQL = `select pg_relation_size('trial_pkey'), pg_relation_size('trial_expires_at')`

// measureDesigns lets each design grow record by record, as the shipped one
// does, and then builds the shipped one's indexes anew.
func (l *lab) measureDesigns(ctx context.Context, records int) ([]design, error) {
	tried := designs()
	measure := func(d *design) error {
		err := l.empty.pool.QueryRow(ctx, trialBytesSQL).Scan(&d.PrimaryKey, &d.ExpiryIndex)
		d.PrimaryKey /= float64(records)
		d.ExpiryIndex /= float64(records)
		return err
	}
	rebuilt := design{Name: "as shipped, after REINDEX"}
	for i := range tried {
		progress("index design: %s", tried[i].Name)
		if err := l.empty.exec(ctx, "drop table if exists trial", "create table trial (id uuid, expires_at timestamptz not null)"); err != nil {
			return nil, err
		}
		if err := l.empty.exec(ctx, tried[i].statements...); err != nil {
			return nil, err
		}
		if _, err := l.empty.async.Exec(ctx, trialSQL, records); err != nil {
			return nil, err
		}
		if err := measure(&tried[i]); err != nil {
			return nil, err
		}
		if i > 0 {
			continue
		}
		if err := l.empty.exec(ctx, "reindex table trial"); err != nil {
			return nil, err
		}
		if err := measure(&rebuilt); err != nil {
			return nil, err
		}
	}
	return append(tried, rebuilt), l.empty.exec(ctx, "drop table trial")
}
