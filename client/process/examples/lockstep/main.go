// Lockstep is an example of a coordination process: its members change something together, by a
// protocol of three steps. All lock what they have; when all did, all execute the change; when all
// did, all unlock. Each time a member comes, goes or dies they do so again, and a step that is
// under way then is given up by all.
//
//	go run ./client/process/examples/lockstep --name a
//
// A step begins at a member only after all members have taken the step before, and all members of a
// round have the same list of members. The coordinator's callbacks follow each other. No goroutine
// waits, so nothing must be interrupted when the round is superseded: Cancel runs, and the answers
// are never delivered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
)

// step is the coordinator's instruction to the members.
type step string

const (
	lock    step = "lock"
	execute step = "execute"
	unlock  step = "unlock"
)

// steps are the messages of the steps, and their answers.
var steps = process.NewMessages(process.Text[step](), process.Text[string]())

// member is one of those that change together. Its methods run one after the other, so it needs no
// mutex.
type member struct {
	process.BaseHandler
	name   string
	locked bool
	log    *log.Logger
}

// Prepare runs at all members when a round starts.
func (m *member) Prepare(r *process.Round) error {
	m.log.Printf("%s epoch %d prepare members %d", m.name, r.Epoch(), r.Size())
	return nil
}

// Coordinate runs at one member, when all have prepared.
func (m *member) Coordinate(r *process.Round) error {
	return m.all(r, lock, func() error {
		return m.all(r, execute, func() error {
			return m.all(r, unlock, func() error {
				return r.Complete(fmt.Appendf(nil, "changed by %s", m.name))
			})
		})
	})
}

// all has all members, this one too, take a step, and goes on when all have. If the round is
// superseded before, it does not.
func (m *member) all(r *process.Round, s step, then func() error) error {
	return steps.Broadcast(r, s, nil, process.Replies[string]{Answered: func(replies []process.Reply[string]) {
		var err error
		for _, reply := range replies {
			err = errors.Join(err, reply.Err) // it could not read the message, say
		}
		if err == nil {
			err = then()
		}
		if err != nil && !errors.Is(err, process.ErrRoundOver) {
			_ = r.Fail(err) // it is tried again
		}
	}})
}

// Process takes a step. An error has the coordinator ask again.
func (m *member) Process(q *process.Request) error {
	return steps.Handle(q, func(s step) (string, error) {
		r := q.Round()
		switch {
		case s == execute && !m.locked:
			return "", errors.New("not locked") // never seen: the coordinator has everybody's answer to lock
		case s == execute:
			// with the token: a resource refuses lower ones
			m.log.Printf("%s epoch %d execute token %d", m.name, r.Epoch(), r.Token())
		default:
			m.locked = s == lock
			m.log.Printf("%s epoch %d %s", m.name, r.Epoch(), s)
		}
		return m.name, nil
	})
}

// Complete runs at all members when the round is over, and Cancel when it was given up: whatever is
// locked is unlocked.
func (m *member) Complete(r *process.Round) {
	m.log.Printf("%s epoch %d complete %s", m.name, r.Epoch(), r.Result())
	m.locked = false
}

// Cancel is the other end of a round.
func (m *member) Cancel(r *process.Round) {
	m.log.Printf("%s epoch %d cancel", m.name, r.Epoch())
	m.locked = false
}

func main() {
	name := flag.String("name", "", "of this member")
	file := flag.String("log", "", "file to append to, in place of standard output")
	timeout := flag.Duration("session-timeout", 10*time.Second, "how long the others wait for a member that died")
	flag.Parse()
	out := os.Stdout
	if *file != "" {
		var err error
		if out, err = os.OpenFile(*file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			log.Fatal(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &member{name: *name, log: log.New(out, "", 0)}, *timeout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, m *member, timeout time.Duration) error {
	cfg, node, err := client.FromEnv() // SIGNALBOX_ENDPOINTS and others, as for the command line
	if err != nil {
		return err
	}
	s, err := client.OpenSession(ctx, cfg, node, client.Timeout(timeout), client.Description("lockstep "+m.name))
	if err != nil {
		return err
	}
	defer s.Client().Close()
	p, err := process.Join(ctx, s, "lockstep", m, process.Options{Data: []byte(m.name)})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-p.Done():
		return p.Err()
	}
	ending, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.Leave(ending)
}
