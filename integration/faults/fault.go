package faults

import "fmt"

// Point says how far the connection has come when it breaks.
type Point int

// The points of a message. Of the server's messages only Before makes sense:
// after one is before the next.
const (
	Before  Point = iota // the message is not delivered, and nothing after it
	After                // the message is delivered, and nothing after it in either direction
	Swallow              // the client's messages are delivered, but nothing that the server says from here on
)

func (p Point) String() string { return [...]string{"before", "after", "swallow"}[p] }

// Manner says what the two ends learn of the break.
type Manner int

// The manners of a break. Swallow breaks when the server's answer is complete.
const (
	FIN       Manner = iota // the connection is closed
	RST                     // the connection is reset
	BlackHole               // nothing: the connection stays, and is silent
)

func (m Manner) String() string { return [...]string{"FIN", "RST", "black hole"}[m] }

// Fault is one break.
type Fault struct {
	Direction Direction
	Startup   bool   // of the messages that establish a connection, rather than those that follow
	SQL       string // count only messages that carry this SQL, if not empty
	Index     int    // how many messages that count pass before the one that is met
	Point     Point
	Manner    Manner
}

// String names the fault in the words of a test's message.
func (f Fault) String() string {
	where := fmt.Sprintf("message %d", f.Index)
	if f.SQL != "" {
		where += fmt.Sprintf(" with %q", f.SQL)
	}
	if f.Startup {
		where += " of the start-up"
	}
	return fmt.Sprintf("%s %s %s, %s", f.Point, where, f.Direction, f.Manner)
}

// counts reports whether m is one of the messages that the fault counts.
func (f Fault) counts(m Message) bool {
	return m.Direction == f.Direction && m.Startup == f.Startup && (f.SQL == "" || m.SQL == f.SQL)
}
