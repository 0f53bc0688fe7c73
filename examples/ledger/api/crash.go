package api

import (
	"os"

	"github.com/gofiber/fiber/v2"
)

// The header that asks the demo to end by SIGKILL, and the points where it may.
const (
	crashHeader = "Ledger-Demo-Crash"
	crashBefore = "before-commit" // the transaction holds all writes
	crashAfter  = "after-commit"  // the answer is still unsent
)

// crashes says whether the header is honoured, which only a demo does.
type crashes bool

// at ends the process if the request asks for it at this point.
func (allowed crashes) at(c *fiber.Ctx, point string) {
	if !allowed || c.Get(crashHeader) != point {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // until the signal has done its work
}

// afterCommit goes around all that begins and commits a transaction.
func (allowed crashes) afterCommit(c *fiber.Ctx) error {
	err := c.Next()
	allowed.at(c, crashAfter)
	return err
}
