package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempg/idempg/fibermw"
	"github.com/idempg/idempg/idem"
)

// The environment of a test binary that is to serve in prefork mode instead of
// running tests: Fiber starts it again for each child.
const (
	preforkDatabase = "IDEM_TEST_PREFORK_DATABASE"
	preforkAddress  = "IDEM_TEST_PREFORK_ADDRESS"
)

func init() {
	if os.Getenv(preforkDatabase) != "" {
		fmt.Fprintln(os.Stderr, "prefork:", servePrefork())
		os.Exit(1)
	}
}

// servePrefork serves until it is killed, or until the process that started it
// is gone. Fiber ends the children after their master.
func servePrefork() error {
	if !fiber.IsChild() {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	pool, err := pgxpool.New(context.Background(), os.Getenv(preforkDatabase))
	if err != nil {
		return err
	}
	store, err := idem.New(pool, idem.Config{ClaimWait: 20 * time.Second})
	if err != nil {
		return err
	}
	app := quietApp(fiber.Config{Prefork: true})
	config := fibermw.Config{Store: store, Scope: fibermw.GlobalScope}
	app.Use(func(c *fiber.Ctx) error {
		c.Set("X-Served-By", strconv.Itoa(os.Getpid()))
		return c.Next()
	})
	app.Get("/", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	app.Post("/", fibermw.Handle(config, func(c *fiber.Ctx, tx pgx.Tx) error {
		if _, err := tx.Exec(c.UserContext(), "insert into sales (item) values ($1)", c.Get("Idempotency-Key")); err != nil {
			return err
		}
		return c.Status(fiber.StatusCreated).SendString(strconv.Itoa(os.Getpid()))
	}))
	return app.Listen(os.Getenv(preforkAddress))
}

// Goal: in prefork mode, where the processes share nothing but the database,
// each key runs once, and every child answers it from the record. Method: this
// binary serves as a master with two children; requests with few keys come over
// new connections, which the kernel spreads over the children.
func TestFiberPrefork(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	pool := d.Pool(t)
	mustExec(t, pool, "create table sales (item text not null)")
	address := startPrefork(t, d)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	send := func(method, key string) (answer, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/", nil)
		if err != nil {
			return answer{}, err
		}
		request.Header.Set("Idempotency-Key", key)
		response, err := client.Do(request)
		if err != nil {
			return answer{}, err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return answer{status: response.StatusCode, header: response.Header, body: string(body)}, err
	}

	children := map[string]bool{}
	for tries := 0; len(children) < 2; tries++ { // both are there
		if tries == 3000 {
			t.Fatalf("after a minute only the children %v answer", children)
		}
		if got, err := send(http.MethodGet, ""); err == nil {
			children[got.header.Get("X-Served-By")] = true
			continue
		}
		time.Sleep(20 * time.Millisecond)
	}

	const keys, duplicates = 8, 12
	var group sync.WaitGroup
	var mutex sync.Mutex
	first, ranIn, served := map[string]int{}, map[string]string{}, map[string]bool{}
	for i := range keys * duplicates {
		group.Go(func() {
			key := fmt.Sprint("key-", i%keys)
			got, err := send(http.MethodPost, key)
			mutex.Lock()
			defer mutex.Unlock()
			if child := ranIn[key]; err != nil || got.status != http.StatusCreated || child != "" && got.body != child || !children[got.body] {
				t.Errorf("%s: %v %v, other answers say that it ran in %q of %v", key, got, err, child, children)
			}
			if !got.replayed() {
				first[key]++
			}
			ranIn[key] = got.body
			served[got.header.Get("X-Served-By")] = true
		})
	}
	group.Wait()
	for key := range ranIn {
		if first[key] != 1 {
			t.Errorf("%s has %d first answers", key, first[key])
		}
	}
	if len(ranIn) != keys || len(served) != 2 {
		t.Errorf("%d keys were answered by %v", len(ranIn), served)
	}
	var sales int
	if err := pool.QueryRow(t.Context(), "select count(*) from sales").Scan(&sales); err != nil || sales != keys {
		t.Errorf("%d sales for %d keys: %v", sales, keys, err)
	}
}

// startPrefork starts this binary as a server with two children, and kills all
// of them at the end of the test.
func startPrefork(t *testing.T, d *database) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	if err := listener.Close(); err != nil { // Fiber opens it again, once in each child
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	master := exec.Command(self)
	master.Env = append(os.Environ(), "GOMAXPROCS=2", preforkDatabase+"="+d.URL, preforkAddress+"="+address)
	master.Stderr = os.Stderr
	master.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := master.StdinPipe(); err != nil { // it closes when this process ends
		t.Fatal(err)
	}
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-master.Process.Pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill the prefork processes: %v", err)
		}
		_ = master.Wait() // killed
	})
	return address
}
