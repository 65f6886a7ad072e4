package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// inMemory is an instance that may take so long to stop.
func inMemory(stop time.Duration) Config {
	return Config{
		Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", Admin: Off, Buckets: 16, Memory: true, RTT: 5 * time.Millisecond,
		ShutdownTimeout: stop, Logger: slog.New(slog.DiscardHandler),
	}
}

// TestStopDoesNotWaitForClosing: when closing takes longer than the whole stop may, Shutdown says
// so instead of waiting, each time it is called, and Done is closed later.
func TestStopDoesNotWaitForClosing(t *testing.T) {
	s, err := Start(t.Context(), inMemory(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	s.running.Go(func() { <-hold })
	for range 2 {
		if err := s.Shutdown(context.Background()); !errors.Is(err, ErrClosing) {
			t.Fatalf("with something left to close: %v", err)
		}
	}
	select {
	case <-s.Done():
		t.Fatal("the server is done before it has closed")
	default:
	}
	close(hold)
	<-s.Done()
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestStuckDisk: a write to a disk that fails may never return. Neither the start nor the close of
// a server that has failed waits for it for ever.
func TestStuckDisk(t *testing.T) {
	fails, stuck := errors.New("the disk fails"), make(chan struct{})
	var s *Server
	_, err := boot(t.Context(), inMemory(100*time.Millisecond), func(x *Server, _ context.Context) error {
		s = x
		s.fail(fails)
		<-stuck
		return nil
	})
	if !errors.Is(err, errStuck) || !errors.Is(err, fails) {
		t.Errorf("a start ended with %v", err)
	}
	s.running.Go(func() { <-stuck })
	if err := s.Close(); !errors.Is(err, errStuck) {
		t.Errorf("a close ended with %v", err)
	}
	close(stuck)
	s.running.Wait()
}
