package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/signalbox-dev/signalbox/server/peerdiscovery"
	"github.com/signalbox-dev/signalbox/server/web"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Bounds of an instance's description of itself to others.
const (
	maxNameLen       = 256
	minTokenLen      = 16
	maxTokenLen      = 1024
	maxReplication   = 64
	minOfflineAfter  = 500 * time.Millisecond
	minShutdown      = 100 * time.Millisecond
	maxClusterPeriod = 10 * time.Minute
	maxStopWait      = 30 * time.Minute
	maxRTT           = time.Second
)

// checkCluster checks the settings that concern other instances.
func (c *Config) checkCluster() error {
	for _, n := range []struct{ what, name string }{{"instance", c.Name}, {"cluster", c.Cluster}, {"tier", c.Tier}} {
		if err := checkName(n.what, n.name); err != nil {
			return err
		}
	}
	if err := c.checkTiers(); err != nil {
		return err
	}
	for _, a := range []struct{ what, address string }{{"advertised", c.Advertise},
		{"advertised TLS", c.TLSAdvertise}, {"advertised raft", c.RaftAdvertise}} {
		if a.address != "" {
			if err := checkReachable(a.address); err != nil {
				return fmt.Errorf("%s address %q %w", a.what, a.address, err)
			}
		}
	}
	if len(c.Peers) > peerdiscovery.MaxPeers {
		return fmt.Errorf("%d peers are given; at most %d are allowed, and a few are enough", len(c.Peers),
			peerdiscovery.MaxPeers)
	}
	for _, p := range c.Peers {
		if err := checkReachable(p); err != nil {
			return fmt.Errorf("peer %q %w", p, err)
		}
		if what := c.ownUse(p); what != "" {
			return fmt.Errorf("peer %q is this instance's own address for %s; "+
				"a list of peers takes raft addresses, which --raft-advertise or --raft name", p, what)
		}
	}
	if c.JoinToken != "" {
		if _, err := joinTokens(c.JoinToken); err != nil {
			return err
		}
	}
	if len(c.Peers) > 0 && c.JoinToken == "" {
		return errors.New("peers are given and no join token; give all instances of the cluster the same secret")
	}
	if _, err := c.domain(); err != nil {
		return err
	}
	if c.OfflineAfter < minOfflineAfter || c.OfflineAfter > maxClusterPeriod {
		return fmt.Errorf("offline after is %v; choose %v to %v", c.OfflineAfter, minOfflineAfter, maxClusterPeriod)
	}
	if c.RTT < time.Millisecond || c.RTT > maxRTT || c.RTT%time.Millisecond != 0 {
		return fmt.Errorf("raft round trip time is %v; choose whole milliseconds up to %v", c.RTT, maxRTT)
	}
	return nil
}

// checkName checks a name that people are shown.
func checkName(what, name string) error {
	if len(name) > maxNameLen || strings.ContainsFunc(name,
		func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s name %.40q is too long, or has characters that cannot be shown; choose up to %d bytes of text",
			what, name, maxNameLen)
	}
	return nil
}

// checkReachable checks an address that others connect to.
func checkReachable(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || len(address) > peerdiscovery.MaxAddressLen {
		return errors.New("is not host:port; name the host, and the port it listens on")
	}
	switch ip := net.ParseIP(host); {
	case ip.IsUnspecified():
		return errors.New("is that of every machine; name this one")
	case ip.IsMulticast(), ip.Equal(net.IPv4bcast):
		return errors.New("is for multicast or broadcast, and nobody can connect to it; name this machine")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("has no port from 1 to 65535; name the one it listens on")
	}
	return nil
}

// domain is the failure domain as the cluster keeps it.
func (c *Config) domain() ([]meta.Label, error) {
	var labels []meta.Label
	for _, k := range slices.Sorted(maps.Keys(c.FailureDomain)) {
		labels = append(labels, meta.Label{Key: k, Value: c.FailureDomain[k]})
	}
	return meta.Domain(labels...)
}

// labels is domain of a configuration that was checked.
func (c *Config) labels() []meta.Label {
	list, _ := c.domain()
	return list
}

// raftAddress returns the address at which other instances connect.
func (c *Config) raftAddress() string { return cmp.Or(c.RaftAdvertise, c.Raft) }

// adminHosts are the names under which operators reach this instance: those of all its addresses, and
// those that were given.
func (c *Config) adminHosts() []string {
	hosts := slices.Clone(c.AdminHosts)
	for _, address := range []string{c.Admin, c.Advertise, c.TLSAdvertise, c.RaftAdvertise, c.Listen, c.TLSListen, c.Raft} {
		hosts = append(hosts, web.HostName(address))
	}
	return hosts
}

// ownUse names the users of an address of this instance that is not its raft address; empty if it
// does not listen there.
func (c *Config) ownUse(address string) string {
	switch address {
	case c.raftAddress():
	case c.Listen, c.Advertise, c.TLSListen, c.TLSAdvertise:
		return "clients"
	case c.Admin:
		return "operators"
	}
	return ""
}
