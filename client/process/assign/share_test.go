package assign

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// moved is how many partitions go from a member that holds them to another.
func moved(owner []int, members []member) (n int) {
	for i, m := range members {
		for _, p := range m.holds {
			if p < len(owner) && owner[p] != i {
				n++
			}
		}
	}
	return n
}

// fair reports whether each member has its share, rounded down or up.
func fair(owner []int, members []member) bool {
	total := 0
	for _, m := range members {
		total += int(max(m.weight, 1))
	}
	for i, m := range members {
		has := 0
		for _, o := range owner {
			if o == i {
				has++
			}
		}
		x := len(owner) * int(max(m.weight, 1))
		if has < x/total || has > (x+total-1)/total {
			return false
		}
	}
	return true
}

// fewest is the least number of moves of all fair outcomes, by trying each.
func fewest(n int, members []member) int {
	best := n + 1
	owner := make([]int, n)
	var try func(p int)
	try = func(p int) {
		if p == n {
			if fair(owner, members) {
				best = min(best, moved(owner, members))
			}
			return
		}
		for i := range members {
			owner[p] = i
			try(p + 1)
		}
	}
	try(0)
	return best
}

// TestShareIsMinimal compares with a model that tries every outcome: shares are fair, and nothing
// moves without need.
func TestShareIsMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "partitions")
		members := make([]member, rapid.IntRange(1, 4).Draw(t, "members"))
		for i := range members {
			members[i].weight = rapid.Uint32Range(0, 3).Draw(t, "weight")
		}
		for p := range n + 1 { // one more than there are: it is given up
			if i := rapid.IntRange(-1, len(members)-1).Draw(t, "holder"); i >= 0 {
				members[i].holds = append(members[i].holds, p)
			}
		}
		owner := share(n, members)
		if slices.Contains(owner, unassigned) || !fair(owner, members) {
			t.Fatalf("owners %v of %+v", owner, members)
		}
		got := 0
		for i, m := range members {
			for _, p := range m.holds {
				if p < n && owner[p] != i {
					got++
				}
			}
		}
		if want := fewest(n, members); got != want {
			t.Fatalf("%d partitions of %+v move to %v; %d would do", got, members, owner, want)
		}
	})
}

// TestShareIsSteady: with 10,000 partitions and many members, what is fair stays as it is, and a
// member that goes or comes moves its share alone. Claims of several members to one partition, and
// claims to none, are no matter.
func TestShareIsSteady(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	members := make([]member, 100)
	holds := func(owner []int) {
		for i := range members {
			members[i].holds = nil
		}
		for p, i := range owner {
			members[i].holds = append(members[i].holds, p)
		}
	}
	holds(share(MaxPartitions, members))
	if owner := share(MaxPartitions, members); moved(owner, members) != 0 || !fair(owner, members) {
		t.Fatal("a fair table changes")
	}
	i := rnd.IntN(len(members))
	members = slices.Delete(members, i, i+1)
	owner := share(MaxPartitions, members)
	if moved(owner, members) != 0 || !fair(owner, members) {
		t.Fatalf("%d partitions of those that stay move", moved(owner, members))
	}
	holds(owner)
	members = append(members, member{})
	owner = share(MaxPartitions, members)
	if n := moved(owner, members); n != 100 || !fair(owner, members) {
		t.Fatalf("%d partitions move to a hundredth member", n)
	}
	holds(owner)
	members[3].holds = append(slices.Clone(members[4].holds), members[3].holds...)
	members[5].holds = append([]int{-1, MaxPartitions, 1 << 40}, members[5].holds...)
	if owner := share(MaxPartitions, members); slices.Contains(owner, unassigned) || !fair(owner, members) {
		t.Fatal("claims of two members confuse it")
	}
	if owner := share(3, nil); !slices.Equal(owner, []int{unassigned, unassigned, unassigned}) {
		t.Errorf("without members: %v", owner)
	}
}

// TestTable: a table is read as it was written, the largest fits a round's result, and damaged ones
// are refused.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &table{owner: []int{}}
		order := uint64(0)
		for range rapid.IntRange(1, 20).Draw(t, "members") {
			order += rapid.Uint64Range(1, 1<<40).Draw(t, "order")
			w.orders = append(w.orders, order)
		}
		for range rapid.IntRange(0, 50).Draw(t, "partitions") {
			w.owner = append(w.owner, rapid.IntRange(0, len(w.orders)-1).Draw(t, "owner"))
		}
		b := w.append(nil)
		r, err := readTable(b)
		if err != nil || !slices.Equal(r.orders, w.orders) || !slices.Equal(r.owner, w.owner) {
			t.Fatalf("%+v, %v; want %+v", r, err, w)
		}
		all := 0
		for _, o := range r.orders {
			all += len(r.of(o))
		}
		if all != len(w.owner) || len(r.of(order+1)) > 0 {
			t.Fatalf("%d of %d partitions have a member", all, len(w.owner))
		}
		cut := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		if x, err := readTable(cut); err == nil {
			t.Fatalf("%x is read as %+v", cut, x)
		}
		if x, err := readTable(append(b, 0)); err == nil {
			t.Fatalf("one byte more is read as %+v", x)
		}
	})
	large := &table{owner: make([]int, MaxPartitions)}
	for i := range uint64(1000) {
		large.orders = append(large.orders, i<<21)
	}
	for p := range large.owner {
		large.owner[p] = 999
	}
	if n := len(large.append(nil)); n > 32<<10 {
		t.Errorf("the largest table takes %d bytes", n)
	}
	for _, b := range [][]byte{nil, {0, 1, 0}, {0xff, 0xff, 0xff, 0xff, 0x7f, 1}, {1, 2, 0, 0, 1}, []byte("hello")} {
		if x, err := readTable(b); err == nil {
			t.Errorf("%x is read as %+v", b, x)
		}
	}
}
