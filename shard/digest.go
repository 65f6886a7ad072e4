package shard

import (
	"encoding/binary"
	"math/bits"

	"github.com/signalbox-dev/signalbox/shard/container"
)

// Digest is a hash of the whole state: two replicas that applied the same log have the same, a
// restored one included. It walks everything, and may run beside other reads.
func (m *Machine) Digest() uint64 {
	var sum uint64
	var b []byte
	b = appendHeader(b[:0], m, &sum)
	for i := range m.buckets {
		b = appendBucket(b[:0], &m.buckets[i], &sum)
	}
	m.nodeIndex.All(func(n *node) bool {
		b = n.appendRecord(b[:0], &sum)
		return true
	})
	for p := range m.sessions.All() {
		b = p.appendRecord(b[:0], &sum)
	}
	for s := range m.semaphores.all(m.buckets) {
		b = s.appendRecord(b[:0], &sum)
		for e := s.owners.first; e != nil; e = next(e, byOrder) {
			b = e.appendRecord(b[:0], &sum)
		}
		for e := s.waiters.first; e != nil; e = next(e, byOrder) {
			b = e.appendRecord(b[:0], &sum)
		}
	}
	for i := range m.buckets {
		for _, objects := range m.buckets[i].objects {
			for _, x := range objects {
				b = x.appendRecord(b[:0], &sum)
			}
		}
	}
	for i, k := range m.endedCreateIDs.Queue() {
		b = appendEndedCreateID(b[:0], k, uint64(i), &sum)
	}
	for i, k := range m.endedRemotes.Queue() {
		b = appendEndedRemote(b[:0], k, uint64(i), &sum)
	}
	return sum
}

// hash is a 64-bit hash made of multiplications, for state that agrees by accident or not at all;
// it does not withstand an enemy.
func hash(seed uint64, b []byte) uint64 {
	const (
		k1 = 0x9e3779b97f4a7c15
		k2 = 0xd6e8feb86659fd93
		k3 = 0xa0761d6478bd642f
	)
	h := container.Mix(seed + k1 + uint64(len(b))*k2)
	for ; len(b) >= 16; b = b[16:] {
		hi, lo := bits.Mul64(binary.LittleEndian.Uint64(b)^h^k2, binary.LittleEndian.Uint64(b[8:])^k3)
		h = container.Mix(hi^lo) + bits.RotateLeft64(h, 23)
	}
	var tail [16]byte
	copy(tail[:], b)
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(tail[:])^h^k2, binary.LittleEndian.Uint64(tail[8:])^k3)
	return container.Mix(hi ^ lo ^ bits.RotateLeft64(h, 41))
}
