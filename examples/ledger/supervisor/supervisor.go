// Package supervisor runs the service as a child process and starts it again
// whenever it dies, however it dies.
//
// The supervisor opens the listening socket and keeps it, and each child
// accepts from it (see [Inherit]). So nobody is refused while no child runs:
// connections queue in the kernel, and the next child answers them. Only those
// that a child had already accepted die with it.
//
// A child that ends before it was ready is started again after a pause that
// grows. After five of them in a row the supervisor gives up. When the
// supervisor itself dies, its child ends too.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	failuresMax     = 5 // children in a row that ended before they were ready
	pauseMin        = 100 * time.Millisecond
	stopWaitDefault = 30 * time.Second // above what the service takes to drain
	outputWait      = time.Second      // for the rest of what a dead child wrote
	readyPath       = "/readyz"
	probePause      = 20 * time.Millisecond
	probeTimeout    = 5 * time.Second
)

// Config says what to run.
type Config struct {
	// Addr is where to listen: host and port, with port 0 for a free one.
	// Required.
	Addr string

	// Args are the arguments of the child. Defaults to none.
	Args []string

	// Env are variables, as "name=value", that the child has beside those of
	// this process, or in place of them. Defaults to none.
	Env []string

	// Stdout and Stderr receive what the child writes. Default to nowhere.
	Stdout, Stderr io.Writer

	// Program is the path of the program. Defaults to the one that runs.
	Program string

	// StopWait is how long a child may take to end after SIGTERM, before it
	// is killed. Defaults to 30 seconds.
	StopWait time.Duration
}

// Supervisor keeps one child alive. Its methods may be called at any time, and
// from any goroutine.
type Supervisor struct {
	config   Config
	addr     net.Addr
	files    []*os.File // what each child inherits: the listener, and the reading end of the lifeline
	lifeline *os.File   // the writing end, which closes when this process dies

	stopping chan struct{} // closed by Stop
	stop     func()
	done     chan struct{} // closed when no child runs, and none will
	err      error         // why it gave up; to be read when done

	mutex  sync.Mutex
	child  *child        // the one that runs; nil between two
	ready  chan struct{} // closed while the one that runs is ready
	starts int
}

type child struct {
	command *exec.Cmd
	ended   chan struct{}
	ordered bool // its end was asked for
}

// Start listens and starts the first child. It does not wait until that is
// ready. The caller calls Stop in the end.
func Start(config Config) (_ *Supervisor, err error) {
	if config.Program == "" {
		if config.Program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if config.StopWait <= 0 {
		config.StopWait = stopWaitDefault
	}
	s := &Supervisor{config: config, stopping: make(chan struct{}), done: make(chan struct{}), ready: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	first, err := s.start()
	if err != nil {
		s.close()
		return nil, err
	}
	go s.supervise(first)
	return s, nil
}

// open makes what the children inherit.
func (s *Supervisor) open() error {
	listener, err := net.Listen("tcp", s.config.Addr)
	if err != nil {
		return err
	}
	defer listener.Close() // the file is a duplicate
	s.addr = listener.Addr()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	s.files = append(s.files, socket)
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	s.files, s.lifeline = append(s.files, reader), writer
	return nil
}

func (s *Supervisor) close() {
	for _, file := range s.files {
		_ = file.Close()
	}
	if s.lifeline != nil {
		_ = s.lifeline.Close()
	}
}

// Addr returns the address that the service listens on.
func (s *Supervisor) Addr() net.Addr { return s.addr }

// Restarts returns how many children were started after the first.
func (s *Supervisor) Restarts() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.starts - 1
}

// Done is closed when no child runs and none will: after Stop, or when the
// supervisor has given up.
func (s *Supervisor) Done() <-chan struct{} { return s.done }

// Ready returns nil as soon as a child is ready, and that is at once while one
// is. Otherwise its error says why none is: ctx has ended, or the supervisor.
func (s *Supervisor) Ready(ctx context.Context) error {
	s.mutex.Lock()
	ready := s.ready
	s.mutex.Unlock()
	select {
	case <-ready:
		return nil
	case <-s.done:
		return errors.Join(errors.New("the supervisor has ended"), s.err)
	case <-ctx.Done():
		return fmt.Errorf("the service is not ready: %w", context.Cause(ctx))
	}
}

// Kill ends the child by SIGKILL and returns when it is dead. The next one is
// started. It returns false while none runs.
func (s *Supervisor) Kill() bool {
	child := s.order()
	if child == nil {
		return false
	}
	_ = child.command.Process.Kill() // it may have ended
	<-child.ended
	return true
}

// Restart ends the child by SIGTERM, which lets it finish what it does, and
// returns when it has ended. It is killed if it takes longer than StopWait. The
// next one is started. Restart returns false while none runs.
func (s *Supervisor) Restart() bool {
	child := s.order()
	if child == nil {
		return false
	}
	_ = child.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-child.ended:
	case <-time.After(s.config.StopWait):
		_ = child.command.Process.Kill()
		<-child.ended
	}
	return true
}

// Stop ends the child as Restart does, and no other is started. It returns why
// the supervisor had given up before, or nil.
func (s *Supervisor) Stop() error {
	s.stop()
	s.Restart()
	<-s.done
	return s.err
}

// order returns the child that runs, whose end is now asked for.
func (s *Supervisor) order() *child {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.child != nil {
		s.child.ordered = true
	}
	return s.child
}

// supervise starts a child after each that ended, until Stop or until it gives
// up.
func (s *Supervisor) supervise(child *child) {
	defer close(s.done)
	defer s.close()
	for failures := 0; child != nil; {
		wasReady := s.wait(child)
		if failures++; wasReady || child.ordered {
			failures = 0
		}
		if failures == failuresMax {
			s.err = fmt.Errorf("the service ended %d times in a row before it was ready, the last time with %v",
				failures, child.command.ProcessState)
			return
		}
		if failures > 0 {
			select {
			case <-s.stopping:
			case <-time.After(pauseMin << (failures - 1)):
			}
		}
		if child, s.err = s.start(); s.err != nil {
			return
		}
	}
}

// start starts a child. After Stop it returns nil.
func (s *Supervisor) start() (*child, error) {
	command := exec.Command(s.config.Program, s.config.Args...)
	command.Env = append(append(os.Environ(), s.config.Env...), inheritance...)
	command.ExtraFiles = s.files
	command.Stdout, command.Stderr = s.config.Stdout, s.config.Stderr
	command.WaitDelay = outputWait

	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case <-s.stopping: // Stop waits for no child but one that it can see
		return nil, nil
	default:
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s.starts++
	s.child = &child{command: command, ended: make(chan struct{})}
	return s.child, nil
}

// wait returns when the child has ended, and whether it ever was ready.
func (s *Supervisor) wait(child *child) (wasReady bool) {
	ctx, cancel := context.WithCancel(context.Background())
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		s.probe(ctx)
	}()
	_ = child.command.Wait() // how it ended is in its ProcessState
	cancel()
	<-probed

	s.mutex.Lock()
	defer s.mutex.Unlock()
	select {
	case <-s.ready:
		wasReady = true
		s.ready = make(chan struct{})
	default:
	}
	s.child = nil
	close(child.ended)
	return wasReady
}

// probe asks the child until it is ready or ctx ends. Its first question waits
// in the queue of the socket like any other connection.
func (s *Supervisor) probe(ctx context.Context) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: probeTimeout}
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr.String()+readyPath, nil)
		if err != nil {
			panic(err) // the address is one that was listened on
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				close(s.ready)
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(probePause):
		}
	}
}
