package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// hold is a program of the SDK that holds the lock backup for 10 s at most, with a session that
// lives for longer, and appends its process id and then the time to a file as long as it believes
// in the lock.
func hold() {
	f, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	s, err := client.OpenSession(ctx, client.Config{Endpoints: []string{os.Getenv("SIGNALBOX_ENDPOINTS")}}, "/default",
		client.Timeout(10*time.Minute))
	if err != nil {
		panic(err)
	}
	l, err := s.Acquire(ctx, "backup", client.Exclusive(), client.MaxHold(10*time.Second))
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(f, os.Getpid())
	for {
		at := now() // before it looks: it may be stopped in between
		if !l.Held() {
			return
		}
		_, _ = fmt.Fprintln(f, int64(at))
		time.Sleep(2 * time.Millisecond)
	}
}
