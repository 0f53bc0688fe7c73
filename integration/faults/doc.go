// Package faults is a network that fails on purpose, at one message of the
// PostgreSQL protocol.
//
// A [Proxy] stands between a client and the server. It reads the protocol, so a
// [Fault] can name the very message at which a connection breaks: its place in
// a recorded run, or its SQL. A test first records a good run and then repeats
// it once for each message, each [Point] and each [Manner]. A statement that is
// added to the code later is in the next recording, and so is covered by itself.
package faults
