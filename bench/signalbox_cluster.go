package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// joinToken is no secret: what it protects lives for seconds on the loopback interface.
const joinToken = "the instances of a comparison"

// StartCluster starts three instances that find each other by their --peer lists, each shard with a
// replica on each of them. All settings but the number of shards are the defaults.
func (s *SignalboxPeer) StartCluster(ctx context.Context, dir string) (Server, error) {
	g, err := s.StartClusterOn(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// StartClusterOn is StartCluster on hosts, with further flags.
func (s *SignalboxPeer) StartClusterOn(ctx context.Context, dir string, hosts *Hosts, flags ...string) (*Cluster, error) {
	binary, err := filepath.Abs(s.Binary)
	if err != nil {
		return nil, err
	}
	addr, err := hosts.Addresses(3)
	if err != nil {
		return nil, err
	}
	shards := s.Shards
	if shards == 0 {
		shards = shardsFor(runtime.NumCPU(), Servers)
	}
	var clients, rafts, admins []string
	for _, own := range addr {
		clients, rafts, admins = append(clients, own[0]), append(rafts, own[1]), append(admins, own[2])
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(joinToken+"\n"), 0o600); err != nil {
		return nil, err
	}
	g, err := StartServers(ctx, dir, Servers, func(ctx context.Context, i int, dir string) (*Process, error) {
		args := []string{"serve", "--data", filepath.Join(dir, "data"), "--listen", clients[i], "--raft", rafts[i], "--admin", admins[i], "--log-level", "warn",
			"--instance", "server-" + strconv.Itoa(i+1), "--peer", strings.Join(rafts, ","), "--join-token-file", token, "--replication-factor", strconv.Itoa(Servers),
			"--shards", strconv.Itoa(shards)}
		program, args := hosts.Command(i, binary, append(args, flags...)...)
		p, err := StartProcess(ctx, dir, func(ctx context.Context) error { return Get(ctx, "http://"+admins[i]+"/readyz") }, program, args...)
		if err == nil {
			p.Collect = CollectGo(admins[i])
		}
		return p, err
	}, Plan{
		// The SDK has a connection to each instance that leads something: four clients are twelve
		// connections.
		Target: &loadgen.Signalbox{Client: client.Config{Endpoints: clients}}, Connections: 4,
	})
	if err != nil {
		return nil, err
	}
	if err := waitClusterReady(ctx, clients); err != nil {
		words := g.Process().lastOutput()
		g.Stop()
		return nil, fmt.Errorf("three instances did not become a cluster: %w: %s", err, words)
	}
	g.WaitReady = func(ctx context.Context) error { return waitClusterReady(ctx, clients) }
	g.Leader = func(ctx context.Context) (int, error) { return leaderOfMost(ctx, clients) }
	return g, nil
}

// leaderOfMost is the instance that leads most data shards; of several the one that leads the meta
// shard too.
func leaderOfMost(ctx context.Context, endpoints []string) (int, error) {
	c, err := client.Open(ctx, client.Config{Endpoints: endpoints})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	s, err := admin.New(c).Status(ctx)
	if err != nil {
		return 0, err
	}
	leads := map[string]int{s.Meta.Leader: 1}
	for _, x := range s.Shards {
		leads[x.Master] += 2
	}
	best, most := 0, -1
	for i := range Servers {
		if n := leads["server-"+strconv.Itoa(i+1)]; n > most {
			best, most = i, n
		}
	}
	return best, nil
}

// waitClusterReady waits until every shard has its voters and its master, and the cluster has
// nothing left to do.
func waitClusterReady(ctx context.Context, endpoints []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := client.Open(ctx, client.Config{Endpoints: endpoints})
	if err != nil {
		return err
	}
	defer c.Close()
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		why, err := pendingWork(ctx, c)
		if err == nil && why == "" {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		}
	}
}

// pendingWork is what the cluster has still to do, or nothing.
func pendingWork(ctx context.Context, c *client.Client) (string, error) {
	s, err := admin.New(c).Status(ctx)
	if err != nil {
		return "", err
	}
	if len(s.Meta.Voters) != Servers || len(s.Shards) == 0 {
		return fmt.Sprintf("%d instances vote in the meta shard, and there are %d shards", len(s.Meta.Voters), len(s.Shards)), nil
	}
	for _, x := range s.Shards {
		voters := 0
		for _, r := range x.Replicas {
			if r.Role == "voter" {
				voters++
			}
		}
		if voters != Servers || !x.Ready || x.Buckets == 0 || x.Master == "" {
			return fmt.Sprintf("shard %d has %d voters, %d buckets, master %q", x.ID, voters, x.Buckets, x.Master), nil
		}
	}
	p, err := admin.New(c).Plan(ctx)
	if err != nil {
		return "", err
	}
	if n := len(p.Steps); n > 0 {
		return "next is to " + p.Steps[0], nil
	}
	if n := len(p.Waits); n > 0 {
		return p.Waits[0].What + " waits: " + p.Waits[0].Why, nil
	}
	return "", nil
}
