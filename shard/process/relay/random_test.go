package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRandomMessages: whatever comes, in whatever order, the invariants hold, the limits hold,
// nothing is delivered outside the round, and equal calls give equal deliveries.
func TestRandomMessages(t *testing.T) {
	for seed := range uint64(100) {
		limits := Limits{Payload: 50, Pair: 3, Entries: 20, Receiver: 200, Bytes: 500}
		var traces [2]string
		for k := range traces {
			rnd := rand.New(rand.NewPCG(seed, 3))
			r := New(limits)
			var out Out
			var members []uint64
			epoch, stage := uint64(0), Closed
			for i := range 500 {
				out.Reset()
				from, to := rnd.Uint64N(6), rnd.Uint64N(6)
				e := epoch + rnd.Uint64N(8)/6
				if epoch > 0 && rnd.IntN(8) == 0 {
					e = epoch - 1
				}
				switch rnd.IntN(12) {
				case 0:
					epoch, stage, members = epoch+rnd.Uint64N(2), Stage(rnd.IntN(5)), nil
					stage = min(stage, Open)
					for range rnd.IntN(6) {
						members = append(members, rnd.Uint64N(6))
					}
					r.Round(epoch, stage, members)
				case 1:
					r.SessionAttached(to, &out)
				case 2, 3, 4, 5:
					_ = r.Reply(Reply{From: from, To: to, Epoch: e, Number: rnd.Uint64N(8), Refused: rnd.IntN(3) == 0,
						Payload: make([]byte, rnd.IntN(60))}, &out)
				default:
					number := rnd.Uint64N(8)
					q := Request{From: from, To: []uint64{to, from}[:1+rnd.IntN(2)], Epoch: e,
						Number: number, Low: number - min(number, rnd.Uint64N(3))}
					q.Payload = make([]byte, rnd.IntN(60))
					_ = r.Request(q, &out)
				}
				if err := r.Check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
				if n, bytes := r.Pending(); n > limits.Entries || bytes > limits.Bytes || stage != Open && n > 0 {
					t.Fatalf("seed %d, step %d: %d requests, %d bytes", seed, i, n, bytes)
				}
				for _, d := range out.Deliveries {
					if d.Epoch != epoch || stage != Open || !slices.Contains(members, d.To) ||
						!slices.Contains(members, d.From) {
						t.Fatalf("seed %d, step %d: %+v in epoch %d, stage %d, among %d",
							seed, i, d, epoch, stage, members)
					}
				}
				traces[k] += fmt.Sprint(out.Deliveries)
			}
			traces[k] += fmt.Sprint(r.Counters())
		}
		if traces[0] != traces[1] {
			t.Fatalf("seed %d: equal calls, other deliveries", seed)
		}
	}
}
