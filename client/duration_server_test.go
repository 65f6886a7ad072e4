package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestNegativeDurations: every duration of the SDK that is negative is refused by the same rule,
// before anything is sent. Those of rollouts and processes have tests of their own.
func TestNegativeDurations(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s := session(t, c)
	node := func(d time.Duration, field string) (c admin.NodeConfig) {
		reflect.ValueOf(&c).Elem().FieldByName(field).Set(reflect.ValueOf(&d))
		return c
	}
	begin := func(o client.SessionOption) error {
		_, err := c.Session(ctx, "/default", o)
		return err
	}
	tries := map[string]func(d time.Duration) error{
		"wait": func(d time.Duration) error {
			_, err := s.Acquire(ctx, "x", client.Exclusive(), client.Wait(d))
			return err
		},
		"timeout":    func(d time.Duration) error { return begin(client.Timeout(d)) },
		"keep-alive": func(d time.Duration) error { return begin(client.KeepAlive(d)) },
		"restore": func(d time.Duration) error {
			_, err := c.Restore(ctx, s.Save(), client.KeepAlive(d))
			return err
		},
	}
	must(t, s.Create(ctx, "bounded", 1, nil, client.SemaphoreConfig{MaxHold: time.Hour, Preempt: client.PreemptAny}))
	for name, set := range map[string]func(*client.SemaphoreConfig, time.Duration){
		"longest hold": func(c *client.SemaphoreConfig, d time.Duration) { c.MaxHold = d },
		"grace":        func(c *client.SemaphoreConfig, d time.Duration) { c.Grace = d },
		"least hold":   func(c *client.SemaphoreConfig, d time.Duration) { c.MinHold = d },
		"aging": func(c *client.SemaphoreConfig, d time.Duration) {
			c.Policy, c.Aging = client.PolicyPriority, d
		},
	} {
		tries["create, "+name] = func(d time.Duration) error {
			var c client.SemaphoreConfig
			set(&c, d)
			return s.Create(ctx, "new", 1, nil, c)
		}
		tries["alter, "+name] = func(d time.Duration) error {
			return s.Alter(ctx, "bounded", func(c *client.SemaphoreConfig) { set(c, d) })
		}
		if name == "least hold" {
			continue // it may be a millisecond
		}
		for _, d := range []time.Duration{1, 500 * time.Microsecond} {
			if err := tries["alter, "+name](d); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "1 ms") {
				t.Errorf("a %s of %s: %v", name, d, err)
			}
		}
	}
	settings := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[admin.NodeConfig]()) {
		if f.Type != reflect.TypeFor[*time.Duration]() {
			continue
		}
		settings++
		tries["create, "+f.Name] = func(d time.Duration) error { return nodeError(admin.Nodes(c).Create(ctx, "/n", node(d, f.Name))) }
		tries["ensure, "+f.Name] = func(d time.Duration) error {
			return nodeError(admin.Nodes(c).Ensure(ctx, "/default", node(d, f.Name)))
		}
		tries["alter, "+f.Name] = func(d time.Duration) error {
			return nodeError(admin.Nodes(c).Alter(ctx, "/default", node(d, f.Name)))
		}
	}
	if settings < 3 {
		t.Errorf("%d settings of a node are durations", settings)
	}
	for name, try := range tries {
		for _, d := range []time.Duration{-1, -time.Millisecond, -time.Hour, math.MinInt64} {
			if err := try(d); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), d.String()) {
				t.Errorf("%s of %s: %v", name, d, err)
			}
		}
	}
	if _, err := admin.Nodes(c).Describe(ctx, "/n"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a node was made: %v", err)
	}
	if sem, err := s.Node().Describe(ctx, "bounded"); err != nil || sem.Config.MaxHold != time.Hour {
		t.Errorf("the bound of an hour: %+v, %v", sem, err)
	}
	// What is positive never means what zero does: a nanosecond is not the default.
	if err := nodeError(admin.Nodes(c).Alter(ctx, "/default", node(1,
		"GracePeriod"))); !errors.Is(err, client.ErrBadRequest) ||
		!strings.Contains(err.Error(), "grace period is 1 ms") {
		t.Errorf("a grace period of a nanosecond: %v", err)
	}
	if _, err := s.Acquire(ctx, "x", client.CreateLimit(0)); !errors.Is(err, client.ErrBadRequest) ||
		!strings.Contains(err.Error(), "limit is 0") {
		t.Errorf("a limit of 0: %v", err)
	}
}

func nodeError(_ *admin.NodeInfo, err error) error { return err }

// TestWaitForever: the wait that a description tells is one that Wait takes, and far longer ones
// than allowed are refused.
func TestWaitForever(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	a, b := session(t, c), session(t, c)
	held := acquire(t, a, "x", client.Exclusive())
	granted, _ := queue(t, b, "x", client.Exclusive(), client.Wait(client.Forever))
	sem, err := a.Node().Describe(ctx, "x", client.IncludeWaiters())
	if err != nil || len(sem.Waiters) != 1 || sem.Waiters[0].Timeout != client.Forever {
		t.Fatalf("%+v, %v", sem, err)
	}
	release(t, held)
	release(t, granted.must(t))
	for _, d := range []time.Duration{24*time.Hour + 1, 25 * time.Hour, client.Forever - 1} {
		_, err := a.Acquire(context.WithoutCancel(ctx), "x", client.Exclusive(), client.Wait(d))
		if ms := (d + time.Millisecond - 1).Milliseconds(); d < client.Forever-time.Second &&
			!strings.Contains(fmt.Sprint(err), fmt.Sprintf("%d ms", ms)) || !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%s: %v", d, err)
		}
	}
}
