package main

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// absentCase is what a node has, alone, when a document lists it under absent.
type absentCase struct {
	// counts are the fields of protocol.NodeContents that are not 0 then.
	counts []string
	// fill makes it, and returns what ends its use.
	fill filler
	// used is why the node stays until end; empty: it goes. PATH is the node's path.
	used string
	// goes are the objects that go with the node.
	goes []string
}

type filler func(t *testing.T, srv *servertest.Server, c *client.Client, path string) (end func() error)

// absentSession opens a session in a node that lives on until it is closed.
func absentSession(t *testing.T, c *client.Client, path string) *client.Session {
	t.Helper()
	s, err := c.Session(t.Context(), path, client.Timeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inSession makes something that outlives its session.
func inSession(f func(ctx context.Context, s *client.Session) error) filler {
	return func(t *testing.T, _ *servertest.Server, c *client.Client, path string) func() error {
		t.Helper()
		s := absentSession(t, c, path)
		if err := errors.Join(f(t.Context(), s), s.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		return nil
	}
}

var absentRollout = rollout.Config{Source: rollout.Published, Locations: []rollout.Location{{Name: "SAS"}}}

var absentCases = map[string]absentCase{
	"nothing": {},
	"a session": {
		counts: []string{"Sessions"},
		fill: func(t *testing.T, _ *servertest.Server, c *client.Client, path string) func() error {
			s := absentSession(t, c, path)
			return func() error { return s.Close(t.Context()) }
		},
		used: "it has 1 session",
	},
	"a semaphore": {
		counts: []string{"Semaphores"},
		fill: inSession(func(ctx context.Context, s *client.Session) error {
			return s.Create(ctx, "jobs", 3, nil)
		}),
		goes: []string{"semaphore PATH jobs"},
	},
	"a semaphore with options, history and slots that leave": {
		counts: []string{"Semaphores"},
		fill: inSession(func(ctx context.Context, s *client.Session) error {
			err := s.Create(ctx, "gpus", 2, []byte("data"), client.SemaphoreConfig{Numbered: true,
				Policy: client.PolicyFair, Weights: map[string]uint64{"a": 2}})
			l, failed := s.Acquire(ctx, "gpus", client.Key("a"))
			if err = errors.Join(err, failed); err != nil {
				return err
			}
			return l.Release(ctx)
		}),
		goes: []string{"semaphore PATH gpus"},
	},
	"an owner and a waiter": {
		counts: []string{"Owners", "Semaphores", "Sessions", "Waiters"},
		fill: func(t *testing.T, _ *servertest.Server, c *client.Client, path string) func() error {
			owner, waiter := absentSession(t, c, path), absentSession(t, c, path)
			if err := owner.Create(t.Context(), "jobs", 1, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := owner.Acquire(t.Context(), "jobs"); err != nil {
				t.Fatal(err)
			}
			queued, done := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := waiter.Acquire(t.Context(), "jobs", client.OnQueued(func(uint64) { close(queued) }))
				done <- err
			}()
			<-queued
			return func() error {
				err := errors.Join(waiter.Close(t.Context()), owner.Close(t.Context()))
				<-done
				return err
			}
		},
		used: "it has 2 sessions",
		goes: []string{"semaphore PATH jobs"},
	},
	"a lock": { // an ephemeral semaphore goes with its owner
		counts: []string{"Owners", "Semaphores", "Sessions"},
		fill: func(t *testing.T, _ *servertest.Server, c *client.Client, path string) func() error {
			s := absentSession(t, c, path)
			if _, err := s.Acquire(t.Context(), "backup", client.Exclusive()); err != nil {
				t.Fatal(err)
			}
			return func() error { return s.Close(t.Context()) }
		},
		used: "it has 1 session",
	},
	"a configuration": {
		counts: []string{"Semaphores"},
		fill: inSession(func(ctx context.Context, s *client.Session) error {
			_, err := s.Config("flags").Set(ctx, []byte("on"))
			return err
		}),
		goes: []string{"config PATH flags"},
	},
	"a process with a member": { // and without one it is kept for ten minutes
		counts: []string{"Processes", "Sessions"},
		fill: func(t *testing.T, srv *servertest.Server, c *client.Client, path string) func() error {
			s := absentSession(t, c, path)
			if _, err := coord.Join(t.Context(), s, "workers", agreeing{}, coord.Options{}); err != nil {
				t.Fatal(err)
			}
			return func() error {
				err := s.Close(t.Context())
				srv.Advance(11 * time.Minute)
				return err
			}
		},
		used: "it has 1 session and 1 process",
	},
	"a process whose member is away": {
		counts: []string{"Processes"},
		fill: func(t *testing.T, srv *servertest.Server, c *client.Client, path string) func() error {
			s := absentSession(t, c, path)
			_, err := coord.Join(t.Context(), s, "workers", agreeing{}, coord.Options{Key: "one", Return: time.Hour})
			if err = errors.Join(err, s.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			return func() error { srv.Advance(time.Hour); return nil }
		},
		used: "it has 1 process",
	},
	"a rollout": {
		counts: []string{"Tracks"},
		fill: inSession(func(ctx context.Context, s *client.Session) error {
			r := rollout.NewTrack(s, "api")
			_, err := r.Create(ctx, absentRollout)
			if err == nil {
				_, err = r.Publish(ctx, 0, []byte("x"))
			}
			return err
		}),
		goes: []string{"rollout PATH api"},
	},
	"a rollout with an instance": {
		counts: []string{"Sessions", "Tracks"},
		fill: func(t *testing.T, _ *servertest.Server, c *client.Client, path string) func() error {
			s := absentSession(t, c, path)
			r := rollout.NewTrack(s, "api")
			_, err := r.Create(t.Context(), absentRollout)
			if err == nil {
				_, err = r.Register(t.Context(), rollout.Registration{Location: "SAS", ID: "one"})
			}
			if err != nil {
				t.Fatal(err)
			}
			return func() error { return s.Close(t.Context()) }
		},
		used: "it has 1 session",
		goes: []string{"rollout PATH api"},
	},
	"limits": {
		counts: []string{"Limits"},
		fill: inSession(func(ctx context.Context, s *client.Session) error {
			_, err := ratelimit.Create(ctx, s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(10)})
			if err == nil {
				_, err = ratelimit.Create(ctx, s, "api/tenant", ratelimit.Config{Min: 3})
			}
			return err
		}),
		goes: []string{"limit PATH api/tenant", "limit PATH api"},
	},
	"a limit that was deleted": { // a deleted limit is remembered for a while
		fill: inSession(func(ctx context.Context, s *client.Session) error {
			revision, err := ratelimit.Create(ctx, s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(10)})
			if err == nil {
				err = ratelimit.Delete(ctx, s, "api", revision)
			}
			return err
		}),
	},
	"a node below it": {
		fill: func(t *testing.T, _ *servertest.Server, c *client.Client, path string) func() error {
			if _, err := admin.Nodes(c).Create(t.Context(), path+"/below", admin.NodeConfig{}); err != nil {
				t.Fatal(err)
			}
			return func() error {
				_, err := admin.Nodes(c).Delete(t.Context(), path+"/below", admin.DeleteOptions{})
				return err
			}
		},
		used: "there is node PATH/below below it",
	},
}

// TestAbsentNodes: a node that is to go, with each kind of content alone. What nobody uses goes with it, object by
// object. What is in use keeps it, whole, and apply says why; when the use has ended, the next run removes it.
func TestAbsentNodes(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	c := connect(t, srv)
	nodes, tested := admin.Nodes(c), map[string]bool{}
	at := 0
	for name, x := range absentCases {
		at++
		path := "/gone" + string(rune('a'+at))
		t.Run(name, func(t *testing.T) {
			in := func(text string) string { return strings.ReplaceAll(text, "PATH", path) }
			if _, err := nodes.Create(t.Context(), path, admin.NodeConfig{}); err != nil {
				t.Fatal(err)
			}
			end := func() error { return nil }
			if x.fill != nil {
				if e := x.fill(t, srv, c, path); e != nil {
					end = e
				}
			}
			has := func() (protocol.NodeContents, []string) {
				t.Helper()
				n, err := nodes.Delete(t.Context(), path, admin.DeleteOptions{DryRun: true})
				if err != nil && x.used == "" {
					t.Fatal(err)
				}
				var fields []string
				for field, v := range reflect.ValueOf(n).Fields() {
					if v.Uint() > 0 {
						fields = append(fields, field.Name)
					}
				}
				slices.Sort(fields)
				return n, fields
			}
			before, fields := has()
			if !slices.Equal(fields, x.counts) {
				t.Fatalf("the node has %v", &before)
			}
			for _, field := range fields {
				tested[field] = true
			}
			document := "signalbox: 1\nabsent: [" + path + "]\n"
			if x.used != "" {
				want := in("kept node PATH: " + x.used + "\n")
				for _, args := range [][]string{{"--dry-run"}, {}} {
					out, said, code := cli(t, srv.Addr(), document, append([]string{"apply", "-f", "-"}, args...)...)
					if code != exitError || out != "" || !strings.Contains(said, want) {
						t.Errorf("%v: exit code %d, expected %q:\n%s%s", args, code, want, out, said)
					}
				}
				if after, _ := has(); after != before {
					t.Errorf("it had %v, and has %v", &before, &after)
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				srv.Advance(time.Second) // other shards are notified
			}
			want := ""
			for _, o := range append(slices.Clone(x.goes), "node PATH") {
				want += in("- " + o + "\n")
			}
			if out := mustCLI(t, srv.Addr(), document, exitDifference, "apply", "-f", "-", "--dry-run"); out != want {
				t.Errorf("the dry run says\n%sexpected\n%s", out, want)
			}
			if out := mustCLI(t, srv.Addr(), document, 0, "apply", "-f", "-"); out != want {
				t.Errorf("it says\n%sexpected\n%s", out, want)
			}
			if _, err := nodes.Describe(t.Context(), path); protocol.StatusOf(err) != protocol.StatusNotFound {
				t.Errorf("the node is there: %v", err)
			}
			if out := mustCLI(t, srv.Addr(), document, 0, "apply", "-f", "-"); out != "no difference\n" {
				t.Errorf("a second run says %s", out)
			}
		})
	}
	for f := range reflect.TypeFor[protocol.NodeContents]().Fields() {
		if !tested[f.Name] {
			t.Errorf("no case has %s of a node's contents: let one have them alone", f.Name)
		}
	}
}
