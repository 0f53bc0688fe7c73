package localpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	tempPattern     = "idempg-postgres-"
	logTailBytes    = 4 << 10
	shutdownWaitMax = 15 * time.Second
)

// errPortTaken: another program took the port between choosing and using it.
var errPortTaken = errors.New("another program took the port")

// supervisor is a shell script that runs a server until the server ends by
// itself or standard input does, which is when the process at the other end
// closes it or dies, even by SIGKILL. Then it removes the directory, its first
// argument. SIGQUIT is Postgres's immediate shutdown: nothing has to be saved
// of data that go away.
const supervisor = `
dir=$1
shift
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
{ cat <&3 >/dev/null; kill -QUIT $server; } 2>/dev/null &
watcher=$!
exec 3<&- </dev/null
wait $server
code=$?
kill $watcher 2>/dev/null
cd /
rm -rf "$dir"
exit $code
`

// launch says how to run a server.
type launch struct {
	dir         string // holds all that the server leaves behind
	account     account
	password    string
	environment []string
	command     func(port string) []string
}

// process is a server that runs under its supervisor.
type process struct {
	dir      string
	command  *exec.Cmd
	lifeline io.Closer // closing it ends the server
	log      *os.File  // stays readable when its directory is gone
	exited   chan struct{}
	stop     func() error
}

// run starts the server on a free port and returns when it answers. If it does
// not, nothing of it is left, and the error shows the end of its log.
func (l launch) run(ctx context.Context) (*Server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(l.dir))
	}
	process, err := l.start(port)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(l.dir))
	}
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", l.password),
		Host: net.JoinHostPort("127.0.0.1", port), Path: "postgres", RawQuery: "sslmode=disable",
	}
	server := &Server{URL: address.String(), process: process}
	if err := server.await(ctx); err != nil {
		tail := process.logTail()
		if strings.Contains(tail, "Address already in use") || strings.Contains(tail, "port is already allocated") {
			err = errPortTaken
		}
		return nil, errors.Join(fmt.Errorf("%w; the end of its log:\n%s", err, tail), process.stop())
	}
	return server, nil
}

func (l launch) start(port string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(l.dir, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	command := exec.Command("/bin/sh", append([]string{"-c", supervisor, "sh", l.dir}, l.command(port)...)...)
	command.Dir = l.dir
	command.Env = append(os.Environ(), l.environment...)
	command.Stdout = log
	command.Stderr = log
	l.account.apply(command)
	// Ctrl-C in a terminal is for this process, which may still need the
	// server to finish its work.
	separateGroup(command)
	lifeline, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}

	p := &process{dir: l.dir, command: command, lifeline: lifeline, log: log, exited: make(chan struct{})}
	p.stop = sync.OnceValue(p.shutDown)
	go func() {
		_ = command.Wait() // the code of an immediate shutdown says nothing
		close(p.exited)
	}()
	return p, nil
}

func (p *process) shutDown() error {
	var stuck error
	_ = p.lifeline.Close() // closed already if the server ended by itself
	select {
	case <-p.exited:
	case <-time.After(shutdownWaitMax):
		stuck = fmt.Errorf("localpg: Postgres did not end within %v and was killed", shutdownWaitMax)
		killGroup(p.command)
		<-p.exited
	}
	return errors.Join(stuck, p.log.Close(), os.RemoveAll(p.dir))
}

func (p *process) logTail() string {
	size, err := p.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	tail, err := io.ReadAll(io.NewSectionReader(p.log, max(0, size-logTailBytes), logTailBytes))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(tail))
}

func freePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}
