package client_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// TestFunctionEndsGoroutine: a function that ends its goroutine, as FailNow of a test does, keeps
// neither what is ready, nor later changes, nor other watches from being delivered, nor the client
// from being closed.
func TestFunctionEndsGoroutine(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	writer := session(t, dial(t, node))
	if err := writer.Create(ctx, "name", 1, []byte("0")); err != nil {
		t.Fatal(err)
	}
	n, err := c.Node(ctx, node.Path())
	if err != nil {
		t.Fatal(err)
	}
	const watches = 2
	seen, ends := make([]chan string, watches), make(chan error, watches)
	for i := range watches {
		seen[i] = make(chan string, 100)
		n.WatchFunc(context.WithoutCancel(ctx), "name", func(ev client.Event, err error) {
			switch {
			case err != nil:
				ends <- err
			case ev.Kind == client.EventSynced:
				seen[i] <- "synced"
			default:
				seen[i] <- string(ev.Data)
			}
			runtime.Goexit()
		})
	}
	await := func(want string) {
		t.Helper()
		for i := range seen {
			for got := ""; got != want; {
				select {
				case got = <-seen[i]:
				case <-ctx.Done():
					t.Fatalf("watch %d was not told of %s", i, want)
				}
			}
		}
	}
	await("synced")
	for _, data := range []string{"1", "2"} {
		if _, err := writer.Update(ctx, "name", []byte(data)); err != nil {
			t.Fatal(err)
		}
		await(data)
	}
	c.CloseWithoutRelease()
	if len(ends) != watches {
		t.Fatalf("%d of %d watches had their last call when the client was closed", len(ends), watches)
	}
	for range watches {
		if err := <-ends; !errors.Is(err, client.ErrClientClosed) {
			t.Errorf("the last call says %v", err)
		}
	}
}

// TestCloseWaitsForFunction: a client is closed while a function of a watch runs, which then ends its
// goroutine. The last call comes after that, and before the close returns.
func TestCloseWaitsForFunction(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	c := dial(t, node)
	n, err := c.Node(testContext(t), node.Path())
	if err != nil {
		t.Fatal(err)
	}
	running, proceed := make(chan struct{}), make(chan struct{})
	var calls []string // the calls of a watch do not overlap
	n.WatchFunc(context.Background(), "name", func(_ client.Event, err error) {
		if err != nil {
			calls = append(calls, "end")
			return
		}
		if calls = append(calls, "begin"); len(calls) == 1 {
			close(running)
			<-proceed
			calls = append(calls, "done")
			runtime.Goexit()
		}
	})
	<-running
	closed := make(chan struct{})
	go func() {
		c.CloseWithoutRelease()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("the client is closed, and a function runs")
	default:
	}
	close(proceed)
	<-closed
	if len(calls) < 3 || calls[1] != "done" || calls[len(calls)-1] != "end" {
		t.Errorf("calls: %q", calls)
	}
}
