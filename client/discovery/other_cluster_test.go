package discovery_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestRestoredCluster: a program that kept running while its cluster was restored from a backup finds
// another cluster at the old address. It keeps its list, and calls, Err and the log say that it must be
// restarted.
func TestRestoredCluster(t *testing.T) {
	t.Parallel()
	old, restored := servertest.Start(t, servertest.RealTime()), servertest.Start(t, servertest.RealTime())
	var at atomic.Pointer[string]
	address := old.Addr()
	at.Store(&address)
	log := new(await.Log)
	c, err := client.Open(t.Context(), client.Config{
		Endpoints: []string{"cluster.example:7170"},
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", *at.Load())
		},
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	must(t, err)
	defer c.CloseWithoutRelease()
	register(t, old, discovery.Endpoint{Addr: "10.0.0.1:80"})
	e := watch(t, c, "/default")
	until(t, e, func(v *discovery.View) bool { return v.Live && len(v.All) == 1 })

	address2 := restored.Addr()
	at.Store(&address2)
	old.Kill()
	says := func(err error) bool {
		return errors.Is(err, client.ErrOtherCluster) && strings.Contains(err.Error(), "restart the program")
	}
	var callErr error
	await.True(t, "the reason of calls", func() bool {
		_, callErr = c.Session(t.Context(), "/default")
		return says(callErr)
	})
	t.Log(callErr)
	await.True(t, "the reason of the list", func() bool { return says(e.Err()) })
	if v := e.View(); v.Live || used(v) != "10.0.0.1:80" {
		t.Errorf("the list is %s, live %v", used(v), v.Live)
	}
	if !strings.Contains(log.String(), "restart the program") {
		t.Error("the log does not say it")
	}
}
