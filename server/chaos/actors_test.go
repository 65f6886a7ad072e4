package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/leftover"
)

// Names that the actors and the test agree on.
const (
	nodePath   = "/workload"
	serviceFor = "members"
	election   = "boss"
	slots      = "slots"
	numSlots   = 3
	roleEnv    = "SIGNALBOX_CHAOS_ROLE" // role, name, endpoint, folder (of a holder its node), session timeout; separated by commas
)

// report is a line of an actor's standard output.
type report struct {
	Event   string `json:"event"` // ready, expired, failed, grabbed
	Session uint64 `json:"session,omitempty"`
	Text    string `json:"text,omitempty"`
}

func say(r report) { _ = json.NewEncoder(os.Stdout).Encode(r) }

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(runActor(strings.Split(role, ",")))
	}
	if spec := os.Getenv(loadEnv); spec != "" {
		os.Exit(runLoad(spec))
	}
	if spec := os.Getenv(roundMemberEnv); spec != "" {
		os.Exit(runRoundMember(spec))
	}
	if spec := os.Getenv(historyClientsEnv); spec != "" {
		os.Exit(runHistoryClients(spec))
	}
	if spec := os.Getenv(limitClientsEnv); spec != "" {
		os.Exit(runLimitClients(spec))
	}
	if spec := os.Getenv(hostileEnv); spec != "" {
		os.Exit(runHostileClients(spec))
	}
	if spec := os.Getenv(stoppedClientsEnv); spec != "" {
		os.Exit(runStoppedClients(spec))
	}
	if spec := os.Getenv(lossHoldersEnv); spec != "" {
		os.Exit(runLossHolders(spec))
	}
	if spec := os.Getenv(serviceWatchersEnv); spec != "" {
		os.Exit(runServiceWatchers(spec))
	}
	if url := os.Getenv(urlEnv); url != "" {
		os.Exit(printURL(url))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	code = leftover.Check(m).Run()
	spaces, _ := filepath.Glob(fmt.Sprintf("/run/netns/signalbox-%d-*", os.Getpid()))
	if len(spaces) > 0 {
		fmt.Printf("FAIL: the tests have left the network namespaces %v\n", spaces)
		code = max(code, 1)
	}
	return code
}

// keptDir is the system's folder for temporary files, in which what a failed test keeps is kept.
var keptDir = os.TempDir()

// urlEnv tells the test binary to print what is at an address.
const urlEnv = "SIGNALBOX_CHAOS_FETCH"

func printURL(url string) int {
	r, err := http.Get(url)
	if err == nil {
		defer r.Body.Close()
		_, err = io.Copy(os.Stdout, r.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runActor is the main function of an actor.
func runActor(args []string) int {
	role, name, endpoint, dir := args[0], args[1], args[2], args[3]
	timeout, err := time.ParseDuration(args[4])
	if err != nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runRole(ctx, role, name, endpoint, dir, timeout); err != nil && ctx.Err() == nil {
		say(report{Event: "failed", Text: err.Error()})
		return 1
	}
	return 0
}

func runRole(ctx context.Context, role, name, endpoint, dir string, timeout time.Duration) error {
	c, err := client.Open(ctx, client.Config{Endpoints: []string{endpoint}, Name: name})
	if err != nil {
		return err
	}
	defer c.Close()
	path := nodePath
	if role == "holder" {
		path = dir
	}
	s, err := c.Session(ctx, path, client.Timeout(timeout), client.Description(name), client.OnStopped(func(cause error) {
		if errors.Is(cause, client.ErrSessionExpired) {
			say(report{Event: "expired", Text: cause.Error()})
		}
	}))
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	ready := func() { say(report{Event: "ready", Session: s.ID()}) }
	switch role {
	case "worker":
		if _, err := s.Service(serviceFor).Register(ctx, []byte(name)); err != nil {
			return err
		}
		ready()
		select {
		case <-ctx.Done():
		case <-s.Context().Done():
			return s.Err()
		}
		return nil
	case "candidate":
		ready()
		return s.Election(election).Run(ctx, func(ctx context.Context, term client.Term) error {
			return appendWhileLeading(ctx, dir, term.Token)
		}, client.Data(name))
	case "holder":
		if _, err := s.Acquire(ctx, name, client.Exclusive()); err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return nil
	case "contender":
		ready()
		return takeSlots(ctx, s, dir)
	}
	return fmt.Errorf("unknown role %q", role)
}

// appendWhileLeading appends evidence as long as its term's context lives.
func appendWhileLeading(ctx context.Context, dir string, token uint64) error {
	f, err := openEvidence(dir, election)
	if err != nil {
		return err
	}
	defer f.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := appendEvidence(f, "L", token); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// takeSlots takes a slot again and again.
func takeSlots(ctx context.Context, s *client.Session, dir string) error {
	f, err := openEvidence(dir, slots)
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		l, err := s.Acquire(ctx, slots, client.CreateLimit(numSlots))
		if err != nil {
			return err
		}
		if err := appendEvidence(f, "E", l.Token()); err != nil {
			return err
		}
		work := time.NewTimer(time.Duration(1+rand.IntN(20)) * time.Millisecond)
		select {
		case <-work.C:
		case <-l.Context().Done():
		}
		work.Stop()
		if l.Lost() != nil {
			return l.Lost() // the session is over: it may not record that it left
		}
		if err := appendEvidence(f, "X", l.Token()); err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

func openEvidence(dir, name string) (*os.File, error) {
	return os.OpenFile(dir+"/"+name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// appendEvidence appends one line with one system call.
func appendEvidence(f *os.File, what string, token uint64) error {
	_, err := f.WriteString(what + " " + strconv.FormatUint(token, 10) + " " + strconv.Itoa(os.Getpid()) + "\n")
	return err
}
