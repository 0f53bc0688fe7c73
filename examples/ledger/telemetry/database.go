package telemetry

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idempg/idempg/examples/ledger/postgres"
)

// databaseTimeout bounds what a scrape asks the database, the wait for a
// connection included.
const databaseTimeout = 2 * time.Second

// databaseCollector asks the database when it is scraped. Every instance
// answers the same about it: take the maximum, not the sum.
type databaseCollector struct {
	queries *postgres.Queries

	up, records, bytes, backlog *prometheus.Desc
	jobs, jobsLag               *prometheus.Desc
}

func newDatabaseCollector(pool *pgxpool.Pool) *databaseCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &databaseCollector{
		queries: postgres.New(pool),
		up:      desc("ledger_database_up", "1 if the database answered this scrape, else 0, and what follows is left out."),
		records: desc("idem_records", "Rows of idem.records, as estimated by the last VACUUM or ANALYZE."),
		bytes:   desc("idem_records_bytes", "Size of idem.records with its indexes and TOAST."),
		backlog: desc("idem_sweep_backlog_seconds", "How long the record that expired first has been waiting for a sweep; 0 if none has."),
		jobs:    desc("river_jobs", "Jobs that are not done. discarded: given up.", "queue", "state"),
		jobsLag: desc("river_jobs_lag_seconds", "How long the job that has waited longest could have been worked off; 0 if none waits.", "queue"),
	}
}

// Describe implements prometheus.Collector.
func (d *databaseCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.up, d.records, d.bytes, d.backlog, d.jobs, d.jobsLag} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (d *databaseCollector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	records, err := d.queries.RecordsSize(ctx)
	var jobs []postgres.JobCountsRow
	if err == nil {
		jobs, err = d.queries.JobCounts(ctx)
	}
	if err != nil {
		gauge(d.up, 0)
		metrics <- prometheus.NewInvalidMetric(d.records, err) // logs it
		return
	}
	gauge(d.up, 1)
	gauge(d.records, float64(records.Estimate))
	gauge(d.bytes, float64(records.Bytes))
	gauge(d.backlog, records.BacklogSeconds)
	for _, count := range jobs {
		gauge(d.jobs, float64(count.Jobs), count.Queue, count.State)
		if count.State == "available" {
			gauge(d.jobsLag, count.OldestSeconds, count.Queue)
		}
	}
}
