package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/former"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// The newer version has a request of this kind, which resizes a semaphore, and takes one more field
// behind those of a resize, which doubles the limit. Both need its format.
const (
	newKind      protocol.Kind = 99
	resizeFields int           = 7
)

// newerVersion is how the newer version differs from this tree, by file: what is replaced, and by
// what.
func newerVersion(v meta.Version) map[string][]string {
	const shards, maps = shard.FormatVersion, meta.FormatVersion
	number := func(n int) string { return fmt.Sprintf("FormatVersion = %d\n", n) }
	last := fmt.Sprintf("Formats{Shard: %d, Meta: %d}},\n", shards, maps)
	return map[string][]string{
		"shard/meta/codec.go": {number(maps), number(maps + 1)},
		"shard/meta/formats.go": {last, last + fmt.Sprintf(
			"\t{Version{Major: %d, Minor: %d}, Formats{Shard: %d, Meta: %d}},\n", v.Major, v.Minor, shards+1, maps+1)},
		"shard/command.go": {number(shards), number(shards + 1), "[256][]addition{", fmt.Sprintf(
			"[256][]addition{%d: {{format: %d}}, CmdResize: {{format: %[2]d, path: []int{%d}}},", newKind, shards+1, resizeFields)},
		"shard/apply.go": {"	CmdResize:          applyResize,\n",
			fmt.Sprintf("	CmdResize:          applyResize,\n\t%d: applyResize,\n", newKind)},
		"shard/semaphore.go": {"	x := &m.batch.resize\n	var q request\n	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {\n		return\n	}\n",
			fmt.Sprintf("	x := &m.batch.resize\n	var q request\n	if !m.decode(x, c.body) || !m.valid(x) || !q.enter(m, c, &x.Head, x.Name) {\n		return\n	}\n"+
				"	if _, found := protocol.CutFields(c.body, %d); found {\n		x.Limit *= 2\n	}\n", resizeFields)},
		"server/request/client.go": {"	case h.Kind.IsRequest():\n", fmt.Sprintf("	case h.Kind.IsRequest() || h.Kind == %d:\n", newKind)},
		"server/request/semaphore.go": {"		protocol.KindAlter: onSession(", fmt.Sprintf("		%d: onSession(func(m *protocol.Resize) *uint64 { return &m.Session },\n"+
			"			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: resize}),\n		protocol.KindAlter: onSession(", newKind)},
	}
}

// withoutGate has a version write its newest formats at once.
var withoutGate = []string{"		if line.from.compareMinor(v) <= 0 {\n", "		if true {\n"}

// buildVersion builds the tree, with changes, as a release of this version.
func buildVersion(t *testing.T, v meta.Version, changes map[string][]string) (bin string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for file, edits := range changes {
		path := filepath.Join(root, filepath.FromSlash(file))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for i := 0; i < len(edits); i += 2 {
			if n := strings.Count(text, edits[i]); n != 1 {
				t.Fatalf("%s has %d places with %q, and one is to be changed", file, n, edits[i])
			}
			text = strings.Replace(text, edits[i], edits[i+1], 1)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err := errors.Join(err, os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(dir, "signalbox-"+v.String())
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", bin,
		"-ldflags", "-s -w -X github.com/signalbox-dev/signalbox/server/release.version="+v.String(), "./cmd/signalbox")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building version %s: %v\n%s", v, err, out)
	}
	return bin
}

// upgrading is a cluster between two versions. The former one is the release of the minor version
// before this tree's, once that is out, and the newer one this tree. Until then they are this tree
// and the next minor version.
type upgrading struct {
	*cluster
	former, newer string // binaries
	now, next     meta.Version
	mixed         []*mixedLoad
}

func newUpgrade(t *testing.T, more ...string) *upgrading {
	t.Helper()
	c := newCluster(t)
	v, err := meta.ParseVersion(release.TreeVersion)
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrading{cluster: c, former: c.bin, now: v, next: meta.Version{Major: v.Major, Minor: v.Minor + 1}}
	for _, r := range former.Releases(t, "../..") {
		if r.Version.Compare(meta.Version{Major: v.Major, Minor: v.Minor}) < 0 {
			u.former, u.now, u.next = r.Program(t), r.Version, v
		}
	}
	t.Logf("from %s to %s", u.now, u.next)
	changes := newerVersion(u.next)
	changes["shard/meta/formats.go"] = append(changes["shard/meta/formats.go"], more...)
	u.newer = buildVersion(t, u.next, changes)
	c.bin = u.former
	c.startThree()
	c.makeNode()
	return u
}

// restart has an instance go on with a binary. It is stopped, or killed.
func (u *upgrading) restart(name, bin string, kill bool) {
	u.t.Helper()
	in := u.instances[name]
	if kill {
		in.kill()
	} else {
		in.stop()
	}
	in.bin = bin
	in.start()
	version := u.now
	if bin == u.newer {
		version = u.next
	}
	s := u.awaitReady(fmt.Sprintf("with %s on version %s", name, version), u.names()...)
	for _, i := range s.Instances {
		if i.Name == name && i.Version != version.String() {
			u.t.Errorf("%s runs version %s, want %s", name, i.Version, version)
		}
	}
	u.awaitProgress(fmt.Sprintf("with %s on version %s", name, version), now(), u.loads...)
}

func (u *upgrading) upgrade(args ...string) string {
	u.t.Helper()
	out, err := u.command(append([]string{"cluster", "upgrade", "--timeout", waitLimit.String()}, args...)...)
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// resize sends a resize to the leader of its semaphore, of either kind, with or without the new
// field, and returns the answer.
func (u *upgrading) resize(kind protocol.Kind, limit uint64, field bool) (st protocol.Status, text string) {
	u.t.Helper()
	const name = "resized"
	if _, err := u.command("sem", "create", name, "--limit", "1", "--node", nodePath, "--timeout", waitLimit.String()); err != nil &&
		!strings.Contains(err.Error(), "exists") {
		u.t.Fatal(err)
	}
	await.True(u.t, "the leader of the semaphore to answer", func() bool {
		for _, in := range u.instances {
			if st, text = u.ask(in, name, kind, limit, field); st != protocol.StatusWrongShard && st != protocol.StatusUnavailable {
				return true
			}
		}
		return false
	})
	return st, text
}

// ask sends a resize to an instance. The session is at home in the semaphore's shard.
func (u *upgrading) ask(in *instance, name string, kind protocol.Kind, limit uint64, field bool) (protocol.Status, string) {
	nc, err := net.Dial("tcp", in.listen)
	if err != nil {
		return protocol.StatusUnavailable, err.Error()
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
	c := &hostileConn{nc: nc, path: nodePath, r: rand.New(rand.NewPCG(1, uint64(now())))}
	if err := c.hello(); err != nil {
		return protocol.StatusUnavailable, err.Error()
	}
	bucket := c.bucket([]byte(name))
	var id [protocol.KeyLen]byte
	for i := uint64(0); uint64(protocol.HomeBucket(id, protocol.DefaultBuckets)) != bucket; i++ {
		copy(id[:], fmt.Sprintf("%x", c.r.Uint64()))
	}
	call := func(frame []byte, kind protocol.Kind, reply protocol.Message) (protocol.Status, string) {
		if err := c.write(frame); err != nil {
			return protocol.StatusUnavailable, err.Error()
		}
		for {
			h, err := c.answer()
			if err != nil {
				return protocol.StatusUnavailable, err.Error()
			}
			if h.Kind != kind|protocol.KindReply {
				continue
			}
			if st := protocol.Status(h.Arg); st != protocol.StatusOK {
				var f protocol.Failure
				_ = protocol.DecodeBody(&f, h.Body)
				return st, f.Message
			}
			if err := protocol.DecodeBody(reply, h.Body); err != nil {
				return protocol.StatusInternal, err.Error()
			}
			return protocol.StatusOK, ""
		}
	}
	var session protocol.SessionReply
	if st, text := call(c.frame(nil, protocol.KindSessionStart, bucket, &protocol.SessionStart{Node: c.node, CreateID: id[:],
		Key: id[:], Timeout: 10_000, Nonce: 1}), protocol.KindSessionStart, &session); st != protocol.StatusOK {
		return st, text
	}
	m := &protocol.Resize{Head: protocol.Head{Session: session.Session, Seq: 1, Low: 1}, Name: []byte(name), Limit: limit,
		Expected: 1}
	body := protocol.AppendBody(nil, m)
	if field {
		body = append(append([]byte{body[0] + 1}, body[1:]...), 1)
	}
	return call(c.frame(nil, kind, bucket, rawBody{body: body}), kind, &protocol.Empty{})
}

// rawBody is a body as it is on the wire.
type rawBody struct {
	protocol.Message
	body []byte
}

func (b rawBody) AppendBody(to []byte) []byte { return append(to, b.body...) }

func (u *upgrading) limit() string {
	u.t.Helper()
	out, err := u.command("sem", "describe", "resized", "--node", nodePath, "-o", "json", "--timeout", waitLimit.String())
	if err != nil {
		u.t.Fatal(err)
	}
	var x struct {
		Limit json.Number `json:"limit"`
	}
	if err := json.Unmarshal([]byte(out), &x); err != nil {
		u.t.Fatal(err)
	}
	return x.Limit.String()
}

// refused asserts that nothing of the next version is written yet, whichever instance leads.
func (u *upgrading) refused(when string) {
	u.t.Helper()
	if st, text := u.resize(newKind, 7, false); st != protocol.StatusUnsupported && !u.gated(st, text) {
		u.t.Errorf("%s: the new request: %s %s", when, st, text)
	}
	// An instance of the former version passes over a field that it does not know.
	st, text := u.resize(protocol.KindResize, 7, true)
	if st != protocol.StatusOK && !u.gated(st, text) {
		u.t.Errorf("%s: the new field: %s %s", when, st, text)
	}
	if limit := u.limit(); st == protocol.StatusOK && limit != "7" || limit == "14" {
		u.t.Errorf("%s: the limit is %s after %s", when, limit, st)
	}
}

func (u *upgrading) gated(st protocol.Status, text string) bool {
	want := fmt.Sprintf("needs version %d.%d of the cluster; finish the upgrade: signalbox cluster upgrade", u.next.Major, u.next.Minor)
	return st == protocol.StatusPreconditionFailed && strings.Contains(text, want)
}

// TestRollingUpgrade takes a cluster to the next minor version, back and up again, under load of
// clients of both. What only the newer version knows is refused until the cluster's version rises;
// from then on the former version is refused. -rounds adds rounds of random steps, form long three.
func TestRollingUpgrade(t *testing.T) {
	form.SkipUntil(t, form.Full, "it builds two versions")
	t.Parallel()
	u := newUpgrade(t)
	for k := range 2 {
		u.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Timeout: loadTimeout, Pause: 5 * time.Millisecond})
	}
	u.startMixed()
	since := now()
	u.awaitProgress("at first", since, u.loads...)
	u.commandLines("before the upgrade")
	u.upgrade("--hold")
	u.restart("a", u.newer, false)
	u.refused("with one of three")
	u.commandLines("with one of three")
	u.restart("a", u.former, false)
	rounds := form.Of(0, 3)
	if *roundsFlag > 0 {
		rounds = *roundsFlag
	}
	for round := range rounds {
		u.round(round)
	}
	for _, name := range u.names() {
		u.restart(name, u.newer, name == "b")
	}
	u.refused("while the upgrade is held")
	if out := u.upgrade(); !strings.Contains(out, "held") || !strings.Contains(out, "--finish") {
		t.Errorf("the next step of a held upgrade is %q", out)
	}
	u.restart("c", u.former, true)
	u.restart("c", u.newer, false)

	u.upgrade("--finish")
	u.await("the cluster's version to rise", func(s *protocol.ClusterStatus) string {
		if s.Version != u.next.String() {
			return "it is " + s.Version
		}
		return ""
	})
	if st, text := u.resize(newKind, 3, false); st != protocol.StatusOK {
		t.Errorf("the new request after the upgrade: %s %s", st, text)
	}
	if st, text := u.resize(protocol.KindResize, 5, true); st != protocol.StatusOK || u.limit() != "10" {
		t.Errorf("the new field after the upgrade: %s %s, the limit is %s", st, text, u.limit())
	}
	u.logLongestCall("rolling upgrade", since)
	u.commandLines("after the upgrade")
	u.stopMixed()

	in := u.instances["c"]
	in.stop()
	in.bin = u.former
	in.start()
	<-in.ended
	if in.err == nil || !strings.Contains(in.log(), "signalbox cluster restore") {
		t.Errorf("the former version was started after the upgrade: %v", in.err)
	}
	u.bin = u.newer
	u.stopLoads(true)
}

// round takes instances up and down again in random order, with the events of a cluster's life
// meanwhile.
func (u *upgrading) round(n int) {
	u.t.Helper()
	r := rand.New(rand.NewPCG(uint64(n), 1))
	began := now()
	bins := []string{u.former, u.newer}
	up := u.names()[:1+r.IntN(3)]
	for _, k := range r.Perm(len(up)) {
		u.restart(up[k], bins[1], r.IntN(2) == 0)
	}
	u.refused(fmt.Sprintf("in round %d", n))
	u.commandLines(fmt.Sprintf("in round %d", n))
	s, err := u.status()
	if err != nil {
		u.t.Fatal(err)
	}
	switch r.IntN(4) {
	case 0:
		x := s.Shards[r.IntN(len(s.Shards))]
		to := slices.DeleteFunc(u.names(), func(name string) bool { return name == x.Master })[r.IntN(2)]
		if _, err := u.command("cluster", "transfer", strconv.FormatUint(x.ID, 10), to, "--timeout", waitLimit.String()); err != nil {
			u.t.Errorf("transfer: %v", err)
		}
	case 1:
		file := filepath.Join(u.t.TempDir(), "backup")
		if _, err := u.command("cluster", "backup", file, "--timeout", waitLimit.String()); err != nil {
			u.t.Errorf("backup: %v", err)
		}
	case 2:
		// The number of shards changes, so that buckets move.
		for _, shards := range []string{"5", "4"} {
			if _, err := u.command("cluster", "shards", shards, "--timeout", waitLimit.String()); err != nil {
				u.t.Errorf("shards: %v", err)
			}
		}
	case 3:
		joined := fmt.Sprintf("joined-%d", n)
		in := u.add(joined)
		u.peers(joined, u.names()...)
		in.bin = bins[r.IntN(2)]
		in.start()
		u.awaitReady("with another instance", u.names()...)
		u.run(bins[r.IntN(2)], "cluster", "expel", joined, "--force", "--reason", "test")
		<-in.ended
		delete(u.instances, joined)
	}
	for _, k := range r.Perm(len(up)) {
		u.restart(up[k], bins[0], r.IntN(2) == 0)
	}
	u.logLongestCall(fmt.Sprintf("round %d", n), began)
}

// TestUpgradeWithoutGate: a version that writes its newest format at once stops instances of the
// former one, and their log says why.
func TestUpgradeWithoutGate(t *testing.T) {
	form.SkipUntil(t, form.Long, "it builds a version without the gate")
	u := newUpgrade(t, withoutGate...)
	in := u.instances["a"]
	in.stop()
	in.bin = u.newer
	in.start()
	await.True(t, "an instance of the former version to stop", func() bool {
		for _, name := range []string{"b", "c"} {
			select {
			case <-u.instances[name].ended:
				return strings.Contains(u.instances[name].log(), "format version this binary does not know")
			default:
			}
		}
		return false
	})
}
