package gateway

import (
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestNextEpoch: a later attach has a higher epoch and higher request numbers, by any order
// of seq_nos that do not fall, with attaches of the holders' own in between.
func TestNextEpoch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		epoch, number, seq := uint64(1), uint64(1), uint64(0)
		for range 200 {
			used := epoch + random.Uint64N(1<<holderShift) // the holder's own attaches
			if random.IntN(3) == 0 {
				seq = min(seq+random.Uint64N(1000), maxSeqNo)
			}
			if last := used >> seqNoShift; seq < last {
				seq = last
			}
			next, first, err := nextEpoch(used, seq)
			if err != nil || next <= used || next>>seqNoShift != seq || first <= number {
				t.Fatalf("after epoch %#x and number %d comes %#x with %d for seq_no %d, %v", used, number, next, first, seq, err)
			}
			epoch, number = next, first+random.Uint64N(1<<30)
			if _, _, err := nextEpoch(epoch, seq-1); seq > 0 && protocol.StatusOf(err) != protocol.StatusBadSession {
				t.Fatalf("seq_no %d attaches after %d: %v", seq-1, seq, err)
			}
		}
	}
	if next, _, err := nextEpoch(maxSeqNo<<seqNoShift, maxSeqNo); err != nil || next <= maxSeqNo<<seqNoShift {
		t.Fatal(next, err)
	}
}

// TestLastHolder: a session has its holders one after the other, and then it is refused, under a
// higher seq_no too: request numbers never begin again.
func TestLastHolder(t *testing.T) {
	epoch, number := uint64(1), uint64(1)
	for i := range maxHolders {
		next, first, err := nextEpoch(epoch, 7)
		if err != nil || next <= epoch || next>>seqNoShift != 7 || first <= number {
			t.Fatalf("holder %d after epoch %#x and number %d: %#x, %d, %v", i+1, epoch, number, next, first, err)
		}
		epoch, number = next, first
	}
	for _, last := range []uint64{epoch, epoch + 1<<holderShift, 8<<seqNoShift - 1} { // with attaches of its own
		for _, seq := range []uint64{7, 8, maxSeqNo} {
			if next, first, err := nextEpoch(last, seq); protocol.StatusOf(err) != protocol.StatusBadSession {
				t.Fatalf("after epoch %#x comes %#x with %d for seq_no %d", last, next, first, seq)
			}
		}
	}
}

func TestSessionKey(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range [][]byte{nil, {0}, {0, 0}, []byte("a"), make([]byte, 16)} {
		key, err := sessionKey(k)
		if err != nil || seen[string(key[:])] {
			t.Errorf("key %x: %v", k, err)
		}
		seen[string(key[:])] = true
	}
	if _, err := sessionKey(make([]byte, 17)); protocol.StatusOf(err) != protocol.StatusBadRequest {
		t.Error(err)
	}
}
