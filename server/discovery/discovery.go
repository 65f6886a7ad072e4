package discovery

import (
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

// Transport carries a question to whoever answers at an address, this instance included, and brings
// its answer. It may be called from several goroutines. The other side hands the question to Answer
// with the very address it was asked at.
type Transport interface {
	Discover(ctx context.Context, address string, q Request) (Response, error)
}

// Config of a Discovery. ID and Asker are needed, and Advertise or Peers.
type Config struct {
	ID        string   // random, new with each start of the process
	Voter     bool     // the instance's tier can vote: it may become the leader
	Advertise string   // where other instances reach this one
	Peers     []string // addresses to ask; may name one instance several times, and this one; default Advertise alone: a new cluster
	Transport Transport
	Logger    *slog.Logger // default slog.Default()

	// SavePeers, if given, is called with all peers known whenever there are more, before anybody
	// is told that they are known here. An instance that keeps them on disk and gives them as Peers
	// when it starts again does not forget in between whom it has told of whom: without it, an
	// instance that others share, and that is restarted in the middle of a discovery, can make a
	// cluster of its own. An error refuses what was to be learned. Calls do not overlap.
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
	saved   int           // how many peers Learned has been told of
	leader  func() string // set by Settle
	ended   chan struct{} // closed by Settle
}

// New makes a discovery. From now on it may Answer.
func New(c Config) (*Discovery, error) {
	m, err := NewMachine(c.ID, c.Voter, c.Advertise, c.Peers)
	if err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.SavePeers == nil {
		c.SavePeers = func([]string) error { return nil }
	}
	return &Discovery{transport: c.Transport, log: c.Logger, savePeers: c.SavePeers, machine: m, ended: make(chan struct{})}, nil
}

// Run asks until there is a result, for ever if need be. An error is ctx's.
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
		select {
		case <-time.After(MinRound - time.Since(began)):
		case <-d.ended:
		case <-ctx.Done():
		}
	}
	return Result{}, ctx.Err()
}

// Waiting says in words why there is no result yet.
func (d *Discovery) Waiting() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Waiting()
}

// Alone says that every address known has led back to this instance.
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

// round asks all at once and returns when all have answered or failed, or one answer made a result.
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

// save tells Learned what is new. Only answers have to wait for it: nobody relies on what an
// instance says in a question.
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

// Handle answers another instance's question. AddressedAs is the address that the question was sent
// to. An error refuses the question; the other side asks again.
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

// Finish ends the election: this instance belongs to a cluster, and from now on answers with the
// address that leader returns, the cluster's leader or any instance that can bring one in, or empty
// when none is known at the moment. After a result with Lead it must not be called before the new
// cluster is on disk: until then others are told to wait. Leader is called under the discovery's
// lock: it must be quick and not call back.
func (d *Discovery) Finish(leader func() string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leader == nil {
		close(d.ended)
	}
	d.leader = leader
	d.machine.Finish(leader())
}
