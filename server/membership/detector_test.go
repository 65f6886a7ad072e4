package membership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDetectorSilence: a detector that takes no step is noticed, and one that does is not.
func TestDetectorSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := &Member{detector: new(detectorDriver)}
		go m.detector.feel(ctx)
		for range 20 { // as run does
			time.Sleep(time.Second + time.Millisecond)
			if d := m.DetectorSilence(); d != 0 {
				t.Errorf("silent for %v, with a step in each second", d)
			}
			m.detector.missed.Store(0)
		}
		time.Sleep(time.Minute)
		if d := m.DetectorSilence(); d < 58*time.Second || d > time.Minute {
			t.Errorf("silent for %v, without a step for a minute", d)
		}
	})
}
