//go:build !unix

package localpg

import (
	"errors"
	"os/exec"
)

type account struct{}

func unprivilegedAccount() (account, error) {
	return account{}, errors.New("servers are started on Unix systems only; name one that runs already")
}

func (account) apply(*exec.Cmd) {}

func (account) own(string) error { return nil }

func (account) makeTempDir() (string, error) { return "", errors.ErrUnsupported }

func separateGroup(*exec.Cmd) {}

func killGroup(command *exec.Cmd) { _ = command.Process.Kill() }
