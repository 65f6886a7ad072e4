// Command signalbox-mcp gives agents locks as tools: it speaks the Model Context Protocol on
// standard input and output, and holds what they lock in a signalbox cluster while it runs.
//
// Run `signalbox-mcp --help` for its flags, and see README.md for the configuration of hosts.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/server/release"
)

const help = `signalbox-mcp gives agents locks as tools, over the Model Context Protocol on standard input and
output. A host starts it. It holds what its agents lock until they release it, or until it ends.

Flags:
  --read-only          Offer the tools who_holds and list_locks only.
  --prefix TEXT        Put this before each name. Agents do not see it, and reach no other names.
  --max-hold DURATION  Release what was held for so long, 1s to 720h. Default: 4h.
  --agent NAME         What others see beside a lock [$SIGNALBOX_AGENT]. Default: the host's name.
  --version, --help    Print the version, or this text.

The cluster comes from the environment, as with signalbox: SIGNALBOX_ENDPOINTS (127.0.0.1:7070),
SIGNALBOX_NODE (/default), SIGNALBOX_CLUSTER, SIGNALBOX_TOKEN_FILE, SIGNALBOX_TLS,
SIGNALBOX_TLS_CA, SIGNALBOX_TLS_CERT, SIGNALBOX_TLS_KEY, SIGNALBOX_TLS_SERVER_NAME.
`

// The process ends within 2 s. Calls that are under way then fail after callsTimeout, and the
// sessions' end has what is left of endTimeout.
const (
	callsTimeout   = 700 * time.Millisecond
	answersTimeout = 900 * time.Millisecond
	endTimeout     = 1800 * time.Millisecond
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a host that does not read must not keep the sessions from being stopped
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	set, err := readSettings(os.Args[1:], os.Getenv("SIGNALBOX_AGENT"))
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(help)
	case err != nil:
		fmt.Fprintf(os.Stderr, "signalbox-mcp: %v\n  See signalbox-mcp --help.\n", err)
		os.Exit(2)
	case set.version:
		fmt.Println("signalbox-mcp " + release.Current().Version)
	default:
		if err := serve(ctx, set); err != nil {
			fmt.Fprintf(os.Stderr, "signalbox-mcp: %v\n", err)
			os.Exit(1)
		}
	}
}

// settings are the values of the flags and of SIGNALBOX_AGENT.
type settings struct {
	readOnly, version bool
	prefix, agent     string
	maxHold           time.Duration
}

// readSettings reads the flags. agent is the default of --agent.
func readSettings(args []string, agent string) (s settings, err error) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&s.readOnly, "read-only", false, "")
	fs.BoolVar(&s.version, "version", false, "")
	fs.StringVar(&s.prefix, "prefix", "", "")
	fs.StringVar(&s.agent, "agent", agent, "")
	fs.DurationVar(&s.maxHold, "max-hold", 4*time.Hour, "")
	switch err = fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		err = errors.New(strings.ReplaceAll(err.Error(), " -", " --"))
	case fs.NArg() > 0:
		err = fmt.Errorf("%q is no flag; signalbox-mcp takes flags only", fs.Arg(0))
	case s.maxHold < time.Second || s.maxHold > 720*time.Hour:
		err = fmt.Errorf("--max-hold is %s; give a duration from 1s to 720h", s.maxHold)
	default:
		err = cmp.Or(checkText("--prefix", s.prefix, maxQuoted),
			checkText("--agent, or SIGNALBOX_AGENT,", s.agent, maxAgentName))
	}
	return s, err
}

// serve serves until standard input, the parent process or ctx ends. Standard output gets messages
// of the protocol only.
func serve(ctx context.Context, set settings) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	all := &agents{settings: set, ctx: ctx, list: make(map[string]*agent)}
	go watchProcess(ctx, all, end)
	host := &lines{in: bufio.NewReaderSize(os.Stdin, maxLine+1), out: os.Stdout, end: end}
	if _, err := newServer(all).Connect(context.WithoutCancel(ctx), host, nil); err != nil {
		return err
	}
	<-ctx.Done() // waits end
	time.AfterFunc(endTimeout, func() { os.Exit(1) })
	answers, done := context.WithTimeout(context.Background(), answersTimeout)
	go func() {
		host.calls.Lock()
		done()
	}()
	<-answers.Done()
	all.mu.Lock()
	c := all.client
	all.mu.Unlock()
	if c != nil {
		_ = c.Close() // a session whose end is not answered ends with its timeout
	}
	return nil
}

// watchProcess looks each second whether this process was left to another parent.
func watchProcess(ctx context.Context, all *agents, end func()) {
	parent, tick := os.Getppid(), time.Tick(time.Second)
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			all.mu.Lock()
			for _, a := range all.list {
				a.sweep()
			}
			all.mu.Unlock()
		}
	}
	end()
}
