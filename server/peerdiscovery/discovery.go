package peerdiscovery

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// CallTimeout bounds one question.
	CallTimeout = 2 * time.Second
	// MinRound is the shortest time from the beginning of a round of questions to the next.
	MinRound = 200 * time.Millisecond
)

// Transport sends a request to the instance at an address, this one included, and returns its
// response. It may be called from several goroutines. The receiver passes the request to
// Discovery.Handle with the address to which it was sent.
type Transport interface {
	Discover(ctx context.Context, address string, q Request) (Response, error)
}

// Config of a Discovery. ID and Transport are required, and Advertise or Peers.
type Config struct {
	ID        string // random, new with each start of the process
	Voter     bool   // it may become the leader: its tier has votes and data
	Advertise string // where other instances reach this one
	// addresses to ask; may name one instance several times, and this one; default Advertise alone: a
	// new cluster
	Peers     []string
	Transport Transport
	Logger    *slog.Logger // default slog.Default()

	// SavePeers, if given, is called with all known peers whenever there are more, before a
	// response says that they are known here. Store them, and pass them as Peers at the next start.
	// Without it, an instance that restarts during a discovery forgets its statements to others,
	// and may make a cluster of its own. An error refuses the new peers. Calls do not overlap.
	SavePeers func(peers []string) error
}

// Discovery is the discovery of one instance. Its methods may be called from any goroutine; Run
// once.
type Discovery struct {
	transport Transport
	log       *slog.Logger
	savePeers func([]string) error

	mu      sync.Mutex
	machine *Machine
	saved   int           // how many peers SavePeers has got
	leader  func() string // set by Finish
	ended   chan struct{} // closed by Finish
}

// New makes a discovery. It may Handle requests at once.
func New(c Config) (*Discovery, error) {
	m, err := NewMachine(c.ID, c.Voter, c.Advertise, c.Peers)
	if err != nil {
		return nil, err
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.SavePeers == nil {
		c.SavePeers = func([]string) error { return nil }
	}
	return &Discovery{transport: c.Transport, log: c.Logger, savePeers: c.SavePeers, machine: m,
		ended: make(chan struct{})}, nil
}

// Run sends requests until there is a result, without a limit. The error is ctx's.
func (d *Discovery) Run(ctx context.Context) (Result, error) {
	for ctx.Err() == nil {
		d.mu.Lock()
		r, done := d.machine.Result()
		calls := d.machine.NextCalls()
		d.mu.Unlock()
		if done {
			return r, nil
		}
		began := time.Now()
		d.round(ctx, calls)
		if d.done() {
			continue
		}
		// Without the condition the race detector crashes now and then in tests: a timer of a
		// synctest bubble has ended before it is waited for (golang/go#78156).
		if rest := MinRound - time.Since(began); rest > 0 {
			select {
			case <-time.After(rest):
			case <-d.ended:
			case <-ctx.Done():
			}
		}
	}
	return Result{}, ctx.Err()
}

// Waiting returns why there is no result yet.
func (d *Discovery) Waiting() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Waiting()
}

// Alone reports whether every known address led back to this instance.
func (d *Discovery) Alone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Alone()
}

func (d *Discovery) done() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, done := d.machine.Result()
	return done
}

// round calls all addresses at once. It returns when all have answered or failed, or when there is
// a result.
func (d *Discovery) round(ctx context.Context, calls []Call) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, c := range calls {
		asking.Go(func() {
			a, err := d.transport.Discover(ctx, c.Address, c.Request)
			if err == nil {
				err = d.handleResponse(c, a)
			}
			if err != nil && ctx.Err() == nil {
				d.log.Debug("a peer does not answer, will be asked again", "address", c.Address, "error", err)
			}
			if d.done() {
				cancel()
			}
		})
	}
	asking.Wait()
}

func (d *Discovery) handleResponse(c Call, a Response) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.HandleResponse(c, a)
}

// save passes new peers to SavePeers. Only responses wait for it: no instance relies on a request.
func (d *Discovery) save() error {
	peers := d.machine.Peers()
	if len(peers) == d.saved {
		return nil
	}
	if err := d.savePeers(peers); err != nil {
		return err
	}
	d.saved = len(peers)
	return nil
}

// Handle answers another instance's request, which was sent to the address addressedAs. An error
// refuses the request; the other instance asks again.
func (d *Discovery) Handle(q Request, addressedAs string) (Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader != nil {
		d.machine.Finish(d.leader())
	}
	a, err := d.machine.HandleRequest(q, addressedAs)
	if err != nil {
		return Response{}, err
	}
	return a, d.save()
}

// Finish ends the election: this instance belongs to a cluster. From now on it answers with the
// address that leader returns: the cluster's leader, or any instance that accepts joins; empty if
// none is known now. After Result.Bootstrap, call it only when the new cluster is on disk: until
// then other instances get Retry. leader is called under the discovery's lock: it must be
// quick and not call back.
func (d *Discovery) Finish(leader func() string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader == nil {
		close(d.ended)
	}
	d.leader = leader
	d.machine.Finish(leader())
}
