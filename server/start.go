package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/admin"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/issuer"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// firstShard is the id of the first data shard.
const firstShard = 2

// openLinks opens the transport to other instances, and finds this one's role: a member of a
// cluster, the founder of a new one, or one that joins. In memory, without a network, it is alone.
func (s *Server) openLinks(ctx context.Context) error {
	s.links = noPeers{}
	if s.cfg.Network != nil || !s.cfg.inMemory() {
		token, err := s.cfg.joinToken()
		if err != nil {
			return err
		}
		var tokens [][]byte
		if len(token) > 0 {
			if tokens, err = joinTokens(string(token)); err != nil {
				return err
			}
		}
		s.peers, err = peer.New(peer.Config{
			Advertise: s.cfg.raftAddress(), Listen: s.cfg.Raft, Network: s.certs.network(s.cfg.Network),
			Tokens: tokens, Cluster: s.clusterID, Stopped: s.membership.Stopped, Logger: s.log,
		})
		if err != nil {
			return err
		}
		s.links = s.peers
		if s.cfg.JoinTokenFile != "" || s.cfg.JoinToken == "" && !s.cfg.inMemory() {
			s.running.Go(func() { followJoinToken(s, string(token)) })
		}
	}
	s.entry = &cluster.Bootstrap{
		Store: s.cfg.identityStore(), Transport: s.links, Advertise: s.cfg.raftAddress(),
		Voter: s.cfg.mayFound() && !s.cfg.joinsRestored(),
		Peers: slices.Clone(s.cfg.Peers), Cluster: s.cfg.Cluster,
		Request: cluster.JoinRequest{Name: s.cfg.Name, Tier: s.cfg.Tier, Address: s.advertise(),
			Domain: s.cfg.labels(), Version: s.cfg.version(), LastOfPreviousMajor: lastOfPreviousMajor},
		Logger: s.log,
	}
	if s.cfg.restore != nil {
		s.entry.Request.Restores = s.cfg.restore.Digest()
	}
	s.member = cluster.New(cluster.Config{
		Transport: s.links, Local: shardhost.Local{Hosting: s.hosting}, State: s.meta.State, Now: s.clock.Now,
		Join: s.membership.Admit, CheckApplicant: s.membership.CheckApplicant, SetTarget: s.membership.SetTarget,
		HeartbeatReceived: s.membership.HeartbeatReceived, Plan: s.plan, Backup: s.hosting.Backups.Serve,
		ProcessExited: s.peerEnded, FetchKeys: s.fetchKeys, Refusals: s.refusals, Logger: s.log,
	})
	s.membership.Connect(s.member, s.entry)
	s.hosting.Connect(s.member)
	if s.peers != nil && s.cfg.Network == nil {
		s.entry.Probe = cluster.Probe
	}
	if err := s.entry.Start(); err != nil {
		return err
	}
	s.startup.waitFor(s.entry.WaitingFor)
	if s.peers != nil {
		s.peers.OnProcessExit(func(ctx context.Context, address string) {
			if s.ready.Load() && !s.leaving.Load() {
				s.membership.PeerExited(ctx, address)
			}
		})
		if s.cfg.restore == nil || s.cfg.joinsRestored() { // else it is alone until it is served
			if err := s.peers.Start(); err != nil {
				return err
			}
		}
	}
	id, joined, err := s.entry.Run(ctx)
	if err != nil {
		return err
	}
	if !id.Founder && !joined || len(id.Known) > 0 {
		if err := s.askWho(ctx); err != nil {
			return err
		}
		id = s.entry.Identity()
	}
	s.startup.waitForText("reading its log")
	s.instance = id.Instance
	s.membership.SetInstance(s.instance)
	return nil
}

// askWho asks the others for the status of this instance after its process was down. They may all
// be down. Then the instance goes on with what it knew; membership asks again while the meta shard
// cannot be reached.
func (s *Server) askWho(ctx context.Context) error {
	for {
		replica, err := s.entry.InstanceStatus(ctx)
		switch {
		case errors.Is(err, cluster.ErrExpelled):
			return errors.Join(err, s.entry.SetExpelled())
		case err != nil:
			s.log.Info("no other instance answers yet; starting with what the folder knows", "error", err)
			return nil
		case replica != 0:
			return s.entry.SetMetaReplica(replica)
		}
		// It has lost its vote, and gets a new replica of the meta shard in a moment.
		if !beat.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("wait for a new replica of the meta shard: %w", ctx.Err())
		}
	}
}

// openAdmin serves health, readiness and metrics at the operators' address while the server starts:
// a probe must not hang, and an alert must not be silent, because peers are missing.
func (s *Server) openAdmin(context.Context) error {
	registerReadiness(s)
	if s.adminListener == nil {
		return nil
	}
	h := admin.Handler(admin.Config{Hosts: s.cfg.adminHosts(), Metrics: s.metrics.WritePrometheus, Live: s.Live,
		Ready: s.Ready})
	s.startup.pages.Store(&h)
	s.adminServer = admin.Server(&s.startup, s.log)
	s.running.Go(func() { _ = s.adminServer.Serve(admin.LimitListener(s.adminListener)) })
	return nil
}

// openMetrics adds the server's own metrics, which read the parts that have started by then.
func (s *Server) openMetrics(context.Context) error {
	registerMetrics(s)
	s.running.Go(func() { s.serving.SampleRates(s.ctx) })
	s.running.Go(func() { s.serving.LogExpired(s.ctx) })
	return nil
}

// limitConnections bounds the connections by the limit on open files.
func (s *Server) limitConnections(context.Context) (err error) {
	s.maxConns, err = maxConnections(s.cfg.Limits.MaxConnections, s.log)
	return err
}

// openAudit opens the audit log, once it is known which instance this is.
func (s *Server) openAudit(context.Context) error {
	if s.cfg.Audit == "" {
		return nil
	}
	if err := s.audit.open(&s.cfg, s.instance); err != nil {
		return err
	}
	s.running.Go(func() { s.audit.savePositions(s.ctx) })
	return nil
}

// auditRecovery records that the contents of the folder are applied.
func (s *Server) auditRecovery(context.Context) error {
	if s.audit.restart {
		s.audit.write(audit.RecoverLocalDB)
	}
	return nil
}

// makeFolder makes and locks the data folder.
func (s *Server) makeFolder(context.Context) (err error) {
	s.lock, err = s.cfg.openFolder(s.log)
	return err
}

// openAuth turns auth on in a cluster that this instance makes, before clients are let in. It may
// have died in the middle before: the secret is on disk first.
func (s *Server) openAuth(ctx context.Context) error {
	if !s.cfg.Auth || !s.entry.Identity().Founder {
		return nil
	}
	state := s.meta.State()
	if list, _ := state.Tokens(); state.AuthOn() || len(list) != 0 {
		return nil // turning it off later is an administrator's word, which a restart does not undo
	}
	secret, where, err := adminSecret(&s.cfg)
	if err != nil {
		return err
	}
	t := meta.Token{ID: auth.AdminTokenID, Identity: auth.AdminIdentity, Hash: auth.HashToken([]byte(secret))}
	if err := s.governor.TurnAuth(ctx, true, t); err != nil && !errors.Is(err, protocol.StatusAlreadyExists) {
		return fmt.Errorf("turn auth on: %w", err)
	}
	s.requests.SetAuth(s.meta.State())
	s.log.Info("auth is on; the administrator's token is kept", "identity", auth.AdminIdentity, "file", where)
	return nil
}

// clusterID is the cluster's id, empty while it is unknown: this instance may then talk to any.
func (s *Server) clusterID() string {
	if s.entry == nil {
		return ""
	}
	return s.entry.Identity().Cluster
}

// openLog opens the folder and the meta shard.
func (s *Server) openLog(ctx context.Context) error {
	cfg := replica.HostConfig{
		Dir: s.cfg.DataDir, RaftAddress: s.cfg.raftAddress(), RTT: s.cfg.RTT, Memory: s.cfg.Memory,
		Disk: s.cfg.Disk, Clock: s.clock, Logger: s.log,
		Removed: s.hosting.ReplicaRemoved, Fatal: s.fail, LowSpace: s.leaveFullDisk,
		Saved:   func(d time.Duration) { s.metrics.LogWrite.Update(d.Seconds()); s.serving.Rates.Writes.Add(d, 1) },
		Changed: s.member.HeartbeatSoon,
	}
	if s.peers != nil {
		cfg.Transport = s.peers.RaftTransport()
	}
	if s.cfg.inMemory() {
		cfg.Dir = ""
		if s.peers == nil {
			cfg.RaftAddress = ""
		}
	} else {
		cfg.Dir = filepath.Join(cfg.Dir, datafolder.RaftDir)
	}
	var err error
	if s.host, err = replica.OpenHost(cfg); err != nil {
		return err
	}
	if id := s.entry.Identity(); !s.cfg.inMemory() || s.cfg.Disk != nil {
		// A vote given twice in a term, or a log that lost an acknowledged entry, breaks the meta
		// shard for everybody.
		if id.MetaLogged == id.MetaReplica {
			if has, err := s.host.HasReplica(replica.MetaShard, id.MetaReplica); err != nil {
				return err
			} else if !has {
				return s.errMetaLost()
			}
		}
	}
	s.governor = governor.New(s.governorConfig())
	s.issuers = issuer.New(issuer.Config{State: s.meta.State, Leading: s.meta.Leading, Changed: s.meta.Changed,
		Change: s.governor.ChangeTrust, Period: s.cfg.IssuerPeriod, Pause: s.cfg.IssuerPeriod, Log: s.log})
	var applied func(index uint64, before, after *meta.State)
	if s.audit.log != nil {
		applied = s.audit.metaApplied
	}
	s.hosting.SetHost(s.host, s.instance)
	if err := s.membership.Open(s.host, s.governor, applied); err != nil {
		return err
	}
	const what = "the meta shard to have a leader; start a majority of its voters, with the folders and addresses that they had"
	return s.until(ctx, what, func() (bool, error) {
		sync, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return s.meta.Sync(sync) == nil, nil
	})
}

func (s *Server) governorConfig() governor.Config {
	return governor.Config{
		Meta: s.meta, Shards: s.member.Shards(), Groups: s.member.Groups(), Instances: s.member.Instances(),
		Clock: s.clock, Logger: s.log, OfflineAfter: s.cfg.OfflineAfter,
	}
}

func (s *Server) errMetaLost() error {
	return fmt.Errorf("the meta shard's log is missing from data folder %q: put the whole folder back, or start on a new one",
		s.cfg.DataDir)
}

// openShards starts the replicas that the map gives to this instance, and follows the map from then
// on. Without a map there are none: the founder is about to make it.
func (s *Server) openShards(ctx context.Context) error {
	s.startup.waitForText("starting its shards")
	state := s.meta.State()
	if err := s.checkCluster(state); err != nil {
		return err
	}
	if err := s.hosting.Open(); err != nil {
		return err
	}
	s.requests.SetAuth(s.meta.State()) // before clients are let in
	s.running.Go(s.followAuth)
	s.running.Go(s.checkTokens)
	s.running.Go(func() { s.issuers.Run(s.ctx) })
	s.membership.Run()
	return nil
}

// followAuth enforces changes of tokens and rights as soon as this instance has applied them. To
// carry out a map may take long: replicas are started and stopped.
func (s *Server) followAuth() {
	for {
		changed := s.meta.Changed()
		s.requests.SetAuth(s.meta.State())
		select {
		case <-changed:
		case <-s.ctx.Done():
			return
		}
	}
}

// checkTokens ends the connections of tokens when they expire, and notes which are used.
func (s *Server) checkTokens() {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-s.requests.Tokens.Changed():
		case <-s.ctx.Done():
			return
		}
		next.Reset(s.requests.Tokens.Check(s.ctx, time.Now()))
	}
}

// checkCluster checks the configuration against the cluster that the folder belongs to.
func (s *Server) checkCluster(state *meta.State) error {
	if !state.Bootstrapped() {
		id := s.entry.Identity()
		if !id.Founder || id.Cluster != "" {
			return s.errMetaLost()
		}
		return nil
	}
	if c := state.ClusterName(); s.cfg.Cluster != "" && s.cfg.Cluster != c {
		return fmt.Errorf("this folder's cluster is called %q, not %q; leave the name out, or start on the other cluster's folder",
			c, s.cfg.Cluster)
	}
	i, ok := state.Instance(s.instance)
	if !ok {
		return nil
	}
	if s.cfg.Name != "" && s.cfg.Name != i.Name {
		return fmt.Errorf("this folder's instance is called %q, not %q; a name is for good: leave it out, or start on another folder",
			i.Name, s.cfg.Name)
	}
	t, ok := state.Tier(i.Tier)
	if !ok {
		return nil
	}
	if s.cfg.Tier != t.Name && s.cfg.Tier != DefaultTier {
		return fmt.Errorf("this folder's instance is of tier %q, not %q; a tier is for good: leave it out, or start on another folder",
			t.Name, s.cfg.Tier)
	}
	return nil
}

// joinCluster makes the cluster, if this instance is its founder. Then it waits until the cluster
// has the instance Online: its shards work then.
func (s *Server) joinCluster(ctx context.Context) error {
	founded := false
	if id := s.entry.Identity(); id.Founder {
		founded = !s.meta.State().Bootstrapped()
		own, tierID := s.cfg.ownTier()
		var shards []uint64
		for i := range own.ShardsPerReplicaset {
			if s.cfg.restore == nil {
				shards = append(shards, firstShard+uint64(i))
			}
		}
		name := s.cfg.Name
		if name == "" {
			name, _ = os.Hostname()
		}
		c := governor.BootstrapConfig{
			Instance: s.instance, UUID: id.UUID, ClusterName: s.cfg.Cluster, Name: name, Address: s.advertise(),
			RaftAddress: s.host.RaftAddress(),
			Domain:      s.cfg.labels(), Version: s.cfg.version(),
			Tier: own.Name, TierID: tierID, ReplicationFactor: own.ReplicationFactor, Shards: shards, Buckets: own.Buckets,
			Tiers: s.cfg.otherTiers(), ShardsPerReplicaset: own.ShardsPerReplicaset,
		}
		if from := s.cfg.restore; from != nil {
			var err error
			if c.Restored, err = from.Map(); err != nil {
				return err
			}
			c.RestoredEpoch, c.RestoredBackup, c.KeepClients = from.Epoch(), from.Digest(), s.cfg.keepClients
		}
		if err := s.governor.Bootstrap(ctx, c); err != nil {
			return fmt.Errorf("make or find the cluster: %w", err)
		}
		if err := s.entry.SetCluster(s.meta.State().Cluster()); err != nil {
			return err
		}
	}
	s.entry.AnnounceLeader(func() string { return s.member.JoinAddress(s.cfg.raftAddress()) })
	s.startup.waitForText("waiting for the cluster to have this instance Online; see the cluster's plan")
	return s.membership.ComeOnline(ctx, founded, meta.InstanceUpdate{
		Address: s.advertise(), RaftAddress: s.host.RaftAddress(), Domain: s.cfg.labels(), Version: s.cfg.version(),
		LastOfPreviousMajor: lastOfPreviousMajor,
	})
}

// peerEnded reports whether the process of the instance at a raft address has ended, by this
// instance's knowledge.
func (s *Server) peerEnded(ctx context.Context, address string) bool {
	return s.peers != nil && s.peers.ProcessExited(ctx, address)
}

var errNotGoverning = protocol.Errorf(protocol.StatusWrongShard,
	"this instance does not govern; ask the meta shard's leader")

// plan is the next steps of the governor here, as the document for operators.
func (s *Server) plan(ctx context.Context) ([]byte, error) {
	if !s.meta.Leading() {
		return nil, errNotGoverning
	}
	methods := s.clusterMethods()
	methods.AskGovernor = func(context.Context) ([]byte, error) { return nil, errNotGoverning }
	return methods.Serve(ctx, protocol.MethodPlan, nil)
}

// fetchKeys has the keys of a trust be fetched from its issuer.
func (s *Server) fetchKeys(ctx context.Context, trust string) error {
	if !s.meta.Leading() {
		return errNotGoverning
	}
	return s.issuers.Refresh(ctx, trust)
}

// refusals says in sentences which new connections fail, or soon will, by this instance's own
// doing.
func (s *Server) refusals() []string {
	list := s.certs.refusals()
	if s.ready.Load() {
		list = append(list, s.issuers.Problems()...)
	}
	return list
}

// until waits for a condition of the start. It shows what the start waits for, or that others do
// not reach this instance.
func (s *Server) until(ctx context.Context, what string, cond func() (bool, error)) error {
	s.startup.waitFor(func() string { return cmp.Or(s.entry.Unreached(), "waiting for "+what) })
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		ok, err := cond()
		if ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-s.done:
			return s.err
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, ctx.Err())
		}
	}
}
