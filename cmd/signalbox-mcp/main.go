// Command signalbox-mcp gives agents locks as tools: it speaks the Model Context Protocol on
// standard input and output, and holds what they lock in a signalbox cluster while it runs.
//
// Run `signalbox-mcp --help` for its flags, and see README.md for the configuration of hosts.
package main

import (
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

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
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

const (
	maxLine    = 1 << 20                 // bytes of a message of the host
	endTimeout = 1800 * time.Millisecond // of the sessions' end: the process ends within 2 s
	maxPrefix  = 200                     // bytes
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a host that does not read must not keep the sessions from being stopped
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	set, err := readSettings(os.Args[1:], os.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(help)
	case errors.Is(err, errVersion):
		fmt.Println("signalbox-mcp " + release.Current().Version)
	case err != nil:
		fmt.Fprintf(os.Stderr, "signalbox-mcp: %v\n  See signalbox-mcp --help.\n", err)
		os.Exit(2)
	default:
		if err := serve(ctx, set); err != nil {
			fmt.Fprintf(os.Stderr, "signalbox-mcp: %v\n", err)
			os.Exit(1)
		}
	}
}

// settings are what the flags and SIGNALBOX_AGENT say.
type settings struct {
	readOnly      bool
	prefix, agent string
	maxHold       time.Duration
}

var errVersion = errors.New("the version is asked for")

// readSettings reads the flags, which come before the environment.
func readSettings(args []string, env func(string) string) (s settings, err error) {
	fs := flag.NewFlagSet("signalbox-mcp", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&s.readOnly, "read-only", false, "")
	fs.StringVar(&s.prefix, "prefix", "", "")
	fs.DurationVar(&s.maxHold, "max-hold", 4*time.Hour, "")
	fs.StringVar(&s.agent, "agent", env("SIGNALBOX_AGENT"), "")
	showVersion := fs.Bool("version", false, "")
	switch err = fs.Parse(args); {
	case err != nil && !errors.Is(err, flag.ErrHelp):
		err = errors.New(strings.ReplaceAll(err.Error(), " -", " --"))
	case err != nil:
	case *showVersion:
		err = errVersion
	case fs.NArg() > 0:
		err = fmt.Errorf("%q is no flag; signalbox-mcp takes flags only", fs.Arg(0))
	case s.maxHold < time.Second || s.maxHold > 720*time.Hour:
		err = fmt.Errorf("--max-hold is %s; give a duration from 1s to 720h", s.maxHold)
	default:
		if err = checkText("--prefix", s.prefix, maxPrefix); err == nil {
			err = checkText("--agent, or SIGNALBOX_AGENT,", s.agent, maxAgentName)
		}
	}
	return s, err
}

// serve serves until standard input, the parent process or ctx ends. Standard output gets messages
// of the protocol only.
func serve(ctx context.Context, set settings) error {
	ctx, end := context.WithCancel(ctx)
	all := newAgents(ctx, set)
	go watchProcess(ctx, &all.pauses, end)
	transport := &mcp.IOTransport{Reader: input{os.Stdin, end}, Writer: os.Stdout, MaxLineLength: maxLine}
	session, err := newServer(all).Connect(context.WithoutCancel(ctx), transport, nil)
	if err == nil {
		ended := make(chan error, 1)
		go func() { ended <- session.Wait() }()
		select {
		case err = <-ended:
		case <-ctx.Done():
		}
	}
	end() // waits end
	all.close(endTimeout)
	return err
}

// watchProcess looks each second whether this process was left to another parent, and notices when
// it did not run.
func watchProcess(ctx context.Context, p *pauses, end func()) {
	parent, tick := os.Getppid(), time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if p.look(boottime.Now()); os.Getppid() != parent {
				end()
			}
		}
	}
}

// input is standard input, whose end ends the process, whatever is under way.
type input struct {
	*os.File
	end func()
}

// Read reads, and notices the end.
func (in input) Read(p []byte) (int, error) {
	n, err := in.File.Read(p)
	if err != nil {
		in.end()
	}
	return n, err
}
