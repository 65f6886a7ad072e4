package meta

import (
	"bytes"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts. Every command goes through the bytes of an entry; after each,
// the state is checked against its own rules and restored from a snapshot of it.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t, m: New()}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t     *testing.T
	m     *Machine
	index uint64
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "bootstrap":
		c := &Bootstrap{
			Cluster: "c1", Instance: 1, Name: "one", Address: "one:7070", RaftAddress: "one:7071",
			Tier: "default", Buckets: 16, ReplicationFactor: 1, CanVote: true,
			NodeConfig: protocol.DefaultNodeConfig(), Wall: 1000,
		}
		s.maybe(d, "cluster", &c.Cluster)
		if n := s.numbers(d, "buckets"); n != nil {
			c.Buckets = uint32(n[0])
		}
		s.maybe(d, "instance", &c.Instance)
		if d.HasArg("version") {
			c.Version = s.version(d, "version")
		}
		s.bootstrapMore(d, c)
		c.Shards = append(c.Shards, s.numbers(d, "shards")...)
		return s.apply(d, c)
	case "create":
		c := &NodeCreate{Path: s.path(d), Parent: protocol.DefaultNodeConfig(), Wall: 2000}
		c.Config, c.SetFields = s.config(d, protocol.DefaultNodeConfig())
		if n := s.numbers(d, "tier"); n != nil {
			c.Tier = uint8(n[0])
		}
		return s.apply(d, c)
	case "alter":
		c := &NodeAlter{Path: s.path(d)}
		n, _ := s.m.NodeAt(c.Path)
		c.Node, c.Revision = n.ID, n.Revision
		s.maybe(d, "node", &c.Node)
		s.maybe(d, "revision", &c.Revision)
		c.Config, c.SetFields = s.config(d, n.Config)
		return s.apply(d, c)
	case "drop":
		c := &NodeDrop{Path: s.path(d)}
		n, _ := s.m.NodeAt(c.Path)
		c.Node = n.ID
		s.maybe(d, "node", &c.Node)
		return s.apply(d, c)
	case "commit":
		c := &NodeCommit{}
		c.Nodes = append(c.Nodes, s.refs(d)...)
		return s.apply(d, c)
	case "clear-grace-floor":
		return s.apply(d, &GraceFloorClear{s.refs(d)[0]})
	case "shard-ready":
		return s.apply(d, &ShardReady{Shard: s.numbers(d, "shard")[0]})
	case "address":
		c := &InstanceAddress{Instance: 1}
		s.maybe(d, "instance", &c.Instance)
		d.ScanArgs(t, "expected", &c.Expected)
		d.ScanArgs(t, "address", &c.Address)
		c.RaftAddress = "one:7071"
		return s.apply(d, c)
	case "rotate-keys":
		c := &RotateKeys{Current: s.numbers(d, "current")[0]}
		c.Secret[0] = byte(s.numbers(d, "secret")[0])
		return s.apply(d, c)
	case "rights-put":
		c := &RightsPut{}
		c.Prefix, c.Identity = s.text(d, "prefix"), s.text(d, "identity")
		c.Rights = RightBits(s.numbers(d, "rights")[0])
		s.maybe(d, "expected", &c.Expected)
		return s.apply(d, c)
	case "rights-remove":
		c := &RightsRemove{Prefix: s.text(d, "prefix"), Identity: s.text(d, "identity")}
		s.maybe(d, "expected", &c.Expected)
		return s.apply(d, c)
	case "auth-set":
		c := &AuthSet{On: d.HasArg("on")}
		if id := s.text(d, "id"); id != "" {
			c.Token = Token{ID: id, Identity: s.text(d, "identity"),
				Hash: [HashLen]byte{byte(s.numbers(d, "secret")[0])}}
		}
		return s.apply(d, c)
	case "token-put":
		c := &TokenPut{Token{ID: s.text(d, "id"), Identity: s.text(d, "identity"),
			Hash: [HashLen]byte{byte(s.numbers(d, "secret")[0])}}}
		s.maybe(d, "expires", &c.ExpiresAt)
		return s.apply(d, c)
	case "tokens-used":
		return s.apply(d, &TokensUsed{At: s.numbers(d, "at")[0], IDs: strings.Split(s.text(d, "ids"), "+")})
	case "token-remove":
		return s.apply(d, &TokenRemove{ID: s.text(d, "id")})
	case "tokens":
		list, revision := s.m.Tokens()
		out := fmt.Sprintf("auth=%t revision=%d\n", s.m.AuthOn(), revision)
		for _, t := range list {
			out += fmt.Sprintf("%s: %s %d", t.ID, t.Identity, t.Hash[0])
			if t.ExpiresAt != 0 {
				out += fmt.Sprintf(" expires=%d", t.ExpiresAt)
			}
			if t.UsedAt != 0 {
				out += fmt.Sprintf(" used=%d", t.UsedAt)
			}
			out += "\n"
		}
		return out
	case "trust-put":
		c := &TrustPut{Trust{Name: s.text(d, "name"), Issuer: s.text(d, "issuer"), Audience: s.text(d, "audience"),
			Keys: []byte(s.text(d, "keys"))}}
		s.maybe(d, "revision", &c.Revision)
		for line := range strings.Lines(d.Input) {
			conditions, as, _ := strings.Cut(line, "->")
			rule := TrustRule{As: strings.TrimSpace(as)}
			for _, x := range strings.Fields(conditions) {
				claim, pattern, _ := strings.Cut(x, "=")
				rule.If = append(rule.If, TrustCondition{Claim: claim, Pattern: pattern})
			}
			c.Rules = append(c.Rules, rule)
		}
		return s.apply(d, c)
	case "trust-remove":
		return s.apply(d, &TrustRemove{Name: s.text(d, "name")})
	case "trusts":
		out := ""
		for _, t := range s.m.Trusts() {
			out += fmt.Sprintf("%s@%d: %s for %s, keys %q\n", t.Name, t.Revision, t.Issuer, t.Audience, t.Keys)
			for _, r := range t.Rules {
				out += fmt.Sprintf("  %v %s\n", r.If, r.As)
			}
		}
		return out
	case "raw":
		s.index++
		return s.result(s.m.Apply(s.index, []byte(d.Input)))

	case "rights":
		r := s.m.Rights(s.text(d, "identity"), s.path(d))
		return fmt.Sprintf("read=%t use=%t admin=%t\n", r&Read != 0, r&Use != 0, r&Admin != 0)
	case "keys":
		current, previous := s.m.Keys()
		return fmt.Sprintf("current=%d:%d previous=%d:%d\n", current.ID,
			current.Secret[0], previous.ID, previous.Secret[0])
	case "route":
		var out strings.Builder
		for _, b := range s.numbers(d, "buckets") {
			shard, epoch := s.m.Route(0, uint32(b))
			fmt.Fprintf(&out, "bucket %d: shard %d epoch %d\n", b, shard, epoch)
		}
		return out.String()
	case "nodes":
		var out strings.Builder
		for n := range s.m.Nodes(s.text(d, "prefix"), s.text(d, "from")) {
			c, final := n.ShardConfig(false), n.ShardConfig(true)
			fmt.Fprintf(&out, "%d@%d %s %s grace=%d given=%#x", n.ID, n.Revision,
				n.Path, n.Phase, n.Config.GracePeriod, n.SetFields)
			if n.GraceFloor != 0 {
				fmt.Fprintf(&out, " floor=%d shards=%d@%d then %d@%d", n.GraceFloor, c.GracePeriod,
					n.ShardRevision(false), final.GracePeriod, n.ShardRevision(true))
			}
			out.WriteByte('\n')
		}
		return out.String()
	case "pending":
		var out strings.Builder
		for n := range s.m.Pending() {
			fmt.Fprintf(&out, "%d %s %s\n", n.ID, n.Path, n.Phase)
		}
		return out.String()
	case "map":
		var out strings.Builder
		fmt.Fprintf(&out, "cluster %q revision %d map version %d\n", s.m.Cluster(), s.m.Revision(), s.m.MapVersion())
		for _, i := range s.m.Instances() {
			fmt.Fprintf(&out, "instance %d %s at %s, raft %s, revision %d\n",
				i.ID, i.Name, i.Address, i.RaftAddress, i.Revision)
		}
		for _, x := range s.m.Shards() {
			fmt.Fprintf(&out, "%s\n", shardLine(&x))
		}
		for _, tier := range s.m.Tiers() {
			fmt.Fprintf(&out, "tier %d %s\n", tier.ID, tier.Name)
			for _, run := range tier.Runs {
				fmt.Fprintf(&out, "  %d..%d: shard %d epoch %d\n", run.First,
					run.First+run.Count-1, run.Shard, run.Epoch)
			}
		}
		return out.String()
	}
	return s.cluster(t, d)
}

// shardLine is a shard like "shard 2 master 1 want 2 replicas 1@1:voter 2@2:none>voter ready":
// instance@replica:role, and the wanted role if it is another.
func shardLine(x *Shard) string {
	out := fmt.Sprintf("shard %d master %d", x.ID, x.Master)
	if x.ID == MetaShardID {
		out = fmt.Sprintf("meta shard master %d", x.Master)
	}
	if x.TargetMaster != x.Master {
		out += fmt.Sprintf(" want %d", x.TargetMaster)
	}
	out += " replicas"
	for _, r := range x.Replicas {
		out += fmt.Sprintf(" %d@%d:%s", r.Instance, r.Replica, r.Role)
		if r.TargetRole != r.Role {
			out += fmt.Sprintf(">%s", r.TargetRole)
		}
	}
	if x.Ready {
		out += " ready"
	}
	return out
}

func (s *script) apply(d *datadriven.TestData, c Command) string {
	var op OpID
	copy(op[:], s.text(d, "op"))
	s.index++
	before, digest := s.m.State, s.m.Digest()
	entry := AppendCommand(nil, op, c)
	answer := s.m.Apply(s.index, entry)
	for i := range entry { // nothing may be kept of it
		entry[i] = 0xee
	}
	out := s.result(answer)
	if s.m.Revision() == before.Revision() && s.m.Digest() == digest {
		out += "nothing changed\n"
	}
	for _, ev := range Audit(&before, &s.m.State, s.index) {
		if about := ev.Instance != 0 || ev.Shard != 0 || ev.Tier != ""; ev.Index != s.index || !about {
			s.t.Fatalf("event %+v", ev)
		}
		out += fmt.Sprintf("audit %d %s (%s): %s\n", ev.Count, ev.Title, ev.Severity, ev.Message)
	}
	return out
}

func (s *script) result(answer []byte) string {
	res, err := DecodeResult(answer)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.m.Check(); err != nil {
		s.t.Fatal(err)
	}
	again := restored(s.t, s.m)
	if again.Digest() != s.m.Digest() || again.AppliedIndex() != s.index {
		s.t.Fatalf("restored digest %x index %d, want %x and %d", again.Digest(),
			again.AppliedIndex(), s.m.Digest(), s.index)
	}
	s.m = again // and go on with the restored machine
	if res.Status != protocol.StatusOK {
		return fmt.Sprintf("%s: %s\n", res.Status, res.Message)
	}
	out := fmt.Sprintf("revision %d", res.Revision)
	if res.Node != 0 {
		out += fmt.Sprintf(", node %d@%d", res.Node, res.Version)
	}
	if res.Instance != 0 {
		out += fmt.Sprintf(", instance %d", res.Instance)
	}
	if res.Replica != 0 {
		out += fmt.Sprintf(", replica %d", res.Replica)
	}
	if res.Node == 0 && res.Version != 0 {
		out += fmt.Sprintf(", epoch %d", res.Version)
	}
	return out + "\n"
}

func restored(t interface{ Fatal(...any) }, m *Machine) *Machine {
	var b bytes.Buffer
	n, err := m.BeginSnapshot().WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatal("snapshot says", n, "bytes, wrote", b.Len(), err)
	}
	again, err := Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() != 0 {
		t.Fatal(b.Len(), "bytes were left unread")
	}
	return again
}

func (s *script) maybe(d *datadriven.TestData, key string, dest any) {
	if d.HasArg(key) {
		d.ScanArgs(s.t, key, dest)
	}
}

// path is the first argument.
func (s *script) path(d *datadriven.TestData) string {
	if len(d.CmdArgs) == 0 {
		d.Fatalf(s.t, "a path is missing")
	}
	return d.CmdArgs[0].Key
}

func (s *script) text(d *datadriven.TestData, key string) string {
	v := ""
	s.maybe(d, key, &v)
	return v
}

func (s *script) numbers(d *datadriven.TestData, key string) []uint64 {
	for _, a := range d.CmdArgs {
		if a.Key != key {
			continue
		}
		list := make([]uint64, len(a.Vals))
		for i, v := range a.Vals {
			n, err := strconv.ParseUint(v, 0, 64)
			if err != nil {
				d.Fatalf(s.t, "%s: %v", key, err)
			}
			list[i] = n
		}
		return list
	}
	return nil
}

// refs reads arguments like 3@1.
func (s *script) refs(d *datadriven.TestData) []NodeRef {
	var list []NodeRef
	for _, a := range d.CmdArgs {
		var ref NodeRef
		if n, _ := fmt.Sscanf(a.Key, "%d@%d", &ref.Node, &ref.Revision); n == 2 {
			list = append(list, ref)
		}
	}
	return list
}

func (s *script) config(d *datadriven.TestData, c protocol.NodeConfig) (protocol.NodeConfig, uint32) {
	given := uint32(0)
	if d.HasArg("grace") {
		d.ScanArgs(s.t, "grace", &c.GracePeriod)
		given |= protocol.FieldGracePeriod
	}
	return c, given
}
