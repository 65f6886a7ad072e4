package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

// exitSourceError is a command's exit code when the source of the version failed; sysexits calls it
// "temporary failure".
const exitSourceError = 75

func rolloutFollow(a *app) *cobra.Command {
	c := command("follow TRACK -- COMMAND [ARG...]",
		"Run as an instance: run a command for each version, and report its exit",
		`Run as an instance of a location: run a command for each version of the location, and report how
it ended. SIGNALBOX_VERSION is the version, SIGNALBOX_PAYLOAD the file with its payload,
SIGNALBOX_ATTEMPT the attempt.

  exit 0     the version is loaded and served
  exit 75    its source failed: retried with back-off, re-elected after a while
  other n    reported as EXIT_n; with --bad n the version is bad for everyone: it is reported
             with an explicit code of the rollout, and the location takes the next one at once

When another version is due, the command and all processes it started are stopped. Processes it
leaves running are killed, so run a server under a service manager. While no server can be
reached, nothing changes. With --dir the last version is saved: after a restart it is loaded
first, before any server is asked, and the instance takes over its id.`)
	c.Example = "  signalbox rollout follow geo/base --location zone-a --dir /var/lib/geo -- sh -c 'cp $SIGNALBOX_PAYLOAD data.bin'"
	location := c.Flags().String("location", "", "Location of the instance.")
	id := c.Flags().String("id", "", "Id of the instance, unique in the rollout (default: the host name).")
	meta := c.Flags().String("meta", "", "Description of the instance.")
	dir := c.Flags().String("dir", "", "Folder to save the instance's last version in.")
	takeover := c.Flags().Bool("takeover", false, "Replace a live instance with the same id.")
	bad := c.Flags().IntSlice("bad", nil, "Exit codes that mean the version is bad for everyone.")
	count := c.Flags().Uint("stop-after", 0,
		"Stop after loading this many versions, once the server knows of the last one; 0: never.")
	var retryMin, retryMax time.Duration
	durationVar(c.Flags(), &retryMin, "retry-min", time.Second, "Shortest time between attempts to load a version.")
	durationVar(c.Flags(), &retryMax, "retry-max", time.Minute, "Longest time between attempts to load a version.")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		track, command, err := split(cmd, args)
		switch {
		case err != nil:
			return err
		case len(command) == 0:
			return usagef("the command is missing; the form is: %s", usageLine(cmd))
		case *location == "":
			return usagef("--location is missing; say which location this instance is in")
		}
		if *id == "" {
			if *id, err = os.Hostname(); err != nil {
				return usagef("the host has no name (%v); give the instance one with --id", err)
			}
		}
		if err := lookUp(command); err != nil {
			return err
		}
		out, err := inv.reportStream()
		if err != nil {
			return err
		}
		work, err := os.MkdirTemp("", "signalbox-rollout-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(work)
		ctx, cancel := context.WithCancel(inv.longCtx)
		defer cancel()
		f := &followRun{invocation: inv, out: out, command: command, bad: *bad, dir: work, track: track,
			remaining: *count, done: cancel}
		f.follower, err = rollout.NewFollower(rollout.FollowerOptions{
			Connect: inv.cfg, Node: inv.node, Track: track, ID: *id, Location: *location, Meta: *meta,
			Dir: *dir, Takeover: *takeover,
			RetryMin: retryMin, RetryMax: retryMax, Update: f.update, OnChange: f.changed,
			Session: []client.SessionOption{client.Timeout(inv.ttl), client.Description("rollout follow " + *id)},
		})
		if err != nil {
			return usagef("%v", err)
		}
		if err := f.follower.Run(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	})
	return c
}

type followRun struct {
	*invocation
	out       *printer
	command   []string
	bad       []int
	dir       string // for payloads
	track     string
	remaining uint   // versions to load before the end; 0 for one that has no end
	done      func() // ends Run
	follower  *rollout.Follower

	// Owned by Run's goroutine.
	last   rollout.FollowerState
	ending bool // the last of the versions to load is loaded
	quiet  int  // changes since then in a row by which nothing is left to report
}

func (f *followRun) update(ctx context.Context, v rollout.Version) error {
	file := filepath.Join(f.dir, "payload")
	if err := os.WriteFile(file, v.Payload, 0o600); err != nil {
		return err
	}
	c := &child{
		args: f.command, stdin: f.stdin, stdout: f.stdout, stderr: f.stderr, notes: f.notes, grace: 2 * time.Second,
		env: []string{
			"SIGNALBOX_VERSION=" + strconv.FormatUint(v.Number, 10), "SIGNALBOX_PAYLOAD=" + file,
			"SIGNALBOX_ATTEMPT=" + strconv.Itoa(v.Attempt),
			"SIGNALBOX_KEPT=" + strconv.FormatBool(v.Restored), "SIGNALBOX_TRACK=" + f.track, "SIGNALBOX_NODE=" + f.node,
		},
	}
	err := c.run(ctx)
	switch {
	case errors.Is(err, errLost):
		return ctx.Err()
	case v.Restored:
		return err // it is not reported
	}
	return f.outcome(err, func() (string, error) { return f.explicitCode(ctx) })
}

// outcome translates a command's exit code to a result for the version. explicit gives a code that
// says that a version is bad for everyone.
func (f *followRun) outcome(err error, explicit func() (string, error)) error {
	var ce *codeError
	if err == nil || !errors.As(err, &ce) {
		return err
	}
	own := "EXIT_" + strconv.Itoa(ce.code)
	switch {
	case slices.Contains(f.bad, ce.code):
		code, err := explicit()
		if err != nil {
			return rollout.Code(own, fmt.Errorf(
				"the command exited with %d: the version is bad, but the rollout's explicit codes cannot be read: %w",
				ce.code, err))
		}
		return rollout.Code(code, fmt.Errorf("the command exited with %d: the version is bad", ce.code))
	case ce.code == exitSourceError:
		return errors.New("the command exited with 75: its source failed")
	}
	return rollout.Code(own, fmt.Errorf("the command exited with %d", ce.code))
}

// explicitCode reads a code that the rollout takes as bad for everyone. It is read for each bad
// version, with a connection of its own: the config may have changed, and the follower's connection
// is its own.
func (f *followRun) explicitCode(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	c, err := client.Open(ctx, f.cfg)
	if err != nil {
		return "", err
	}
	defer c.CloseWithoutRelease()
	n, err := c.Node(ctx, f.node)
	if err != nil {
		return "", err
	}
	s, err := rollout.NewReader(n, f.track).Describe(ctx, rollout.IncludeConfig())
	if err != nil {
		return "", err
	}
	if s.Config == nil || len(s.Config.ExplicitCodes) == 0 {
		return "", errors.New("the server named none") // it fills in the default
	}
	return s.Config.ExplicitCodes[0], nil
}

// changed prints the events for a person or a script: versions that are loaded, and failures.
func (f *followRun) changed(s rollout.FollowerState) {
	before := f.last
	f.last = s
	f.endOnceReported(s, s.Current != before.Current)
	r := row{{"time", "time", clockTime{time.Now()}}}
	switch {
	case s.Current != before.Current:
		if s.Current == 0 {
			return // it was a version of a track that was deleted
		}
		_ = f.out.event(append(r, field{"event", "event", "loaded"},
			field{"version", "version", labelled{"version", s.Current}}))
		if f.remaining > 0 {
			f.remaining--
			f.ending = f.remaining == 0
		}
	case s.Role != before.Role && s.Role != 0:
		_ = f.out.event(append(r, field{"event", "event", "role"}, field{"role", "role", s.Role.String()}))
	case s.Registered != before.Registered && !s.Registered:
		f.note("signalbox: %s; goes on with version %s\n", terminal.Sanitize(fmt.Sprint(s.Err)), versionText(s.Current))
	case s.Attempts > before.Attempts && s.Err != nil:
		f.note("signalbox: version %d, attempt %d: %s\n", s.Target.Version, s.Attempts, terminal.Sanitize(s.Err.Error()))
	}
}

// quietChanges is how many changes in a row leave nothing to report before Run ends. A question for
// the target makes one change, or two if the target is another. So a whole question with the last
// report was answered by the third, even if one was under way when the version was loaded.
const quietChanges = 3

// endOnceReported ends Run when the last version is loaded, and the server knows that: the instance
// is a leader that serves its target, or has another target by now.
func (f *followRun) endOnceReported(s rollout.FollowerState, loaded bool) {
	reported := s.Current != s.Target.Version || s.Role == rollout.LeaderRole
	if !f.ending || loaded || !s.Registered || !reported {
		f.quiet = 0
		return
	}
	if f.quiet++; f.quiet == quietChanges {
		f.done()
		return
	}
	f.follower.MarkReady() // it is so already, but asks for the target at once
}
