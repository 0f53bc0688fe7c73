package main

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/idempg/idempg/examples/ledger/api"
)

// contract is the OpenAPI document that every answer to a test is checked with.
var contract = sync.OnceValues(func() (validator.Validator, []error) {
	document, err := libopenapi.NewDocument(api.OpenAPI)
	if err != nil {
		return nil, []error{err}
	}
	return validator.NewValidator(document)
})

// undocumented are the routes that are not for programs: the page and its parts.
var undocumented = regexp.MustCompile(`^GET /(page/.*)?$`)

func TestTheDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	check, errs := contract()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if valid, errs := check.ValidateDocument(); !valid {
		for _, err := range errs {
			t.Error(err, err.SchemaValidationErrors)
		}
	}
	service, _ := newService(t)
	if a := service.as("").get("/openapi.yaml"); a.body != string(api.OpenAPI) || a.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("served as %s, %d bytes, want %d", a.header.Get("Content-Type"), len(a.body), len(api.OpenAPI))
	}
}

// Every route is in the document, and nothing else is.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	app, _ := newTestApp(t, url)
	parameter := regexp.MustCompile(`:(\w+)`)
	var routes []string
	for _, route := range app.GetRoutes(true) {
		name := route.Method + " " + parameter.ReplaceAllString(route.Path, "{$1}")
		if route.Method != http.MethodHead && !undocumented.MatchString(name) {
			routes = append(routes, name)
		}
	}
	document, err := libopenapi.NewDocument(api.OpenAPI)
	must(t, err)
	model, err := document.BuildV3Model()
	must(t, err)
	var documented []string
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method := range item.GetOperations().FromOldest() {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if !slices.Equal(slices.Compact(routes), documented) {
		t.Errorf("routes\n%s\nand in the document\n%s", strings.Join(routes, "\n"), strings.Join(documented, "\n"))
	}
}

// wantContract checks an answer with the document, and the request too if the
// service took it for a good one.
func wantContract(t *testing.T, request *http.Request, body string, a answer) {
	t.Helper()
	check, errs := contract()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	switch {
	case !strings.HasPrefix(request.URL.Path, "/v1/"), // health is asked for by anyone
		strings.Contains(a.body, `"about:blank"`), // no such route, most often
		strings.Contains(body+a.body, "1e400"):    // more than the validator's numbers hold
		return
	}
	response := &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body))}
	if valid, errs := check.ValidateHttpResponse(request, response); !valid {
		t.Errorf("%s %s: the document does not know the answer %d %s: %v", request.Method, request.URL, a.status, a.body, errs)
	}
	if a.status >= 300 {
		return
	}
	request = request.Clone(request.Context())
	request.Body = io.NopCloser(bytes.NewReader([]byte(body)))
	if body != "" {
		request.Header.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	}
	if valid, errs := check.ValidateHttpRequestSync(request); !valid {
		t.Errorf("%s %s: the document does not know the request %.300s: %v", request.Method, request.URL, body, errs)
	}
}
