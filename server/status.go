package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Addr returns the address for clients without TLS; empty without such a listener.
func (s *Server) Addr() string { return s.transport.Addr() }

// TLSAddr returns the address for clients with TLS; empty without such a listener.
func (s *Server) TLSAddr() string { return s.transport.TLSAddr() }

// AdminAddr returns the address of metrics, health and profiles; empty without such a listener.
func (s *Server) AdminAddr() string {
	if s.adminListener == nil {
		return ""
	}
	return s.adminListener.Addr().String()
}

// Done is closed when the server has stopped, by Shutdown, Close, or a defect; see Err then.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is the defect that ended the server, nil when it was stopped. It is set before Done is
// closed.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// ReopenAudit opens the file of the audit log again, after it was renamed. Without an audit log
// that goes to a file it does nothing.
func (s *Server) ReopenAudit() error { return s.audit.log.Reopen() }

// ReloadCertificates reads the files of certificates now, instead of within a second. With an error
// the former ones stay in use.
func (s *Server) ReloadCertificates() error { return s.certs.reload() }

// ConsoleTLS returns the configuration of a listener with the certificate of Config.ConsoleTLS, or
// nil.
func (s *Server) ConsoleTLS() *tls.Config { return listenerTLS(s.certs.console) }

// HTTPTLS returns the configuration of a listener with the certificate of Config.HTTPTLS, or nil.
func (s *Server) HTTPTLS() *tls.Config { return listenerTLS(s.certs.http) }

func listenerTLS(c *certs.Certs) *tls.Config {
	if c == nil {
		return nil
	}
	return c.Server()
}

// CollectMetrics has f called at each scrape: it writes the metrics of the program's services
// beside the instance.
func (s *Server) CollectMetrics(f func(*metrics.Page)) { s.metrics.Collect(f) }

// Instance is the instance's number in its cluster.
func (s *Server) Instance() uint64 { return s.instance }

// silentMost is how long an event loop or the failure detector may be idle before the probe fails,
// so that the process is restarted.
const silentMost = 5 * time.Second

// Live returns why the process should be restarted, nil if it need not be.
func (s *Server) Live() error {
	if err := s.Err(); err != nil || !s.ready.Load() {
		return err
	}
	if d := s.transport.LoopSilence(); d >= silentMost {
		return fmt.Errorf("an event loop has done nothing for %v, its clients are not served; restart the process", d)
	}
	if d := s.membership.DetectorSilence(); d >= silentMost {
		return fmt.Errorf("the failure detector has done nothing for %v; restart the process", d)
	}
	return nil
}

// Ready returns why clients should not be sent here now. It is nil if all of this holds: the server
// takes requests, clients have an address whose certificate is valid, the cluster has this instance
// Online, the meta shard and every shard here have a leader as far as is known here, the buckets of
// the tier are assigned, and the disk takes writes.
func (s *Server) Ready() error {
	switch {
	case s.Err() != nil:
		return s.Err()
	case s.leaving.Load() || s.requests.Draining():
		return errors.New("server is stopping")
	case !s.ready.Load():
		if why := s.startup.reason(); why != "" {
			return fmt.Errorf("server is starting: %s", why)
		}
		return errors.New("server is starting")
	}
	if c := s.certs.clients; c != nil && s.cfg.Listen == Off {
		own, authorities := c.Invalid(time.Now())
		if own != "" || authorities != "" && s.cfg.TLS.Require {
			return errors.New(strings.Join(refusalsOf("clients", c), "; "))
		}
	}
	if d := s.host.DiskWaiting(); d > slowDiskAfter {
		return fmt.Errorf("a write to the disk of the log has been under way for %v", d.Round(time.Second))
	}
	rep := s.meta.Replica()
	if rep == nil || rep.LeaderReplica() == 0 {
		return errors.New("the meta shard has no leader that is known here")
	}
	state := s.meta.State()
	i, ok := state.Instance(s.instance)
	if !ok || i.Current.Variant != meta.Online {
		return fmt.Errorf("this instance is %s in the cluster, not Online", i.Current)
	}
	if t, ok := state.Tier(i.Tier); ok && t.Buckets > 0 && !t.Bootstrapped {
		return bucketsUnassigned(state, &i, &t)
	}
	for _, d := range s.hosting.Shards.All() {
		if d.Leader() == 0 {
			return fmt.Errorf("shard %d has no leader", d.ID())
		}
	}
	return nil
}

// bucketsUnassigned returns an error while the buckets of an instance's tier are not assigned. Once
// they are, an instance is ready even if its own replicaset waits for members: it can redirect
// clients.
func bucketsUnassigned(state *meta.State, i *meta.Instance, t *meta.Tier) error {
	if t.ToBeRestored() {
		return fmt.Errorf("the data of tier %s is to be restored from the backup with digest %016x",
			t.Name, t.Restore.Backup)
	}
	set, _ := state.Replicaset(i.Replicaset)
	members := 0
	for _, o := range state.Instances() {
		if o.Replicaset == set.ID && !o.Expelled() {
			members++
		}
	}
	if members < int(t.ReplicationFactor) {
		return fmt.Errorf("replicaset %s waits for more members: it has %d of %d; start more instances",
			set.Name, members, t.ReplicationFactor)
	}
	return fmt.Errorf("the buckets of tier %s are not assigned yet", t.Name)
}
