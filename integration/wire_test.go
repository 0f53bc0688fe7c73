package integration

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/integration/faults"
)

// newWire starts a proxy to the server of a database.
func newWire(t *testing.T, d *database) *faults.Proxy {
	t.Helper()
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faults.New(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// wirePool is a pool of the database that connects through a proxy. A fault that
// names SQL meets it in pgx.QueryExecModeExec, which sends statements in plain
// text each time.
func wirePool(t *testing.T, d *database, w *faults.Proxy, mode pgx.QueryExecMode, mutate ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return d.Pool(t, append(mutate, throughWire(w, mode))...)
}

func throughWire(w *faults.Proxy, mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port = "127.0.0.1", w.Port()
		c.ConnConfig.TLSConfig = nil
		c.ConnConfig.Fallbacks = nil
		c.ConnConfig.DefaultQueryExecMode = mode
	}
}
