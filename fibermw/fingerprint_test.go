package fibermw

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/idempg/idempg/idem"
)

type digester = func(*fiber.Ctx) (idem.Fingerprint, error)

// fingerprintOf sends a request through an app and returns its fingerprint.
func fingerprintOf(t *testing.T, digest digester, config fiber.Config, request *http.Request) idem.Fingerprint {
	t.Helper()
	var got idem.Fingerprint
	app := fiber.New(config)
	app.All("/*", func(c *fiber.Ctx) (err error) {
		if err := readBody(c); err != nil {
			return err
		}
		got, err = digest(c)
		return err
	})
	response, err := app.Test(request, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK || got.IsZero() {
		t.Fatalf("no fingerprint: status %d", response.StatusCode)
	}
	return got
}

func post(target, contentType, body string) *http.Request {
	request := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	request.Header.Set("Content-Type", contentType)
	return request
}

func TestDefaultFingerprintSeparatesRequests(t *testing.T) {
	t.Parallel()
	put := post("/a", "application/json", "{}")
	put.Method = http.MethodPut
	encoded := post("/a", "application/json", "\x1f\x8b broken gzip")
	encoded.Header.Set("Content-Encoding", "gzip")
	seen := map[idem.Fingerprint]string{}
	for _, request := range []*http.Request{
		post("/a", "application/json", "{}"), put, encoded,
		post("/a/", "application/json", "{}"),
		post("/a%2F", "application/json", "{}"),
		post("/a?x=1", "application/json", "{}"),
		post("/a?x=2", "application/json", "{}"),
		post("/a", "text/plain", "{}"),
		post("/a", "application/json", "{ }"),
		post("/a", "application/json", ""),
		post("/ax=1", "application/json", "{}"), // a byte moved from one part to the next
	} {
		name := fmt.Sprintf("%s %s %s", request.Method, request.URL, request.Header)
		fingerprint := fingerprintOf(t, DefaultFingerprint, fiber.Config{}, request)
		if other, there := seen[fingerprint]; there {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[fingerprint] = name
	}
}

func TestDefaultFingerprintIsStable(t *testing.T) {
	t.Parallel()
	for _, config := range []fiber.Config{{}, {StreamRequestBody: true}, {DisablePreParseMultipartForm: true}, {Immutable: true}} {
		one := fingerprintOf(t, DefaultFingerprint, fiber.Config{}, post("/a?b=c", "application/json", `{"a":1}`))
		two := fingerprintOf(t, DefaultFingerprint, config, post("/a?b=c", "application/json", `{"a":1}`))
		if one != two {
			t.Errorf("the fingerprint depends on %+v", config)
		}
	}
}

// form writes a multipart form with its own boundary.
func form(t *testing.T, fields int, file string) *http.Request {
	t.Helper()
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	for i := range fields {
		if err := writer.WriteField(fmt.Sprintf("field%d", i), "value"); err != nil {
			t.Fatal(err)
		}
	}
	part, err := writer.CreateFormFile("file", "statement.csv")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(part, file); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return post("/upload", writer.FormDataContentType(), body.String())
}

// Goal: a retry of an upload has the fingerprint of the first attempt. Method:
// the boundary differs, and fasthttp writes the parsed form back in the order
// of a map, so ten fields tell.
func TestAMultipartFormIsOneRequestWhateverItsBoundary(t *testing.T) {
	t.Parallel()
	first := fingerprintOf(t, DefaultFingerprint, fiber.Config{}, form(t, 10, "a;b"))
	for _, config := range []fiber.Config{{}, {DisablePreParseMultipartForm: true}, {StreamRequestBody: true}} {
		if again := fingerprintOf(t, DefaultFingerprint, config, form(t, 10, "a;b")); again != first {
			t.Errorf("the same form again is another request with %+v", config)
		}
	}
	if fingerprintOf(t, DefaultFingerprint, fiber.Config{}, form(t, 10, "a;c")) == first {
		t.Error("another file is the same request")
	}
	if fingerprintOf(t, DefaultFingerprint, fiber.Config{}, form(t, 9, "a;b")) == first {
		t.Error("a field less is the same request")
	}
}

func TestFormPartsDoNotRunIntoEachOther(t *testing.T) {
	t.Parallel()
	digest := func(values map[string][]string) idem.Fingerprint {
		parts, err := formParts(&multipart.Form{Value: values})
		if err != nil {
			t.Fatal(err)
		}
		return idem.NewFingerprint(parts...)
	}
	one := digest(map[string][]string{"a": {"values", "b", "1", "c"}})
	two := digest(map[string][]string{"a": {}, "b": {"c"}})
	if one == two {
		t.Error("two forms have one fingerprint")
	}
}

func TestCanonicalJSONFingerprint(t *testing.T) {
	t.Parallel()
	const contentType = "application/vnd.api+json; charset=utf-8"
	digest := func(contentType, body string) idem.Fingerprint {
		return fingerprintOf(t, CanonicalJSONFingerprint, fiber.Config{BodyLimit: 32 << 20}, post("/a", contentType, body))
	}
	if digest(contentType, `{"b":1.0,"a":"ä"}`) != digest(contentType, `{ "a": "\u00e4", "b": 1 }`) {
		t.Error("the same JSON, written anew, is another request")
	}
	if digest(contentType, `{"a":1}`) == digest(contentType, `{"a":2}`) {
		t.Error("another amount is the same request")
	}
	if digest("text/plain", `{"a":1}`) == digest("text/plain", `{ "a":1}`) {
		t.Error("text that looks like JSON was canonicalized")
	}
	if digest(contentType, `{"a":1,"a":2}`) == digest(contentType, `{"a":2}`) {
		t.Error("a member that is there twice was dropped")
	}
	deep := strings.Repeat("[", 16<<20) // a parser without a bound would end the process
	if digest(contentType, deep) == digest(contentType, deep+" ") {
		t.Error("a body that is no JSON was not taken as it is")
	}
}

func TestAStreamedBodyIsReadWholeOrRefused(t *testing.T) {
	t.Parallel()
	app := fiber.New(fiber.Config{StreamRequestBody: true, BodyLimit: 1 << 10})
	app.Post("/", func(c *fiber.Ctx) error {
		if err := readBody(c); err != nil {
			return err
		}
		return c.Send(c.Body())
	})
	for size, want := range map[int]int{1 << 10: http.StatusOK, 1<<10 + 1: http.StatusRequestEntityTooLarge} {
		response, err := app.Test(post("/", "text/plain", strings.Repeat("x", size)), -1)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want || want == http.StatusOK && len(body) != size {
			t.Errorf("a body of %d bytes: status %d with %d bytes, want %d", size, response.StatusCode, len(body), want)
		}
	}
}
