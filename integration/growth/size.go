package main

import (
	"context"
	"slices"
	"time"
)

// point is all that is measured at one size of the table.
type point struct {
	Records   int
	Fill      time.Duration
	Latencies []latency // as in kinds
	Bytes     bytesPerRecord
	WAL       walCurve
	Squeezed  walCurve // the same with wal_compression, at the largest size only
}

// bytesPerRecord is the size of a table and its indexes, divided by its records.
type bytesPerRecord struct {
	Records                       int
	Heap, PrimaryKey, ExpiryIndex float64
}

// Indexes is what both indexes take together.
func (b bytesPerRecord) Indexes() float64 { return b.PrimaryKey + b.ExpiryIndex }

// measureSize lets the table grow to size records and measures there.
func (l *lab) measureSize(ctx context.Context, p plan, size int) (point, error) {
	progress("filling to %d records", size)
	start := time.Now()
	if err := l.grown.fill(ctx, size); err != nil {
		return point{}, err
	}
	at := point{Records: size, Fill: time.Since(start)}
	if err := l.grown.exec(ctx, "vacuum (analyze) idem.records", "checkpoint"); err != nil {
		return point{}, err
	}
	var err error
	if size > 0 {
		if at.Bytes, err = l.grown.bytesPerRecord(ctx); err != nil {
			return point{}, err
		}
	}
	for _, k := range kinds {
		progress("%d records: %s", size, k.Name)
		measured, err := l.measureLatency(ctx, k, p.Rounds, p.SliceOps)
		if err != nil {
			return point{}, err
		}
		at.Latencies = append(at.Latencies, measured)
	}
	progress("%d records: write-ahead log", size)
	if at.WAL, err = l.measureWAL(ctx, "off", p.WALOps); err != nil {
		return point{}, err
	}
	if size == slices.Max(p.Sizes) {
		at.Squeezed, err = l.measureWAL(ctx, "lz4", p.WALOps)
	}
	return at, err
}

const bytesSQL = `
select pg_relation_size('idem.records'), pg_relation_size('idem.records_pkey'), pg_relation_size('idem.records_expires_at')`

func (d *database) bytesPerRecord(ctx context.Context) (bytesPerRecord, error) {
	b := bytesPerRecord{Records: d.filled + int(d.calls.Load())}
	err := d.pool.QueryRow(ctx, bytesSQL).Scan(&b.Heap, &b.PrimaryKey, &b.ExpiryIndex)
	for _, bytes := range []*float64{&b.Heap, &b.PrimaryKey, &b.ExpiryIndex} {
		*bytes /= float64(b.Records)
	}
	return b, err
}
