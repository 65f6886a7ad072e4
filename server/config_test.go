package server

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestTiers: which tiers a cluster can be made with, and what becomes of them.
func TestTiers(t *testing.T) {
	for text, want := range map[string]string{ // a part of the error, or what there is, each tier in a line
		"default":                                      "default: 4096 buckets, 3 copies\n",
		"default:factor=2,arbiter:buckets=0":           "default: 4096 buckets, 2 copies\narbiter: 0 buckets, 1 copies\n",
		"x:buckets=0:factor=5, default":                "x: 0 buckets, 5 copies\ndefault: 4096 buckets, 3 copies\n",
		"default:buckets=16:factor=1":                  "default: 16 buckets, 1 copies\n",
		"a:buckets=0:vote=true,default:vote=false":     "a: 0 buckets, 1 copies\ndefault: 4096 buckets, 3 copies, no vote\n",
		"default,cold:factor=1:vote=0:buckets=64":      "default: 4096 buckets, 3 copies\ncold: 64 buckets, 1 copies, no vote\n",
		"default:vote=false,b:buckets=0:vote=false":    "none of the tiers default, b may vote",
		"default:vote=maybe":                           "write it as",
		"default:vote":                                 "write it as",
		"data,arbiter:buckets=0":                       `this instance's tier is "default", and the tiers are data, arbiter`,
		"default:buckets=0,arbiter:buckets=0":          "none of the tiers default, arbiter has buckets",
		"default,data":                                 "default: 4096 buckets, 3 copies\ndata: 4096 buckets, 3 copies\n",
		"default,default:buckets=0":                    `tier "default" has no name of its own`,
		"default,:buckets=0":                           `tier "" has no name of its own`,
		"default,a\x1b:buckets=0":                      "tier name",
		"default:factor=65":                            "replication factor of tier default is 65",
		"default:buckets=65537":                        "tier default has 65537 buckets",
		"default:factor=0":                             "factor is 0",
		"default:":                                     "write it as",
		"default:factor":                               "write it as",
		"default:factor=-1":                            "write it as",
		"default:factor=1:factor=1":                    "write it as",
		"default:color=1":                              `has no option "color"`,
		"default" + strings.Repeat(",x:buckets=0", 16): "17 tiers are given",
	} {
		c := Config{ReplicationFactor: 3}
		var err error
		for item := range strings.SplitSeq(text, ",") {
			spec, bad := ParseTier(item)
			if err == nil {
				err = bad
			}
			c.Tiers = append(c.Tiers, spec)
		}
		got := ""
		if err == nil {
			c, err = c.withDefaults()
		}
		for _, x := range c.Tiers {
			got += fmt.Sprintf("%s: %d buckets, %d copies", x.Name, x.Buckets, x.ReplicationFactor)
			if !x.CanVote {
				got += ", no vote"
			}
			got += "\n"
		}
		if err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %q; want %q", text, err, got, want)
		}
	}
	spec, err := ParseTier("data")
	if err != nil {
		t.Fatal(err)
	}
	small, err := Config{Tier: "data", Tiers: []meta.TierSpec{spec}, Buckets: 16}.withDefaults()
	if err != nil || small.Tiers[0].Buckets != 16 {
		t.Errorf("Buckets beside a tier that says nothing of them: %v, %+v", err, small.Tiers)
	}
	mute := Config{Tiers: []meta.TierSpec{{Name: DefaultTier, Buckets: 16}}}
	if _, err := mute.withDefaults(); err == nil || !strings.Contains(err.Error(), "none of the tiers default may vote") {
		t.Errorf("a tier without votes: %v", err)
	}
	few := Config{Tiers: []meta.TierSpec{{Name: DefaultTier, Buckets: 3, CanVote: true}}, Shards: 4}
	if _, err := few.withDefaults(); err == nil || !strings.Contains(err.Error(), "3 buckets of tier default cannot be assigned to 4") {
		t.Errorf("fewer buckets than shards: %v", err)
	}
}

// TestMayFound: who makes a cluster with these tiers.
func TestMayFound(t *testing.T) {
	for text, want := range map[string]string{
		"data,arbiter:buckets=0":                                      "data",
		"arbiter:buckets=0,data":                                      "data",
		"hot,cold,arbiter:buckets=0":                                  "hot cold",
		"hot:vote=false,cold":                                         "cold",
		"data:vote=false,arbiter:buckets=0":                           "arbiter",
		"a:buckets=0,b:vote=false,c:buckets=0:vote=false,d:buckets=0": "a d",
	} {
		var c Config
		for item := range strings.SplitSeq(text, ",") {
			spec, err := ParseTier(item)
			if err != nil {
				t.Fatal(err)
			}
			c.Tiers = append(c.Tiers, spec)
		}
		var got []string
		for i, x := range c.Tiers {
			c.Tier = x.Name
			if _, id := c.ownTier(); int(id) != i {
				t.Errorf("%s: tier %s has the id %d", text, x.Name, id)
			}
			if c.mayFound() {
				got = append(got, x.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestOfflineAfterReachesGovernor: the plan counts an instance as dead when the failure detector
// does.
func TestOfflineAfterReachesGovernor(t *testing.T) {
	cfg := inMemory(10 * time.Second)
	cfg.OfflineAfter = 30 * time.Second
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.governorConfig().OfflineAfter; got != 30*time.Second {
		t.Errorf("the governor counts an instance as dead after %v, want 30s", got)
	}
}

// TestClusterConfig holds the ranges of what concerns other instances.
func TestClusterConfig(t *testing.T) {
	many := func(n int) (list []string) {
		for range n {
			list = append(list, "a:1")
		}
		return list
	}
	domain := map[string]string{}
	for i := range 33 {
		domain[strings.Repeat("k", i+1)] = "v"
	}
	const token = "0123456789abcdef"
	for name, x := range map[string]struct {
		change func(c *Config)
		want   string // a part of the error; empty: fine
	}{
		"nothing":               {func(c *Config) {}, ""},
		"a token alone":         {func(c *Config) { c.JoinToken = token }, ""},
		"a short token":         {func(c *Config) { c.JoinToken = token[1:] }, "join token has 15 bytes"},
		"a long token":          {func(c *Config) { c.JoinToken = strings.Repeat("x", 1025) }, "join token has 1025 bytes"},
		"peers, no token":       {func(c *Config) { c.Peers = many(1) }, "no join token"},
		"many peers":            {func(c *Config) { c.Peers, c.JoinToken = many(1025), token }, "1025 peers"},
		"an empty peer":         {func(c *Config) { c.Peers, c.JoinToken = []string{""}, token }, `peer "" is not host:port`},
		"a peer without host":   {func(c *Config) { c.Peers, c.JoinToken = []string{":7071"}, token }, "is not host:port"},
		"a peer that is all":    {func(c *Config) { c.Peers, c.JoinToken = []string{"[::]:7071"}, token }, "every machine"},
		"a peer with port 0":    {func(c *Config) { c.Peers, c.JoinToken = []string{"a:0"}, token }, "no port from 1 to 65535"},
		"a peer with port 2^16": {func(c *Config) { c.Peers, c.JoinToken = []string{"a:65536"}, token }, "no port from 1 to 65535"},
		"a peer for clients": {func(c *Config) {
			c.Listen, c.Peers, c.JoinToken = "127.0.0.1:7070", []string{"b:7070", "127.0.0.1:7070"}, token
		}, `"127.0.0.1:7070" is this instance's own address for clients`},
		"a peer for operators": {func(c *Config) { c.Admin, c.Peers, c.JoinToken = "127.0.0.1:7072", []string{"127.0.0.1:7072"}, token },
			"own address for operators"},
		"peers":                 {func(c *Config) { c.Peers, c.JoinToken = []string{"a:1", "[::1]:65535"}, token }, ""},
		"an advertised group":   {func(c *Config) { c.Advertise = "224.0.0.1:7070" }, "nobody can connect to it"},
		"a group as a peer":     {func(c *Config) { c.Peers, c.JoinToken = []string{"[ff02::1]:7071"}, token }, "nobody can connect to it"},
		"advertised broadcast":  {func(c *Config) { c.RaftAdvertise = "255.255.255.255:7071" }, "nobody can connect to it"},
		"an advertised name":    {func(c *Config) { c.Advertise = "host.example:7070" }, ""},
		"a name with controls":  {func(c *Config) { c.Name = "a\x1b[31m" }, "instance name"},
		"a long cluster name":   {func(c *Config) { c.Cluster = strings.Repeat("x", 257) }, "cluster name"},
		"a tier of broken text": {func(c *Config) { c.Tier = "\xff" }, "tier name"},
		"a key twice":           {func(c *Config) { c.FailureDomain = map[string]string{"dc": "a", "DC": "b"} }, "key DC is given twice"},
		"many keys":             {func(c *Config) { c.FailureDomain = domain }, "33 keys"},
		"factor -1":             {func(c *Config) { c.ReplicationFactor = -1 }, "replication factor is -1"},
		"factor 65":             {func(c *Config) { c.ReplicationFactor = 65 }, "replication factor is 65"},
		"offline at once":       {func(c *Config) { c.OfflineAfter = 499 * time.Millisecond }, "offline after is 499ms"},
		"offline late":          {func(c *Config) { c.OfflineAfter = 11 * time.Minute }, "offline after is 11m0s"},
		"a negative age":        {func(c *Config) { c.Limits.OutAge = -1 }, "is -1ns; it must not be negative"},
		"a negative hello":      {func(c *Config) { c.Limits.HelloTimeout = -time.Hour }, "hello timeout is -1h0m0s"},
		"a negative frame":      {func(c *Config) { c.Limits.FrameTimeout = -1 }, "frame timeout is -1ns"},
		"a negative idle time":  {func(c *Config) { c.Limits.IdleTimeout = -1 }, "idle timeout is -1ns"},
		"a negative wait":       {func(c *Config) { c.StopWait = -time.Second }, "stop wait is -1s; choose 0s to 30m0s"},
		"a wait for ever":       {func(c *Config) { c.StopWait = time.Hour }, "stop wait is 1h0m0s; choose 0s to 30m0s"},
		"a negative stop":       {func(c *Config) { c.ShutdownTimeout = -time.Second }, "shutdown timeout is -1s"},
		"a negative round trip": {func(c *Config) { c.RTT = -time.Millisecond }, "round trip time is -1ms"},
		"no node changes":       {func(c *Config) { c.Limits.NodeOps = -1 }, "limit of node changes is -1; choose at least 1"},
		"no time to stop":       {func(c *Config) { c.ShutdownTimeout = time.Millisecond }, "shutdown timeout is 1ms"},
	} {
		c := Config{}
		x.change(&c)
		_, err := c.withDefaults()
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

func TestClusterDefaults(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil || c.Tier != "default" || c.ReplicationFactor != 1 || c.OfflineAfter != 5*time.Second ||
		c.ShutdownTimeout != 3*time.Second {
		t.Errorf("defaults are %+v, %v", c, err)
	}
	c.FailureDomain = map[string]string{"rack": "r1", "dc": "msk"}
	domain, err := c.domain()
	got := map[string]string{}
	for _, l := range domain {
		got[l.Key] = l.Value
	}
	if err != nil || domain[0] != (meta.Label{Key: "DC", Value: "MSK"}) || !maps.Equal(got, map[string]string{"DC": "MSK", "RACK": "R1"}) {
		t.Errorf("domain is %v, %v", domain, err)
	}
}
