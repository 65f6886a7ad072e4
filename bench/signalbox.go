// How does this project run as a system that is measured?

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// SignalboxSystem is this project as a System, by its binary. It runs with its defaults, which are
// durable.
type SignalboxSystem struct{ Binary string }

// Name says signalbox.
func (s *SignalboxSystem) Name() string { return Signalbox }

// Version asks the binary.
func (s *SignalboxSystem) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, s.Binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run: %w; run make build", s.Binary, err)
	}
	v := strings.Join(strings.Fields(strings.SplitN(string(out), "\n", 2)[0]), " ")
	return v + "; default settings; its own SDK", nil
}

// Start starts an instance.
func (s *SignalboxSystem) Start(ctx context.Context, dir string) (*Server, error) {
	addr, err := FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	p, err := s.serve(ctx, nil, 0, dir, [3]string(addr))
	if err != nil {
		return nil, err
	}
	return NewServer(p, signalboxPlan(addr[0])), nil
}

// serve starts the process of an instance on a host, with its data below a folder. addr are its
// addresses for clients, raft and operators.
func (s *SignalboxSystem) serve(
	ctx context.Context, hosts *Hosts, host int, dir string, addr [3]string, flags ...string,
) (*Process, error) {
	binary, err := filepath.Abs(s.Binary)
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--data", filepath.Join(dir, "data"), "--listen", addr[0], "--raft", addr[1],
		"--admin", addr[2], "--log-level", "warn"}
	program, args := hosts.Command(host, binary, append(args, flags...)...)
	p, err := StartProcess(ctx, dir, func(ctx context.Context) error { return Get(ctx, "http://"+addr[2]+"/readyz") },
		program, args...)
	if err == nil {
		p.Collect = CollectGo(addr[2])
	}
	return p, err
}

func signalboxTarget(endpoints ...string) *loadgen.Signalbox {
	return &loadgen.Signalbox{Client: client.Config{Endpoints: endpoints}}
}

// signalboxPlan uses the same few connections wherever they may be shared; the SDK is made for
// that. A client of three instances has a connection to each leader: four clients are twelve
// connections.
func signalboxPlan(endpoints ...string) func(w Workload) (Plan, error) {
	return func(w Workload) (Plan, error) {
		p := Plan{Target: signalboxTarget(endpoints...), Connections: 4}
		switch w {
		case OwnConnections, OwnWatchers, IdleOwn:
			p.Connections = loadgen.Each
		case SessionStarts: // as the README shows it
			t := signalboxTarget(endpoints...)
			t.SessionEach = true
			p.Target, p.Connections = t, loadgen.Each
		case SteadyRate:
			p.Connections = RateConnections
		case Watchers:
			p.Connections = SharedConnections
		case SingleCaller:
			p.Connections = 1
		}
		return p, nil
	}
}

// joinToken is no secret: the cluster that it protects lives for seconds on the loopback interface.
const joinToken = "the instances of a comparison"

// writeJoinToken writes the token of a cluster's instances into a file of a folder, and returns the
// file's name.
func writeJoinToken(dir string) (string, error) {
	name := filepath.Join(dir, "token")
	return name, os.WriteFile(name, []byte(joinToken+"\n"), 0o600)
}

func instanceName(i int) string { return "server-" + strconv.Itoa(i+1) }

// StartCluster starts three instances that find each other by their --peer lists, each shard with a
// replica on each of them. All other settings are the defaults.
func (s *SignalboxSystem) StartCluster(ctx context.Context, dir string) (*Server, error) {
	return s.StartClusterOn(ctx, dir, nil)
}

// StartClusterOn is StartCluster on hosts.
func (s *SignalboxSystem) StartClusterOn(ctx context.Context, dir string, hosts *Hosts) (*Server, error) {
	addr, err := hosts.Addresses(3)
	if err != nil {
		return nil, err
	}
	var clients, rafts []string
	for _, own := range addr {
		clients, rafts = append(clients, own[0]), append(rafts, own[1])
	}
	token, err := writeJoinToken(dir)
	if err != nil {
		return nil, err
	}
	g, err := StartServers(ctx, dir, Servers, func(ctx context.Context, i int, dir string) (*Process, error) {
		return s.serve(ctx, hosts, i, dir, [3]string(addr[i]), "--instance", instanceName(i), "--peer", strings.Join(rafts, ","),
			"--join-token-file", token, "--replication-factor", strconv.Itoa(Servers))
	}, signalboxPlan(clients...))
	if err != nil {
		return nil, err
	}
	g.WaitReady = func(ctx context.Context) error { return waitClusterReady(ctx, clients) }
	g.Leader = func(ctx context.Context) (int, error) { return leaderOfMost(ctx, clients) }
	if err := g.WaitReady(ctx); err != nil {
		output := g.Process().lastOutput()
		g.Stop()
		return nil, fmt.Errorf("three instances did not become a cluster: %w: %s", err, output)
	}
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
		if n := leads[instanceName(i)]; n > most {
			best, most = i, n
		}
	}
	return best, nil
}

// waitClusterReady waits until three instances are one cluster with nothing left to do.
func waitClusterReady(ctx context.Context, endpoints []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := client.Open(ctx, client.Config{Endpoints: endpoints})
	if err != nil {
		return err
	}
	defer c.Close()
	return Poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		s, err := checkReady(ctx, admin.New(c), Servers, Servers)
		if err != nil {
			return err
		}
		if len(s.Meta.Voters) != Servers || len(s.Shards) == 0 {
			return fmt.Errorf("%d instances vote in the meta shard, and there are %d shards", len(s.Meta.Voters), len(s.Shards))
		}
		for _, x := range s.Shards {
			if x.Buckets == 0 {
				return fmt.Errorf("shard %d has no buckets", x.ID)
			}
		}
		p, err := admin.New(c).Plan(ctx)
		if err == nil && len(p.Waits) > 0 {
			err = errors.New(p.Waits[0].What + " waits: " + p.Waits[0].Why)
		}
		return err
	})
}

// checkReady returns an error unless the cluster has this many instances, each shard has its leader
// and as many voters as the replication factor and the instances allow, and nothing is left to do.
func checkReady(ctx context.Context, a *admin.Client, instances, factor int) (*admin.Status, error) {
	s, err := a.Status(ctx)
	if err != nil {
		return nil, err
	}
	there := 0
	for _, i := range s.Instances {
		if i.Current != "Expelled" {
			there++
		}
	}
	if there != instances {
		return nil, fmt.Errorf("there are %d instances", there)
	}
	for _, x := range s.Shards {
		voters := 0
		for _, r := range x.Replicas {
			if r.Role == "voter" {
				voters++
			}
		}
		if voters != min(factor, instances) || !x.Ready || x.Master == "" {
			return nil, fmt.Errorf("shard %d has %d voters, master %q", x.ID, voters, x.Master)
		}
	}
	p, err := a.Plan(ctx)
	if err == nil && len(p.Steps)+len(s.Moves) > 0 {
		err = fmt.Errorf("next is to %s, and %d moves are under way", strings.Join(p.Steps, ", "), len(s.Moves))
	}
	return s, err
}
