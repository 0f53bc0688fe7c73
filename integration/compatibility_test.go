package integration

import (
	"testing"

	"github.com/idempg/idempg/idem"
)

// Goal: no later version forgets what an earlier one recorded. Method: rows as
// version 1 wrote them, with their digests spelled out, must answer.
func TestRecordsOfVersion1Answer(t *testing.T) {
	t.Parallel()
	b := newBench(t, idem.Config{})
	b.exec(t, `insert into idem.records (id, created_at, expires_at, finished_at, status, unfinished, state,
			scope, key, operation, fingerprint, headers, body) values
		('e0026441-5715-a93b-8d93-90e1e69ded04', now(), now() + interval '1 day', now(), 201, null, 'completed',
		'acme', 'transfer-1', 'POST /v1/transfers', '\x01e96703760fd3c7ad0e3dc7ceef3fd78e342fafa2fcb733add66ed844652da909', '{"Location": ["/v1/transfers/1"]}', '{"id":1}')`)
	r := idem.Request{
		Scope: "acme", Operation: "POST /v1/transfers", Key: "transfer-1",
		Fingerprint: idem.NewFingerprint([]byte("POST"), []byte(`{"amount":1}`)),
	}
	result := mustDo(t, b.store, r, created("transfer-1"))
	if !result.Replayed || result.Status != 201 || string(result.Body) != `{"id":1}` || result.Header.Get("Location") != "/v1/transfers/1" {
		t.Errorf("got %+v, want the record of version 1", result)
	}
	b.wantEffects(t, "transfer-1", 0)

	r.Fingerprint = idem.NewFingerprint([]byte("POST"), []byte(`{"amount":2}`))
	_, err := b.store.Do(t.Context(), r, created("transfer-1"))
	wantError(t, err, idem.ErrKeyReused)
}
