// Package page is the page at / of the ledger. It shows, to someone who has
// never heard of idempotency keys, why a balance does not change twice.
//
// Its script is a client of the API like any other. What the server knows, the
// accounts and the records of the keys, arrives as fragments of HTML (see
// [Live]) that the script swaps in. Nothing comes from another origin, and
// without a script the page still explains itself.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"path"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/etag"
)

// policy lets nothing run or load but the files of this package.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed web
var web embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"money": money}).ParseFS(web, "web/*.html"))

// Config says what a visitor may do.
type Config struct {
	// APIKey is filled in for every visitor, so it must be public knowledge.
	// Defaults to "": the page asks for a key, and keeps it in memory only.
	APIKey string

	// Crash offers to kill the server in the middle of a transfer.
	// Defaults to false.
	Crash bool
}

// Register adds the page and its files to app, outside of any authentication.
func Register(app fiber.Router, config Config) {
	app.Get("/", secure, etag.New(), func(c *fiber.Ctx) error {
		return render(c, "page.html", struct {
			Config
			Amounts []int64 // of the lines to paste
		}{config, []int64{2500, 2500, 9900}})
	})
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		content, err := web.ReadFile("web/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		app.Get("/page/"+name, secure, etag.New(), func(c *fiber.Ctx) error {
			return c.Type(path.Ext(name), "utf-8").Send(content)
		})
	}
}

// secure sets the headers of all that belongs to the page. A browser keeps the
// files, and asks each time whether they are still the same.
func secure(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentSecurityPolicy, policy)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	c.Set(fiber.HeaderCacheControl, "no-cache")
	return c.Next()
}

func render(c *fiber.Ctx, name string, data any) error {
	var content bytes.Buffer
	if err := templates.ExecuteTemplate(&content, name, data); err != nil {
		return err
	}
	return c.Type("html", "utf-8").Send(content.Bytes())
}
