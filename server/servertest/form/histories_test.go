package form

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// record is a test that notes what it would print.
type record struct {
	testing.TB
	failed bool
	text   string
}

func (r *record) Name() string               { return "TestX/of 3" }
func (r *record) Failed() bool               { return r.failed }
func (r *record) Logf(f string, args ...any) { r.text += fmt.Sprintf(f, args...) }

func TestHistories(t *testing.T) {
	for _, c := range []struct {
		h    Histories
		want []uint64
		own  bool
	}{
		{Histories{}, []uint64{1, 2, 3}, true},
		{Histories{seed: 7, more: time.Hour}, []uint64{7}, false},
		{Histories{seed: 7, count: 2}, []uint64{7, 8}, false},
		{Histories{count: 1}, []uint64{1}, false},
	} {
		if got := slices.Collect(c.h.Of(t, 3)); !slices.Equal(got, c.want) || c.h.Own() != c.own {
			t.Errorf("%+v plays %v, its own %v", c.h, got, c.h.Own())
		}
	}
	r, h := new(record), Histories{more: time.Hour}
	for seed := range h.Of(r, 3) {
		r.failed = seed == 9
	}
	if want := "history 9 failed; again: go test github.com/signalbox-dev/signalbox/server/servertest/form " +
		"-run '^TestX$/^of 3$' -seed 9"; !strings.HasPrefix(r.text, want) {
		t.Errorf("printed %q", r.text)
	}
}
