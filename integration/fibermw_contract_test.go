package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// Goal: what the handler says about its content is replayed with it, byte for
// byte: the type, the encoding, several values of a header, and bytes of any
// value.
func TestFiberContentOfEveryKind(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write(every); err != nil || writer.Close() != nil {
		t.Fatal(err)
	}
	contents := map[string]struct {
		body   []byte
		header http.Header
	}{
		"json":                    {[]byte(`{"a":1}`), http.Header{"Content-Type": {"application/json; charset=utf-8"}}},
		"problem":                 {[]byte(`{}`), http.Header{"Content-Type": {"application/problem+json"}}},
		"the default type":        {[]byte("x"), http.Header{"Content-Type": {"text/plain; charset=utf-8"}}},
		"csv in another charset":  {[]byte("a;\xe4\r\n"), http.Header{"Content-Type": {"text/csv; charset=iso-8859-1; header=absent"}}},
		"binary":                  {every, http.Header{"Content-Type": {"application/octet-stream"}, "Content-Disposition": {`attachment; filename="a, b.bin"`}}},
		"encoded":                 {zipped.Bytes(), http.Header{"Content-Type": {"application/octet-stream"}, "Content-Encoding": {"gzip"}}},
		"multipart":               {[]byte("--b\r\n\r\n1\r\n--b--\r\n"), http.Header{"Content-Type": {"multipart/mixed; boundary=b"}}},
		"empty with a type":       {nil, http.Header{"Content-Type": {"application/json"}}},
		"several values":          {[]byte("x"), http.Header{"Link": {"</a, b>; rel=x", "</c>; rel=y"}, "Www-Authenticate": {"Basic", `Digest realm="a, b"`}, "Vary": {"A", "B"}}},
		"empty value":             {[]byte("x"), http.Header{"X-Empty": {""}}},
		"caching and validators":  {[]byte("x"), http.Header{"Cache-Control": {"no-store"}, "Etag": {`W/"1"`}, "Last-Modified": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Expires": {"0"}, "Retry-After": {"7"}}},
		"a place and a deprecate": {[]byte("x"), http.Header{"Location": {"/a?b=c#d"}, "Content-Location": {"/a"}, "Deprecation": {"@1"}, "Sunset": {"x"}}},
	}
	s := newShop(t, idem.Config{})
	app := quietApp()
	app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		content := contents[c.Query("content")]
		for name, values := range content.header {
			for _, value := range values {
				c.Response().Header.Add(name, value)
			}
		}
		if err := c.Send(content.body); err != nil {
			return err
		}
		return s.sell(c, tx, c.Query("content"))
	}))
	for name, send := range map[string]browser{"direct": direct(app), "connected": connect(t, app)} {
		for content, want := range contents {
			key := strings.ReplaceAll(name+"/"+content, " ", "-")
			request := func() *http.Request {
				r := post("/", key, "")
				r.URL.RawQuery = "content=" + strings.ReplaceAll(content, " ", "%20")
				r.RequestURI = r.URL.RequestURI()
				return r
			}
			first := send(t, request())
			expectReplay(t, first, send(t, request()))
			if first.status != 200 || first.body != string(want.body) {
				t.Errorf("%s: %d %q", key, first.status, first.body)
			}
			for header, values := range want.header {
				if got := first.header[header]; fmt.Sprint(got) != fmt.Sprint(values) {
					t.Errorf("%s: %s is %q, want %q", key, header, got, values)
				}
			}
		}
		mustExec(t, s.pool, "delete from sales")
	}
	s.expect(t, 2*len(contents), 0)
}

// Goal: the limit of recorded headers is exact, and above it the unit is undone
// before COMMIT.
func TestFiberHeadersAroundTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 1000
	s := newShop(t, idem.Config{HeaderBytesMax: limit})
	app := quietApp()
	app.Post("/:size", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		size, err := c.ParamsInt("size")
		if err != nil {
			return err
		}
		c.Set("X-Big", strings.Repeat("x", size-len(`{"X-Big":[""]}`))) // the only header, as it is recorded
		return s.sell(c, tx, c.Path())
	}))
	for size, fits := range map[int]bool{limit - 1: true, limit: true, limit + 1: false} {
		target := fmt.Sprint("/", size)
		first, second := direct(app)(t, post(target, target, "")), direct(app)(t, post(target, target, ""))
		if fits {
			expectReplay(t, first, second)
			continue
		}
		for _, got := range []answer{first, second} {
			got.mustProblem(t, 500, fibermw.CodeResponseTooLarge)
			if got.header.Get("X-Big") != "" {
				t.Error("the answer that cannot be recorded was sent")
			}
		}
	}
	s.expect(t, 4, 2)
}

// Goal: a request body up to the app's limit is a request, one above is none:
// it uses no key. Method: an app that reads bodies at once, and one that leaves
// them in the connection.
func TestFiberRequestBodiesAroundTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 10000
	s := newShop(t, idem.Config{})
	for _, stream := range []bool{false, true} {
		app := quietApp(fiber.Config{BodyLimit: limit, StreamRequestBody: stream})
		app.Post("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
			c.Set("X-Size", fmt.Sprint(len(c.Body())))
			return s.sell(c, tx, c.Get("Idempotency-Key"))
		}))
		send := connect(t, app)
		for _, size := range []int{0, limit - 1, limit, limit + 1} {
			key := fmt.Sprintf("%v-%d", stream, size)
			first := send(t, post("/", key, strings.Repeat("x", size)))
			if size > limit {
				if state := s.recorded(t, key); first.status != http.StatusRequestEntityTooLarge || state != "" {
					t.Errorf("%s: %v, record %q", key, first, state)
				}
				continue
			}
			if first.status != 200 || first.header.Get("X-Size") != fmt.Sprint(size) {
				t.Errorf("%s: %v", key, first)
			}
			expectReplay(t, first, send(t, post("/", key, strings.Repeat("x", size))))
			if size < limit {
				send(t, post("/", key, strings.Repeat("x", size)+"y")).mustProblem(t, 422, fibermw.CodeKeyReused)
			}
		}
	}
	s.expect(t, 6, 6)
}

// Goal: a HEAD that is configured as a unit has no body, first and replayed,
// and tells the same length.
func TestFiberHeadAsAUnit(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	s.config.Methods = []string{http.MethodHead}
	app := quietApp()
	app.Head("/", fibermw.Handle(s.config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if err := s.sell(c, tx, "item"); err != nil {
			return err
		}
		return c.JSON("seven")
	}))
	send := connect(t, app)
	head := func() answer {
		request := post("/", "key", "")
		request.Method = http.MethodHead
		return send(t, request)
	}
	first, second := head(), head()
	expectReplay(t, first, second)
	if first.status != 200 || first.body != "" || first.header.Get("Content-Length") != "7" {
		t.Errorf("answer %v", first)
	}
	s.expect(t, 1, 1)
}

// Goal: in groups and mounted apps the middleware is one and the same: full
// paths tell operations apart, each app renders its own refusals inside the
// unit, and an outer New with an inner one acts once.
func TestFiberGroupsAndMountedApps(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	handler := func(c *fiber.Ctx) error {
		if err := s.sell(c, fibermw.Tx(c), c.Path()); err != nil {
			return err
		}
		if c.Query("refuse") != "" {
			return fiber.NewError(fiber.StatusConflict, "refused")
		}
		return c.SendString(c.Path())
	}
	named := func(name string) fiber.Config {
		return fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
			return c.Status(fiber.StatusConflict).SendString(name + ": " + err.Error())
		}}
	}
	app := quietApp(named("app"))
	group := app.Group("/group", fibermw.New(s.config))
	group.Post("/a", handler)
	group.Group("/deep", fibermw.New(s.config)).Post("/a", handler)

	mounted := quietApp(named("mounted"))
	mounted.Use(fibermw.New(s.config))
	mounted.Post("/a", handler)
	app.Mount("/mounted", mounted)
	inner := quietApp(named("inner"))
	inner.Post("/a", fibermw.New(s.config), handler)
	mounted.Mount("/inner", inner)

	send := direct(app)
	for path, name := range map[string]string{"/group/a": "app", "/group/deep/a": "app", "/mounted/a": "mounted", "/mounted/inner/a": "inner"} {
		first := send(t, post(path, path, ""))
		expectReplay(t, first, send(t, post(path, path, "")))
		record, err := s.store.Lookup(t.Context(), "alice", path)
		if err != nil || first.body != path || record.Operation != "POST "+path {
			t.Errorf("%s: %v, operation %q, %v", path, first, record.Operation, err)
		}
		refused := send(t, post(path+"?refuse=1", path+"-refused", ""))
		expectReplay(t, refused, send(t, post(path+"?refuse=1", path+"-refused", "")))
		if refused.status != 409 || refused.body != name+": refused" {
			t.Errorf("%s: %v", path, refused)
		}
	}
	send(t, post("/mounted/a", "/group/a", "")).mustProblem(t, 422, fibermw.CodeKeyReused)
	s.expect(t, 8, 4)
	var records int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from idem.records").Scan(&records); err != nil || records != 8 {
		t.Errorf("%d records: %v", records, err)
	}
}

// Goal: what the README says of unknown routes. Under a New that covers a whole
// app or group, Fiber has not looked for the route yet: the key is demanded, and
// the 404 is recorded. Mounted on the routes themselves, neither happens.
func TestFiberUnknownRoutes(t *testing.T) {
	t.Parallel()
	s := newShop(t, idem.Config{})
	handler := func(c *fiber.Ctx) error { return s.sell(c, fibermw.Tx(c), c.Path()) }
	whole := quietApp()
	whole.Use(fibermw.New(s.config))
	whole.Post("/known", handler)
	onRoutes := quietApp()
	onRoutes.Post("/known", fibermw.New(s.config), handler)

	direct(whole)(t, post("/unknown", "", "")).mustProblem(t, 400, fibermw.CodeKeyMissing)
	first := direct(whole)(t, post("/unknown", "whole", ""))
	expectReplay(t, first, direct(whole)(t, post("/unknown", "whole", "")))
	if state := s.recorded(t, "whole"); first.status != 404 || state != idem.StateRejected {
		t.Errorf("covered: %v, record %q", first, state)
	}
	for _, key := range []string{"", "routes"} {
		if got := direct(onRoutes)(t, post("/unknown", key, "")); got.status != 404 || got.problem() != "" {
			t.Errorf("not covered: %v", got)
		}
	}
	if state := s.recorded(t, "routes"); state != "" {
		t.Errorf("not covered: record %q", state)
	}
	s.expect(t, 0, 0)
}
