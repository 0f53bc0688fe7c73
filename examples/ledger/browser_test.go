package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var browserPrograms = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// startBrowser starts one browser for all tests, which each have a profile of
// their own in it. It ends with the last test.
var startBrowser = sync.OnceValues(func() (context.Context, error) {
	found := slices.IndexFunc(browserPrograms, func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	})
	if found < 0 {
		return nil, fmt.Errorf("the page is tested in a browser, and none of %s is installed: apt-get install chromium",
			strings.Join(browserPrograms, ", "))
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(browserPrograms[found])}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses root otherwise
	}
	browser, _ := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(options...))
	stopBrowser = func() { _ = chromedp.Cancel(browser) } // in peace, so that it leaves no files
	return browser, chromedp.Do(browser)
})

// stopBrowser ends the browser, if one was started.
var stopBrowser = func() {}

// tab is the page in a browser. In the end the page must have asked nobody but
// its service, and complained about nothing.
type tab struct {
	t   *testing.T
	ctx context.Context

	mutex      sync.Mutex
	complaints []string
}

// openTab opens the page of a service. The actions before run on the empty tab.
func openTab(t *testing.T, service string, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	browser, err := startBrowser()
	must(t, err)
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, 2*stateWaitMax)
	p := &tab{t: t, ctx: ctx}
	origin, err := url.Parse(service)
	must(t, err)
	must(t, chromedp.Listen(ctx, func(event any) { p.judge(event, origin.Host) }))
	t.Cleanup(func() {
		cancel()
		closeTab()
		p.mutex.Lock()
		defer p.mutex.Unlock()
		for _, complaint := range p.complaints {
			t.Error(complaint)
		}
	})
	p.run(before...)
	p.run(chromedp.Navigate(service + "/"))
	return p
}

// judge notes what should not happen. An answer that is not 2xx, and a lost
// connection, are reported by the browser as errors of the network; they are
// what the page is about.
func (p *tab) judge(event any, host string) {
	var complaint string
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if asked, err := url.Parse(e.Request.URL); err != nil || asked.Host != host && asked.Scheme != "about" {
			complaint = "the page asks " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		complaint = fmt.Sprintf("exception: %+v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		complaint = fmt.Sprintf("console.%s was called", e.Type)
	case *log.EventEntryAdded:
		if e.Entry.Source != log.EntrySourceNetwork {
			complaint = fmt.Sprintf("the browser complains (%s): %s", e.Entry.Source, e.Entry.Text)
		}
	}
	if complaint != "" {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.complaints = append(p.complaints, complaint)
	}
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	must(p.t, chromedp.Do(p.ctx, actions...))
}

// await returns when an expression is true in the page.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(stateWaitMax); !eval[bool](p, expression); {
		if time.Now().After(deadline) {
			p.t.Fatalf("not within %v: %s\n%s", stateWaitMax, what, p.text("body"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ready returns when the page shows two accounts to choose from.
func (p *tab) ready() *tab {
	p.t.Helper()
	p.await("the accounts", `document.querySelectorAll("#from option").length > 1`)
	return p
}

// press clicks on the button of an action, and returns the sentence that says
// how it ended.
func (p *tab) press(action string) string {
	p.t.Helper()
	p.run(chromedp.Click(fmt.Sprintf("[data-action=%q]", action)))
	return p.verdict()
}

func (p *tab) verdict() string {
	p.t.Helper()
	p.await("the end of the action", `document.getElementById("transfer").getAttribute("aria-busy") === "false"`)
	return p.text(".verdict")
}

// fill writes a field of the form.
func (p *tab) fill(field, value string) {
	p.t.Helper()
	_ = eval[string](p, fmt.Sprintf("document.getElementById(%q).value = %q", field, value))
}

// text is what a reader sees of the elements of a selector.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return strings.Join(p.texts(selector), "\n")
}

// texts is text, element by element.
func (p *tab) texts(selector string) []string {
	p.t.Helper()
	const words = `[...document.querySelectorAll(%q)].map((e) => e.innerText.replace(/\s+/g, " ").trim())`
	return eval[[]string](p, fmt.Sprintf(words, selector))
}

func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	must(p.t, err)
	return value
}

// protocol makes an action of a command of the protocol.
func protocol[P any](c cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}
