package discovery

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// BenchmarkPick is the choice of a member for a request over HTTP, and its end.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x := newSharedCopy(nil, copyKey{})
			now := time.Now()
			x.list.event(now, membersEvent(n))
			x.list.event(now, &client.Event{Kind: client.EventSynced})
			s := &httpService{t: &Transport{}, endpoints: &Endpoints{copy: x}, balance: newBalance(), backends: map[string]*backend{}}
			b.ReportAllocs()
			for b.Loop() {
				s.done(s.pick(nil))
			}
		})
	}
}
