package console

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// maxLogins is how many attempts to log in are under way at a time. Each opens a connection to the
// cluster.
const maxLogins = 16

// errOvertaken is the cause with which an attempt ends that had to make room.
var errOvertaken = errors.New("newer attempts to log in took the place of this one")

// attempts are the attempts to log in that are under way. A cluster answers a token that it knows
// at once, and one that it does not know late. So a new attempt takes the place of one that has
// been under way for long: strangers without a token cannot keep others out.
//
// The attempt that ends is the oldest of the host with the most of them. So strangers end their own
// attempts first, unless they come from as many hosts as there are places.
type attempts struct {
	mu      sync.Mutex
	running []*attempt // the oldest first
}

type attempt struct {
	host string
	end  context.CancelCauseFunc
}

// begin makes room for an attempt of a host. The context ends with errOvertaken if others take its
// place. done ends the attempt.
func (a *attempts) begin(ctx context.Context, host string) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	x := &attempt{host, end}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.running) >= maxLogins {
		i := busiest(a.running)
		a.running[i].end(errOvertaken)
		a.running = slices.Delete(a.running, i, i+1)
	}
	a.running = append(a.running, x)
	return ctx, func() {
		end(nil)
		a.mu.Lock()
		defer a.mu.Unlock()
		if i := slices.Index(a.running, x); i >= 0 {
			a.running = slices.Delete(a.running, i, i+1)
		}
	}
}

// busiest is the index of the oldest attempt of the host with the most, of a list that is not empty
// and has the oldest first.
func busiest(list []*attempt) int {
	count := make(map[string]int)
	for _, x := range list {
		count[x.host]++
	}
	first := 0
	for i, x := range list {
		if count[x.host] > count[list[first].host] {
			first = i
		}
	}
	return first
}
