package fibermw

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/idempg/idempg/idem"
)

// Rules are the idempotency rules of a service in a form to publish, which the
// Idempotency-Key draft asks of every service (section 2.5): as JSON by
// encoding/json, as text by [Rules.Markdown], as a part of an API description
// by [Rules.OpenAPI], and as a handler by [Rules.Send]:
//
//	app.Get("/idempotency", fibermw.RulesOf(config).Send)
type Rules struct {
	Key         KeyRules       `json:"key"`
	Methods     []string       `json:"methods"`     // what is carried out once per key
	Scope       string         `json:"scope"`       // who shares keys, in words
	SameRequest string         `json:"sameRequest"` // what a retry must repeat, in words
	Expiry      Seconds        `json:"expirySeconds"`
	Statuses    StatusRules    `json:"statuses"`
	Replay      ReplayRules    `json:"replay"`
	Problems    []ProblemRules `json:"problems"` // what is answered instead; none of them is recorded
}

// KeyRules say how a key is sent.
type KeyRules struct {
	Header   string `json:"header"`
	Required bool   `json:"required"`
	Format   string `json:"format"`  // in words
	Pattern  string `json:"pattern"` // of the header's value, without parameters: ECMA-262, RE2
	BytesMax int    `json:"bytesMax"`
}

// StatusRules say which answers are final, as Config.Judge judges them: single
// statuses, such as "404", and ranges, such as "200-399".
type StatusRules struct {
	Completed []string `json:"completed"` // the effect is kept; a retry gets the same answer
	Refused   []string `json:"refused"`   // nothing is changed; a retry gets the same answer
	NotFinal  []string `json:"notFinal"`  // nothing is changed; a retry runs again
}

// ReplayRules say how an answer from the record differs from the first.
type ReplayRules struct {
	Header             string   `json:"header"`             // it is "true" on replays only
	HeadersNeverStored []string `json:"headersNeverStored"` // in lower case; a trailing * stands for any ending
	BodyBytesMax       int      `json:"bodyBytesMax"`       // a larger answer undoes its request
	InFlightWait       Seconds  `json:"inFlightWaitSeconds"`
}

// ProblemRules say what a [Problem] means. Match on Type.
type ProblemRules struct {
	Type       string  `json:"type"` // a link to its documentation
	Title      string  `json:"title"`
	Status     int     `json:"status"`
	Detail     string  `json:"detail"`
	RetryAfter Seconds `json:"retryAfterSeconds,omitempty"` // when to send the same again; absent: it does not help
}

// Seconds is a duration that JSON has in seconds.
type Seconds time.Duration

// MarshalJSON writes a number.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%g", time.Duration(s).Seconds()), nil
}

// keyPattern is what parseKey accepts, without parameters and the white space
// around: a bare value, or a String with escapes.
const keyPattern = `^(?:[!#-~][!-~]{0,254}|"(?:[!#-\[\]-~]|\\["\\]){1,255}")$`

// RulesOf tells what New and Handle do with config. It panics when they would.
//
// Functions do not tell what they do, so Scope and SameRequest are sure to be
// right only for the functions of this package; replace these sentences to say
// more. Judge is asked for each status, with a request that has a method and
// nothing else. A status for which it panics then is listed nowhere. What
// [End] decides for a single request is not in the rules, and Problems are as
// [SendProblem] sends them.
func RulesOf(config Config) Rules {
	m := newMiddleware(config)
	store := m.Store.Config()
	rules := Rules{
		Key: KeyRules{
			Header: m.KeyHeader, Required: !m.AllowMissingKey, Pattern: keyPattern, BytesMax: idem.KeyBytesMax,
			Format: fmt.Sprintf("1 to %d bytes of visible ASCII, in one header line: an RFC 8941 String (in quotation marks, parameters ignored) or the bare value. Both spell the same key. Case matters. Use a UUID.", idem.KeyBytesMax),
		},
		Methods:     slices.Clone(m.Methods),
		Scope:       "Each authenticated caller has keys of its own.",
		SameRequest: "The key, and what the service takes from the request.",
		Expiry:      Seconds(m.TTL),
		Statuses:    m.judgeAll(),
		Replay: ReplayRules{
			Header: m.ReplayedHeader, HeadersNeverStored: slices.Clone(m.neverStored),
			BodyBytesMax: store.BodyBytesMax, InFlightWait: Seconds(store.ClaimWait),
		},
	}
	if m.TTL == 0 {
		rules.Expiry = Seconds(store.TTL)
	}
	if isFunc(m.Scope, GlobalScope) {
		rules.Scope = "All callers share one set of keys."
	}
	switch {
	case isFunc(m.Fingerprint, DefaultFingerprint):
		rules.SameRequest = "The method, the path, the query, the content type and the body, byte for byte. Of a multipart form, what it holds."
	case isFunc(m.Fingerprint, CanonicalJSONFingerprint):
		rules.SameRequest = "The method, the path, the query, the content type and the body: of JSON its canonical form (RFC 8785), of a multipart form what it holds, of others each byte."
	}
	slices.Sort(rules.Replay.HeadersNeverStored)
	for _, kind := range problemKinds {
		if p := m.problem(kind.code, nil); p.Code != CodeKeyMissing || rules.Key.Required {
			rules.Problems = append(rules.Problems, ProblemRules{p.Type, p.Title, p.Status, p.Detail, Seconds(p.RetryAfter)})
		}
	}
	return rules
}

// isFunc reports whether f is the function g of this package.
func isFunc(f, g any) bool { return reflect.ValueOf(f).Pointer() == reflect.ValueOf(g).Pointer() }

// judgeAll sorts all statuses that can be recorded by how they end.
func (m *middleware) judgeAll() StatusRules {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	endings := map[Ending][]int{}
	for status := fiber.StatusOK; status <= 599; status++ {
		if ending, judged := m.judge(app, status); judged {
			endings[ending] = append(endings[ending], status)
		}
	}
	return StatusRules{Completed: ranges(endings[Commit]), Refused: ranges(endings[Reject]), NotFinal: ranges(endings[Abort])}
}

// judge asks the Judge about a bare status.
func (m *middleware) judge(app *fiber.App, status int) (ending Ending, judged bool) {
	defer func() { judged = recover() == nil }()
	request := new(fasthttp.RequestCtx)
	request.Request.Header.SetMethod(m.Methods[0])
	c := app.AcquireCtx(request)
	defer app.ReleaseCtx(c)
	if ending = m.Judge(c.Status(status)); ending != Commit && ending != Reject {
		ending = Abort // as in a unit
	}
	return ending, true
}

// ranges writes ascending statuses in short.
func ranges(statuses []int) []string {
	short := []string{} // JSON has it as [], not as null
	for i := 0; i < len(statuses); {
		first, last := statuses[i], statuses[i]
		for i++; i < len(statuses) && statuses[i] == last+1; i++ {
			last++
		}
		if first == last {
			short = append(short, fmt.Sprint(first))
		} else {
			short = append(short, fmt.Sprintf("%d-%d", first, last))
		}
	}
	return short
}
