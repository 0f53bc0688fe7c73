package fibermw

import (
	"strings"
	"text/template"
	"time"

	"github.com/gofiber/fiber/v2"
)

// The forms in which [Rules.Send] answers. OpenAPI has the media type that is
// registered for it.
const (
	mimeMarkdown = "text/markdown"
	mimeOpenAPI  = "application/vnd.oai.openapi+json"
)

// Send is a handler that publishes the rules in the form that the client
// prefers: JSON, Markdown (text/markdown), or the OpenAPI document
// (application/vnd.oai.openapi+json).
func (r Rules) Send(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAccept)
	switch c.Accepts(fiber.MIMEApplicationJSON, mimeMarkdown, mimeOpenAPI) {
	case fiber.MIMEApplicationJSON:
		return c.JSON(r)
	case mimeMarkdown:
		c.Set(fiber.HeaderContentType, mimeMarkdown+"; charset=utf-8")
		return c.SendString(r.Markdown())
	case mimeOpenAPI:
		return c.JSON(r.OpenAPI(), mimeOpenAPI)
	}
	return fiber.ErrNotAcceptable
}

// Markdown is the text for the pages that the developers of clients read.
func (r Rules) Markdown() string {
	var text strings.Builder
	if err := rulesTemplate.Execute(&text, r); err != nil {
		panic("fibermw: " + err.Error()) // the template fits its type: a test executes all of it
	}
	return text.String()
}

var rulesTemplate = template.Must(template.New("rules").Funcs(template.FuncMap{
	"list": func(items []string) string {
		if len(items) == 0 {
			return "none"
		}
		return strings.Join(items, ", ")
	},
	"code": func(items []string) string { return "`" + strings.Join(items, "`, `") + "`" },
	"time": func(s Seconds) string {
		text := time.Duration(s).String() // 24h0m0s
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	},
}).Parse(`# Idempotency

A request with one of the methods {{list .Methods}} is carried out once for each key, however often it is sent.

**The key** is in the header ` + "`{{.Key.Header}}`" + `{{if .Key.Required}}, which is required{{else}}. Without one, a retry is carried out again{{end}}. {{.Key.Format}}

**Who shares keys.** {{.Scope}}

**A retry** repeats all of this, or it is refused: {{.SameRequest}}

**Expiry.** The answer of a key is kept for {{time .Expiry}}. After that, the same key is a new request.

**What is final**

| status of the answer | its effect | the same request again |
|---|---|---|
| {{list .Statuses.Completed}} | kept | the same answer |
| {{list .Statuses.Refused}} | none | the same answer |
| {{list .Statuses.NotFinal}} | none | is carried out again |

An error that the service did not foresee is never final. An answer of more than {{.Replay.BodyBytesMax}} bytes cannot be recorded: it
undoes its request.

**A repeated answer** has the status, the headers and the body of the first one, and the header ` + "`{{.Replay.Header}}: true`" + `. It
lacks the headers that belong to one message: {{code .Replay.HeadersNeverStored}}.

**While the first request runs**, another one with its key {{if .Replay.InFlightWait}}waits up to {{time .Replay.InFlightWait}} for the answer, and {{end}}gets 409.

**Problems** ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) are answers of their own, and none of them is final for the key:

| problem | status | meaning | send the same request again |
|---|---|---|---|
{{range .Problems}}| [{{.Title}}]({{.Type}}) | {{.Status}} | {{.Detail}} | {{if .RetryAfter}}after {{time .RetryAfter}}{{else}}no{{end}} |
{{end}}`))
