package main

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// line is a TCP proxy to one server that makes a round trip take longer, as a
// network would, and counts round trips. It holds back what clients send by the
// whole round trip and passes answers on at once: between a request and its
// answer that is the same as half of it each way, and needs half the timers.
// Nothing limits its throughput: what is sent together arrives together.
type line struct {
	listener  net.Listener
	upstream  string
	roundTrip time.Duration
	trips     atomic.Int64
	group     sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil once the line is closed
}

// newLine starts a line to the server at address upstream.
func newLine(upstream string, roundTrip time.Duration) (*line, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &line{listener: listener, upstream: upstream, roundTrip: roundTrip, open: map[net.Conn]bool{}}
	l.group.Go(l.accept)
	return l, nil
}

func (l *line) address() string { return l.listener.Addr().String() }

// close ends the line and every connection over it.
func (l *line) close() error {
	err := l.listener.Close()
	l.mu.Lock()
	for conn := range l.open {
		_ = conn.Close() // the other end may have done so
	}
	l.open = nil
	l.mu.Unlock()
	l.group.Wait()
	return err
}

func (l *line) accept() {
	for {
		client, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		server, err := net.Dial("tcp4", l.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		alarm, err := newAlarm()
		if err != nil {
			_, _ = client.Close(), server.Close()
			continue
		}
		l.carry(&talk{line: l, client: client, server: server, alarm: alarm, late: make(chan parcel, 64)})
	}
}

// carry carries one connection until one end closes it.
func (l *line) carry(t *talk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		_, _, _ = t.client.Close(), t.server.Close(), t.alarm.close()
		return
	}
	l.open[t.client], l.open[t.server] = true, true
	l.group.Go(t.take)
	l.group.Go(t.deliver)
	l.group.Go(t.answer)
}

// talk is one connection through the line.
type talk struct {
	line           *line
	client, server net.Conn
	alarm          *alarm
	late           chan parcel // on its way to the server
	asked          atomic.Bool // set by what the client sends, cleared by the answer
}

const parcelBytes = 32 << 10

// parcel is something that a client sent and when it arrives.
type parcel struct {
	buffer *[parcelBytes]byte
	bytes  int
	due    time.Time
}

var buffers = sync.Pool{New: func() any { return new([parcelBytes]byte) }}

// take takes what the client sends.
func (t *talk) take() {
	defer close(t.late)
	for {
		buffer, _ := buffers.Get().(*[parcelBytes]byte)
		n, err := t.client.Read(buffer[:])
		if n > 0 {
			if t.asked.CompareAndSwap(false, true) {
				t.line.trips.Add(1)
			}
			t.late <- parcel{buffer, n, time.Now().Add(t.line.roundTrip)}
		}
		if err != nil {
			return
		}
	}
}

// deliver gives the server what was taken, when it is due.
func (t *talk) deliver() {
	defer t.alarm.close()
	defer t.end()
	for p := range t.late {
		err := t.alarm.sleepUntil(p.due)
		if err == nil {
			_, err = t.server.Write(p.buffer[:p.bytes])
		}
		buffers.Put(p.buffer)
		if err != nil {
			_ = t.client.Close() // take ends
			for range t.late {   // and may be waiting to hand one over
			}
			return
		}
	}
}

// answer passes answers on.
func (t *talk) answer() {
	defer t.end()
	buffer := make([]byte, parcelBytes)
	for {
		n, err := t.server.Read(buffer)
		if n > 0 {
			t.asked.Store(false)
			if _, err := t.client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (t *talk) end() {
	_, _ = t.client.Close(), t.server.Close()
	t.line.mu.Lock()
	defer t.line.mu.Unlock()
	delete(t.line.open, t.client)
	delete(t.line.open, t.server)
}
