package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestOptionsCount: each field of FollowerOptions changes what a follower sends, what it asks its program
// for, or what it says.
func TestOptionsCount(t *testing.T) {
	var said strings.Builder
	dir := t.TempDir()
	noWay := func(_ *world, o *sdk.FollowerOptions) {
		o.Connect.Dial = func(context.Context, string) (net.Conn, error) { return nil, errors.New("there is no way") }
	}
	retries := func(_ *world, o *sdk.FollowerOptions) { o.RetryMin, o.RetryMax = time.Millisecond, time.Minute }
	rows := map[string]struct {
		base, set func(w *world, o *sdk.FollowerOptions) // base: of both runs that are compared
	}{
		"Client":   {noWay, func(w *world, o *sdk.FollowerOptions) { o.Client = w.dial() }},
		"Connect":  {nil, noWay},
		"Node":     {nil, func(_ *world, o *sdk.FollowerOptions) { o.Node = "/other" }},
		"Track":    {nil, func(_ *world, o *sdk.FollowerOptions) { o.Track = "geo/other" }},
		"ID":       {nil, func(_ *world, o *sdk.FollowerOptions) { o.ID = "other" }},
		"Location": {nil, func(_ *world, o *sdk.FollowerOptions) { o.Location = "MAN" }},
		"Meta":     {nil, func(_ *world, o *sdk.FollowerOptions) { o.Meta = "text" }},
		"Update": {nil, func(_ *world, o *sdk.FollowerOptions) {
			o.Update = func(context.Context, sdk.Version) error { said.WriteString("updated"); return nil }
		}},
		"Dir": {nil, func(_ *world, o *sdk.FollowerOptions) { o.Dir = dir }},
		"Takeover": {func(_ *world, o *sdk.FollowerOptions) { o.ID = "taken" },
			func(_ *world, o *sdk.FollowerOptions) { o.Takeover = true }},
		"Manual":    {nil, func(_ *world, o *sdk.FollowerOptions) { o.Manual = true }},
		"PollEvery": {nil, func(_ *world, o *sdk.FollowerOptions) { o.PollEvery = time.Second }},
		"RetryMin":  {retries, func(_ *world, o *sdk.FollowerOptions) { o.RetryMin = time.Minute }},
		"RetryMax":  {retries, func(_ *world, o *sdk.FollowerOptions) { o.RetryMax = time.Second }},
		"Session": {nil, func(_ *world, o *sdk.FollowerOptions) {
			o.Session = []client.SessionOption{client.Timeout(20 * time.Minute)}
		}},
		"OnChange": {nil, func(_ *world, o *sdk.FollowerOptions) {
			o.OnChange = func(sdk.FollowerState) { said.WriteString("change") }
		}},
		"Logger": {nil, func(_ *world, o *sdk.FollowerOptions) { o.Logger = slog.New(slog.NewTextHandler(&said, nil)) }},
	}
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[sdk.FollowerOptions]()) {
		fields = append(fields, f.Name)
	}
	slices.Sort(fields)
	if got := slices.Sorted(maps.Keys(rows)); !slices.Equal(got, fields) {
		t.Fatalf("the table has rows for %q, and the options are %q", got, fields)
	}
	// run says what can be seen of ten minutes of a follower whose updates fail at first.
	run := func(t *testing.T, change ...func(*world, *sdk.FollowerOptions)) (seen string) {
		inWorld(t, func(t *testing.T, w *world) {
			said.Reset()
			sent := make(map[string]bool)
			w.intercept = func(l *fakeConn, h protocol.Header) bool {
				switch h.Kind {
				case protocol.KindNodeDescribe:
					sent[string(decode(l, h, &protocol.NodeDescribe{}).Path)] = true
				case protocol.KindSessionStart:
					sent[fmt.Sprint(decode(l, h, &protocol.SessionStart{}).Timeout)] = true
				}
				return false
			}
			w.create(sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN"}}})
			w.publish(10)
			w.follow("taken", "SAS", nil)
			w.wait(time.Second)
			m := w.follow("a", "SAS", func(o *sdk.FollowerOptions, m *member) {
				m.fail[10] = errors.New("not yet")
				for _, f := range change {
					if f != nil {
						f(w, o)
					}
				}
			})
			w.wait(5 * time.Minute)
			m.set(func() { clear(m.fail) })
			w.wait(5 * time.Minute)
			status, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range status.Instances {
				seen += fmt.Sprintln(i.ID, i.Location, i.Meta, i.Role)
			}
			w.mu.Lock() // a part of the times between polls, and between attempts, is random
			seen += fmt.Sprintln((w.polls+50)/150, slices.Sorted(maps.Keys(sent)), len(m.loaded())/17, said.String())
			w.mu.Unlock()
			files, err := os.ReadDir(dir)
			seen += fmt.Sprintln(len(files), err, len(m.ended))
			for _, f := range files {
				_ = os.Remove(dir + "/" + f.Name())
			}
		})
		return seen
	}
	for field, row := range rows {
		t.Run(field, func(t *testing.T) {
			without, with := run(t, row.base), run(t, row.base, row.set)
			if again := run(t, row.base); again != without {
				t.Fatalf("without the option it is\n%s\nand\n%s", without, again)
			}
			if with == without {
				t.Errorf("it is taken, and ignored:\n%s", with)
			}
		})
	}
}

// TestDescribeOptions: each option of Describe changes what is described.
func TestDescribeOptions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		w.follow("a", "SAS", nil)
		w.follow("b", "SAS", nil)
		w.follow("c", "SAS", nil)
		w.wait(time.Second)
		for _, c := range []struct {
			opts              []sdk.DescribeOption
			config, instances int
		}{
			{nil, 0, 0}, {[]sdk.DescribeOption{sdk.IncludeConfig()}, 1, 0},
			{[]sdk.DescribeOption{sdk.IncludeInstances()}, 0, 3},
			{[]sdk.DescribeOption{sdk.IncludeInstances(), sdk.MaxInstances(2)}, 0, 2}, // the pages have two,
		} {
			s, err := w.track.Describe(w.ctx, c.opts...)
			if err != nil || (s.Config != nil) != (c.config == 1) || len(s.Instances) != c.instances {
				t.Errorf("%+v, %v; want %+v", s, err, c)
			}
		}
	})
}
