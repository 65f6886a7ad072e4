package rollout

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Version is what an update is to load.
type Version struct {
	Number     uint64
	Payload    []byte // of a published version
	HasPayload bool
	Generation uint64 // of the location's target
	Attempt    int    // to load this target, from 1

	// Restored: it is the version that this instance served last, read from its folder
	// before any server was asked.
	Restored bool
}

// FollowerOptions configures a Follower.
type FollowerOptions struct {
	// Client is the way to the servers; or, without one, Connect says how to reach them, and Run
	// makes a client of its own, which it closes. With Connect a follower begins to serve what it
	// kept although no server can be reached.
	Client  *client.Client
	Connect client.Config

	Node     string // path of the coordination node
	Track    string // service/cluster
	ID       string // of the instance, its own in the track, such as the host's name
	Location string
	Meta     string // for people

	// Update loads a version, and returns nil when it is served. Its context ends when another
	// version is to be loaded instead: Update must return then. Calls do not overlap. An error made
	// by Code says with a code what is wrong with the version; any other is CodeSourceError. A
	// failed update is tried again.
	Update func(ctx context.Context, v Version) error

	// Dir, if not empty, is a folder of the instance's own where the version that it served last is
	// kept, with its payload. Run loads that first, before any server is asked, and takes the id
	// over from the process that had it before.
	Dir string

	// Takeover evicts, with the first registration, another live session that has the id. Without
	// it, and without a Dir that says that the id is this instance's, Run ends with
	// ErrAlreadyRegistered.
	Takeover bool

	// Manual leaves it to MarkReady to make the instance a leader. Else it becomes one with the
	// first target that it has loaded.
	Manual bool

	// PollEvery is the longest time between two questions for the target; default 10 s. News come
	// sooner, by a watch.
	PollEvery time.Duration

	// RetryMin and RetryMax bound the time between attempts to load a version, which doubles from
	// one to the other; default 1 s and 1 min. Half of it is random.
	RetryMin, RetryMax time.Duration

	Session []client.SessionOption // of the instance's sessions

	// OnChange, if not nil, is called with every change of what State tells, from the goroutine of
	// Run.
	OnChange func(FollowerState)

	Logger *slog.Logger // default: nothing is logged
}

// FollowerState is the state of a Follower.
type FollowerState struct {
	Registered bool   // with a session that lives; false: no server can be reached, or it refuses, and Current stays
	Role       Role   // 0 while not registered
	Current    uint64 // the version that is served, 0 none
	Target     Target // what the server said last
	Attempts   int    // to load Target that failed
	Err        error  // of the last of them, or why it is not registered
}

// Follower is an instance that calls its program's Update for each version that it is to load.
type Follower struct {
	c *client.Client
	o FollowerOptions

	wake chan struct{} // capacity 1: look at wanted

	mu         sync.Mutex
	wantLeader bool // to be a leader
	state      FollowerState

	// Owned by Run.
	job         *updateJob
	report      Report    // what is known; sent with each poll
	retryAt     time.Time // not to be tried before
	ran         bool
	ownSessions []uint64 // the session that was registered last, and later ones that may have been
	fetched     *Version // the version whose payload was fetched last
	served      Version  // what Current of the report is
	unchecked   bool     // nothing says yet that it is of the track as it is registered in now
}

// errSuperseded ends an update whose version is not wanted any more.
var errSuperseded = errors.New("another version is to be loaded")

// NewFollower checks the options. Run does the rest.
func NewFollower(o FollowerOptions) (*Follower, error) {
	switch {
	case o.Client == nil && len(o.Connect.Endpoints) == 0:
		return nil, errors.New("follower: give it a client, or endpoints to connect to")
	case o.Update == nil:
		return nil, errors.New("follower: give it an Update function")
	case o.Node == "" || o.Track == "" || o.ID == "" || o.Location == "":
		return nil, errors.New("follower: name node, track, id and location")
	}
	var err error
	millis.Of("poll interval", o.PollEvery, &err)
	if err = checkRetry(o.RetryMin, o.RetryMax, time.Minute, err); err != nil {
		return nil, fmt.Errorf("follower: %w", err)
	}
	o.PollEvery = cmp.Or(o.PollEvery, 10*time.Second)
	o.RetryMin = cmp.Or(o.RetryMin, time.Second)
	o.RetryMax = cmp.Or(o.RetryMax, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("follower: %w", err)
		}
	}
	return &Follower{c: o.Client, o: o, wake: make(chan struct{}, 1), wantLeader: !o.Manual}, nil
}

// MarkReady makes the instance a leader with its next report that it has its target, and after each
// registration again: its location waits for it.
func (f *Follower) MarkReady() { f.setWantLeader(true) }

// MarkNotReady makes it a follower: it still loads versions, but its location does not wait for it.
func (f *Follower) MarkNotReady() { f.setWantLeader(false) }

func (f *Follower) setWantLeader(leader bool) {
	f.mu.Lock()
	f.wantLeader = leader
	f.mu.Unlock()
	f.notify()
}

// State is the follower's state.
func (f *Follower) State() FollowerState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *Follower) wantsLeader() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wantLeader
}

func (f *Follower) setState(to func(*FollowerState)) {
	f.mu.Lock()
	to(&f.state)
	now := f.state
	f.mu.Unlock()
	if f.o.OnChange != nil {
		f.o.OnChange(now)
	}
}

// savedOwner is what a folder belongs to.
func (f *Follower) savedOwner() string {
	return f.o.Node + "\x00" + f.o.Track + "\x00" + f.o.Location + "\x00" + f.o.ID
}

// closeTimeout bounds how long Run waits for its leave to be answered.
const closeTimeout = 2 * time.Second

// Run runs the follower. It returns ctx's error; ErrFenced when another registration has taken the
// id; or a permanent refusal, such as ErrAlreadyRegistered, or at the start a track or location
// that does not exist. While no server can be reached, and after its session ended, it goes on with
// what it has and registers again. When it returns, the instance is no longer registered, if the
// server could be reached, and another process can have its id. It may be called once.
func (f *Follower) Run(ctx context.Context) error {
	if f.ran {
		return errors.New("follower: it has run already; make another one")
	}
	f.ran = true
	defer f.stopJob()
	defer func() {
		if f.o.Client == nil && f.c != nil {
			f.c.CloseWithoutRelease() // its session is stopped already, or cannot be
		}
	}()
	takeover := f.o.Takeover
	if f.o.Dir != "" {
		k, err := loadSavedVersion(f.o.Dir)
		if err != nil {
			return fmt.Errorf("follower: %w", err)
		}
		if k != nil && k.id == f.savedOwner() {
			takeover = true
			f.startJob(ctx, Version{Number: k.version, Payload: k.payload, HasPayload: k.hasPayload,
				Attempt: 1, Restored: true})
		}
	}
	registered, failures := false, 0
	for {
		ok, err := f.runSession(ctx, takeover)
		registered, takeover = registered || ok, takeover && !ok
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isPermanent(err, registered):
			return err
		case ok:
			failures = 0
		}
		f.o.Logger.Warn("rollout instance goes on by itself", "track", f.o.Track, "instance", f.o.ID,
			"current", f.State().Current, "error", err)
		f.setState(func(s *FollowerState) { s.Registered, s.Role, s.Err = false, 0, err })
		f.pause(ctx, f.backoff(failures))
		failures++
	}
}

// isPermanent reports whether registering again cannot help. What may be put right while an
// instance serves ends it at its start alone, when somebody looks.
func isPermanent(err error, registered bool) bool {
	switch {
	case errors.Is(err, ErrFenced), errors.Is(err, ErrAlreadyRegistered), errors.Is(err, client.ErrClientClosed):
		return true
	}
	switch protocol.StatusOf(err) {
	case protocol.StatusBadRequest, protocol.StatusUnsupported:
		return true
	case protocol.StatusNotFound, protocol.StatusForbidden, protocol.StatusUnauthenticated:
		return !registered
	}
	return false
}

// backoff is the wait after so many failures: it doubles, and half of it is random.
func (f *Follower) backoff(failures int) time.Duration {
	d := f.o.RetryMax
	if least := f.o.RetryMin; failures < 20 && least <= d>>failures {
		d = least << failures
	}
	return d/2 + rand.N(d/2+1)
}

// checkRetry checks the bounds of a time between attempts; max is what 0 means for most. A failure
// that was found before is passed on.
func checkRetry(least, most, max time.Duration, err error) error {
	millis.Of("least time between attempts", least, &err)
	millis.Of("longest time between attempts", most, &err)
	if most = cmp.Or(most, max); err == nil && least > most {
		err = protocol.Errorf(protocol.StatusBadRequest,
			"least time between attempts is %s, above the longest, %s", least, most)
	}
	return err
}

// pause waits; the update that is under way may end meanwhile.
func (f *Follower) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case err := <-f.jobDone():
			f.finishJob(err)
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// runSession runs one session. ok: it was registered.
func (f *Follower) runSession(ctx context.Context, takeover bool) (ok bool, err error) {
	s, err := f.openSession(ctx)
	if err != nil {
		return false, err
	}
	var i *Instance
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if i != nil {
			unregister(end, i)
		}
		_ = s.Close(end)
	}()
	t := Open(s, f.o.Track)
	r := Registration{ID: f.o.ID, Location: f.o.Location, Meta: f.o.Meta, Takeover: takeover}
	i, err = await(f, func() (*Instance, error) {
		i, err := t.Register(ctx, r)
		if errors.Is(err, ErrAlreadyRegistered) && len(f.ownSessions) > 0 {
			owned, failed := f.isOwned(ctx, t)
			if failed != nil {
				return nil, failed // who has the id is not known
			}
			if owned {
				r.Takeover = true // from a session of its own, which the server has not given up yet
				i, err = t.Register(ctx, r)
			}
		}
		return i, err
	})
	if err != nil {
		if errors.Is(err, client.ErrOutcomeUnknown) {
			f.ownSessions = append(f.ownSessions, s.ID())
		}
		return false, err
	}
	f.ownSessions = []uint64{s.ID()}
	f.o.Logger.Info("rollout instance is registered",
		"track", f.o.Track, "instance", f.o.ID, "location", f.o.Location)
	f.fetched, f.unchecked = nil, f.job != nil || f.report.Current != 0
	if f.job != nil {
		f.job.checked = false
	}
	f.report.Attempts, f.retryAt = 0, time.Time{} // they count within a registration; the track may be another one
	if f.report.Code != CodeOK {
		f.report.Code, f.report.Message = CodeNone, ""
	}
	f.setState(func(s *FollowerState) { s.Registered, s.Role, s.Err, s.Attempts = true, FollowerRole, nil, 0 })

	watching, stop := context.WithCancel(ctx)
	signals := make(chan struct{}, 1)
	gone := make(chan error, 1)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		for err := range i.signals(watching) {
			if err != nil {
				gone <- err
				return
			}
			select {
			case signals <- struct{}{}:
			default:
			}
		}
	})
	return true, f.serve(ctx, s, i, signals, gone)
}

// unregister gives the id back before the session is closed. The registration ends with the session
// too, but the track's shard may hear of that later than the next process registers under the id.
func unregister(ctx context.Context, i *Instance) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout/2) // the rest is for the session
	defer cancel()
	_ = i.Unregister(ctx)
}

// isOwned reports whether a session of the follower's own has the instance's id.
func (f *Follower) isOwned(ctx context.Context, t *Track) (bool, error) {
	status, err := t.Describe(ctx, IncludeInstances())
	if err != nil {
		return false, err
	}
	for i := range status.Instances {
		if p := &status.Instances[i]; p.ID == f.o.ID {
			return slices.Contains(f.ownSessions, p.Session), nil
		}
	}
	return false, nil
}

// await makes a call to the server, which waits for as long as no server can be reached; an update
// that ends meanwhile is taken in.
func await[T any](f *Follower, call func() (T, error)) (T, error) {
	type outcome struct {
		v   T
		err error
	}
	ch := make(chan outcome, 1)
	go func() {
		v, err := call()
		ch <- outcome{v, err}
	}()
	for {
		select {
		case err := <-f.jobDone():
			f.finishJob(err)
		case o := <-ch:
			return o.v, o.err
		}
	}
}

func (f *Follower) openSession(ctx context.Context) (*client.Session, error) {
	if f.c == nil {
		c, err := await(f, func() (*client.Client, error) { return client.Open(ctx, f.o.Connect) })
		if err != nil {
			return nil, err
		}
		f.c = c
	}
	return await(f, func() (*client.Session, error) { return f.c.Session(ctx, f.o.Node, f.o.Session...) })
}

// getTarget asks for the target, and reports. sent is the report that went with it.
func (f *Follower) getTarget(ctx context.Context, i *Instance, payload bool) (t Target, sent Report, err error) {
	sent = f.report
	t, err = await(f, func() (Target, error) { return i.GetTargetState(ctx, &sent, payload) })
	return t, sent, err
}

// serve polls, and loads the targets, until something ends.
func (f *Follower) serve(
	ctx context.Context, s *client.Session, i *Instance, signals <-chan struct{}, gone <-chan error,
) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Context().Done():
			return s.Err()
		case err := <-gone:
			return err
		case <-signals:
		case <-timer.C:
		case <-f.wake:
		case err := <-f.jobDone():
			f.finishJob(err)
		}
		next, err := f.poll(ctx, i)
		if err != nil {
			return err
		}
		timer.Reset(next)
	}
}

// poll asks for the target, and does what follows from it. next is when to ask again at the latest.
func (f *Follower) poll(ctx context.Context, i *Instance) (next time.Duration, err error) {
	for {
		t, sent, err := f.getTarget(ctx, i, f.unchecked)
		if err != nil {
			return 0, err
		}
		if f.unchecked && t.Version != 0 {
			f.checkPayload(t)
		}
		if f.applyTarget(t); f.report != sent {
			continue // there is more to tell
		}
		again, err := f.updateRole(ctx, i)
		if err != nil {
			return 0, err
		}
		if again {
			continue // a leader's question may move the location
		}
		if err := f.load(ctx, i, t); err != nil {
			return 0, err
		}
		if f.report != sent {
			continue
		}
		next = f.o.PollEvery
		if t.RetryAfter > 0 {
			// the watch says so first, and all instances must not ask in one moment
			next = min(next, t.RetryAfter+rand.N(time.Second))
		}
		if f.job == nil && t.Version != 0 && t.Version != f.report.Current {
			next = min(next, max(0, time.Until(f.retryAt)))
		}
		return max(next, time.Millisecond), nil
	}
}

// checkPayload forgets what has the number of the target and another payload: the track was deleted
// and made again since, and versions begin again then. What has another number may be the target
// later, and stays unchecked until a version of this registration takes its place.
func (f *Follower) checkPayload(t Target) {
	foreign := func(v *Version) bool { return t.HasPayload && !(v.HasPayload && bytes.Equal(v.Payload, t.Payload)) }
	if t.HasPayload {
		f.fetched = &Version{Number: t.Version, Payload: t.Payload, HasPayload: true}
	}
	if j := f.job; j != nil && j.v.Number == t.Version && !j.checked {
		j.checked = true
		if foreign(&j.v) {
			j.foreign = true
			j.cancel(errSuperseded)
		}
	}
	if f.served.Number == t.Version && foreign(&f.served) {
		f.forgetServed()
	}
	f.unchecked = f.served.Number != 0 && f.served.Number != t.Version || f.job != nil && !f.job.checked
}

// forgetServed notes that what is served is no version of the track.
func (f *Follower) forgetServed() {
	f.report, f.served = Report{}, Version{}
	f.setState(func(s *FollowerState) { s.Current, s.Attempts, s.Err = 0, 0, nil })
}

// applyTarget takes in what the server said: the report is about that target from now on.
func (f *Follower) applyTarget(t Target) {
	last := f.State().Target
	f.setState(func(s *FollowerState) { s.Target = t })
	if t.Version == last.Version && t.Generation == last.Generation && f.report.Target == t.Version ||
		t.Version == 0 {
		return
	}
	if j := f.job; j != nil && j.v.Number != t.Version {
		j.cancel(errSuperseded)
	}
	f.retryAt = time.Time{}
	f.report.Target, f.report.Code, f.report.Message, f.report.Attempts = t.Version, CodeNone, "", 0
	if f.report.Current == t.Version {
		f.report.Code = CodeOK
	}
	f.setState(func(s *FollowerState) { s.Attempts, s.Err = 0, nil })
}

// CodeNone is the code of a report that has nothing to say about its target yet.
const CodeNone = ""

// updateRole makes the instance what it is to be. True: it became a leader.
func (f *Follower) updateRole(ctx context.Context, i *Instance) (bool, error) {
	s := f.State()
	want := FollowerRole
	switch {
	case !f.wantsLeader():
	case s.Role == LeaderRole, s.Target.Version != 0 && s.Target.Version == f.report.Current:
		want = LeaderRole
	}
	if want == s.Role {
		return false, nil
	}
	if _, err := await(f, func() (struct{}, error) { return struct{}{}, i.SetRole(ctx, want) }); err != nil {
		return false, err
	}
	f.o.Logger.Info("rollout instance has another role",
		"track", f.o.Track, "instance", f.o.ID, "role", want.String())
	f.setState(func(s *FollowerState) { s.Role = want })
	return want == LeaderRole, nil
}

func (f *Follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
