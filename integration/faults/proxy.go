package faults

import (
	"net"
	"sync"
	"sync/atomic"
)

// Proxy carries connections to one server. It carries them faithfully until a
// [Fault] that was armed is met. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	upstream string
	refuse   atomic.Bool
	trips    atomic.Int64
	group    sync.WaitGroup

	mu        sync.Mutex
	open      map[*line]bool // nil once the proxy is closed
	recording bool
	recorded  []Message
	armed     []Fault
	passed    int // messages that the first of armed counted
	fired     int
	met       chan struct{}
}

// New starts a proxy to the server at address upstream, on a free port of the
// loopback interface.
func New(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, upstream: upstream, open: map[*line]bool{}}
	p.group.Go(p.accept)
	return p, nil
}

// Port is where the proxy listens, on 127.0.0.1.
func (p *Proxy) Port() uint16 {
	address, _ := p.listener.Addr().(*net.TCPAddr)
	return uint16(address.Port)
}

// Arm makes the connection break at the fault, and then, counted from there, at
// each that follows it. Whatever was armed before is forgotten. The channel is
// closed when the first fault is met.
func (p *Proxy) Arm(faults ...Fault) (met <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.passed, p.fired, p.met = faults, 0, 0, make(chan struct{})
	return p.met
}

// Fired is how many of the faults armed last have been met.
func (p *Proxy) Fired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// Refuse turns every new connection away, or no longer.
func (p *Proxy) Refuse(refuse bool) { p.refuse.Store(refuse) }

// Trips is how many answers of the server have passed (ReadyForQuery): one for
// each round trip.
func (p *Proxy) Trips() int64 { return p.trips.Load() }

// Record starts a recording of all messages.
func (p *Proxy) Record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording, p.recorded = true, nil
}

// Recorded ends the recording and returns it.
func (p *Proxy) Recorded() []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording = false
	return p.recorded
}

// Break closes all connections: both ends of a black hole learn of it at last.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.close(FIN)
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Break()
	p.mu.Lock()
	p.open = nil
	p.mu.Unlock()
	p.group.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() {
			_ = client.Close()
			continue
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &line{proxy: p, client: client, server: server, closed: make(chan struct{})}
		if !p.add(l) {
			l.close(FIN)
			continue
		}
		p.group.Go(l.run)
	}
}

func (p *Proxy) add(l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		return false
	}
	p.open[l] = true
	return true
}

func (p *Proxy) remove(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
}

// meet records a message and returns the fault that it meets, if any.
func (p *Proxy) meet(m Message) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recording {
		p.recorded = append(p.recorded, m)
	}
	if p.fired == len(p.armed) || !p.armed[p.fired].counts(m) {
		return Fault{}, false
	}
	fault := p.armed[p.fired]
	if p.passed++; p.passed <= fault.Index {
		return Fault{}, false
	}
	if p.fired++; p.fired == 1 {
		close(p.met)
	}
	p.passed = 0
	return fault, true
}
