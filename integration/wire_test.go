package integration

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cut says what a wire does to the next COMMIT that passes.
type cut int32

const (
	pass         cut = iota
	cutBefore        // the server never sees it; both sides lose the connection
	cutAfter         // the server commits; the reply is lost with the connection (FIN)
	resetAfter       // the same with a reset (RST)
	swallowAfter     // the server commits; the reply never comes and the connection stays
)

// wire is a proxy in front of the server that reads the protocol: it counts
// round trips, and cuts at COMMIT. It needs statements in plain text, so cuts
// work in pgx.QueryExecModeExec.
type wire struct {
	listener net.Listener
	upstream string
	next     atomic.Int32 // a cut, for the next COMMIT
	refuse   atomic.Bool  // accept no connection any more
	trips    atomic.Int64 // ReadyForQuery messages that passed: one a round trip
	group    sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
}

// newWire starts a proxy to the test's server.
func newWire(t *testing.T, d *database) *wire {
	t.Helper()
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, upstream: u.Host, open: map[net.Conn]bool{}}
	w.group.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.closeAll()
		w.group.Wait()
	})
	return w
}

// pool connects through the wire.
func (w *wire) pool(t *testing.T, d *database, mode pgx.QueryExecMode, mutate ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return d.Pool(t, append(mutate, func(c *pgxpool.Config) {
		address, _ := w.listener.Addr().(*net.TCPAddr)
		c.ConnConfig.Host, c.ConnConfig.Port = "127.0.0.1", uint16(address.Port)
		c.ConnConfig.TLSConfig = nil
		c.ConnConfig.Fallbacks = nil
		c.ConnConfig.DefaultQueryExecMode = mode
	})...)
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		if w.refuse.Load() || !w.track(client) {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", w.upstream)
		if err != nil || !w.track(server) {
			_ = client.Close()
			continue
		}
		line := &line{wire: w, client: client, server: server}
		w.group.Go(line.forward)
		w.group.Go(line.backward)
	}
}

func (w *wire) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		return false
	}
	w.open[c] = true
	return true
}

func (w *wire) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

// line is one connection through the wire.
type line struct {
	wire           *wire
	client, server net.Conn
	cutting        atomic.Int32 // the cut that has begun on this line
}

// forward carries the client's messages to the server.
func (l *line) forward() {
	defer l.server.Close()
	if err := copyStartup(l.server, l.client); err != nil {
		return
	}
	for {
		kind, message, err := readMessage(l.client)
		if err != nil {
			return
		}
		if isCommit(kind, message) {
			if c := cut(l.wire.next.Swap(int32(pass))); c == cutBefore {
				_ = l.client.Close()
				return
			} else if c != pass {
				l.cutting.Store(int32(c))
			}
		}
		if _, err := l.server.Write(message); err != nil {
			return
		}
	}
}

// backward carries the server's messages to the client.
func (l *line) backward() {
	defer l.client.Close()
	for {
		kind, message, err := readMessage(l.server)
		if err != nil {
			return
		}
		if c := cut(l.cutting.Load()); c != pass {
			if kind != 'Z' {
				continue // the reply is lost
			}
			if tcp, ok := l.client.(*net.TCPConn); ok && c == resetAfter {
				_ = tcp.SetLinger(0)
			}
			if c != swallowAfter {
				return
			}
			continue
		}
		if kind == 'Z' {
			l.wire.trips.Add(1)
		}
		if _, err := l.client.Write(message); err != nil {
			return
		}
	}
}

// copyStartup carries the first message, which has no type byte.
func copyStartup(to io.Writer, from io.Reader) error {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return err
	}
	rest := make([]byte, binary.BigEndian.Uint32(length[:])-4)
	if _, err := io.ReadFull(from, rest); err != nil {
		return err
	}
	_, err := to.Write(append(length[:], rest...))
	return err
}

// readMessage reads one message of the protocol (PostgreSQL manual, section
// 55.7) and returns its type and its bytes, type and length included.
func readMessage(from io.Reader) (kind byte, message []byte, err error) {
	var header [5]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size < 4 || size > 1<<30 {
		return 0, nil, errors.New("not the protocol")
	}
	message = make([]byte, 1+size)
	copy(message, header[:])
	_, err = io.ReadFull(from, message[5:])
	return header[0], message, err
}

// isCommit recognises COMMIT in a Parse or Query message.
func isCommit(kind byte, message []byte) bool {
	switch kind {
	case 'P': // name, statement
		_, statement, _ := strings.Cut(string(message[5:]), "\x00")
		return strings.HasPrefix(statement, "commit\x00")
	case 'Q':
		return strings.Contains(string(message[5:]), "commit")
	}
	return false
}
