package shard

import (
	"cmp"
	"math"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// answer is what a request got, remembered until the client says, by its low-water mark, that it
// has it.
type answer struct {
	seq     uint64
	value   uint64 // order id or version
	bucket  uint32
	kind    CommandKind
	outcome outcome
	state   protocol.AcquireState
	flag    bool // released
}

func appendAnswer(b []byte, a *answer) []byte {
	b = varint.Append(b, a.seq, a.value, uint64(a.bucket))
	b = append(b, byte(a.kind), byte(a.outcome), byte(a.state))
	return append(varint.AppendBool(b, a.flag), 0) // the last byte is reserved
}

// readAnswer decodes an answer that follows the one with number after.
func readAnswer(r *varint.Reader, after uint64) (a answer, ok bool) {
	a.seq, a.value = r.Uint(), r.Uint()
	bucket := r.Uint()
	a.bucket, a.kind, a.outcome, a.state, a.flag =
		uint32(bucket), CommandKind(r.Byte()), outcome(r.Byte()), protocol.AcquireState(r.Byte()), r.Bool()
	reserved := r.Byte()
	return a, a.outcome.known() && reserved == 0 && a.seq > after && bucket <= math.MaxUint32 && !r.Failed
}

// answers are those of one session record, in order of number.
//
// An acquire that left an entry is not among them: the entry carries its number while it is there,
// and leaves an answer behind only if the number is not below the low-water mark then.
type answers struct {
	list []answer
	head int // list[head:] are the answers
}

func (a *answers) len() int { return len(a.list) - a.head }

// forget drops the answers to numbers below low.
func (a *answers) forget(low uint64) {
	for a.head < len(a.list) && a.list[a.head].seq < low {
		a.head++
	}
	if a.head == len(a.list) {
		a.list, a.head = a.list[:0], 0
		if cap(a.list) > 64 {
			a.list = nil
		}
	}
}

func (a *answers) find(seq uint64) *answer {
	live := a.list[a.head:]
	if len(live) == 0 || live[len(live)-1].seq < seq {
		return nil
	}
	i, ok := slices.BinarySearchFunc(live, seq, func(x answer, seq uint64) int { return cmp.Compare(x.seq, seq) })
	if !ok {
		return nil
	}
	return &live[i]
}

// add remembers an answer; one with the same number is replaced.
func (a *answers) add(x answer) {
	if len(a.list) == cap(a.list) && a.head > 0 {
		n := copy(a.list, a.list[a.head:])
		a.list, a.head = a.list[:n], 0
	}
	i := len(a.list)
	for i > a.head && a.list[i-1].seq > x.seq {
		i--
	}
	if i > a.head && a.list[i-1].seq == x.seq {
		a.list[i-1] = x
		return
	}
	a.list = slices.Insert(a.list, i, x)
}

// merge adds answers in order of number. One that is there already stays.
func (a *answers) merge(more []answer) {
	if len(more) == 0 {
		return
	}
	live := a.list[a.head:]
	all := make([]answer, 0, len(live)+len(more))
	for len(live) > 0 && len(more) > 0 {
		switch {
		case live[0].seq < more[0].seq:
			all, live = append(all, live[0]), live[1:]
		case live[0].seq > more[0].seq:
			all, more = append(all, more[0]), more[1:]
		default:
			more = more[1:]
		}
	}
	a.list, a.head = append(append(all, live...), more...), 0
}
