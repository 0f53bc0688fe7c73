package storm

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const findingsMax = 10 // of a check that are printed

var printer = message.NewPrinter(language.English) // 1,234

// Report is what the storm did and what the audit found.
type Report struct {
	Config  Config
	Time    time.Duration // for which clients began tasks
	Tally   Tally
	Keys    int
	Effects int          // transfers and holds in the book
	Asked   int64        // orders in the requests: one in each, or those of its list
	Answers [kinds]int64 // their sum is Asked
	Checks  []Check
}

// Check is one thing that must not be.
type Check struct {
	Name     string
	Meaning  string
	Findings []string // the keys, or accounts, and what is wrong with them
}

// OK tells whether nothing was found.
func (r Report) OK() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return len(c.Findings) > 0 })
}

// answerNames are the kinds of answers in the order of the report.
var answerNames = [kinds][2]string{
	executed:       {"executed", "the first answer to the key"},
	replayed:       {"replayed", "the first answer again"},
	rejected:       {"rejected", "a refusal, recorded like any answer"},
	otherPayload:   {"other payload", "422, the key is another request's"},
	inFlight:       {"in flight", "409, asked again"},
	unavailable:    {"unavailable", "503, asked again"},
	connectionLost: {"connection lost", "asked again"},
	hungUp:         {"hung up", "the client itself went away, and came back"},
	unexpected:     {"unexpected", "anything else, asked again"},
}

// String is the report as Write writes it to no terminal.
func (r Report) String() string {
	var text strings.Builder
	r.Write(&text)
	return text.String()
}

// Write writes the report, in 80 columns but for findings, which tell all. On a
// terminal it has colours, unless NO_COLOR is set.
func (r Report) Write(w io.Writer) {
	line := func(name string, number any, text string) {
		printer.Fprintf(w, "  %-17s %10d  %s\n", name, number, text)
	}
	fmt.Fprintf(w, "A storm of %v: %d clients, %d instances, -seed %d\n\n",
		r.Time.Round(time.Second), r.Config.Clients, r.Config.Instances, r.Config.Seed)
	line("keys", r.Keys, "each pursued until it had its answer")
	line("requests", r.Tally.Requests, "a list is one")
	line("asked", r.Asked, "orders in these requests: the answers below")
	line("effects", r.Effects, "transfers and holds in the book")
	printer.Fprintln(w, "\nAnswers")
	for kind, name := range answerNames {
		line(name[0], r.Answers[kind], name[1])
	}
	printer.Fprintln(w, "\nDamage")
	line("kill -9", r.Tally.Kills, "of an instance")
	line("restarts", r.Tally.Restarts, "of an instance by SIGTERM, which lets it finish")
	line("backends", r.Tally.Backends, "ended by pg_terminate_backend")
	printer.Fprintln(w, "\nAudit")
	paint := painter(w)
	for _, check := range r.Checks {
		mark := paint(green, "✓")
		if len(check.Findings) > 0 {
			mark = paint(red, "✗")
		}
		printer.Fprintf(w, "%s %-17s %10d  %s\n", mark, check.Name, len(check.Findings), check.Meaning)
		for i, finding := range check.Findings {
			if i == findingsMax {
				printer.Fprintf(w, "      and %d more\n", len(check.Findings)-i)
				break
			}
			printer.Fprintf(w, "      %s\n", strings.TrimSpace(finding))
		}
	}
	verdict := paint(green, "Every key has one answer and at most one effect.")
	if !r.OK() {
		verdict = paint(red, "The audit failed.")
	}
	printer.Fprintf(w, "\n%s\n", verdict)
}

const (
	green = "\x1b[32m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// painter returns a function that colours text on a terminal.
func painter(w io.Writer) func(colour, text string) string {
	if _, set := os.LookupEnv("NO_COLOR"); set || !isTerminal(w) {
		return func(_, text string) string { return text }
	}
	return func(colour, text string) string { return colour + text + plain }
}
