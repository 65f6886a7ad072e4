package assign

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol/varint"
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
	b = varint.Append(b, uint64(len(t.orders)), uint64(len(t.owner)))
	last := uint64(0)
	for _, o := range t.orders {
		b = varint.Append(b, o-last)
		last = o
	}
	for _, i := range t.owner {
		b = varint.Append(b, uint64(i))
	}
	return b
}

var errTable = errors.New("not a table of partitions; do all members of the process use package assign?")

func readTable(b []byte) (*table, error) {
	r := varint.Reader{Rest: b}
	members, partitions := r.Uint(), r.Uint()
	if r.Failed || members > 1<<16 || partitions > MaxPartitions || members+partitions > uint64(len(r.Rest)) ||
		members == 0 && partitions > 0 {
		return nil, errTable
	}
	t := &table{orders: make([]uint64, members), owner: make([]int, partitions)}
	last := uint64(0)
	for i := range t.orders {
		difference := r.Uint()
		if difference > 1<<62 {
			r.Fail()
		}
		last += difference
		t.orders[i] = last
	}
	for p := range t.owner {
		owner := r.Uint()
		if owner >= members {
			r.Fail()
		}
		t.owner[p] = int(owner)
	}
	if !r.Done() {
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
