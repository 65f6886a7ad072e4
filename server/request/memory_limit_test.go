package request

import "testing"

// TestMemoryMarks: what lives decides, with a gap between the marks; without a bound nothing is
// looked at.
func TestMemoryMarks(t *testing.T) {
	m := NewMemoryLimit(1 << 30)
	for _, step := range []struct {
		share   int64 // hundredths
		crowded bool
	}{{10, false}, {59, false}, {60, true}, {58, true}, {55, true}, {54, false}, {59, false}, {100, true}} {
		m.Update((1 << 30) / 100 * step.share)
		if full := m.Rejection(); (full != nil) != step.crowded {
			t.Fatalf("at %d %%: %v", step.share, full)
		}
	}
	m.Measure()
	if m.Live() == 0 || m.Live() >= 1<<29 {
		t.Errorf("this test lives on %d bytes", m.Live())
	}
	free := NewMemoryLimit(0)
	if free.Measure(); free.Live() != 0 || free.Rejection() != nil {
		t.Error("it looks although there is no bound")
	}
}
