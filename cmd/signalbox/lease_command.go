package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/spf13/cobra"
)

// maxData is the largest data of a semaphore, an owner or a waiter (protocol.MaxDataLen), in help.
const maxData = "1 MiB"

// addDataFlags adds --data TEXT, and --data-file FILE with - for standard input. Most is the limit
// of what the verb takes.
func addDataFlags(cmd *cobra.Command, what, most string) {
	cmd.Flags().String("data", "", what+", at most "+most+".")
	cmd.Flags().String("data-file", "", "File with the data; - is standard input.")
}

// readData reads the data of the data flags. given says whether one was given.
func (a *app) readData(cmd *cobra.Command) (data []byte, given bool, err error) {
	text, file := cmd.Flag("data"), cmd.Flag("data-file")
	switch {
	case text.Changed && file.Changed:
		return nil, false, usagef("--data and --data-file are both given; keep one")
	case text.Changed:
		return []byte(text.Value.String()), true, nil
	case file.Changed:
		data, err = a.readFile(cmd.Context(), file.Value.String())
		return data, true, err
	}
	return nil, false, nil
}

// maxRead bounds the data that is read from a file or from standard input, in bytes. It is more
// than what the server accepts.
const maxRead = 2 << 20

func (a *app) readFile(ctx context.Context, name string) ([]byte, error) {
	const stdin = "standard input"
	if a.afterRead != nil {
		defer a.afterRead()
	}
	if name == "-" {
		return interruptible(ctx, stdin, func() ([]byte, error) { return file.ReadAll(a.stdin, stdin, maxRead) })
	}
	return interruptible(ctx, name, func() ([]byte, error) {
		b, err := file.Read(name, maxRead)
		if err != nil {
			return nil, usagef("cannot read the data: %v", err)
		}
		return b, nil
	})
}

// addHoldFlags adds the flags of a verb that holds something while a command runs.
func addHoldFlags(c *cobra.Command, wait, waitsFor, data string) *time.Duration {
	addDataFlags(c, data, maxData)
	addExitCodeFlags(c)
	return parsedVar(c.Flags(), "wait", wait, parseWait,
		"How long to wait "+waitsFor+": a duration up to 24h, 0 to not wait, or forever; then exit code 3.")
}

// exitCodeFlags are the flags that choose exit codes, with the codes of this program that they are
// for.
var exitCodeFlags = []struct {
	flag, def string
	codes     []int
	help      string
}{
	{"conflict-exit-code", "3", []int{exitNotAcquired}, "Exit code if nothing was acquired, 0 to 255."},
	{"lost-exit-code", "4", []int{exitLost}, "Exit code if what was held is lost, 0 to 255."},
	{"error-exit-code", "", []int{exitError, exitUnreachable},
		"Exit code of other errors of signalbox itself, 0 to 255 (default: 5 if no instance could be reached, else 1)."},
}

func addExitCodeFlags(c *cobra.Command) {
	for _, x := range exitCodeFlags {
		parsedVar(c.Flags(), x.flag, x.def, parseExitCode, x.help)
	}
}

func parseExitCode(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number from 0 to 255", text)
	}
	return int(n), nil
}

// readExitCodes reads the flags of addExitCodeFlags.
func (a *app) readExitCodes(cmd *cobra.Command) {
	a.exitCodes = map[int]int{}
	for _, x := range exitCodeFlags {
		if f := cmd.Flag(x.flag); f.Changed {
			n, _ := parseExitCode(f.Value.String()) // as it was checked
			for _, code := range x.codes {
				a.exitCodes[code] = n
			}
		}
	}
}

// holdArgs are the arguments of such a verb.
type holdArgs struct {
	name    string
	command []string // none: hold until a signal
	wait    time.Duration
	data    []byte
}

// holdArgs reads NAME, the command behind "--", and the data.
func (a *app) holdArgs(cmd *cobra.Command, args []string, wait time.Duration) (h holdArgs, err error) {
	if h.name, h.command, err = split(cmd, args); err != nil {
		return h, err
	}
	a.readExitCodes(cmd)
	h.wait = wait
	h.data, _, err = a.readData(cmd)
	return h, err
}

// acquireFunc acquires a lease on a session with the given options and the verb's own.
type acquireFunc = func(s *client.Session, opts ...client.AcquireOption) (*client.Lease, error)

// hold acquires, and holds while the command runs or until a signal. state is the state that is
// shown once it is granted.
func (inv *invocation) hold(h holdArgs, state string, acquire acquireFunc) error {
	return inv.withSession(func(s *client.Session) error {
		l, err := inv.acquire(s, h, acquire)
		if err != nil {
			return err
		}
		return inv.runWithLease(l, l.Token(), h.command, grantRow(l, state))
	})
}

// split separates a verb's own argument from the command behind "--".
func split(cmd *cobra.Command, args []string) (name string, command []string, err error) {
	own := args
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		own, command = args[:n], args[n:]
		if len(command) == 0 {
			return "", nil, usagef("there is no command after --")
		}
	}
	if len(own) != 1 {
		return "", nil, usagef("expected 1 argument before --, got %d; the form is: %s", len(own), usageLine(cmd))
	}
	if own[0] == "" {
		return "", nil, usagef("the name is empty; the form is: %s", usageLine(cmd))
	}
	return own[0], command, nil
}

// parseWait reads how long to queue. 0 is not at all.
func parseWait(text string) (time.Duration, error) {
	if text == "forever" {
		return client.Forever, nil
	}
	d, err := readDuration(text)
	if err == nil && d > protocol.MaxAcquireTimeout*time.Millisecond {
		err = fmt.Errorf("%s is above 24h; give less, or write forever to wait without end", text)
	}
	return d, err
}

// runWithLease runs a command under a lease, with a token. Without a command it holds the lease until
// a signal. It returns after the release, if the server can be reached, so that a script's next line finds
// the units free.
func (inv *invocation) runWithLease(l *client.Lease, token uint64, command []string, granted row) error {
	defer func() {
		err := l.Release(inv.cleanup())
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrOutcomeUnknown) {
			inv.note("signalbox: no instance has confirmed that %q is released; unless one did it, it stays held "+
				"until its session ends, after about %s; signalbox sem describe shows who holds it\n", l.Name(), l.Session().Timeout())
		}
	}()
	if len(command) == 0 {
		if err := inv.reporter().event(granted); err != nil {
			return err
		}
		select {
		case <-inv.longCtx.Done():
			return nil
		case <-l.Context().Done():
			return leaseLostError(l)
		}
	}
	c := &child{
		args: command, stdin: inv.stdin, stdout: inv.stdout, stderr: inv.stderr, notes: inv.notes,
		grace: l.Session().Timeout() / 25, lease: l, interrupted: inv.longCtx.Done(),
		env: append(inv.holdEnv(l.Name(), token, l.Session()), slotEnv(l)...),
	}
	err := c.run(l.Context())
	if errors.Is(err, errLost) {
		cause := cmp.Or(context.Cause(l.Context()), errNotScheduled)
		return &codeError{code: exitLost, err: fmt.Errorf("%w: %w", errLost, cause)}
	}
	return err
}

// slotEnv names the slots that a lease has.
func slotEnv(l *client.Lease) []string {
	slots := l.Slots()
	if len(slots) == 0 {
		return nil
	}
	return []string{"SIGNALBOX_SLOT=" + slots[0], "SIGNALBOX_SLOTS=" + strings.Join(slots, ",")}
}

// holdEnv is the environment of a command that runs while something is held.
func (inv *invocation) holdEnv(name string, token uint64, s *client.Session) []string {
	path := func(setting string) string { // the command may run in another folder
		name := inv.values[setting]
		if abs, err := filepath.Abs(name); err == nil && name != "" {
			return abs
		}
		return name
	}
	return []string{
		// Of another context, the command would use the token and the certificates.
		"SIGNALBOX_CONTEXT=" + inv.values["context"], "SIGNALBOX_CLIENT_CONFIG=" + path("client-config"),
		"SIGNALBOX_TOKEN=" + strconv.FormatUint(token, 10), "SIGNALBOX_NAME=" + name, "SIGNALBOX_NODE=" + inv.node,
		"SIGNALBOX_SESSION=" + strconv.FormatUint(s.ID(), 10),
		"SIGNALBOX_ENDPOINTS=" + inv.values["endpoints"], "SIGNALBOX_CLUSTER=" + inv.values["cluster"], "SIGNALBOX_TOKEN_FILE=" + path("token-file"),
		"SIGNALBOX_TLS=" + inv.values["tls"], "SIGNALBOX_TLS_CA=" + path("tls-ca"),
		"SIGNALBOX_TLS_CERT=" + path("tls-cert"),
		"SIGNALBOX_TLS_KEY=" + path("tls-key"), "SIGNALBOX_TLS_SERVER_NAME=" + inv.values["tls-server-name"],
	}
}

// errNotScheduled: the supervisor ended a command, and this process does not know yet that the
// lease is lost.
var errNotScheduled = errors.New("signalbox was stopped, or not scheduled, for as long as the lease could be relied on")

func leaseLostError(l *client.Lease) error {
	return &codeError{code: exitLost, err: fmt.Errorf("lost %q while holding it: %w", l.Name(), context.Cause(l.Context()))}
}

// waitNotice is how long a wait goes on without a word where nobody watches: in a log.
const waitNotice = 5 * time.Second

// waitOptions are the options of an acquire that waits. They explain the wait once: at once on a
// terminal, else after some seconds. done ends that, and is called after the acquire.
func (inv *invocation) waitOptions(s *client.Session, h holdArgs) (opts []client.AcquireOption, done func()) {
	ctx, cancel := context.WithCancel(inv.longCtx)
	var printing sync.WaitGroup
	accepted := func(uint64) {
		printing.Go(func() {
			if !isTerminal(inv.stderr) {
				select {
				case <-time.After(waitNotice):
				case <-ctx.Done():
					return
				}
			}
			inv.printQueueStatus(ctx, s, h.name)
		})
	}
	return []client.AcquireOption{client.Wait(h.wait), client.Data(h.data), client.OnAccepted(accepted)}, func() {
		cancel()
		printing.Wait()
	}
}

// acquire acquires until a signal, with the exit codes of the command line.
func (inv *invocation) acquire(s *client.Session, h holdArgs, acquire acquireFunc) (*client.Lease, error) {
	opts, done := inv.waitOptions(s, h)
	defer done()
	l, err := acquire(s, opts...)
	if err != nil {
		return nil, inv.waitError(h.name, err)
	}
	return l, nil
}

// waitError gives the error of a wait its exit code.
func (inv *invocation) waitError(name string, err error) error {
	switch {
	case inv.longCtx.Err() != nil:
		return &codeError{code: exitNotAcquired, err: fmt.Errorf("interrupted while waiting for %q", name)}
	case errors.Is(err, client.ErrSessionExpired):
		code := exitNotAcquired
		if errors.Is(err, client.ErrNotRenewed) && !errors.Is(err, client.Unauthenticated) {
			code = exitUnreachable
		}
		return &codeError{code: code, err: fmt.Errorf("lost the place in the queue: %w", err)}
	default:
		return err
	}
}

func grantRow(l *client.Lease, state string) row {
	r := row{
		{"state", "state", state},
		{"name", "name", l.Name()},
		{"token", "token", labelled{"token", l.Token()}},
		{"count", "count", labelled{"count", amount(l.Count())}},
		{"session_id", "", sessionID(l.Session().ID())},
	}
	if slots := l.Slots(); len(slots) > 0 {
		r = append(r, field{"slots", "slots", labelled{"slots", strings.Join(slots, ",")}})
	}
	return r
}

// printQueueStatus explains a wait. It ignores its own errors.
func (inv *invocation) printQueueStatus(ctx context.Context, s *client.Session, name string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	w, err := s.ExplainWait(ctx, name)
	if err != nil || !w.Waiting {
		return
	}
	text := fmt.Sprintf("waiting for %s, number %d in the queue", sanitize(name), w.Position)
	if len(w.Holders) > 0 {
		h := w.Holders[0]
		text += fmt.Sprintf("; held by session %d", h.Session)
		if h.Description != "" {
			text += " (" + sanitize(h.Description) + ")"
		}
		text += " since " + h.Since.UTC().Format(time.RFC3339)
		if n := len(w.Holders) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
	}
	if never := neverSentence(w); never != "" {
		text += "; " + never
	}
	inv.note("%s\n", text)
}
