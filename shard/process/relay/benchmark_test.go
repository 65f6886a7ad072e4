package relay

import "testing"

// fullRelay is a relay with as many requests as it keeps: from member 1 to each other member as
// many as one pair may have, or from each of them to member 1.
func fullRelay(b *testing.B, toOne bool) (r *Relay, out *Out, members []uint64) {
	b.Helper()
	r, out = New(Limits{}), new(Out)
	for i := range uint64(r.limits.Entries/r.limits.Pair) + 1 {
		members = append(members, i+1)
	}
	r.Round(1, Open, members)
	for n := range uint64(r.limits.Pair) {
		for _, m := range members[1:] {
			q := Request{From: 1, To: []uint64{m}, Epoch: 1, Number: n + 1, Low: 1}
			if toOne {
				q.From, q.To = m, []uint64{1}
			}
			if err := r.Request(q, out); err != nil {
				b.Fatal(err)
			}
			out.Reset()
		}
	}
	return r, out, members
}

// BenchmarkFull measures what concerns all 65,536 messages that a relay keeps.
func BenchmarkFull(b *testing.B) {
	b.Run("sent by one", func(b *testing.B) {
		for b.Loop() {
			fullRelay(b, false)
		}
	})
	for _, c := range []struct {
		name  string
		toOne bool
		run   func(r *Relay, out *Out, members []uint64) error
	}{
		{"receiver leaves", true, func(r *Relay, _ *Out, members []uint64) error {
			r.Round(1, Open, members[1:])
			return nil
		}},
		{"sender leaves", false, func(r *Relay, _ *Out, members []uint64) error {
			r.Round(1, Open, members[1:])
			return nil
		}},
		{"sender gives up", false, func(r *Relay, out *Out, members []uint64) error {
			low := uint64(r.limits.Pair) + 1
			return r.Request(Request{From: 1, To: members[1:2], Epoch: 1, Number: low, Low: low}, out)
		}},
		{"receiver replies", true, func(r *Relay, out *Out, members []uint64) error {
			for n := range uint64(r.limits.Pair) {
				for _, m := range members[1:] {
					if err := r.Reply(Reply{From: 1, To: m, Epoch: 1, Number: n + 1}, out); err != nil {
						return err
					}
					out.Reset()
				}
			}
			return nil
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r, out, members := fullRelay(b, c.toOne)
				b.StartTimer()
				if err := c.run(r, out, members); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
