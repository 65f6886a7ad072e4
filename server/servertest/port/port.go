// Package port finds addresses for servers under test that are stopped and started again.
//
// The kernel picks ports for :0 from the range that also serves outgoing connections, and now and
// then one of those has the port that a server wants back. So this package gives out ports below
// that range, at random, each once in a process. The process also locks a name for each port as
// long as it lives, an abstract Unix socket, so that packages tested at the same time do not meet.
//
// On Linux a port is tried with a socket that is bound and does not listen. A listener that is
// closed is not gone at once: a process that was being started just then has it too, until it runs
// its program.
package port

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
)

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// Free is an address on 127.0.0.1 on which nothing listens. It was not given to this process
// before, nor, where locks work, to another running one: packages are tested side by side. Its port
// is below those that the kernel gives to outgoing connections. One of those could take the port
// while the server is down, and a start would fail now and then.
func Free() (string, error) {
	first, err := Row(1)
	if err != nil { // there is none below
		first, err = probe(0)
	}
	return fmt.Sprintf("127.0.0.1:%d", first), err
}

// Row is the first of n ports in a row, each as Free gives it.
func Row(n int) (first int, err error) {
	mu.Lock()
	defer mu.Unlock()
	lowest, highest := 10_000, firstEphemeral()-n
	if highest <= lowest {
		return 0, fmt.Errorf("there are no %d ports from 10000 to those of outgoing connections", n)
	}
	for range 1000 {
		first := lowest + rand.IntN(highest-lowest)
		free := 0
		for p := first; free < n && take(p); p++ {
			free++
		}
		if free == n {
			return first, nil
		}
	}
	return 0, fmt.Errorf("found no %d free ports in a row", n)
}

// take takes a port that is free. What was taken is not given again, even if nobody gets it.
func take(p int) bool {
	if given[p] || !lock(p) {
		return false
	}
	given[p] = true
	_, err := probe(p)
	return err == nil
}

// ForTest is Free for a test, which fails if there is none.
func ForTest(t interface {
	Helper()
	Fatal(args ...any)
}) string {
	t.Helper()
	address, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// firstEphemeral is the first port of outgoing connections.
func firstEphemeral() int {
	var first, last int
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &first, &last)
	}
	if err != nil {
		return 32_768
	}
	return first
}
