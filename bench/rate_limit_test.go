package bench

import (
	"os"
	"testing"
	"time"
)

// TestRateLimit: a short run has all figures.
func TestRateLimit(t *testing.T) {
	if os.Getenv("SIGNALBOX_LONG") == "" {
		t.Skip("it takes 10 s: make long runs it")
	}
	c := RateLimitConfig{Rounds: 1, Length: 100 * time.Millisecond, Steps: 1, Participants: 20, Connections: 2, Watch: 100 * time.Millisecond, Callers: 8}
	r, err := runLong(t.Context(), "ratelimit", c, &SignalboxSystem{Binary: self(t)}, t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Facts {
		if f.Unit != Bytes && !(f.Value > 0) {
			t.Errorf("%s: %v", f.Text, f.Value)
		}
	}
	if len(r.Facts) != 2*3+4*2+3*2+4+3 {
		t.Errorf("there are %d facts", len(r.Facts))
	}
}
