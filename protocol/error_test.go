package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorIsItsStatus(t *testing.T) {
	err := fmt.Errorf("acquire slots: %w", Errorf(StatusNotFound, "semaphore %s does not exist; create it first", "slots"))
	if !errors.Is(err, StatusNotFound) || errors.Is(err, StatusAborted) {
		t.Error("errors.Is does not find the status")
	}
	if StatusOf(err) != StatusNotFound {
		t.Errorf("status is %v", StatusOf(err))
	}
	var e *Error
	if !errors.As(err, &e) || e.Message != "semaphore slots does not exist; create it first" {
		t.Errorf("error is %+v", e)
	}
	if got, want := err.Error(), "acquire slots: not found: semaphore slots does not exist; create it first"; got != want {
		t.Errorf("text is %q, want %q", got, want)
	}
	if got := (&Error{Status: StatusUnavailable}).Error(); got != "unavailable" {
		t.Errorf("text without a message is %q", got)
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Status
	}{
		{nil, StatusOK},
		{StatusAborted, StatusAborted},
		{context.Canceled, StatusInternal},
		{errors.Join(context.Canceled, Errorf(StatusOverloaded, "")), StatusOverloaded},
	} {
		if got := StatusOf(c.err); got != c.want {
			t.Errorf("status of %v is %v, want %v", c.err, got, c.want)
		}
	}
}

// TestRetryable: exactly the outcomes after which nothing was applied and the same request may be
// sent again as it is.
func TestRetryable(t *testing.T) {
	for s := range StatusInternal + 1 {
		want := s == StatusOverloaded || s == StatusUnavailable || s == StatusWrongShard
		if s.Retryable() != want || Retryable(Errorf(s, "x")) != want || Retryable(fmt.Errorf("wrapped: %w", s)) != want {
			t.Errorf("%v: retryable is not %v", s, want)
		}
	}
	if Retryable(nil) || Retryable(context.DeadlineExceeded) {
		t.Error("an error without a status is not retryable")
	}
}

func TestStatusNames(t *testing.T) {
	seen := map[string]bool{}
	for s := range StatusInternal + 1 {
		if s.String() == "" || seen[s.String()] || s.String() != strings.ToUpper(s.String()) {
			t.Errorf("status %d has the name %q", uint8(s), s.String())
		}
		if s.Error() == "" || s.Error() != strings.ToLower(s.Error()) {
			t.Errorf("status %d has the words %q", uint8(s), s.Error())
		}
		seen[s.String()] = true
	}
	if got := Status(200).String() + " " + Status(200).Error(); got != "STATUS_200 status 200" {
		t.Errorf("an unknown status is %q", got)
	}
}
