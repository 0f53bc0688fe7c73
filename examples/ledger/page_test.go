package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/examples/ledger/api"
	"github.com/idempg/idempg/examples/ledger/jobs"
	"github.com/idempg/idempg/idem"
)

// newPage serves the page on a database of the test's own, with the accounts of
// the demo.
func newPage(t *testing.T) (client, *pgxpool.Pool) {
	t.Helper()
	service, pool := newService(t)
	must(t, openDemoAccounts(t.Context(), pool, "acme"))
	return service, pool
}

// Goal: each action ends with the sentence that is true, and the money moved as
// often as it says. Method: press, read, and ask the database.
func TestActionsOfThePage(t *testing.T) {
	t.Parallel()
	const once = `the balance of alice changed once, by 25\.00 EUR\.`
	for _, test := range []struct {
		name     string
		press    []string
		verdict  string // of the last one
		answers  string // newest first
		balance  int64  // of alice
		executed int64
	}{
		{"send", []string{"send"}, `Executed: ` + once, `201 executed`, 2500, 1},
		{"send twice", []string{"send", "send"}, `Replayed: the balance of alice did not change\.`, `201 replayed,201 executed`, 2500, 1},
		{"send again", []string{"again"}, `1 executed, 1 replayed: ` + once, `201 replayed,201 executed`, 2500, 1},
		{"send, and again", []string{"send", "again"}, `Replayed: the balance of alice did not change\.`, `201 replayed,201 executed`, 2500, 1},
		{
			"20 at once",
			[]string{"flood"},
			`1 executed(, \d+ replayed)?(, \d+ told that the first was still in flight)?: ` + once,
			`((201 replayed|409 in flight|201 executed),?){20}`, 2500, 1,
		},
		{"20 at once under a new key", []string{"send", "flood"}, `1 executed.*: ` + once, `(.*,){20}201 executed`, 5000, 2},
		{
			"another amount",
			[]string{"change"},
			`1 executed, 1 refused as another payload: ` + once,
			`422 other payload,201 executed`, 2500, 1,
		},
		{
			"another amount, later",
			[]string{"send", "change", "again"},
			`Replayed: the balance of alice did not change\.`,
			`201 replayed,422 other payload,201 executed`, 2500, 1,
		},
		{
			"more than there is",
			[]string{"overdraw"},
			`Rejected, and the refusal replayed: alice could not pay 25\.00 EUR, and the same request is still refused now that the money is there\.`,
			`422 replayed,201 executed,422 rejected`, 2500, 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			service, pool := newPage(t)
			tab := openTab(t, service.url).ready()
			var verdict string
			for _, action := range test.press {
				verdict = tab.press(action)
			}
			wantMatch(t, verdict, test.verdict)
			wantMatch(t, strings.Join(tab.texts("#sent .badge"), ","), test.answers)
			if got := service.balance("alice"); got != test.balance {
				t.Errorf("balance %d, want %d", got, test.balance)
			}
			if changed := len(tab.texts(".account[data-change]")) > 0; changed == strings.Contains(verdict, "did not change") {
				t.Errorf("a change is shown: %v, though %s", changed, verdict)
			}
			if got := one[int64](t, pool, "select count(*) from ledger.transfers"); got != test.executed {
				t.Errorf("%d transfers, want %d", got, test.executed)
			}
			if got, want := len(tab.texts("#records [data-key]")), len(slices.Compact(slices.Sorted(slices.Values(tab.texts("#sent .key"))))); got != want {
				t.Errorf("%d records are shown of %d keys", got, want)
			}
		})
	}
}

func wantMatch(t *testing.T, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile("^(" + pattern + ")$").MatchString(got) {
		t.Errorf("%q, want %s", got, pattern)
	}
}

// Goal: a server that dies in the middle of a transfer, which the browser sees
// as a lost connection, costs nothing. Method: a demo, whose service is a child
// process that ends where the page asks it to.
func TestCrashesOnThePage(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "LEDGER_ADDR=127.0.0.1:0")
	service := newClient(t, p.url)
	tab := openTab(t, p.url).ready()
	for i, crash := range []struct{ action, verdict string }{
		// The backend of the dead process may hold the key for a moment.
		{"crash-before", `Connection lost( → 409 in flight)? → 201 executed: the crash had undone everything, and now it has happened, once\. `},
		{"crash-after", `Connection lost → 201 replayed: it had happened before the crash, once\. `},
	} {
		wantMatch(t, tab.press(crash.action), crash.verdict+`The balance of alice changed once, by 25\.00 EUR\.`)
		if got, want := service.balance("alice"), int64(i+1)*2500; got != want {
			t.Errorf("%s: balance %d, want %d", crash.action, got, want)
		}
	}
	wantMatch(t, strings.Join(tab.texts("#sent .badge"), ","), "201 replayed,connection lost,201 executed,(409 in flight,)?connection lost")
	tab.await("the live mark", `!document.getElementById("live").hidden`)
	wantOutput(t, service.get("/v1/audit").body, `"ok":true`)
}

// Only a demo dies when it is told to.
func TestTheServiceDoesNotCrashOnRequest(t *testing.T) {
	t.Parallel()
	url, pool := newDatabase(t)
	must(t, openDemoAccounts(t.Context(), pool, "acme"))
	p := startProcess(t, "DATABASE_URL="+url, "LEDGER_ADDR=127.0.0.1:0")
	for _, point := range []string{"before-commit", "after-commit"} {
		request, err := http.NewRequestWithContext(t.Context(), "POST", p.url+"/v1/transfers", strings.NewReader(transferBody("bank", "alice", 1)))
		must(t, err)
		request.Header = http.Header{"Authorization": {"Bearer " + demoKey}, "Idempotency-Key": {newKey()}, "Ledger-Demo-Crash": {point}}
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusCreated {
			t.Errorf("%s: status %d", point, response.StatusCode)
		}
	}
	if text := openTab(t, p.url).ready().text("form"); strings.Contains(text, "Crash") {
		t.Errorf("a service that is no demo offers to crash:\n%s", text)
	}
}

// Goal: while a request runs, the page says so, and does nothing else. Method:
// hold the transfer at a lock.
func TestThePageShowsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	service, pool := newPage(t)
	tab := openTab(t, service.url).ready()
	release := holdTransfers["between claim and writes"](t, pool)
	tab.run(chromedp.Click(`[data-action="send"]`))
	awaitHeldTransfer(t, pool)
	tab.await("a key in flight", `document.querySelector("#records .inflight")?.innerText === "in flight"`)
	wantMatch(t, tab.text("#sent .badge"), "waiting")
	tab.run(chromedp.Click(`[data-action="again"]`))
	release()
	wantMatch(t, tab.verdict(), `Executed: .*`)
	wantMatch(t, tab.text("#sent .badge"), "201 executed")
	wantMatch(t, tab.text("#records [data-key] .badge"), "201 completed")
}

// The page asks for an API key that is not public, and keeps it nowhere.
func TestThePageAsksForTheAPIKey(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	must(t, openDemoAccounts(t.Context(), pool, "globex"))
	store, err := idem.New(pool, idem.Config{})
	must(t, err)
	keys, _, err := api.ParseKeys("s3cret:globex")
	must(t, err)
	service := serveApp(t, api.New(api.Config{
		Pool: pool, Store: store, Keys: keys, Outboxes: newJobs(t, jobs.Config{Pool: pool, Store: store}),
	}))
	tab := openTab(t, service.url)
	if body := service.as("").get("/").body; strings.Contains(body, "s3cret") || strings.Contains(body, "demo-key") {
		t.Errorf("the page holds a key:\n%s", body)
	}
	tab.run(chromedp.SendKeys("#api-key", "wrong"+kb.Tab))
	tab.await("a refusal", `document.getElementById("accounts").innerText === "No tenant has this API key."`)
	for _, key := range []string{"s3cret", "wrong", "s3cret"} {
		tab.fill("api-key", "")
		tab.run(chromedp.SendKeys("#api-key", key+kb.Tab))
		tab.await("what the key "+key+" opens", fmt.Sprintf(`(document.querySelectorAll(".account").length === 2) === %v`, key == "s3cret"))
	}
	tab.ready()
	wantMatch(t, tab.press("send"), `Executed: .*`)
	if got := eval[string](tab, `JSON.stringify([document.getElementById("api-key").type, localStorage.length, sessionStorage.length, document.cookie])`); got != `["password",0,0,""]` {
		t.Errorf("the key is kept: %s", got)
	}
}

// look is how a page is looked at.
type look struct {
	scheme        string // light or dark
	width, height int64
	last          string // the action that is seen
}

func (l look) actions() []chromedp.Action[chromedp.Void] {
	return []chromedp.Action[chromedp.Void]{
		chromedp.EmulateViewport(l.width, l.height),
		protocol(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: l.scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}, // no colour that is on its way to another
		}}),
	}
}

var looks = map[string]look{
	"light": {"light", 1120, 1240, "crash-after"},
	"dark":  {"dark", 1120, 1240, "flood"},
	"phone": {"light", 360, 1560, "overdraw"},
}

// lowContrast lists the texts whose contrast with what is behind them is below
// the 4.5 of WCAG AA.
const lowContrast = `(() => {
	const parse = (color) => color.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
		.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		const color = parse(getComputedStyle(e).backgroundColor);
		return color.length === 4 && color[3] === 0 ? behind(e.parentElement) : color;
	};
	return [...document.querySelectorAll("body *")]
		.filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.checkVisibility())
		.map((e) => {
			const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
			return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent];
		})
		.filter(([contrast]) => contrast < 4.5)
		.map(([contrast, text]) => contrast.toFixed(2) + " " + text);
})()`

// Goal: in the light, in the dark and on a phone, everything can be read, and
// nothing sticks out. Method: make answers of every kind, and measure. With
// LEDGER_SCREENSHOTS=dir it writes what it saw.
func TestLooksOfThePage(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "LEDGER_ADDR=127.0.0.1:0")
	for _, name := range []string{"light", "dark", "phone"} { // one after the other: they share a balance
		tab := openTab(t, p.url, looks[name].actions()...).ready()
		background := eval[string](tab, "getComputedStyle(document.body).backgroundColor")
		if dark := strings.HasPrefix(background, "rgb(18, "); dark != (looks[name].scheme == "dark") {
			t.Errorf("%s: the background is %s", name, background)
		}
		for _, action := range []string{"again", "change", "overdraw", "flood", "crash-after", looks[name].last} {
			tab.press(action)
		}
		if low := eval[[]string](tab, lowContrast); len(low) > 0 {
			t.Errorf("%s: low contrast: %q", name, low)
		}
		screenshot(t, tab, name)
		wantNothingSticksOut(t, tab, looks[name].width)
		// The longest keys, which are one word and the longest address.
		for _, letter := range []string{"W", "%", "\"", "<", "^", "#"} {
			tab.fill("key", "k"+strings.Repeat(letter, 254))
			tab.press("send")
		}
		tab.await("the record", `document.querySelector("#records td").title.startsWith("k###")`)
		wantNothingSticksOut(t, tab, looks[name].width)
	}
}

func wantNothingSticksOut(t *testing.T, tab *tab, width int64) {
	t.Helper()
	if got := eval[int64](tab, "document.documentElement.scrollWidth"); got > width {
		t.Errorf("%d pixels wide, want %d", got, width)
	}
	const inside = `[...document.querySelectorAll(".scroll, .card, .account, button, fieldset")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.className)`
	if got := eval[[]string](tab, inside); len(got) > 0 {
		t.Errorf("at %d pixels these scroll sideways: %q", width, got)
	}
}

const screenshotBytesMax = 300 << 10 // they are in the repository

func screenshot(t *testing.T, tab *tab, name string) {
	t.Helper()
	tab.run(chromedp.MouseEvent("mouseMoved", 1, 1)) // off the buttons
	_ = eval[int](tab, "document.activeElement.blur(), scrollTo(0, 0), 0")
	png, err := chromedp.Run(tab.ctx, chromedp.CaptureScreenshot())
	must(t, err)
	if len(png) > screenshotBytesMax {
		t.Errorf("%s: a screenshot of %d bytes", name, len(png))
	}
	if dir := os.Getenv("LEDGER_SCREENSHOTS"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, "page-"+name+".png"), png, 0o644))
	}
}

// Goal: all of it without a mouse. Method: walk with Tab from the top, see where
// the focus is and that it shows, and send by Enter and Space.
func TestThePageByKeyboard(t *testing.T) {
	t.Parallel()
	service, _ := newPage(t)
	tab := openTab(t, service.url).ready()
	const focus = `(() => {
		const e = document.activeElement, style = getComputedStyle(e);
		const shown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
		return (e.dataset.action ?? (e.id || e.getAttribute("aria-labelledby"))) + (shown ? "" : " without an outline");
	})()`
	step := func(want string) {
		t.Helper()
		tab.run(chromedp.KeyEvent(kb.Tab))
		if got := eval[string](tab, focus); got != want {
			t.Fatalf("the focus is on %s, want %s", got, want)
		}
	}
	step("from")
	step("to")
	step("amount")
	tab.run(chromedp.KeyEvent("7.5"), chromedp.KeyEvent(kb.Enter)) // Tab had selected the old amount
	wantMatch(t, tab.verdict(), `Executed: the balance of alice changed once, by 7\.50 EUR\.`)
	step("key")
	step("new-key")
	step("send")
	step("again")
	tab.run(chromedp.KeyEvent(" "))
	wantMatch(t, tab.verdict(), `Replayed: the balance of alice did not change\.`)
	for _, want := range []string{"flood", "change", "overdraw", "sent-title", "records-title", "shell-title"} {
		step(want)
	}
	unlabelled := eval[[]string](tab, `[...document.querySelectorAll("input:not([type=hidden]), select")].filter((e) => !e.labels.length).map((e) => e.id)`)
	if len(unlabelled) > 0 {
		t.Errorf("without a label: %q", unlabelled)
	}
	if got := eval[string](tab, `document.querySelector(".verdict").closest("[aria-live]").role`); got != "status" {
		t.Errorf("the role of what happened is %q", got)
	}
}

// What cannot be sent stays in the form, which says why.
func TestThePageChecksTheForm(t *testing.T) {
	t.Parallel()
	service, _ := newPage(t)
	tab := openTab(t, service.url).ready()
	for _, wrong := range []struct{ field, value, right string }{
		{"amount", "0.00", "25.00"},
		{"amount", "1.005", "25.00"},
		{"amount", "-1", "25.00"},
		{"amount", "ten", "25.00"},
		{"to", "bank", "alice"},
		{"key", "two words", "one"},
		{"key", "", "one"},
	} {
		tab.fill(wrong.field, wrong.value)
		tab.run(chromedp.Click(`[data-action="send"]`))
		if eval[bool](tab, fmt.Sprintf("document.getElementById(%q).checkValidity()", wrong.field)) {
			t.Errorf("%s may be %q", wrong.field, wrong.value)
		}
		tab.fill(wrong.field, wrong.right)
	}
	wantMatch(t, tab.press("send"), `Executed: .*`)
	if got := len(tab.texts("#sent .badge")); got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
}

// A key is shown as it is written.
func TestThePageRunsNoKey(t *testing.T) {
	t.Parallel()
	service, _ := newPage(t)
	tab := openTab(t, service.url).ready()
	const key = `<img/src=x/onerror=alert(1)>"'&amp;`
	tab.fill("key", key)
	tab.press("send")
	for _, list := range []string{"#sent", "#records"} {
		if got := tab.text(list + " td.key"); got != key {
			t.Errorf("%s shows %q", list, got)
		}
	}
}

// Without a script the page explains itself.
func TestThePageWithoutScript(t *testing.T) {
	t.Parallel()
	service, _ := newPage(t)
	tab := openTab(t, service.url, protocol(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	text := tab.text("main")
	for _, want := range []string{"only safe if the ledger knows the request by its key", "do the same in a shell", `"amount":9900`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if !eval[bool](tab, `document.querySelector("[data-action=send]").matches(":disabled")`) {
		t.Error("a button that does nothing can be pressed")
	}
}

// Goal: the parts of the page over plain HTTP: nothing foreign may run in them,
// a browser keeps the files, and only a tenant sees what is the tenant's.
func TestThePageOverHTTP(t *testing.T) {
	t.Parallel()
	service, _ := newPage(t)
	for path, contentType := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/page.css": "text/css; charset=utf-8",
		"/page/page.js": "text/javascript; charset=utf-8", "/page/icon.svg": "image/svg+xml; charset=utf-8",
	} {
		a := want(t, service.as("").get(path), http.StatusOK)
		for header, pattern := range map[string]string{
			"Content-Type": regexp.QuoteMeta(contentType), "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache",
			"Content-Security-Policy": `default-src 'none'; script-src 'self'; .*`, "Etag": `".+"`,
		} {
			wantMatch(t, a.header.Get(header), pattern)
		}
		request, err := http.NewRequestWithContext(t.Context(), "GET", service.url+path, http.NoBody)
		must(t, err)
		request.Header.Set("If-None-Match", a.header.Get("Etag"))
		response, err := service.http.Do(request)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: status %d", path, response.StatusCode)
		}
	}

	key := newKey()
	want(t, service.post("/v1/transfers", key, transferBody("bank", "alice", 2500)), http.StatusCreated)
	want(t, service.post("/v1/holds", newKey(), holdBody("alice", "bank", 1000)), http.StatusCreated)
	live := want(t, service.get("/page/live?key="+key+"&key=unused"), http.StatusOK)
	wantMatch(t, live.header.Get("Cache-Control"), "no-store")
	for _, pattern := range []string{`25\.00 <small>EUR`, `<dt>held</dt><dd>10\.00`, `<dt>available</dt><dd>15\.00`, `<dt>available</dt><dd>no limit`, `201 completed`, `unused(?s:.*)no record`} {
		wantOutput(t, live.body, pattern)
	}
	foreign := want(t, service.as("globex-demo-key").get("/page/live?key="+key), http.StatusOK)
	wantOutput(t, foreign.body, `no account yet(?s:.*)no record`)
	wantProblem(t, service.as("").get("/page/live"), http.StatusUnauthorized, "unauthorized")
	want(t, service.get("/page/live?key="+strings.Repeat("k", 256)), http.StatusBadRequest)
	want(t, service.get("/page/live?"+strings.Repeat("key=k&", 50)), http.StatusOK)
	want(t, service.get("/page/live?"+strings.Repeat("key=k&", 51)), http.StatusBadRequest)
}
