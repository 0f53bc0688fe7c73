package localpg

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// packageDirs are where packages put the server programs, off PATH.
var packageDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
}

// findBinaries returns the directory that holds initdb and postgres, or "".
// PATH wins, so that a user can choose; else the newest version.
func findBinaries() string {
	candidates := filepath.SplitList(os.Getenv("PATH"))
	candidates = append(candidates, newestFirst(packageDirs...)...)
	for _, dir := range candidates {
		_, errInit := exec.LookPath(filepath.Join(dir, "initdb"))
		_, errServer := exec.LookPath(filepath.Join(dir, "postgres"))
		if dir != "" && errInit == nil && errServer == nil {
			return dir
		}
	}
	return ""
}

var majorVersion = regexp.MustCompile(`(\d+)[.\d]*/bin$`)

func newestFirst(patterns ...string) []string {
	var dirs []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		dirs = append(dirs, found...)
	}
	version := func(dir string) int {
		match := majorVersion.FindStringSubmatch(dir)
		if match == nil {
			return 0
		}
		number, _ := strconv.Atoi(match[1])
		return number
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	return dirs
}

// startCluster makes a throwaway cluster and runs the server programs in bin
// on it.
func startCluster(ctx context.Context, bin string, options Options) (*Server, error) {
	account, err := unprivilegedAccount()
	if err != nil {
		return nil, err
	}
	dir, err := account.makeTempDir()
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	data := filepath.Join(dir, "data")
	if err := initCluster(ctx, account, bin, dir, data, password); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return launch{dir: dir, account: account, password: password, command: func(port string) []string {
		command := []string{
			filepath.Join(bin, "postgres"), "-D", data,
			"-c", "listen_addresses=127.0.0.1", "-c", "port=" + port, "-c", "unix_socket_directories=",
		}
		return append(command, options.serverArguments()...)
	}}.run(ctx)
}

func initCluster(ctx context.Context, account account, bin, dir, data, password string) error {
	secret := filepath.Join(dir, "password")
	if err := errors.Join(os.WriteFile(secret, []byte(password), 0o600), account.own(secret)); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"--pgdata="+data, "--username=postgres", "--pwfile="+secret, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C",
		// The cluster does not survive this process, so it need not survive
		// a crash of the machine either.
		"--no-sync")
	command.Dir = dir
	account.apply(command)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", cmp.Or(context.Cause(ctx), err), output)
	}
	return os.Remove(secret)
}

// serverArguments renders the settings as flags of the postgres program.
func (o Options) serverArguments() []string {
	settings := map[string]string{}
	if o.Volatile {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, o.Settings)
	var arguments []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		arguments = append(arguments, "-c", name+"="+settings[name])
	}
	return arguments
}
