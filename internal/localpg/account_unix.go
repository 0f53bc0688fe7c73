//go:build unix

package localpg

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is who runs the server: Postgres refuses root. The zero value is the
// caller.
type account struct{ credential *syscall.Credential }

// unprivilegedAccount is the caller or, if that is root, postgres or nobody.
func unprivilegedAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return account{}, fmt.Errorf("postgres refuses to run as root, and this machine has neither a user postgres nor nobody")
}

func (a account) apply(command *exec.Cmd) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = new(syscall.SysProcAttr)
	}
	command.SysProcAttr.Credential = a.credential
}

// own gives a file of the caller to the account.
func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// makeTempDir makes a directory that the account owns and can reach: the
// temporary directory of root may be closed to others.
func (a account) makeTempDir() (string, error) {
	base := os.TempDir()
	if a.credential != nil && !openToAll(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, tempPattern)
	if err != nil {
		return "", err
	}
	return dir, a.own(dir)
}

func openToAll(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&0o001 == 0 {
		return false
	}
	parent := filepath.Dir(dir)
	return parent == dir || openToAll(parent)
}

func separateGroup(command *exec.Cmd) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = new(syscall.SysProcAttr)
	}
	command.SysProcAttr.Setpgid = true
}

func killGroup(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
