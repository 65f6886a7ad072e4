package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// network is hosts that reach each other over a router, each a network namespace. Packets from one
// to another can be dropped, in one direction or both.
type network struct {
	t      *testing.T
	router string
	hosts  []string
	rules  map[[2]int]bool // what is cut
	lossy  []int           // hosts whose packets get lost
}

// networks counts the networks: each has names of its own.
var networks atomic.Uint64

// newNetwork needs root, and a kernel that has namespaces; without them the test is skipped.
func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	n, err := makeNetwork(t, hosts)
	if err != nil {
		t.Skip(err)
	}
	return n
}

// makeNetwork is newNetwork, but returns why it is impossible.
func makeNetwork(t *testing.T, hosts int) (*network, error) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	n := &network{t: t, router: fmt.Sprintf("signalbox-%d-%d", os.Getpid(), networks.Add(1)), rules: map[[2]int]bool{}}
	t.Cleanup(func() {
		for _, space := range append(n.hosts, n.router) {
			_ = exec.Command("ip", "netns", "delete", space).Run()
		}
	})
	if out, err := exec.Command("ip", "netns", "add", n.router).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("network namespaces cannot be made here: %w: %s", err, out)
	}
	if out, err := inNetns(n.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("a namespace does not forward here: %w: %s", err, out)
	}
	n.ip("-n", n.router, "link", "set", "lo", "up")
	for range hosts {
		n.addHost()
	}
	return n, nil
}

// addHost adds a host, and returns its number.
func (n *network) addHost() int {
	n.t.Helper()
	k := len(n.hosts)
	space, port := fmt.Sprintf("%s-%d", n.router, k), fmt.Sprintf("h%d", k)
	n.hosts = append(n.hosts, space)
	n.ip("netns", "add", space)
	n.ip("link", "add", port, "netns", n.router, "type", "veth", "peer", "name", "e0", "netns", space)
	n.ip("-n", n.router, "address", "add", n.gateway(k)+"/24", "dev", port)
	n.ip("-n", n.router, "link", "set", port, "up")
	n.ip("-n", space, "link", "set", "lo", "up")
	n.ip("-n", space, "address", "add", n.address(k)+"/24", "dev", "e0")
	n.ip("-n", space, "link", "set", "e0", "up")
	n.ip("-n", space, "route", "add", "default", "via", n.gateway(k))
	return k
}

func (n *network) address(host int) string { return fmt.Sprintf("10.88.%d.2", host) }
func (n *network) gateway(host int) string { return fmt.Sprintf("10.88.%d.1", host) }

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cut silently drops what goes from one host to another.
func (n *network) cut(from, to int) {
	n.t.Helper()
	n.ip("-n", n.router, "rule", "add", "from", n.address(from), "to", n.address(to), "blackhole")
	n.rules[[2]int{from, to}] = true
}

func (n *network) heal(from, to int) {
	n.t.Helper()
	n.ip("-n", n.router, "rule", "delete", "from", n.address(from), "to", n.address(to), "blackhole")
	delete(n.rules, [2]int{from, to})
}

// part cuts hosts off from each other, both ways.
func (n *network) part(one int, others ...int) {
	n.t.Helper()
	for _, other := range others {
		n.cut(one, other)
		n.cut(other, one)
	}
}

// lose drops this share of the packets to a host and from it, at random. False: this kernel cannot.
func (n *network) lose(host int, share float64) bool {
	n.t.Helper()
	port := fmt.Sprintf("h%d", host)
	// A filter that draws a number of 32 bits, and drops packets above the threshold.
	program := fmt.Sprintf("4,32 0 0 4294963256,37 0 1 %d,6 0 0 2,6 0 0 0", uint32((1-share)*(1<<32-1)))
	_ = exec.Command("tc", "-n", n.router, "qdisc", "add", "dev", port, "clsact").Run() // exists if packets were dropped before
	for _, way := range []string{"ingress", "egress"} {
		if out, err := exec.Command("tc", "-n", n.router, "filter", "add", "dev", port, way, "bpf", "bytecode",
			program, "da").CombinedOutput(); err != nil {
			n.t.Logf("packets cannot be lost here: %v: %s", err, out)
			n.healAll()
			return false
		}
	}
	n.lossy = append(n.lossy, host)
	return true
}

// healAll removes all cuts and losses.
func (n *network) healAll() {
	n.t.Helper()
	for way := range n.rules {
		n.heal(way[0], way[1])
	}
	for _, host := range n.lossy {
		_ = exec.Command("tc", "-n", n.router, "qdisc", "delete", "dev", fmt.Sprintf("h%d", host), "clsact").Run()
	}
	n.lossy = nil
}
