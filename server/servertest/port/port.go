// Package port finds addresses for servers under test that are stopped and started again.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
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
	mu.Lock()
	defer mu.Unlock()
	lowest, highest := 10_000, firstEphemeral()-1
	for range 1000 {
		if highest <= lowest {
			break
		}
		p := lowest + rand.IntN(highest-lowest)
		if given[p] || !lock(p) {
			continue
		}
		address, err := listenOnce(fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			continue
		}
		given[p] = true
		return address, nil
	}
	return listenOnce("127.0.0.1:0") // among the others, if there is none below
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

// listenOnce shows that an address is free. Meanwhile this process starts no other: until that runs
// its program, it would have the listener too, and nobody could listen there.
func listenOnce(address string) (string, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
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
