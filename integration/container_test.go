package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// localImages serve when the environment names nothing and one of them is
// there already: made by image/build.sh, or pulled by hand.
var localImages = []string{"idempg/postgres:15", "postgres:18"}

// findImage returns the image to run, or "" to look for a server elsewhere.
func findImage(ctx context.Context, wanted string, mayPull bool) (string, error) {
	engine, err := connectEngine(ctx)
	if err != nil {
		if wanted == "" {
			return "", nil // this machine has no engine
		}
		return "", fmt.Errorf("no docker engine for image %s: %w", wanted, err)
	}
	defer func() { _ = engine.Close() }()
	has := func(image string) bool {
		_, err := engine.ImageInspect(ctx, image)
		return err == nil
	}
	if wanted == "" {
		for _, image := range localImages {
			if has(image) {
				return image, nil
			}
		}
		return "", nil
	}
	if !mayPull && !has(wanted) {
		return "", fmt.Errorf(
			"image %s is not here, and nothing is pulled with CI=true: pull it first, or run integration/image/build.sh", wanted)
	}
	return wanted, nil
}

// connectEngine also sets what testcontainers cannot know, unless the
// environment does. It reads these variables once, at the first use.
func connectEngine(ctx context.Context) (*testcontainers.DockerClient, error) {
	log.SetDefault(log.NewNoopLogger())
	// The reaper, which removes containers of killed runs, is one more image
	// from a registry: removeOrphans does its work.
	setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	engine, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, err
	}
	// Inside a container, testcontainers looks for ports at the gateway. They
	// are right here if the engine itself runs in this container.
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	if info.Info.Name == hostname() {
		setDefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}
	return engine, removeOrphans(ctx, engine)
}

// ownerLabel holds the process, on this machine, that removes a container.
const ownerLabel = "idempg.owner"

// removeOrphans removes the containers of runs that were killed.
func removeOrphans(ctx context.Context, engine *testcontainers.DockerClient) error {
	all, err := engine.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", ownerLabel),
	})
	if err != nil {
		return err
	}
	for _, container := range all.Items {
		host, pid, _ := strings.Cut(container.Labels[ownerLabel], "/")
		if host != hostname() || isAlive(pid) {
			continue
		}
		// Another run may be removing it at the same time.
		_, _ = engine.ContainerRemove(ctx, container.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	}
	return nil
}

// isAlive is true if in doubt.
func isAlive(pid string) bool {
	number, err := strconv.Atoi(pid)
	if err != nil {
		return true
	}
	process, err := os.FindProcess(number)
	return err == nil && !errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func setDefault(variable, value string) {
	if os.Getenv(variable) == "" {
		_ = os.Setenv(variable, value) // fails only on a malformed name
	}
}

// startContainer runs a postgres image, with flags for the server.
func startContainer(ctx context.Context, image string, settings map[string]string) (*server, error) {
	command := []string{"postgres"}
	for name, value := range settings {
		command = append(command, "-c", name+"="+value)
	}
	container, err := postgres.Run(ctx, image, testcontainers.WithCmd(command...), postgres.BasicWaitStrategies(),
		testcontainers.WithLabels(map[string]string{ownerLabel: fmt.Sprintf("%s/%d", hostname(), os.Getpid())}))
	stop := func() error { return testcontainers.TerminateContainer(container) }
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a container of %s: %w", image, err), stop())
	}
	url, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &server{url: url, source: "a container of " + image, stopSource: stop}, nil
}
