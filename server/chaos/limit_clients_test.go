package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
)

// limitClientsEnv tells the test binary to take part in rate limits: a limitClientsSpec.
const limitClientsEnv = "SIGNALBOX_CHAOS_LIMITS"

// limitClientsSpec is a process with several sessions, each of which uses one leaf for all that it
// can get.
type limitClientsSpec struct {
	Name      string
	Endpoints []string
	History   string
	Leaves    []string // of the sessions, in turn
	Sessions  int
	Every     time.Duration // between two calls of a session that does not wait
	Steady    bool          // the sessions wait for each unit, and note the rate of their lease
}

// admission is a record of a unit that was admitted: between two readings of the machine's clock.
// One without a unit is a reading of a lease's rate.
type admission struct {
	From, To time.Duration
	Session  uint64
	Leaf     uint32
	Rate     float32 // units per second; 0 of an admission
}

// limitClients is such a process. SIGUSR1 cuts it off from all servers, until SIGUSR2.
type limitClients struct {
	limitClientsSpec
	lock  sync.Mutex
	out   *os.File
	conns []net.Conn
	cut   bool
}

var errCutOff = errors.New("this process is cut off")

// dial is how its client connects.
func (x *limitClients) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	x.lock.Lock()
	defer x.lock.Unlock()
	if x.cut {
		_ = c.Close()
		return nil, errCutOff
	}
	x.conns = append(x.conns, c)
	return c, nil
}

// obey cuts the process off and connects it again, as signals say.
func (x *limitClients) obey(signals <-chan os.Signal) {
	for sig := range signals {
		x.lock.Lock()
		if x.cut = sig == syscall.SIGUSR1; x.cut {
			for _, c := range x.conns {
				_ = c.Close()
			}
			x.conns = nil
			say(report{Event: "cut off"})
		}
		x.lock.Unlock()
	}
}

func runLimitClients(text string) int {
	var x limitClients
	err := json.Unmarshal([]byte(text), &x.limitClientsSpec)
	if err == nil {
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err = x.run(ctx)
	}
	if err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	return 0
}

func (x *limitClients) run(ctx context.Context) (err error) {
	if x.out, err = os.OpenFile(x.History, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	defer func() { _ = x.out.Close() }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go x.obey(signals)
	c, err := client.Open(ctx, client.Config{Endpoints: x.Endpoints, Name: x.Name, Dial: x.dial})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	errs := make([]error, x.Sessions)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = x.session(ctx, c, i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// session uses a leaf until ctx ends.
func (x *limitClients) session(ctx context.Context, c *client.Client, i int) error {
	s, err := c.Session(ctx, nodePath, client.Timeout(5*time.Minute), client.Description(x.Name))
	if err != nil {
		return err
	}
	leaf := uint32(i % len(x.Leaves))
	l, err := ratelimit.JoinSession(ctx, s, x.Leaves[leaf])
	if err != nil {
		return err
	}
	say(report{Event: "ready", Session: s.ID()})
	if x.Steady {
		err = x.waitForUnits(ctx, l, s.ID(), leaf)
	} else {
		err = x.takeUnits(ctx, l, s.ID(), leaf)
	}
	end, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return errors.Join(err, l.Close(end), s.Close(end))
}

// takeUnits asks for more than it can get.
func (x *limitClients) takeUnits(ctx context.Context, l *ratelimit.Limiter, session uint64, leaf uint32) error {
	without := false
	for next := time.NewTimer(0); ; next.Reset(rand.N(2 * x.Every)) {
		select {
		case <-ctx.Done():
			return nil
		case <-l.Context().Done():
			return context.Cause(l.Context())
		case <-next.C:
		}
		for from := now(); l.Allow(1); from = now() {
			if err := x.write(admission{From: from, To: now(), Session: session, Leaf: leaf}); err != nil {
				return err
			}
		}
		if !without && l.Stats().Why == ratelimit.WhyNoLease {
			without = true
			say(report{Event: "no lease", Session: session})
		}
	}
}

// waitForUnits always has a call that waits, so that its demand has no bound.
func (x *limitClients) waitForUnits(ctx context.Context, l *ratelimit.Limiter, session uint64, leaf uint32) error {
	for {
		from := now()
		if err := l.Wait(ctx, 1); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		to := now()
		err := x.write(admission{From: from, To: to, Session: session, Leaf: leaf})
		if err == nil {
			err = x.write(admission{From: to, To: to, Session: session, Leaf: leaf, Rate: max(float32(l.Stats().Rate), 1e-9)})
		}
		if err != nil {
			return err
		}
	}
}

// write appends a record with one call, so that the records of a killed process are there.
func (x *limitClients) write(a admission) error {
	x.lock.Lock()
	defer x.lock.Unlock()
	return binary.Write(x.out, binary.LittleEndian, &a)
}

// readAdmissions reads the records of such a process.
func readAdmissions(path string) (list []admission, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for r := bufio.NewReader(f); ; {
		var a admission
		switch err := binary.Read(r, binary.LittleEndian, &a); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, a)
	}
}
