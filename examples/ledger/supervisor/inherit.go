package supervisor

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
)

// The variables that tell a child which of its file descriptors it inherits.
const (
	listenVariable = "LEDGER_LISTEN_FD" // a listening socket
	parentVariable = "LEDGER_PARENT_FD" // a pipe, which ends when the supervisor does
)

// inheritance names the files that a supervisor hands down, in their order. The
// first three are the standard ones.
var inheritance = []string{listenVariable + "=3", parentVariable + "=4"}

// Inherit returns the listener that the supervisor of this process hands down,
// or nil if it has none, and a context that ends with ctx or with the
// supervisor. SIGINT is ignored from then on, because Ctrl-C in a terminal
// reaches both: it is for the supervisor, which ends this process in its turn.
//
// A listener may come from elsewhere: whatever starts the service may set
// LEDGER_LISTEN_FD alone.
func Inherit(ctx context.Context, lookup func(string) (string, bool)) (context.Context, net.Listener, error) {
	socket, err := inheritedFile(lookup, listenVariable)
	if socket == nil || err != nil {
		return ctx, nil, err
	}
	defer socket.Close() // the listener has a duplicate
	pipe, err := inheritedFile(lookup, parentVariable)
	if err != nil {
		return ctx, nil, err
	}
	listener, err := net.FileListener(socket)
	if err != nil {
		return ctx, nil, fmt.Errorf("%s: %w", listenVariable, err)
	}
	if pipe == nil {
		return ctx, listener, nil
	}
	signal.Ignore(os.Interrupt)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = pipe.Read(make([]byte, 1)) // nothing is ever written
	}()
	return ctx, listener, nil
}

// inheritedFile returns the file whose descriptor the variable names, or nil if
// it is not set.
func inheritedFile(lookup func(string) (string, bool), variable string) (*os.File, error) {
	text, _ := lookup(variable)
	if text == "" {
		return nil, nil
	}
	descriptor, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s must be the number of a file descriptor", variable)
	}
	return os.NewFile(uintptr(descriptor), variable), nil
}
