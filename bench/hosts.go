// How is one server cut off from all others?

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Hosts are machines for the servers of a group, and one for the load: network namespaces with a
// router between them that can drop all packets of one. Nil is the loopback interface, where
// nothing can be cut off.
type Hosts struct {
	name string // of the router's namespace; those of the hosts have a number behind it
	cut  map[int]bool
}

// loadHost is the host of the load, behind those of the servers.
const loadHost = Servers

// MakeHosts needs root, and the command ip.
func MakeHosts() (*Hosts, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	h := &Hosts{name: fmt.Sprintf("signalbox-bench-%d", os.Getpid()), cut: map[int]bool{}}
	do := func(args ...string) error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	err := errors.Join(do("netns", "add", h.name),
		do("netns", "exec", h.name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"),
		do("-n", h.name, "link", "set", "lo", "up"))
	for k := 0; k <= loadHost && err == nil; k++ {
		space, port := h.namespace(k), "h"+strconv.Itoa(k)
		err = errors.Join(
			do("netns", "add", space),
			do("link", "add", port, "netns", h.name, "type", "veth", "peer", "name", "e0", "netns", space),
			do("-n", h.name, "address", "add", fmt.Sprintf("10.89.%d.1/24", k), "dev", port),
			do("-n", h.name, "link", "set", port, "up"),
			do("-n", space, "link", "set", "lo", "up"),
			do("-n", space, "address", "add", h.address(k)+"/24", "dev", "e0"),
			do("-n", space, "link", "set", "e0", "up"),
			do("-n", space, "route", "add", "default", "via", fmt.Sprintf("10.89.%d.1", k)))
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// existingHosts are hosts that another process has made.
func existingHosts(name string) *Hosts { return &Hosts{name: name, cut: map[int]bool{}} }

// Close takes the namespaces away.
func (h *Hosts) Close() {
	for k := 0; k <= loadHost; k++ {
		_ = exec.Command("ip", "netns", "delete", h.namespace(k)).Run()
	}
	_ = exec.Command("ip", "netns", "delete", h.name).Run()
}

func (h *Hosts) namespace(k int) string { return h.name + "-" + strconv.Itoa(k) }
func (h *Hosts) address(k int) string   { return fmt.Sprintf("10.89.%d.2", k) }

// Addresses are n free ones on each server's host.
func (h *Hosts) Addresses(n int) ([Servers][]string, error) {
	var all [Servers][]string
	if h == nil {
		list, err := FreeAddresses(n * Servers)
		for i := range list {
			all[i/n] = append(all[i/n], list[i])
		}
		return all, err
	}
	for i := range all {
		for k := range n {
			all[i] = append(all[i], fmt.Sprintf("%s:%d", h.address(i), 7070+k))
		}
	}
	return all, nil
}

// Command is a command on a server's host.
func (h *Hosts) Command(host int, program string, args ...string) (string, []string) {
	if h == nil {
		return program, args
	}
	return "ip", append([]string{"netns", "exec", h.namespace(host), program}, args...)
}

// Isolate drops, without a word, all packets from a host and to it.
func (h *Hosts) Isolate(ctx context.Context, host int) error {
	h.cut[host] = true
	return h.rules(ctx, "add", host)
}

// Heal ends a cut.
func (h *Hosts) Heal(ctx context.Context, host int) error {
	if !h.cut[host] {
		return nil
	}
	delete(h.cut, host)
	return h.rules(ctx, "delete", host)
}

func (h *Hosts) rules(ctx context.Context, verb string, host int) error {
	for _, way := range []string{"from", "to"} {
		if out, err := exec.CommandContext(ctx, "ip", "-n", h.name, "rule", verb, way, h.address(host),
			"blackhole").CombinedOutput(); err != nil {
			return fmt.Errorf("ip rule %s: %w: %s", verb, err, out)
		}
	}
	return nil
}
