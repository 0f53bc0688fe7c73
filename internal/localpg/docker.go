package localpg

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
)

// dockerAnswers says whether there is a docker command with an engine behind.
func dockerAnswers(ctx context.Context) bool {
	return exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run() == nil
}

// startContainer runs the official image in the foreground of the docker
// command, which passes the signal that ends the server on to it.
func startContainer(ctx context.Context, options Options) (*Server, error) {
	dir, err := os.MkdirTemp("", tempPattern)
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	name := "idempg-" + strings.ToLower(rand.Text())
	server, err := launch{
		dir: dir, password: password,
		environment: []string{"POSTGRES_PASSWORD=" + password},
		command: func(port string) []string {
			command := []string{
				"docker", "run", "--rm", "--name", name, "--publish", "127.0.0.1:" + port + ":5432",
				"--env", "POSTGRES_PASSWORD", options.Image, "postgres",
			}
			return append(command, options.serverArguments()...)
		},
	}.run(ctx)
	if err != nil {
		// A container that was still being initialised ignores the signal.
		_ = exec.Command("docker", "rm", "--force", "--volumes", name).Run()
	}
	return server, err
}
