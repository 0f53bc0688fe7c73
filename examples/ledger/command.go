package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/idempg/idempg/examples/ledger/storm"
)

// command is one thing that the program can do.
type command struct {
	name    string
	purpose string
	run     func(ctx context.Context, flags *flag.FlagSet, arguments []string) error
}

// commands are what the program can do. The first is done when none is named.
var commands = []command{
	{"serve", "serve the API (the default)", configured(serve)},
	{"healthcheck", "ask the service at LEDGER_ADDR whether it is ready", configured(healthcheck)},
	{"receiver", "serve an endpoint for events of the ledger, which counts them", configured(serveReceiver)},
	{"provider", "serve a payment provider that fails as real ones do", configured(serveProvider)},
	{"storm", "attack the service on a throwaway Postgres, and audit it", runStorm},
}

// dispatch runs the command that the arguments name, with those that follow.
func dispatch(ctx context.Context, arguments []string) error {
	name := commands[0].name
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		name, arguments = arguments[0], arguments[1:]
	}
	for _, c := range commands {
		if c.name == name {
			return c.run(ctx, newFlags(c), arguments)
		}
	}
	return fmt.Errorf("no such command: %s\n%s", name, commandList())
}

func newFlags(c command) *flag.FlagSet {
	flags := flag.NewFlagSet(c.name, flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: ledger %s [flags]\n\n%s: %s\n", c.name, c.name, c.purpose)
		flags.PrintDefaults()
		fmt.Fprint(flags.Output(), "\n", commandList())
	}
	return flags
}

func commandList() string {
	var list strings.Builder
	list.WriteString("commands, each with -h:\n")
	for _, c := range commands {
		fmt.Fprintf(&list, "  %-12s %s\n", c.name, c.purpose)
	}
	return list.String()
}

// parse reads flags and refuses what is none.
func parse(flags *flag.FlagSet, arguments []string) error {
	_ = flags.Parse(arguments) // ends the program at an error
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes no argument %q", flags.Name(), flags.Arg(0))
	}
	return nil
}

// configured is a command without flags: it reads the environment.
func configured(run func(ctx context.Context, lookup func(string) (string, bool), stdout io.Writer) error) func(context.Context, *flag.FlagSet, []string) error {
	return func(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
		if err := parse(flags, arguments); err != nil {
			return err
		}
		return run(ctx, os.LookupEnv, os.Stdout)
	}
}

func runStorm(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	config := storm.Config{Progress: os.Stderr}
	flags.DurationVar(&config.For, "for", 30*time.Second, "for how long a `time` the clients begin new tasks")
	flags.Uint64Var(&config.Seed, "seed", rand.Uint64N(1_000_000), "decides what the clients do; by default another one each time")
	flags.IntVar(&config.Clients, "clients", 8, "how many clients there are, 1 to 64")
	flags.IntVar(&config.Instances, "instances", 2, "how many instances of the service there are, 1 to 4")
	flags.StringVar(&config.LogFile, "log", "", "the `file` for what the instances log; none by default")
	if err := parse(flags, arguments); err != nil {
		return err
	}
	return stormAndAudit(ctx, config, os.Stdout)
}

// stormAndAudit writes the report. A finding of the audit is an error.
func stormAndAudit(ctx context.Context, config storm.Config, stdout io.Writer) (err error) {
	s, err := storm.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := s.Blow(ctx); err != nil {
		return err
	}
	report, err := s.Audit(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	report.Write(stdout)
	if !report.OK() {
		return errors.New("the audit failed")
	}
	return nil
}
