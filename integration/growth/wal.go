package main

import "context"

// walCurve is what first requests write to the log after a checkpoint. The
// first change to a page after it logs the whole page (full_page_writes), so
// each request writes less than the one before.
type walCurve struct {
	Buckets []walBucket
	// Plain is what a request writes when every page that it changes has been
	// logged since the checkpoint: what the records take without page images.
	Plain float64
}

// walBucket is a stretch of requests.
type walBucket struct {
	End    int     // requests since the checkpoint
	Bytes  float64 // per request
	Images float64 // changes that logged a page image, per request
}

// walSQL measures the log from $1 to $2, which must be on disk.
const walSQL = `
select $2::pg_lsn - $1::pg_lsn, sum(fpi_length)::bigint, count(*) filter (where fpi_length > 0)
from pg_get_wal_records_info($1::pg_lsn, $2::pg_lsn)`

// bucketEnds divides a number of requests into stretches: the first is short,
// each further one ends at twice the requests.
func bucketEnds(total int) (ends []int) {
	for end := 500; end < total; end *= 2 {
		ends = append(ends, end)
	}
	return append(ends, total)
}

// measureWAL makes first requests on the grown database after a checkpoint and
// reads from the log itself what they wrote. Nothing else writes beside them.
func (l *lab) measureWAL(ctx context.Context, compression string, ops int) (walCurve, error) {
	d := l.grown
	if err := d.exec(ctx,
		"create extension if not exists pg_walinspect",
		"alter table idem.records set (autovacuum_enabled = off)",
		"alter system set wal_compression = "+compression, "select pg_reload_conf()", "checkpoint",
	); err != nil {
		return walCurve{}, err
	}
	var curve walCurve
	var plain int64
	done := 0
	for _, end := range bucketEnds(ops) {
		bytes, imageBytes, images, err := d.logged(ctx, func() error {
			_, err := d.firstRequests(ctx, d.relaxed, end-done)
			return err
		})
		if err != nil {
			return walCurve{}, err
		}
		n := float64(end - done)
		curve.Buckets = append(curve.Buckets, walBucket{End: end, Bytes: float64(bytes) / n, Images: float64(images) / n})
		plain, done = plain+bytes-imageBytes, end
	}
	curve.Plain = float64(plain) / float64(ops)
	return curve, d.exec(ctx,
		"alter system reset wal_compression", "select pg_reload_conf()",
		"alter table idem.records reset (autovacuum_enabled)",
	)
}

// logged measures what work writes to the log.
func (d *database) logged(ctx context.Context, work func() error) (bytes, imageBytes, images int64, err error) {
	from, err := d.flush(ctx)
	if err == nil {
		err = work()
	}
	if err != nil {
		return 0, 0, 0, err
	}
	to, err := d.flush(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	err = d.pool.QueryRow(ctx, walSQL, from, to).Scan(&bytes, &imageBytes, &images)
	return bytes, imageBytes, images, err
}

// flush brings all that is logged to disk and returns where that ends.
func (d *database) flush(ctx context.Context) (position string, err error) {
	// A commit that logs something, and is waited for.
	if err := d.exec(ctx, "select pg_logical_emit_message(true, 'growth', '')"); err != nil {
		return "", err
	}
	return position, d.pool.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text").Scan(&position)
}
