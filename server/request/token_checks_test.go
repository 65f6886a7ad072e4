package request

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestTokenChecksByHost: the checks of one host run one after the other, in order, and those of
// another host do not wait for them.
func TestTokenChecksByHost(t *testing.T) {
	var c tokenChecks
	var all sync.WaitGroup
	blocked, other := make(chan struct{}), make(chan struct{})
	c.run(all.Go, "a", func() { <-blocked })
	var order []int
	for i := range 3 {
		c.run(all.Go, "a", func() { order = append(order, i) })
	}
	c.run(all.Go, "b", func() { close(other) })
	<-other
	close(blocked)
	all.Wait()
	if !slices.Equal(order, []int{0, 1, 2}) {
		t.Errorf("the checks of a host ran in the order %v", order)
	}
	if len(c.waiting) > 0 {
		t.Errorf("hosts are left: %v", c.waiting)
	}
}

// TestKeysAreFetchedOnce: those that ask for the same trusts wait for one fetch. Others do not.
func TestKeysAreFetchedOnce(t *testing.T) {
	var c tokenChecks
	var all sync.WaitGroup
	var fetches, ended atomic.Int32
	begun, end := make(chan struct{}), make(chan struct{})
	fetch := func(f func()) {
		all.Go(func() {
			c.fetch([]string{"ci", "prod"}, func() { fetches.Add(1); f() })
			ended.Add(1)
		})
	}
	fetch(func() { close(begun); <-end })
	<-begun
	for range 20 {
		fetch(func() {})
	}
	c.fetch([]string{"ci"}, func() {}) // another list
	if ended.Load() != 0 {
		t.Error("somebody does not wait for the fetch under way")
	}
	close(end)
	await.True(t, "all to end", func() bool { return ended.Load() == 21 })
	all.Wait()
	c.fetch([]string{"ci", "prod"}, func() { fetches.Add(100) })
	if n := fetches.Load(); n < 101 || n > 121 {
		t.Error(fmt.Sprint("fetches: ", n))
	}
	if len(c.fetching) > 0 {
		t.Errorf("fetches are left: %v", c.fetching)
	}
}
