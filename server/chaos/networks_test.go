package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// network is machines that reach each other over a router, each a network namespace. What goes from one to another can be dropped, in one direction or both.
type network struct {
	t      *testing.T
	router string
	hosts  []string
}

// newNetwork needs root, and a kernel that has namespaces; without them the test is skipped.
func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	if testing.Short() {
		t.Skip("networks are not short")
	}
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	n := &network{t: t, router: fmt.Sprintf("signalbox-%d", os.Getpid())}
	t.Cleanup(func() {
		for _, space := range append(n.hosts, n.router) {
			_ = exec.Command("ip", "netns", "delete", space).Run()
		}
	})
	if out, err := exec.Command("ip", "netns", "add", n.router).CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v: %s", err, out)
	}
	if out, err := inSpace(n.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward").CombinedOutput(); err != nil {
		t.Skipf("a namespace does not forward here: %v: %s", err, out)
	}
	n.ip("-n", n.router, "link", "set", "lo", "up")
	for k := range hosts {
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
	}
	return n
}

func (n *network) address(host int) string { return fmt.Sprintf("10.88.%d.2", host) }
func (n *network) gateway(host int) string { return fmt.Sprintf("10.88.%d.1", host) }

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cut drops, from now on and without a word, what goes from one host to another.
func (n *network) cut(from, to int) {
	n.t.Helper()
	n.ip("-n", n.router, "rule", "add", "from", n.address(from), "to", n.address(to), "blackhole")
}

func (n *network) heal(from, to int) {
	n.t.Helper()
	n.ip("-n", n.router, "rule", "delete", "from", n.address(from), "to", n.address(to), "blackhole")
}
