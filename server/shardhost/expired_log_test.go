package shardhost

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// lineWriter passes on what a handler writes, a line each time.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// TestExpiredLog: sessions that expire within a second are a line for each node. The rest is
// written when the instance stops.
func TestExpiredLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 10)
		l := newExpiredLog()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.run(ctx, slog.New(slog.NewTextHandler(lineWriter(lines), nil)), func(node uint64) string { return fmt.Sprint("/", node) })
		}()
		wants := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(lines) > 0 {
				_, line, _ := strings.Cut(<-lines, "level=INFO ")
				got = append(got, line)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the log is %q, want %q", got, want)
			}
		}
		for i := range uint64(1000) {
			l.add(2, 10+i, &protocol.Ending{Link: protocol.LinkClosed, Silent: 10_000 + i, Steady: true})
		}
		l.add(1, 7, &protocol.Ending{Link: protocol.LinkSilent, Silent: 12_100, Stood: 1_500})
		wants()
		time.Sleep(time.Second)
		wants("msg=\"sessions expired\" node=/1 count=1 first=7 connection=silent silent_ms=12100 stood_still_ms=1500 same_leader=false\n",
			"msg=\"sessions expired\" node=/2 count=1000 first=10 connection=closed silent_ms=10000 stood_still_ms=0 same_leader=true\n")
		time.Sleep(time.Minute)
		wants()
		l.add(2, 3, &protocol.Ending{Link: protocol.LinkLeader})
		synctest.Wait()
		cancel()
		<-done
		wants("msg=\"sessions expired\" node=/2 count=1 first=3 connection=leader silent_ms=0 stood_still_ms=0 same_leader=false\n")
	})
}
