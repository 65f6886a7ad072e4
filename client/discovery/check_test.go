package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// TestChecksRepeat: checks come in intervals, with jitter, the first after a part of one.
func TestChecksRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		began, last, count := time.Now(), time.Time{}, 0
		different := map[time.Duration]bool{}
		c := &checker{interval: 10 * time.Second, timeout: time.Second, check: func(ctx context.Context) error {
			sleep(ctx, 500*time.Millisecond) // is a part of the interval
			return nil
		}}
		c.repeat(ctx, func(err error) {
			since := time.Since(last)
			switch count++; {
			case err != nil:
				t.Error(err)
			case count == 1 && time.Since(began) > 10*time.Second+500*time.Millisecond:
				t.Errorf("the first comes after %s", time.Since(began))
			case count > 1 && (since < 9*time.Second || since > 11*time.Second):
				t.Errorf("%s between two", since)
			}
			last, different[since] = time.Now(), true
		})
		if count < 330 || len(different) < 100 {
			t.Errorf("%d checks in an hour, %d distances", count, len(different))
		}
	})
}

// TestChecksFail: a panic, a timeout and a check that never returns are failures, and none runs
// beside another one.
func TestChecksFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		once := func(f Check) Check {
			return func(ctx context.Context) error {
				if running.Add(1) > 1 {
					t.Error("two at once")
				}
				defer running.Add(-1)
				return f(ctx)
			}
		}
		obeys := &checker{timeout: time.Second, check: once(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})}
		if err := obeys.run(t.Context()); err == nil || err.Error() != "the check took longer than 1s" {
			t.Error(err)
		}
		synctest.Wait()
		panics := &checker{timeout: time.Second, check: once(func(context.Context) error { panic("no disk") })}
		if err := panics.run(t.Context()); err == nil || err.Error() != "the check panics: no disk" {
			t.Error(err)
		}
		synctest.Wait()
		leaves := &checker{timeout: time.Second, check: once(func(context.Context) error { runtime.Goexit(); return nil })}
		if err := leaves.run(t.Context()); !errors.Is(err, errNoResult) {
			t.Error(err)
		}
		synctest.Wait()
		release := make(chan struct{})
		hangs := &checker{timeout: time.Second, check: once(func(context.Context) error { <-release; return nil })}
		if err := hangs.run(t.Context()); err == nil || err.Error() != "the check took longer than 1s" {
			t.Error(err)
		}
		for range 3 {
			if err := hangs.run(t.Context()); !errors.Is(err, errStillRunning) {
				t.Error(err)
			}
		}
		close(release)
		if err := hangs.run(t.Context()); !errors.Is(err, errStillRunning) { // too late
			t.Error(err)
		}
		synctest.Wait()
		if err := hangs.run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCheckHTTP: 2xx alone is well.
func TestCheckHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/200", http.StatusFound)
			return
		}
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
	}))
	for path, want := range map[string]string{"200": "", "204": "", "404": "404 Not Found", "503": "503 Service Unavailable", "moved": "302 Found"} {
		err := CheckHTTP(srv.URL + "/" + path)(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := CheckTCP(srv.Listener.Addr().String())(t.Context()); err != nil {
		t.Error(err)
	}
	srv.Close()
	closed := port.ForTest(t)
	if CheckHTTP("http://"+closed)(t.Context()) == nil || CheckTCP(closed)(t.Context()) == nil {
		t.Error("a check where nobody listens succeeds")
	}
	if CheckHTTP("http://a b/")(t.Context()) == nil {
		t.Error("no URL")
	}
}
