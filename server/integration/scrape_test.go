package integration

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestPromtoolAcceptsMetrics has promtool read and check what a server shows after some work.
func TestPromtoolAcceptsMetrics(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed, so the page of metrics is not checked; it is in Debian's package prometheus")
	}
	s := start(t, nil)
	c := connect(t, s)
	node := c.node()
	r := c.session(node, 1)
	for _, name := range []string{"plain", "\xff\n\"quoted\\", strings.Repeat("long", 100), "\u0437\u0430\u043c\u043e\u043a"} {
		if _, err := c.lock(node, r.Session, name, 0); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(s))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestScrapeIsBounded: with many semaphores a page has no more series, and takes no more memory,
// than with the few thousand that are shown by name. One that is waited for is among them, however
// many there are.
func TestScrapeIsBounded(t *testing.T) {
	const semaphores = 20_000
	s := start(t, func(c *server.Config) { c.Shards = 1 })
	c := connect(t, s)
	node := c.node()
	a, b := c.session(node, 1), c.session(node, 2)
	fill(t, c, node, a.Session, semaphores)
	if _, err := c.lock(node, a.Session, "wanted", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.lock(node, b.Session, "wanted", protocol.Forever); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	s.Metrics.WritePrometheus(&page)
	if n := strings.Count(page.String(), "\nsignalbox_semaphore_owners{"); n == 0 || n > 1000 {
		t.Errorf("%d of %d semaphores are shown", n, semaphores)
	}
	if !strings.Contains(page.String(), `signalbox_semaphore_waiters{node="/default",semaphore="wanted"} 1`+"\n") ||
		!strings.Contains(page.String(), "signalbox_semaphore_series_truncated 1\n") {
		t.Error("the one that is waited for is not shown, or it is not said that others are left out")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.Metrics.WritePrometheus(io.Discard)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("a page takes %d bytes of memory", used)
	}
}

// fill creates semaphores, many requests at a time.
func fill(t testing.TB, c *raw, node, session uint64, n int) {
	t.Helper()
	c.must(protocol.KindNodeAlter, 0,
		&protocol.NodeAlter{Path: "/default", Config: protocol.NodeConfig{Fields: protocol.FieldMaxSemaphores, MaxSemaphores: 1 << 30}},
		&protocol.NodeInfo{})
	ids := make([]uint64, 0, 500)
	for i := 0; i < n; {
		ids = ids[:0]
		for len(ids) < cap(ids) && i < n {
			name := fmt.Sprintf("service/%03d/lock-%07d", i%100, i)
			ids = append(ids, c.send(protocol.KindCreate, c.bucket(node, name),
				&protocol.Create{Head: c.head(session), Name: []byte(name), Limit: 1}))
			i++
		}
		for _, id := range ids {
			if err := c.reply(protocol.KindCreate, id, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkScrape is a page of metrics of an instance with a million semaphores, of which ten
// thousand are waited for.
func BenchmarkScrape(b *testing.B) {
	s := start(b, func(c *server.Config) { c.Shards = 4 })
	c := connect(b, s)
	node := c.node()
	holder, waiter := c.session(node, 1), c.session(node, 2)
	fill(b, c, node, holder.Session, 1_000_000)
	for i := range 10_000 {
		name := fmt.Sprint("wanted/", i)
		for _, session := range []uint64{holder.Session, waiter.Session} {
			if _, err := c.lock(node, session, name, protocol.Forever); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Metrics.WritePrometheus(io.Discard)
	}
}

// TestBackupAgeOfNewShard: a shard that no backup has read yet has its own age, so that a new one is
// not reported as one without backups.
func TestBackupAgeOfNewShard(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Shards = 1 })
	metaShard := fmt.Sprint(meta.MetaShardID)
	for _, line := range strings.Split(scrape(s), "\n") {
		var shard string
		var age float64
		if n, _ := fmt.Sscanf(line, "signalbox_backup_age_seconds{shard=%q} %f", &shard, &age); n != 2 {
			continue
		}
		if forever := math.IsInf(age, 1); forever != (shard == metaShard) || !forever && age > 3600 {
			t.Errorf("the backup age of shard %s of a new cluster is %v s", shard, age)
		}
	}
}
