module github.com/idempg/idempg

go 1.26.0

// What users inherit. Each is here for a reason; see CONTRIBUTING.md.
require (
	// Structured Fields (RFC 8941), for the syntax of the Idempotency-Key header: released this year, no
	// dependencies of its own.
	github.com/dunglas/httpsfv v1.1.2
	// The web framework that fibermw is for.
	github.com/gofiber/fiber/v2 v2.52.15
	// JSON Canonicalization (RFC 8785), for CanonicalJSONFingerprint: the reference implementation, no dependencies.
	github.com/gowebpki/jcs v1.0.2
	// The driver. The core imports this and the standard library alone.
	github.com/jackc/pgx/v5 v5.13.0
	// The memory of idem/replaycache, bounded by weight: released this year, no dependencies outside its tests, no
	// goroutine as it is used here. Its eviction keeps what is asked for again, where a plain LRU would keep what
	// came last, which here is mostly keys that are never retried.
	github.com/maypok86/otter/v2 v2.4.0
	// Migrations, as a provider with a session lock.
	github.com/pressly/goose/v3 v3.30.1
	// Fiber's engine: the version that Fiber asks for, to read raw bodies and headers.
	github.com/valyala/fasthttp v1.51.0
)

require (
	github.com/andybalholm/brotli v1.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.4 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/rivo/uniseg v0.2.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/tcplisten v1.0.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
