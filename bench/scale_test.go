package bench

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestScale: a cluster of two instances with quotas, everything measured once.
func TestScale(t *testing.T) {
	if _, err := newCPUQuotas(); errors.Is(err, errNoQuotas) {
		t.Skip(err)
	}
	form.SkipUntil(t, form.Full, "two clusters one after the other, with parts of a core")
	c := ScaleConfig{Sizes: []int{1, 2}, Quota: 0.5, Factor: 1, Rounds: 1, Callers: 8, Watchers: 20,
		Length: 400 * time.Millisecond, WarmUp: 50 * time.Millisecond}
	system := &SignalboxSystem{Binary: self(t)}
	r, err := runLong(t.Context(), "scale", c.text(), []System{system}, t.TempDir(), nil,
		func(l *longRun) error { return c.run(t.Context(), system, l) })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Facts {
		if !(f.Value > 0) || math.IsInf(f.Value, 0) {
			t.Errorf("%s: %v", f.Text, f.Value)
		}
	}
	if len(r.Facts) != 9+11 {
		t.Errorf("there are %d facts", len(r.Facts))
	}
}

func TestFindCPUController(t *testing.T) {
	for _, x := range []struct {
		name, mounts, own, parent string
		v2                        bool
	}{
		{"version 1", "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n",
			"3:memory:/other\n1:cpu,cpuacct:/own\n", "/sys/fs/cgroup/cpu,cpuacct/own", false},
		{"version 2", "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n", "0::/user.slice\n", "/sys/fs/cgroup/user.slice", true},
		{"both", "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n",
			"1:cpu:/\n0::/\n", "/sys/fs/cgroup/cpu", false},
	} {
		q, err := findCPUController(x.mounts, x.own)
		if err != nil || q.parent != x.parent || q.v2 != x.v2 {
			t.Errorf("%s: %+v, %v", x.name, q, err)
		}
	}
	if _, err := findCPUController("proc /proc proc rw 0 0\n", ""); !errors.Is(err, errNoQuotas) {
		t.Errorf("no control groups: %v", err)
	}
}
