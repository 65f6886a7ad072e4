package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
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

// readData reads the data of the data flags. given reports whether one was given.
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

// standardInput is its name in errors.
const standardInput = "standard input"

func (a *app) readFile(ctx context.Context, name string) ([]byte, error) {
	if a.afterRead != nil {
		defer a.afterRead()
	}
	if name == "-" {
		return interruptible(ctx, standardInput, func() ([]byte, error) {
			return file.ReadAll(a.stdin, standardInput, maxRead)
		})
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
	{"lost-exit-code", "4", []int{exitLost}, "Exit code if the lease is lost, 0 to 255."},
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
	name    string   // the only one, or all with spaces between them, for people
	command []string // none: hold until a signal
	wait    time.Duration
	data    []byte
	preempt syscall.Signal // that the command gets when its units are preempted; 0: none
}

// holdArgs reads NAME, the command behind "--", and the data.
func (a *app) holdArgs(cmd *cobra.Command, args []string, wait time.Duration) (h holdArgs, err error) {
	if h.name, h.command, err = split(cmd, args); err != nil {
		return h, err
	}
	return h, a.readHoldFlags(cmd, wait, &h)
}

// holdArgsOfMany is holdArgs of NAME..., one or more.
func (a *app) holdArgsOfMany(
	cmd *cobra.Command, args []string, wait time.Duration,
) (h holdArgs, names []string, err error) {
	if names, h.command, err = splitNames(cmd, args); err != nil {
		return h, nil, err
	}
	h.name = strings.Join(names, " ")
	return h, names, a.readHoldFlags(cmd, wait, &h)
}

func (a *app) readHoldFlags(cmd *cobra.Command, wait time.Duration, h *holdArgs) (err error) {
	a.readExitCodes(cmd)
	if err := lookUp(h.command); err != nil {
		return err
	}
	h.wait = wait
	h.data, _, err = a.readData(cmd)
	return err
}

// lookUp fails if the command does not exist, before anything is waited for. No command is fine.
func lookUp(command []string) error {
	if len(command) == 0 {
		return nil
	}
	_, err := exec.LookPath(command[0])
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return &codeError{code: supervise.NoCommand, err: err}
	}
	return &codeError{code: supervise.CannotRun, err: err}
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
		return inv.runWithLease(l, h, grantRow(l, state))
	})
}

// holdAll is hold of several names.
func (inv *invocation) holdAll(h holdArgs, names []string, opts ...client.AcquireOption) error {
	return inv.withSession(func(s *client.Session) error {
		explain, done := inv.explainWaits(s)
		defer done()
		wants := make([]client.Want, len(names))
		for i, name := range names {
			wants[i] = client.Want{Name: name, Options: []client.AcquireOption{explain(name)}}
		}
		g, err := s.AcquireAll(inv.longCtx, wants, append(opts, client.Wait(h.wait), client.Data(h.data))...)
		if err != nil {
			return inv.waitError(h.name, err)
		}
		done()
		leases := g.Leases()
		granted := make([]row, len(leases))
		for i, l := range leases {
			granted[i] = grantRow(l, "acquired")
		}
		return inv.runWith(heldLeases{leases: leases, ctx: g.Context(), release: g.Release}, h.name, h.command, granted,
			append(inv.holdEnv("", 0, s), leaseEnv(leases...)...))
	})
}

// split separates a verb's own argument from the command behind "--".
func split(cmd *cobra.Command, args []string) (name string, command []string, err error) {
	own, command, err := splitNames(cmd, args)
	switch {
	case err != nil:
		return "", nil, err
	case len(own) != 1:
		return "", nil, usagef("expected 1 argument before --, got %d; the form is: %s", len(own), usageLine(cmd))
	}
	return own[0], command, nil
}

// splitNames is split of any number of arguments.
func splitNames(cmd *cobra.Command, args []string) (own, command []string, err error) {
	own = args
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		own, command = args[:n], args[n:]
		if len(command) == 0 {
			return nil, nil, usagef("there is no command after --")
		}
	}
	switch {
	case len(own) == 0:
		return nil, nil, usagef("the name is missing; the form is: %s", usageLine(cmd))
	case slices.Contains(own, ""):
		return nil, nil, usagef("the name is empty; the form is: %s", usageLine(cmd))
	}
	return own, command, nil
}

// parseWait reads how long to queue. 0 is not at all.
func parseWait(text string) (time.Duration, error) {
	d, err := parseForeverOr(text)
	if err == nil && d != client.Forever && d > protocol.MaxAcquireTimeout*time.Millisecond {
		err = fmt.Errorf("%s is above 24h; give less, or write forever to wait without end", text)
	}
	return d, err
}

// heldLeases are the leases that a command runs under: one or several.
type heldLeases struct {
	leases    []*client.Lease
	ctx       context.Context // ends with the first of them
	release   func(context.Context) error
	preempted <-chan struct{} // closed when a waiter preempts the units; nil: there are several leases
	signal    syscall.Signal  // that the command gets then; 0: none
}

// left is how long the leases may be relied on if this process is not heard of, and how long after
// that the command may take to end.
func (h *heldLeases) left() (left, grace time.Duration) {
	s := h.leases[0].Session()
	left, grace = s.Remaining(), s.Timeout()/20
	for _, l := range h.leases {
		grace = min(grace, l.TimeToStop())
		if until := l.Until(); !until.IsZero() {
			left = min(left, time.Until(until))
		}
	}
	return left, grace / 5 * 4 // this process needs the rest
}

// runWithLease is runWith of one lease.
func (inv *invocation) runWithLease(l *client.Lease, args holdArgs, granted row) error {
	h := heldLeases{leases: []*client.Lease{l}, ctx: l.Context(), release: l.Release, preempted: l.Preempted(),
		signal: args.preempt}
	return inv.runWith(h, l.Name(), args.command, []row{granted},
		append(inv.holdEnv(l.Name(), l.Token(), l.Session()), leaseEnv(l)...))
}

// runWith runs a command under leases. Without a command it holds them until a signal. It returns
// after the release, if the server can be reached, so that a script's next line finds the units
// free.
func (inv *invocation) runWith(h heldLeases, name string, command []string, granted []row, env []string) error {
	s := h.leases[0].Session()
	defer inv.release(h.release, name, s)
	if len(command) == 0 {
		for _, r := range granted {
			if err := inv.reporter().event(r); err != nil {
				return err
			}
		}
		select {
		case <-inv.longCtx.Done():
			return nil
		case <-h.ctx.Done():
			return inv.lostError(fmt.Errorf("lost %q while holding it", name), name, &h)
		}
	}
	c := &child{
		args: command, stdin: inv.stdin, stdout: inv.stdout, stderr: inv.stderr, notes: inv.notes,
		left: h.left, renew: s.Timeout() / extensionShare, interrupted: inv.longCtx.Done(), env: env,
		preempted: h.preempted, preemptSignal: h.signal,
	}
	err := c.run(h.ctx)
	if errors.Is(err, errLost) {
		return inv.lostError(errLost, name, &h)
	}
	return err
}

// release releases leases, and says so if that is not confirmed.
func (inv *invocation) release(release func(context.Context) error, name string, s *client.Session) {
	err := release(inv.cleanup())
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrOutcomeUnknown) {
		inv.note("signalbox: no instance has confirmed that %q is released; unless one did it, it stays held "+
			"until its session ends, after about %s; signalbox sem describe shows who holds it\n", name, s.Timeout())
	}
}

// leaseEnv describes leases to a command. What is of one lease is empty with several, so that a
// command does not take it from what runs this command.
func leaseEnv(leases ...*client.Lease) []string {
	rows := make([]row, 0, len(leases))
	for _, l := range leases {
		rows = append(rows, leaseRow(l.Name(), l.Token(), l.Count(), l.Slots()))
	}
	var slots []string
	if len(leases) == 1 {
		slots = leases[0].Slots()
	}
	first, _, _ := strings.Cut(strings.Join(slots, ","), ",")
	return []string{"SIGNALBOX_SLOT=" + first, "SIGNALBOX_SLOTS=" + strings.Join(slots, ","), leasesEnv(rows...)}
}

// leasesEnv has the leases as JSON, one or many.
func leasesEnv(rows ...row) string {
	text, err := marshalPlain(append([]row{}, rows...)) // none is a list too
	if err != nil {
		panic(err) // texts and numbers always are JSON
	}
	return "SIGNALBOX_LEASES=" + string(text)
}

func leaseRow(name string, token, count uint64, slots []string) row {
	r := row{{"name", "", name}, {"token", "", token}, {"count", "", cell(amount(count))}}
	if len(slots) > 0 {
		r = append(r, field{"slots", "", slots})
	}
	return r
}

// holdEnv is the environment of a command that runs while something is held. name is empty and token
// is 0 if these are several.
func (inv *invocation) holdEnv(name string, token uint64, s *client.Session) []string {
	path := func(setting string) string { // the command may run in another folder
		name := inv.values[setting]
		if abs, err := filepath.Abs(name); err == nil && name != "" {
			return abs
		}
		return name
	}
	number, session := "", ""
	if s != nil {
		session = strconv.FormatUint(s.ID(), 10)
	}
	if token > 0 {
		number = strconv.FormatUint(token, 10)
	}
	return []string{
		// Of another context, the command would use the token and the certificates.
		"SIGNALBOX_CONTEXT=" + inv.values["context"], "SIGNALBOX_CLIENT_CONFIG=" + path("client-config"),
		"SIGNALBOX_TOKEN=" + number, "SIGNALBOX_NAME=" + name, "SIGNALBOX_NODE=" + inv.node,
		"SIGNALBOX_SESSION=" + session,
		"SIGNALBOX_ENDPOINTS=" + inv.values["endpoints"], "SIGNALBOX_CLUSTER=" + inv.values["cluster"],
		"SIGNALBOX_TOKEN_FILE=" + path("token-file"),
		"SIGNALBOX_TLS=" + inv.values["tls"], "SIGNALBOX_TLS_CA=" + path("tls-ca"),
		"SIGNALBOX_TLS_CERT=" + path("tls-cert"),
		"SIGNALBOX_TLS_KEY=" + path("tls-key"), "SIGNALBOX_TLS_SERVER_NAME=" + inv.values["tls-server-name"],
	}
}

// errNotExtended: the supervisor ended a command whose lease is held.
var errNotExtended = errors.New("signalbox did not extend the time of the command before it was over")

// lostError is a sentence that says that a lease is lost, and why. The why does not say it again.
type lostError struct{ what, why error }

func (e *lostError) Error() string {
	why, _ := strings.CutPrefix(e.why.Error(), client.ErrLeaseLost.Error())
	if why = strings.TrimPrefix(why, ": "); why == "" {
		return e.what.Error()
	}
	return e.what.Error() + ": " + why
}

func (e *lostError) Unwrap() []error { return []error{e.what, e.why} }

// lostError is the error of leases that are lost. Programs that read JSON get a line of it too.
func (inv *invocation) lostError(what error, name string, h *heldLeases) error {
	why := context.Cause(h.ctx)
	for _, l := range h.leases {
		why = cmp.Or(why, l.Lost()) // the supervisor may know it before the context
	}
	why = cmp.Or(why, errNotExtended)
	return &codeError{code: exitLost, err: errors.Join(&lostError{what, why}, inv.lossEvent(name, why))}
}

// lossEvent prints why something was lost, for programs that read JSON.
func (inv *invocation) lossEvent(name string, why error) error {
	loss, ok := errors.AsType[*client.Loss](why)
	if !ok || inv.values["output"] == "table" {
		return nil
	}
	return inv.reporter().event(row{{"state", "", "lost"}, {"name", "", name}, {"loss", "", loss}})
}

// waitNotice is the time after which a wait is reported in a log; on a terminal it is at once.
const waitNotice = 5 * time.Second

// waitOptions are the options of an acquire that waits, and explains that. done ends the
// explanation, and is called after the acquire.
func (inv *invocation) waitOptions(s *client.Session, h holdArgs) (opts []client.AcquireOption, done func()) {
	explain, done := inv.explainWaits(s)
	opts = []client.AcquireOption{client.Wait(h.wait), explain(h.name)}
	if len(h.data) > 0 {
		opts = append(opts, client.Data(h.data))
	}
	return opts, done
}

// explainWaits explains each wait once: at once on a terminal, else after some seconds. explain is
// an option of the acquire of a name.
func (inv *invocation) explainWaits(s *client.Session) (explain func(name string) client.AcquireOption, done func()) {
	ctx, cancel := context.WithCancel(inv.longCtx)
	var printing sync.WaitGroup
	explain = func(name string) client.AcquireOption {
		var once sync.Once
		return client.OnQueued(func(uint64) {
			once.Do(func() {
				printing.Go(func() {
					if terminal.Is(inv.stderr) || waitFor(ctx, waitNotice) {
						inv.printQueueStatus(ctx, s, name)
					}
				})
			})
		})
	}
	return explain, func() {
		cancel()
		printing.Wait()
	}
}

// waitFor waits; false: ctx ended first.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
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
		if errors.Is(err, client.ErrNotRenewed) && !errors.Is(err, client.ErrUnauthenticated) {
			code = exitUnreachable
		}
		return &codeError{code: code, err: fmt.Errorf("lost the place in the queue: %w", err)}
	default:
		dead, ok := errors.AsType[*client.DeadlockError](err)
		if !ok {
			return err
		}
		for _, line := range explain.Deadlock(dead.Deadlock, 0) {
			inv.note("%s\n", terminal.Sanitize(line))
		}
		return &codeError{code: exitNotAcquired, err: fmt.Errorf("left the queue of %q, because of this deadlock", name)}
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
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second) // a deadlock is read twice
	defer cancel()
	w, err := s.Node().ExplainWait(ctx, name, s.ID())
	if err != nil || !w.Waiting {
		return
	}
	text := fmt.Sprintf("waiting for %s, number %d in the queue", name, w.Position)
	if w.Position == 0 {
		text = fmt.Sprintf("waiting for %s, behind the first 16 in the queue", name)
	}
	holders := explain.Blocking(w)
	if len(holders) > 0 {
		h := &holders[0]
		text += "; held by " + explain.Session(h.Session, h.Description) + " since " + h.Since.UTC().Format(time.RFC3339)
		if n := len(holders) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
	}
	for _, more := range append(explain.Preempted(nodeFlag(inv.node), name, w), explain.FirstEnd(holders),
		explain.Never(name, w)) {
		if more != "" {
			text += "; " + more
		}
	}
	inv.note("%s\n", terminal.Sanitize(text))
	if w.Deadlock != nil && w.Deadlock.Confirmed {
		for _, line := range explain.Deadlock(w.Deadlock, s.ID()) {
			inv.note("%s\n", terminal.Sanitize(line))
		}
	}
}
