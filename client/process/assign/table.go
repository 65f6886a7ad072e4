package assign

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxPartitions is the maximum number of partitions: the table of owners is the result of a round,
// which has a bounded length.
const MaxPartitions = 10_000

// table says who is to have which partition. It is what a coordinator proposes, and leaves as the
// round's result, for members that come back to it.
type table struct {
	orders []uint64 // of joining, rising: they outlive the session of a member with a key
	owner  []int    // by partition: index in orders
}

// append adds the table's bytes: numbers of members and partitions, then the orders as differences,
// then the owners.
func (t *table) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(t.orders)))
	b = binary.AppendUvarint(b, uint64(len(t.owner)))
	last := uint64(0)
	for _, o := range t.orders {
		b = binary.AppendUvarint(b, o-last)
		last = o
	}
	for _, i := range t.owner {
		b = binary.AppendUvarint(b, uint64(i))
	}
	return b
}

var errTable = errors.New("not a table of partitions; do all members of the process use package assign?")

func readTable(b []byte) (*table, error) {
	bad := false
	next := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	members, partitions := next(1<<16), next(MaxPartitions)
	if bad || members+partitions > uint64(len(b)) || members == 0 && partitions > 0 {
		return nil, errTable
	}
	t := &table{orders: make([]uint64, members), owner: make([]int, partitions)}
	last := uint64(0)
	for i := range t.orders {
		last += next(1 << 62)
		t.orders[i] = last
	}
	for p := range t.owner {
		t.owner[p] = int(next(members - 1))
	}
	if bad || len(b) > 0 {
		return nil, fmt.Errorf("%w (it is damaged)", errTable)
	}
	return t, nil
}

// of lists the partitions of the member with this order, rising.
func (t *table) of(order uint64) []int {
	var list []int
	for p, i := range t.owner {
		if t.orders[i] == order {
			list = append(list, p)
		}
	}
	return list
}
