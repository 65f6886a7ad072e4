package process

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// failsOnce is a handler that completes each round; its first Prepare fails.
type failsOnce struct {
	BaseHandler
	failed bool
}

func (*failsOnce) Coordinate(r *Round) error { return r.Complete(nil) }

func (h *failsOnce) Prepare(*Round) error {
	if h.failed {
		return nil
	}
	h.failed = true
	return errors.New("not yet")
}

// TestOptions: each field of Options changes what is shown of the process or of the member, or what its
// handler is asked, and a value that cannot be is refused. What belongs to a member is refused by Alter,
// which does everything else.
func TestOptions(t *testing.T) {
	t.Parallel()
	var log await.Log
	own := Member{Data: []byte("d"), Key: "k", Weight: 7}
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var joined *Membership
	machineHas := func(name string, want int64) func(*MemberStatus) bool {
		return func(*MemberStatus) bool {
			return reflect.ValueOf(joined.m).Elem().FieldByName("options").FieldByName(name).Int() == want
		}
	}
	rows := map[string]struct {
		option, wrong Options // wrong is zero: each value is one that may be
		// Of a member: what tells that the option counts, of the status after a round. An option of the process
		// changes what is shown of that.
		shows func(m *MemberStatus) bool
	}{
		"Synchronous": {Options{Synchronous: true}, Options{}, func(*MemberStatus) bool { return true }}, // Join told it
		"Key": {Options{Key: own.Key}, Options{Key: strings.Repeat("k", 129)},
			func(m *MemberStatus) bool { return m.Key == own.Key }},
		"Data": {Options{Data: own.Data}, Options{Data: make([]byte, 513)},
			func(m *MemberStatus) bool { return string(m.Data) == "d" }},
		"Weight": {Options{Weight: own.Weight}, Options{},
			func(m *MemberStatus) bool { return m.Weight == own.Weight }},
		"RetryInterval": {Options{RetryInterval: time.Second}, Options{RetryInterval: 6 * time.Second},
			machineHas("RetryMin", int64(time.Second))},
		"MaxProcessFailures": {Options{MaxProcessFailures: 1}, Options{MaxProcessFailures: -1},
			machineHas("MaxProcessFailures", 1)},
		"Logger": {Options{Logger: logger}, Options{},
			func(*MemberStatus) bool { return strings.Contains(log.String(), "not yet") }},
		"Election":     {Options{Election: Preferred}, Options{Election: 99}, nil},
		"Debounce":     {Options{Debounce: time.Millisecond}, Options{Debounce: 25 * time.Hour}, nil},
		"RoundTimeout": {Options{RoundTimeout: time.Hour}, Options{RoundTimeout: 25 * time.Hour}, nil},
		"BackoffMin":   {Options{BackoffMin: time.Millisecond}, Options{BackoffMin: 25 * time.Hour}, nil},
		"BackoffMax":   {Options{BackoffMax: 2 * time.Second}, Options{BackoffMax: 25 * time.Hour}, nil},
		"Return":       {Options{Return: time.Minute}, Options{Return: 25 * time.Hour}, nil},
	}
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		fields = append(fields, f.Name)
	}
	slices.Sort(fields)
	if got := slices.Sorted(maps.Keys(rows)); !slices.Equal(got, fields) {
		t.Fatalf("the table has rows for %q, and the options are %q", got, fields)
	}
	srv := servertest.Start(t, servertest.RealTime())
	s := newSession(t, srv.Addr())
	describe := func(name string) *Status {
		t.Helper()
		status, err := NewOperator(s.Node(), name).Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	plain := mustJoin(t, s, "plain", &failsOnce{failed: true}, Options{Synchronous: true})
	defer mustLeave(t, plain)
	usual := fmt.Sprintf("%+v", describe("plain").Options)
	for field, row := range rows {
		if !reflect.ValueOf(row.wrong).IsZero() {
			_, err := Join(t.Context(), s, "wrong", &failsOnce{failed: true}, row.wrong)
			if !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%s: %+v is taken: %v", field, row.wrong, err)
			}
		}
		joined = mustJoin(t, s, field, &failsOnce{}, row.option)
		if phase := describe(field).Phase; field == "Synchronous" && phase < Completing {
			t.Errorf("Join returns in phase %d", phase)
		}
		await.True(t, "a round of "+field, func() bool { return describe(field).Phase >= Completing })
		status, member := describe(field), row.shows != nil
		if member && !row.shows(&status.Members[0]) || !member && fmt.Sprintf("%+v", status.Options) == usual {
			t.Errorf("Join takes %s, and ignores it: %+v", field, status)
		}
		mustLeave(t, joined)
		altered := NewOperator(s.Node(), "plain")
		switch err := altered.Alter(t.Context(), row.option); {
		case member && !errors.Is(err, client.ErrBadRequest):
			t.Errorf("Alter neither takes nor refuses %s: %v", field, err)
		case !member && err != nil:
			t.Errorf("Alter refuses %s: %v", field, err)
		case !member && fmt.Sprintf("%+v", describe("plain").Options) == usual:
			t.Errorf("Alter takes %s, and ignores it", field)
		}
	}
}
