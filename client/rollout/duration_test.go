package rollout

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestNegativeTimes: each time that this package takes is refused when it is negative. The fields
// are found by their type, so that one that is added is looked at too.
func TestNegativeTimes(t *testing.T) {
	config := func(c Config) error {
		_, err := c.wire()
		return err
	}
	seen := 0
	check := func(what any, refused func(set func(reflect.Value)) error) {
		typ := reflect.TypeOf(what)
		for i := range typ.NumField() {
			if typ.Field(i).Type != reflect.TypeFor[time.Duration]() {
				continue
			}
			seen++
			for _, d := range []time.Duration{-1, -time.Hour} {
				err := refused(func(v reflect.Value) { v.Field(i).SetInt(int64(d)) })
				if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), d.String()) {
					t.Errorf("%T.%s = %s: %v", what, typ.Field(i).Name, d, err)
				}
			}
		}
	}
	check(Config{}, func(set func(reflect.Value)) error {
		var c Config
		set(reflect.ValueOf(&c).Elem())
		return config(c)
	})
	check(Location{}, func(set func(reflect.Value)) error {
		c := Config{Locations: make([]Location, 2)}
		set(reflect.ValueOf(&c.Locations[1]).Elem())
		return config(c)
	})
	check(Gate{}, func(set func(reflect.Value)) error {
		c := Config{Locations: []Location{{Gates: make([]Gate, 2)}}}
		set(reflect.ValueOf(&c.Locations[0].Gates[1]).Elem())
		return config(c)
	})
	check(FollowerOptions{}, func(set func(reflect.Value)) error {
		o := FollowerOptions{Client: new(client.Client), Node: "/n", Track: "a/b", ID: "i", Location: "l",
			Update: func(context.Context, Version) error { return nil }}
		set(reflect.ValueOf(&o).Elem())
		_, err := NewFollower(o)
		return err
	})
	check(Generator{}, func(set func(reflect.Value)) error {
		g := Generator{Track: new(Track), Next: func(context.Context, uint64) (uint64, error) { return 0, nil }}
		set(reflect.ValueOf(&g).Elem())
		return g.Run(t.Context())
	})
	if seen < 15 {
		t.Errorf("found %d times", seen)
	}
}

// TestRetryBounds: times between attempts that do not fit are refused, and long ones do not
// overflow.
func TestRetryBounds(t *testing.T) {
	o := FollowerOptions{
		Client: new(client.Client), Node: "/n", Track: "a/b", ID: "i", Location: "l",
		Update:   func(context.Context, Version) error { return nil },
		RetryMin: 2 * time.Minute,
	}
	if _, err := NewFollower(o); !errors.Is(err, client.ErrBadRequest) ||
		!strings.Contains(err.Error(), "2m0s, above the longest, 1m0s") {
		t.Error(err)
	}
	o.RetryMax = 1<<63 - 1
	f, err := NewFollower(o)
	if err != nil {
		t.Fatal(err)
	}
	for failures := range 100 {
		if d := f.backoff(failures); d < time.Minute {
			t.Errorf("after %d failures it waits for %s", failures, d)
		}
	}
}
