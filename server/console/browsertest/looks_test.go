package browsertest

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/console"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

var (
	looks   = flag.String("looks", "", "the folder into which TestLooks writes its pictures")
	looksAt = flag.String("looks-at", "", "the pages of these pictures, by name, in commas; empty: all")
)

// TestLooks writes a picture of each page into the folder that -looks names, light and
// dark, wide and narrow, so that somebody looks at them: three instances with 10,000 semaphores, a
// stuck rollout, a round that waits and a contended lock.
func TestLooks(t *testing.T) {
	dir := *looks
	if dir == "" {
		t.Skip("-looks names no folder for pictures")
	}
	audit := t.TempDir()
	cluster := servertest.StartCluster(t, 3, servertest.Shards(2), servertest.Config(func(c *server.Config) {
		c.Audit = filepath.Join(audit, c.Name)
	}))
	site := startConsole(t, console.Config{Client: client.Config{Endpoints: cluster.Addrs()}})
	c, err := client.Dial(t.Context(), cluster.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	pages := busyCluster(t, c, cluster.Addrs())
	b := openBrowser(t)
	for name, path := range pages {
		if *looksAt != "" && !slices.Contains(strings.Split(*looksAt, ","), name) {
			continue
		}
		b.run(b.ctx, "open "+path, look(1280, 900, "light"), chromedp.Navigate(site+path))
		b.until(b.ctx, "the page", `document.readyState === "complete" && document.querySelector("h1")`)
		for _, width := range []int64{1280, 400} {
			for _, scheme := range []string{"light", "dark"} {
				b.run(b.ctx, "look", look(width, 900, scheme))
				height := value[int64](b, b.ctx, `document.documentElement.scrollHeight`)
				b.run(b.ctx, "look at all", look(width, min(max(height, 600), 5000), scheme))
				var picture []byte
				b.run(b.ctx, "the picture", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) (err error) {
					picture, err = chromedp.CaptureScreenshot()(ctx, tab)
					return err
				}))
				file := filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				if err := os.WriteFile(file, picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	b.forget("404")
}

// slowMember prepares for ever if it is told to.
type slowMember struct {
	process.BaseHandler
	wait <-chan struct{}
}

func (m slowMember) Prepare(r *process.Round) error {
	select {
	case <-m.wait:
	case <-r.Context().Done():
	}
	return nil
}
func (slowMember) Coordinate(r *process.Round) error { return r.Complete(nil) }
func (slowMember) Process(*process.Request) error    { return nil }
func (slowMember) Complete(*process.Round)           {}

// busyCluster makes objects in all states, and returns the addresses of pages by name.
func busyCluster(t *testing.T, c *client.Client, endpoints []string) map[string]string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	t.Cleanup(func() { cancel(); waiting.Wait() })
	for _, path := range []string{"/teams", "/teams/search", "/teams/search/eu", "/teams/ads"} {
		_, err := admin.Nodes(c).Create(ctx, path, admin.NodeConfig{})
		must(err)
	}
	owner := session(t, c, "billing@db-1")
	var creating sync.WaitGroup
	for part := range 50 {
		creating.Go(func() {
			for i := part; i < 10_000; i += 50 {
				if err := owner.Create(ctx, fmt.Sprintf("jobs/%05d", i), uint64(1+i%7), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	for i := range 40 {
		s := session(t, c, fmt.Sprintf("worker@host-%02d", i))
		_, err := s.Acquire(ctx, fmt.Sprintf("jobs/%05d", i*3), client.Data("10.0.0."+strconv.Itoa(i)+":8080"))
		must(err)
	}
	wait := func(name, who string, opts ...client.AcquireOption) {
		t.Helper()
		s, accepted := session(t, c, who), make(chan struct{})
		waiting.Go(func() {
			_, _ = s.Acquire(ctx, name, append(opts, client.OnQueued(func(uint64) { close(accepted) }))...)
		})
		<-accepted
	}
	must(owner.Create(ctx, "exports", 5, []byte("at most five exports at a time\nask data-team@ before you raise it")))
	for i, n := range []uint64{2, 1, 1} {
		s := session(t, c, []string{"billing@db-1", "reports@app-7", "reports@app-8"}[i])
		_, err := s.Acquire(ctx, "exports", client.Count(n), client.Data([]string{"10.0.0.1:8080", "", `{"job":"monthly","by":"cron"}`}[i]))
		must(err)
	}
	wait("exports", "archive@app-2", client.Count(3), client.Wait(time.Hour))
	wait("exports", "reports@app-9", client.Wait(10*time.Minute))
	wait("exports", "billing@db-2", client.Data("retry 3"))
	_, err := owner.Acquire(ctx, "leader", client.Exclusive())
	must(err)
	for i := range 150 {
		wait("leader", fmt.Sprintf("candidate@host-%03d", i), client.Exclusive())
	}
	must(owner.Create(ctx, "imports", 4, nil))
	_, err = session(t, c, "imports@app-1").Acquire(ctx, "imports", client.Count(3))
	must(err)
	wait("imports", "imports@app-2", client.Count(4))
	must(owner.Resize(ctx, "imports", 2, client.Reason("the disk is slow")))

	for i, at := range []struct{ zone, state, why string }{
		{"zone-a", "ready", ""}, {"zone-a", "ready", ""}, {"zone-a", "failing", "get http://10.0.0.3/healthz: 503"}, {"zone-b", "ready", ""},
		{"zone-b", "draining", "drained by alice: the disk is slow"}, {"zone-c", "ready", ""},
	} {
		e := discovery.Endpoint{Addr: fmt.Sprintf("10.0.0.%d:8080", i+1), Zone: at.zone, State: discovery.State(at.state), Why: at.why}
		data, err := e.Data()
		must(err)
		_, err = session(t, c, "api@"+strings.ToLower(at.zone)).Service("api").Register(ctx, data)
		must(err)
	}
	_, err = session(t, c, "api@old").Service("api").Register(ctx, []byte("no address"))
	must(err)
	for _, value := range []string{"dark=0", "dark=1\nlight=0"} {
		_, err = owner.Config("flags").Set(ctx, []byte(value))
		must(err)
	}

	must(owner.Create(ctx, "gpus", 8, nil, client.SemaphoreConfig{Policy: client.PolicyPriority, Aging: time.Minute,
		MaxHold: 12 * time.Hour, Extend: true, Preempt: client.PreemptLower, Grace: 15 * time.Minute, MinHold: time.Hour,
		Slots: []client.Slot{{Name: "a0", Labels: []string{"a100"}}, {Name: "a1", Labels: []string{"a100"}},
			{Name: "a2", Labels: []string{"a100"}}, {Name: "a3", Labels: []string{"a100"}},
			{Name: "h0", Labels: []string{"h100", "nvlink"}}, {Name: "h1", Labels: []string{"h100", "nvlink"}},
			{Name: "h2", Labels: []string{"h100"}}, {Name: "h3", Labels: []string{"h100"}}}}))
	short, err := session(t, c, "nightly@ci-1").Acquire(ctx, "gpus", client.Slots("a0"))
	must(err)
	must(short.Release(ctx))
	must(owner.Drain(ctx, "gpus", []string{"a3"}, client.Reason("its fan is broken")))
	gpuJob := func(who string, opts ...client.AcquireOption) uint64 {
		l, err := session(t, c, who).Acquire(ctx, "gpus", opts...)
		must(err)
		return l.Token()
	}
	gone := gpuJob("training@lost-host", client.Slots("a1"))
	_, err = admin.OfNode(owner.Node()).ForceRelease(ctx, "gpus", gone, gone, "the host is lost")
	must(err)
	gpuJob("training@gpu-1", client.Count(3), client.Labels("h100"), client.Priority(3))
	gpuJob("research@gpu-2", client.Labels("h100"), client.Priority(7))
	must(owner.Drain(ctx, "gpus", []string{"h3"}, client.Reason("a new driver")))
	gpuJob("notebook@gpu-3", client.Slots("a1"), client.MaxHold(20*time.Minute))
	wait("gpus", "serving@gpu-4", client.Count(2), client.Labels("h100"), client.Priority(9))
	wait("gpus", "training@gpu-5", client.Labels("nvlink"), client.Priority(3))
	wait("gpus", "research@gpu-6", client.Count(3), client.Labels("a100"))
	wait("gpus", "batch@gpu-7", client.Count(4), client.Labels("a100"), client.Priority(1))
	must(owner.Create(ctx, "crane", 1, nil, client.SemaphoreConfig{Policy: client.PolicyPriority,
		Preempt: client.PreemptLower, Grace: time.Second}))
	frozen, err := client.Dial(ctx, endpoints...)
	must(err)
	stopped, err := frozen.Session(ctx, "/default", client.Description("stopped@yard-1"), client.Timeout(30*time.Minute))
	must(err)
	_, err = stopped.Acquire(ctx, "crane", client.Priority(2))
	must(err)
	frozen.CloseWithoutRelease()
	wait("crane", "urgent@yard-2", client.Priority(8), client.Wait(time.Hour))
	for silent := false; !silent; {
		s, err := owner.Node().Describe(ctx, "crane", client.IncludeOwners())
		must(err)
		silent = s.Owners[0].Silent
	}
	must(owner.Create(ctx, "licenses", 3, nil, client.SemaphoreConfig{Policy: client.PolicyFair,
		Weights: map[string]uint64{"search": 3, "ads": 1}}))
	for _, key := range []string{"search", "search", "ads"} {
		_, err := session(t, c, key+"@host").Acquire(ctx, "licenses", client.Key(key))
		must(err)
	}
	for i := range 6 {
		key := []string{"search", "ads", "maps"}[i%3]
		wait("licenses", key+"@host-"+strconv.Itoa(i), client.Key(key))
	}

	_, err = ratelimit.Create(ctx, owner, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000)})
	must(err)
	for path, config := range map[string]ratelimit.Config{"api/search": {Weight: 3, Min: 100}, "api/ads": {}, "api/old": {Rate: ratelimit.PerSecond(5)}} {
		_, err = ratelimit.Create(ctx, owner, path, config)
		must(err)
	}
	for i, path := range []string{"api/search", "api/search", "api/ads", "api/old"} {
		s := session(t, c, "caller@host-"+strconv.Itoa(i))
		l, err := ratelimit.JoinSession(ctx, s, path)
		must(err)
		waiting.Go(func() {
			for l.Wait(ctx, 1) == nil {
			}
			_ = l.Close(context.Background())
		})
	}

	killed := session(t, c, "batch@old-host")
	must(admin.OfNode(killed.Node()).KillSession(ctx, killed.ID(), "the host is gone"))

	track := rollout.NewTrack(owner, "geo/base")
	_, err = track.Create(ctx, rollout.Config{
		Source: rollout.Published, StallTimeout: time.Second,
		Locations: []rollout.Location{{Name: "zone-a"}, {Name: "zone-b"}, {Name: "zone-c", Delay: time.Hour}},
	})
	must(err)
	instances := make(map[string]*rollout.Instance)
	for _, at := range []string{"zone-a", "zone-b", "zone-c"} {
		for i := range 4 {
			id := fmt.Sprintf("%s-%d", strings.ToLower(at), i)
			x, err := rollout.NewTrack(session(t, c, "geo@"+id), "geo/base").Register(ctx,
				rollout.Registration{ID: id, Location: at, Role: rollout.LeaderRole})
			must(err)
			instances[id] = x
		}
	}
	for v := uint64(40); v < 43; v++ {
		_, err := track.Publish(ctx, v, []byte("base"))
		must(err)
		for range 3 {
			for id, x := range instances {
				target, err := x.GetTargetState(ctx, nil, false)
				must(err)
				report := &rollout.Report{Current: target.Version, Target: target.Version, Code: rollout.CodeOK}
				if v == 42 && target.Version == 42 && (id == "zone-b-1" || id == "zone-b-2") {
					report = &rollout.Report{Current: 41, Target: 42, Code: "LoadFailed",
						Message: "disk is full: 0 of 4.1 GiB free", Attempts: 7}
				}
				if target.Version > 0 {
					_, err = x.GetTargetState(ctx, report, false)
					must(err)
				}
			}
		}
	}
	await.True(t, "a location that is stalled", func() bool {
		s, err := track.Describe(ctx)
		must(err)
		for _, x := range instances {
			_, err := x.GetTargetState(ctx, nil, false)
			must(err)
		}
		return s.Locations[1].State == rollout.Stalled
	})

	fine := make(chan struct{})
	close(fine)
	stuck := make(chan struct{})
	for i := range 4 {
		h := slowMember{wait: fine}
		if i == 3 {
			h.wait = stuck
		}
		s := session(t, c, fmt.Sprintf("queue@host-%d", i))
		p, err := process.Join(ctx, s, "work-queue", h,
			process.Options{Key: fmt.Sprintf("host-%d", i), Data: []byte("16 cores"), Synchronous: i < 3})
		must(err)
		waiting.Go(func() { <-ctx.Done(); _ = p.Leave(context.Background()) })
	}
	n := owner.Node()
	await.True(t, "four members, of which one lags", func() bool {
		s, err := process.NewOperator(n, "work-queue").Describe(ctx)
		must(err)
		return len(s.Members) == 4 && len(s.Lagging()) == 1
	})
	in := "node=%2Fdefault&name="
	name := func(s string) string { return in + base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return map[string]string{
		"overview": "/", "nodes": "/nodes", "node": "/node?node=%2Fdefault", "semaphores": "/semaphores?node=%2Fdefault",
		"waiters": "/semaphores?node=%2Fdefault&order=waiters", "filtered": "/semaphores?node=%2Fdefault&prefix=jobs%2F001",
		"semaphore": semaphore("exports"), "lock": semaphore("leader"), "lowered": semaphore("imports"), "missing": semaphore("none"),
		"sessions": "/sessions?node=%2Fdefault", "session": sessionPath(owner.ID()), "rollouts": "/rollouts?node=%2Fdefault",
		"rollout": "/rollout?" + name("geo/base") + "&location=zone-b", "processes": "/processes?node=%2Fdefault",
		"process":  "/process?" + name("work-queue"),
		"services": "/services?node=%2Fdefault", "elections": "/elections?node=%2Fdefault",
		"configurations": "/configurations?node=%2Fdefault", "service": semaphore("api") + "&zone=zone-a",
		"limits": "/limits?node=%2Fdefault", "limit": "/limit?" + name("api"),
		"slots": semaphore("gpus"), "fair": semaphore("licenses"), "silent": semaphore("crane"),
		"drain-slot":    "/action/drain-slot?" + name("gpus") + "&slot=h2",
		"configuration": semaphore(client.ConfigPrefix + "flags"),
		"audit":         "/audit", "kill": "/action/kill-session?node=%2Fdefault&id=" + strconv.FormatUint(owner.ID(), 10),
		"resize": "/action/resize?" + name("exports") + "&limit=7", "promote": "/action/promote?" + name("geo/base") + "&location=zone-b",
		"login": "/login", "nothing": "/nothing",
	}
}
