package faults

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// line is one connection through the proxy.
type line struct {
	proxy          *Proxy
	client, server net.Conn
	ready          atomic.Bool           // established: the first ReadyForQuery has passed
	silent         atomic.Bool           // a black hole: nothing moves any more
	swallowing     atomic.Pointer[Fault] // nothing that the server says moves any more
	once           sync.Once
	closed         chan struct{}
}

func (l *line) run() {
	defer l.proxy.remove(l)
	packet, cancels, err := readStartup(l.client)
	if err != nil {
		l.close(FIN)
		return
	}
	if cancels { // no conversation follows
		_, _ = l.server.Write(packet)
		_, _ = io.Copy(l.client, l.server)
		l.close(FIN)
		return
	}
	var backward sync.WaitGroup
	backward.Go(l.backward)
	defer backward.Wait()
	if !l.deliver(packet, Message{Startup: true}) {
		return
	}
	l.forward()
}

// forward carries the client's messages to the server.
func (l *line) forward() {
	for {
		packet, err := readMessage(l.client)
		if l.silent.Load() {
			<-l.closed
			return
		}
		if err != nil {
			l.close(FIN)
			return
		}
		if !l.deliver(packet, Message{Startup: !l.ready.Load(), Kind: packet[0], SQL: sqlOf(packet)}) {
			return
		}
	}
}

// deliver carries one message to the server, unless a fault is met. It reports
// whether the line goes on.
func (l *line) deliver(packet []byte, m Message) bool {
	fault, met := l.proxy.meet(m)
	if met && fault.Point == Before {
		return l.breakBy(fault.Manner)
	}
	if met && fault.Point == Swallow {
		l.swallowing.Store(&fault)
	}
	if met && fault.Point == After {
		l.silent.Store(true) // before the server can answer
	}
	if _, err := l.server.Write(packet); err != nil {
		l.close(FIN)
		return false
	}
	if met && fault.Point == After {
		return l.breakBy(fault.Manner)
	}
	return true
}

// backward carries the server's messages to the client.
func (l *line) backward() {
	for {
		packet, err := readMessage(l.server)
		if l.silent.Load() {
			<-l.closed
			return
		}
		swallowing := l.swallowing.Load()
		switch {
		case swallowing != nil && swallowing.Manner == BlackHole:
			if err != nil {
				<-l.closed
				return
			}
			continue
		case err != nil:
			l.close(FIN)
			return
		case swallowing != nil:
			if packet[0] == 'Z' {
				l.close(swallowing.Manner)
				return
			}
			continue
		}
		ready := packet[0] == 'Z'
		if fault, met := l.proxy.meet(Message{Direction: ToClient, Startup: !l.ready.Load(), Kind: packet[0]}); met {
			l.breakBy(fault.Manner)
			return
		}
		if ready {
			l.ready.Store(true)
			l.proxy.trips.Add(1)
		}
		if _, err := l.client.Write(packet); err != nil {
			l.close(FIN)
			return
		}
	}
}

// breakBy breaks the line and returns false when that is done: for a black hole
// when the proxy closes the line.
func (l *line) breakBy(manner Manner) bool {
	if manner == BlackHole {
		l.silent.Store(true)
		<-l.closed
	} else {
		l.close(manner)
	}
	return false
}

// close closes both ends. The first call decides how.
func (l *line) close(manner Manner) {
	l.once.Do(func() {
		for _, end := range []net.Conn{l.client, l.server} {
			if tcp, ok := end.(*net.TCPConn); ok && manner == RST {
				_ = tcp.SetLinger(0)
			}
			_ = end.Close()
		}
		close(l.closed)
	})
}
