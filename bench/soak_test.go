package bench

import (
	"os"
	"testing"
	"time"
)

// TestSoak: four short windows, in which all happens that happens in hours.
func TestSoak(t *testing.T) {
	if os.Getenv("SIGNALBOX_LONG") == "" {
		t.Skip("it takes 20 s: make long runs it")
	}
	c := SoakConfig{Length: 16 * time.Second, Window: 4 * time.Second, Rate: 200, Callers: 8, Members: 20, Churn: 600}
	r, err := runLong(t.Context(), "soak", c, &SignalboxSystem{Binary: self(t)}, t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"instances killed": 4, "changes of the number of shards": 4}
	for _, f := range r.Facts {
		if n, ok := want[f.Text]; ok && f.Value != n {
			t.Errorf("%s: %v, expected %v", f.Text, f.Value, n)
		}
		if f.Text != "of them errors" && !(f.Value > 0) {
			t.Errorf("%s: %v", f.Text, f.Value)
		}
	}
	if len(r.Facts) != 5*3+6 {
		t.Errorf("there are %d facts", len(r.Facts))
	}
}
