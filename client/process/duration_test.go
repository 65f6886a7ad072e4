package process

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	machine "github.com/signalbox-dev/signalbox/client/internal/membership"
)

// TestNegativeTimes: each time of the options is refused when it is negative, by a join and by an
// operator, and so is the time of a message.
func TestNegativeTimes(t *testing.T) {
	seen := 0
	typ := reflect.TypeFor[Options]()
	for i := range typ.NumField() {
		if typ.Field(i).Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		seen++
		for _, d := range []time.Duration{-1, -time.Hour} {
			var o Options
			reflect.ValueOf(&o).Elem().Field(i).SetInt(int64(d))
			if err := check("queue", newAgreeing(0), &o); !errors.Is(err, client.ErrBadRequest) ||
				!strings.Contains(err.Error(), d.String()) {
				t.Errorf("%s = %s: %v", typ.Field(i).Name, d, err)
			}
			if typ.Field(i).Name == "RetryInterval" {
				continue // a member's own
			}
			if _, err := o.wire(); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%s = %s for an operator: %v", typ.Field(i).Name, d, err)
			}
		}
	}
	if seen < 6 {
		t.Errorf("found %d times", seen)
	}
	r := Round{p: &Membership{name: "queue"}, r: new(machine.Round)}
	if err := r.Broadcast(nil, nil, Callback{Timeout: -1}); !errors.Is(err, client.ErrBadRequest) ||
		!strings.Contains(err.Error(), "-1ns") {
		t.Errorf("Callback.Timeout = -1ns: %v", err)
	}
	if err := check("queue", newAgreeing(0), &Options{Debounce: 1<<63 - 1}); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("the longest time: %v", err)
	}
}
