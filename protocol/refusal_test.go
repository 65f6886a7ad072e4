package protocol

import (
	"errors"
	"fmt"
	"testing"
)

// TestRefusals: each refusal has a name of its own and the status of an error, and is found in a
// wrapped error.
func TestRefusals(t *testing.T) {
	seen := map[string]bool{}
	for r := range Refusal(refusals) {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("refusal %d has the name %q", uint8(r), r)
		}
		seen[r.String()] = true
		if (r.Status() == StatusOK) != (r == RefusalNone) {
			t.Errorf("%s has the status %s", r, r.Status())
		}
	}
	err := fmt.Errorf("acquire slots: %w", Refuse(RefusalNoSemaphore, "semaphore %s does not exist", "slots"))
	if RefusalOf(err) != RefusalNoSemaphore || !errors.Is(err, StatusNotFound) {
		t.Errorf("%v is %s", err, RefusalOf(err))
	}
	if got := RefusalOf(StatusNotFound); got != RefusalNone {
		t.Errorf("a bare status is %s", got)
	}
	if r := Refusal(200); r.String() != "REFUSAL_200" || r.Status() != StatusInternal {
		t.Errorf("an unknown refusal is %s with %s", r, r.Status())
	}
}
