package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// sizeOf returns the size of a long test: in form long a small one, in form soak the one that the
// figures of bench/LIMITS.md are of. Figures go to the test's log; at full size nothing else may use
// the machine.
func sizeOf[T any](t *testing.T, small, full T) T {
	t.Helper()
	form.SkipUntil(t, form.Long, "a measurement, small; soak has its full size")
	if form.Is(form.Soak) {
		return full
	}
	return small
}

// loadResult is what `signalbox load` found out.
type loadResult struct {
	Operations uint64
	Rate       float64
	Errors     map[string]uint64
	Series     []struct {
		Name string
		P99  float64 `json:"p99_us"`
		Max  float64 `json:"max_us"`
	}
}

func (r *loadResult) String() string {
	s := r.Series[0]
	return fmt.Sprintf("%d operations, %.0f/s, %s p99 %.1f ms, longest %.1f ms, errors %v", r.Operations, r.Rate, s.Name, s.P99/1e3,
		s.Max/1e3, r.Errors)
}

// measureLoad runs `signalbox load` on instances.
func measureLoad(bin string, endpoints []string, args ...string) (*loadResult, error) {
	args = append(append([]string{"load"}, args...), "--endpoints", strings.Join(endpoints, ","), "--patience", waitLimit.String(), "-o", "json")
	var stderr strings.Builder
	cmd := inNetns("", bin, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	r := &loadResult{}
	if err := errors.Join(err, json.Unmarshal(out, r)); err != nil || len(r.Series) == 0 {
		return nil, fmt.Errorf("%v: %w: %s", args, err, &stderr)
	}
	return r, nil
}

// metric returns a metric of an instance, added up over its labels; 0: the instance does not
// answer.
func (in *instance) metric(name string) (sum float64) {
	r, err := http.Get("http://" + in.admin + "/metrics")
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		i := strings.LastIndexByte(line, ' ')
		if rest, ok := strings.CutPrefix(line, name); i > 0 && ok && (rest[0] == ' ' || rest[0] == '{') {
			v, _ := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
			sum += v
		}
	}
	return sum
}

// awaitAnswer waits until the instance is ready to serve, and returns how long that took.
func (in *instance) awaitAnswer() time.Duration {
	in.t.Helper()
	began := now()
	await.True(in.t, in.listen+" to be ready", func() bool { ok, _ := in.ready(); return ok })
	return now() - began
}

// openClients opens clients that end with the test.
func openClients(t *testing.T, n int, endpoints ...string) (list []*client.Client) {
	t.Helper()
	for range n {
		c, err := client.Open(t.Context(), client.Config{Endpoints: endpoints})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		list = append(list, c)
	}
	return list
}

// inParallel calls f for 0 to n-1, for 256 at a time.
func inParallel(t *testing.T, n int, f func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var all sync.WaitGroup
	const callers = 256
	for k := range callers {
		all.Go(func() {
			for i := k; i < n && ctx.Err() == nil; i += callers {
				if err := f(ctx, i); err != nil {
					cancel(fmt.Errorf("%d of %d: %w", i+1, n, err))
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
}
