package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
)

// roundMemberEnv tells the test binary to be a member of a coordination process: a roundMemberSpec.
const roundMemberEnv = "SIGNALBOX_CHAOS_PLAYER"

// roundMemberSpec is what a member does. Its handlers agree with the others on a value: the
// coordinator locks all by a message, and completes the round with the value when all have
// answered.
type roundMemberSpec struct {
	Name      string
	Endpoints []string
	Process   string
	History   string // the file it writes: a roundRecord a line
	Timeout   time.Duration
	Sessions  int    // memberships, each with a session of its own; 0 is one
	Key       string // keeps its membership for a minute when its session ends
	Unlucky   int    // one callback in so many fails; 0: none
	Hang      string // the callback in which it hangs, once, in a round with Size members: it reports "there"
	Size      int
	Release   string // the file whose appearance lets it go on
}

// roundRecord is a line of a member's history: a callback that succeeded, in the order in which
// they ran. A line is written with one call, so that the records of a killed process are there.
type roundRecord struct {
	At      time.Duration `json:"at"`
	Session uint64        `json:"session"`
	What    string        `json:"what"` // prepare, coordinate, process, cancel, complete, terminate
	Epoch   uint64        `json:"epoch,omitempty"`
	Token   uint64        `json:"token,omitempty"`
	Members int           `json:"members,omitempty"`
	Resumed bool          `json:"resumed,omitempty"` // the round was complete when the member came back
	Value   string        `json:"value,omitempty"`   // complete: what was agreed on
	member  string        // whose
}

// roundMember is one member.
type roundMember struct {
	process.BaseHandler
	spec    *roundMemberSpec
	out     *os.File
	session uint64
	rnd     *rand.Rand
	once    *sync.Once
}

// runRoundMember is the main function of a member's process.
func runRoundMember(text string) int {
	var spec roundMemberSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		// It is told twice to end, and the second time must not kill it while it does: so the
		// signals are caught until the process is over.
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err = spec.run(ctx)
	}
	if err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	return 0
}

func (spec *roundMemberSpec) run(ctx context.Context) error {
	out, err := os.OpenFile(spec.History, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	c, err := client.Open(ctx, client.Config{Endpoints: spec.Endpoints, Name: spec.Name})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	once := new(sync.Once)
	errs := make([]error, max(spec.Sessions, 1))
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			h := &roundMember{spec: spec, out: out, rnd: rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(i))), once: once}
			errs[i] = h.joinUntilDone(ctx, c)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// joinUntilDone joins, and leaves when ctx ends. A membership that ends by itself is reported, and
// is no error.
func (h *roundMember) joinUntilDone(ctx context.Context, c *client.Client) error {
	s, err := c.Session(ctx, nodePath, client.Timeout(h.spec.Timeout), client.Description(h.spec.Name))
	if err != nil {
		return err
	}
	h.session = s.ID()
	p, err := process.Join(ctx, s, h.spec.Process, h, process.Options{
		Key: h.spec.Key, Return: time.Minute,
		RetryInterval: 5 * time.Millisecond, BackoffMin: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	say(report{Event: "ready", Session: s.ID()})
	select {
	case <-ctx.Done():
	case <-p.Done():
		say(report{Event: "over", Text: p.Err().Error()})
		return nil
	}
	end, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := p.Leave(end); err != nil {
		return err
	}
	return s.Close(end)
}

func (h *roundMember) record(what string, r *process.Round, value string) {
	x := roundRecord{At: now(), Session: h.session, What: what, Value: value}
	if r != nil {
		x.Epoch, x.Token, x.Members, x.Resumed = r.Epoch(), r.Token(), len(r.Members()), r.Resumed()
	}
	line, err := json.Marshal(&x)
	if err == nil {
		_, err = h.out.Write(append(line, '\n'))
	}
	if err != nil {
		say(report{Event: "failed", Text: err.Error()})
		os.Exit(1)
	}
}

// beforeCallback precedes each callback that may fail or hang.
func (h *roundMember) beforeCallback(what string, r *process.Round) error {
	h.hang(what, r)
	if h.spec.Unlucky > 0 && h.rnd.IntN(h.spec.Unlucky) == 0 {
		if h.rnd.IntN(2) == 0 {
			panic("unlucky")
		}
		return errors.New("unlucky")
	}
	return nil
}

// hang hangs where the spec says so.
func (h *roundMember) hang(what string, r *process.Round) {
	if h.spec.Hang != what || len(r.Members()) != h.spec.Size {
		return
	}
	h.once.Do(func() {
		say(report{Event: "there", Session: h.session})
		for {
			if _, err := os.Stat(h.spec.Release); err == nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func (h *roundMember) Prepare(r *process.Round) error {
	if err := h.beforeCallback("prepare", r); err != nil {
		return err
	}
	h.record("prepare", r, "")
	return nil
}

func (h *roundMember) Coordinate(r *process.Round) error {
	if err := h.beforeCallback("coordinate", r); err != nil {
		return err
	}
	h.record("coordinate", r, "")
	return r.Broadcast(fmt.Append(nil, r.Epoch()), nil, process.Callback{Answered: func(a []process.Answer) {
		if len(a) == len(r.Members()) {
			_ = r.Complete(fmt.Appendf(nil, "%d by %d", r.Epoch(), h.session)) // an error: the round is over
		}
	}})
}

func (h *roundMember) Process(q *process.Request) error {
	if err := h.beforeCallback("process", q.Round()); err != nil {
		return err
	}
	if string(q.Payload()) != fmt.Sprint(q.Round().Epoch()) {
		return fmt.Errorf("message %q in round %d", q.Payload(), q.Round().Epoch())
	}
	err := q.Reply([]byte("locked"))
	if err == nil {
		h.record("process", q.Round(), "")
	}
	return err
}

func (h *roundMember) Complete(r *process.Round) {
	h.hang("complete", r)
	h.record("complete", r, string(r.Result()))
}

func (h *roundMember) Cancel(r *process.Round) { h.record("cancel", r, "") }

func (h *roundMember) Terminate() { h.record("terminate", nil, "") }
