package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func serviceRegister(a *app) *cobra.Command {
	c := command("register NAME [-- COMMAND [ARG...]]", "Register in a service while a command runs, or until Ctrl-C",
		`Register as a member of a service while a command runs, or until Ctrl-C. With --addr the member has
an address, a weight and a state that callers go by; with --data it has data of your own, and no
state. A member excludes no other. So if the registration is lost, because the cluster is away for
longer than the session timeout or an operator ends the session, the command keeps running, and the
member is registered again as soon as possible; both are said on standard error. While the cluster is
away, which is a refused connection or 5 s without an answer, the command starts all the same, and is
registered as soon as possible. Wrong credentials, nodes and clusters are an error at once; if the
command has started before an instance answered, they are said on standard error, and tried again. The
environment has the token and the session of the first registration, or none if the command started
before it.

A check runs before the member is registered, and then each --check-interval, 1s to 5m. Two failures
in a row make the member failing; it stays registered, and is ready again after a success. A check
that succeeds by fits and starts needs up to 16 in a row. --check-http wants a status of 200 to 299,
--check-tcp a connection, --check-command an exit code of 0. sh runs the text of --check-command; at
the timeout it is killed with what it started. When a check begins to fail, and when the member is
ready again, standard error says so.

At SIGTERM the member drains: it says so, waits for --drain, 0 to 10m, and leaves. Then the command
gets the signal. A second one cuts that short. If the command ends by itself, the member leaves at
once.

With --stop-if-lost, the command and all processes it started are stopped when the registration is
lost, as with signalbox lock, and the exit code is 4. It does not drain. The command then starts when
it is registered, and not before: if no instance answers within --timeout, the exit code is 5.`)
	c.Example = `  signalbox service register api --addr 10.0.0.1:80 --zone zone-a --check-tcp 127.0.0.1:80 -- ./server
  signalbox service register api --data 10.0.0.1:80 -- signalbox service ls api`
	wait := addHoldFlags(c, "15s", "for a free unit", "Data of the member, instead of an address")
	stop := c.Flags().Bool("stop-if-lost", false, "Stop the command when the registration is lost.")
	f := addMemberFlags(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		h, err := inv.holdArgs(cmd, args, *wait)
		if err != nil {
			return err
		}
		m, opts, err := f.member(cmd, h.data)
		if err != nil {
			return err
		}
		h.data = nil // it is the member's
		if d, ok := m.(discovery.Data); ok && len(d) == 0 {
			inv.note("signalbox: the member has no address, so callers leave it out; give it one with --addr HOST:PORT\n")
		}
		opts = append(opts, discovery.OnState(func(state discovery.State, why string) {
			inv.note("signalbox: the member of %q is %s%s\n", h.name, state,
				map[bool]string{true: ": " + terminal.Sanitize(why)}[why != ""])
		}))
		if !*stop {
			return keepRegistered(inv, h, m, opts)
		}
		if cmd.Flag("drain").Changed {
			return usagef("--drain and --stop-if-lost are both given; keep one")
		}
		return inv.hold(h, "registered", func(s *client.Session, acquire ...client.AcquireOption) (*client.Lease, error) {
			r, err := discovery.Register(inv.longCtx, s, h.name, m, append(opts,
				discovery.FirstRegistration(func(*client.Session) []client.AcquireOption { return acquire }))...)
			if err != nil {
				return nil, registerError(h.name, err)
			}
			return r.Lease(), nil
		})
	})
	return c
}

// memberFlags describe a member with an address.
type memberFlags struct {
	endpoint           discovery.Endpoint
	meta               []string
	http, tcp, command string
	interval, timeout  time.Duration
	drain              time.Duration
	others             []string
}

func addMemberFlags(c *cobra.Command) *memberFlags {
	f := &memberFlags{}
	fs := c.Flags()
	before := map[string]bool{}
	fs.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	fs.StringVar(&f.endpoint.Addr, "addr", "", "Address of the member, as host:port.")
	fs.StringVar(&f.endpoint.Zone, "zone", "", "Zone that the member runs in.")
	fs.IntVar(&f.endpoint.Weight, "weight", discovery.DefaultWeight, "Share of calls that the member takes, 1 to 1000.")
	fs.StringArrayVar(&f.meta, "meta", nil, "A string for callers, as KEY=VALUE; may be repeated.")
	fs.StringVar(&f.http, "check-http", "", "URL that is answered with 200 to 299 while the member can serve.")
	fs.StringVar(&f.tcp, "check-tcp", "", "Address that takes connections while the member can serve.")
	fs.StringVar(&f.command, "check-command", "",
		"Command that sh runs, and that ends with 0 while the member can serve.")
	durationVar(fs, &f.interval, "check-interval", discovery.DefaultCheckInterval, "Time between two checks.")
	durationVar(fs, &f.timeout, "check-timeout", discovery.DefaultCheckTimeout, "Time that a check may take.")
	durationVar(fs, &f.drain, "drain", discovery.DefaultGrace, "How long the member drains at SIGTERM.")
	fs.VisitAll(func(flag *pflag.Flag) {
		if !before[flag.Name] && flag.Name != "addr" {
			f.others = append(f.others, flag.Name)
		}
	})
	return f
}

// member is the member of the flags, or of data of one's own.
func (f *memberFlags) member(cmd *cobra.Command, data []byte) (discovery.Member, []discovery.Option, error) {
	if f.endpoint.Addr == "" {
		for _, name := range f.others {
			if cmd.Flag(name).Changed {
				return nil, nil, usagef("--%s goes with --addr, which is missing", name)
			}
		}
		return discovery.Data(data), nil, nil
	}
	if cmd.Flag("data").Changed || cmd.Flag("data-file").Changed {
		return nil, nil, usagef("--addr and data of your own are both given; keep one")
	}
	e := f.endpoint
	for _, text := range f.meta {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, nil, usagef("--meta is %q; write KEY=VALUE", text)
		}
		if e.Meta == nil {
			e.Meta = map[string]string{}
		}
		e.Meta[key] = value
	}
	if e.Weight == 0 {
		return nil, nil, usagef("--weight is 0; it must be 1 to %d", discovery.MaxWeight)
	}
	if _, err := e.Data(); err != nil {
		return nil, nil, usagef("%v", err)
	}
	check, err := f.check()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"check-http", "check-tcp", "check-command"} {
		if flag := cmd.Flag(name); flag.Changed && strings.TrimSpace(flag.Value.String()) == "" {
			return nil, nil, usagef("--%s is empty", name)
		}
	}
	opts := []discovery.Option{discovery.DrainGrace(f.drain)}
	if check != nil {
		opts = append(opts, discovery.ReadyCheck(check), discovery.CheckInterval(f.interval),
			discovery.CheckTimeout(f.timeout))
	} else if cmd.Flag("check-interval").Changed || cmd.Flag("check-timeout").Changed {
		return nil, nil, usagef("there is no check; give one of --check-http, --check-tcp and --check-command")
	}
	if err := discovery.CheckOptions(e, opts...); err != nil {
		return nil, nil, usagef("%v", err)
	}
	return e, opts, nil
}

func (f *memberFlags) check() (discovery.Check, error) {
	var checks []discovery.Check
	if f.http != "" {
		if u, err := url.Parse(f.http); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, usagef("--check-http is %q; write http://HOST:PORT/PATH, or https", f.http)
		}
		checks = append(checks, discovery.CheckHTTP(f.http))
	}
	if f.tcp != "" {
		if _, port, err := net.SplitHostPort(f.tcp); err != nil || port == "" {
			return nil, usagef("--check-tcp is %q; write HOST:PORT", f.tcp)
		}
		checks = append(checks, discovery.CheckTCP(f.tcp))
	}
	if f.command != "" {
		checks = append(checks, checkCommand(f.command))
	}
	switch len(checks) {
	case 0:
		return nil, nil
	case 1:
		return checks[0], nil
	}
	return nil, usagef("more than one check is given; keep one of --check-http, --check-tcp and --check-command")
}

func registerError(name string, err error) error {
	if errors.Is(err, client.ErrNotAcquired) {
		return fmt.Errorf("%w: all units of %q are held, by a lock or by as many members as its limit allows", err, name)
	}
	return err
}

// keepRegistered registers while the command runs, or until a signal, and again whenever the
// registration is lost. The command starts once the member is registered, or while the cluster is away.
func keepRegistered(inv *invocation, h holdArgs, m discovery.Member, opts []discovery.Option) error {
	inv.right = "use"
	c, away, answered, err := inv.clientAtOnce()
	if err != nil {
		return err
	}
	defer answered()
	ctx, leave := context.WithCancel(context.WithoutCancel(inv.longCtx))
	defer leave()
	k := &registering{inv: inv, name: h.name, first: make(chan *discovery.Registration, 1)}
	waiting, wait := func() {}, &onceWait{length: h.wait}
	opts = append(opts, discovery.SessionOptions(inv.sessionOptions()...),
		discovery.FirstRegistration(func(s *client.Session) (opts []client.AcquireOption) {
			answered()
			waiting()
			left := h
			left.wait = wait.left(time.Now())
			opts, waiting = inv.waitOptions(s, left)
			return opts
		}),
		discovery.OnRegistration(k.changed))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.serve(ctx, func() error { return discovery.Serve(ctx, c, inv.node, h.name, m, opts...) })
		waiting()
	}()
	drain := func() <-chan struct{} {
		leave()
		return ended
	}
	var r *discovery.Registration
	for outage := away; r == nil && outage != nil; {
		select {
		case r = <-k.first:
		case <-ended:
			return inv.waitError(h.name, registerError(h.name, k.result))
		case <-inv.longCtx.Done():
			<-drain()
			return inv.waitError(h.name, k.result)
		case err := <-away:
			if outage = nil; !k.goOn(err) {
				outage = away // it is refused: the reason is on its way
			}
		}
	}
	if len(h.command) == 0 {
		defer func() { <-drain() }()
		if r == nil {
			select {
			case r = <-k.first:
			case <-inv.longCtx.Done():
				return nil
			}
		}
		granted := row{
			{"state", "state", "registered"}, {"name", "name", h.name}, {"token", "token", labelled{"token", r.Token()}},
			{"count", "count", labelled{"count", amount(1)}}, {"session_id", "", sessionID(r.Session().ID())},
		}
		if err := inv.reporter().event(granted); err != nil {
			return err
		}
		<-inv.longCtx.Done()
		return nil
	}
	env := append(inv.holdEnv(h.name, 0, nil), leasesEnv())
	if r != nil {
		env = append(inv.holdEnv(h.name, r.Token(), r.Session()), leasesEnv(leaseRow(h.name, r.Token(), 1, nil)))
	}
	command := &child{
		args: h.command, stdin: inv.stdin, stdout: inv.stdout, stderr: inv.stderr, notes: inv.notes,
		interrupted: inv.longCtx.Done(), env: env,
	}
	if _, drains := m.(discovery.Endpoint); drains {
		command.drain = drain
	}
	err = command.run(context.WithoutCancel(ctx))
	leave()
	if latest := k.present(); latest != nil {
		_ = latest.Drain(inv.cleanup(), 0) // the command has ended, and answers no requests
	}
	<-ended
	return err
}

// registering is a registration that is kept, as its notices tell.
type registering struct {
	inv   *invocation
	name  string
	first chan *discovery.Registration

	mu      sync.Mutex
	latest  *discovery.Registration
	count   int  // of registrations so far
	goesOn  bool // a refusal does not end it any more
	refused bool // it has ended
	result  error
}

// serve serves, and again after a refusal where that ends nothing any more.
func (k *registering) serve(ctx context.Context, serve func() error) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := serve()
		k.mu.Lock()
		k.result, k.refused = err, !k.goesOn
		over := k.refused || ctx.Err() != nil
		k.mu.Unlock()
		if over {
			return
		}
		k.inv.note("signalbox: not registered in %q: %s; it is tried again\n", k.name, terminal.Sanitize(err.Error()))
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// goOn has the program go on without a registration, unless that was refused.
func (k *registering) goOn(why error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused {
		return false
	}
	if k.goesOn = true; k.count == 0 {
		k.inv.note("signalbox: the cluster is away (%s); the member is registered in %q as soon as possible\n",
			terminal.Sanitize(why.Error()), k.name)
	}
	return true
}

// changed is discovery.OnRegistration's.
func (k *registering) changed(r *discovery.Registration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.latest = r
	switch {
	case r != nil:
		if k.count++; k.count == 1 {
			k.first <- r
		}
		if k.goesOn || k.count > 1 {
			again := ""
			if k.count > 1 {
				again = " again"
			}
			k.inv.note("signalbox: registered in %q%s, with token %d\n", k.name, again, r.Token())
		}
	case k.count > 0:
		k.inv.note("signalbox: not registered in %q any more: %s; it is tried again\n", k.name,
			terminal.Sanitize(err.Error()))
		_ = k.inv.lossEvent(k.name, err) // a reader that has gone ends the program with the next registration
	}
}

func (k *registering) present() *discovery.Registration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.latest
}

// onceWait is a wait that goes on when it is begun again, with another session.
type onceWait struct {
	length time.Duration
	until  time.Time // zero before the first begin
}

// left is how long the wait still lasts when it begins now, for the first time or again.
func (w *onceWait) left(now time.Time) time.Duration {
	if w.length == client.Forever {
		return w.length
	}
	if w.until.IsZero() {
		w.until = now.Add(w.length)
	}
	return max(w.until.Sub(now), 0)
}
