package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/signalbox-dev/signalbox/client"
)

// watchersVerb runs watchers; only the program itself uses it.
const watchersVerb = "watchers"

// serviceWatchers are watchers of the service in a process of their own, each with a client and so
// with connections of its own.
type serviceWatchers struct {
	Endpoints []string
	Count     int
}

// watchersCommand runs watchers until its input ends.
func watchersCommand(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("watchers is for the program itself")
	}
	var g serviceWatchers
	if err := json.Unmarshal([]byte(args[0]), &g); err != nil {
		return err
	}
	return RunWatchers(ctx, g.Count, in, out, g.watch)
}

func (g *serviceWatchers) watch(ctx context.Context, w *Watcher) error {
	c, err := client.Open(ctx, client.Config{Endpoints: g.Endpoints})
	if err != nil {
		return err
	}
	defer c.Close()
	node, err := c.Node(ctx, serviceNode)
	if err != nil {
		return err
	}
	for ev, err := range node.Service(serviceName).Watch(ctx) {
		switch {
		case err != nil:
			return err
		case ev.Kind == client.MemberSnapshot:
			w.Begun()
		case ev.Kind != client.MemberRemoved:
			w.Changed(ev.Member.Data)
		}
	}
	return nil
}

// watcherProcess is a process of watchers.
type watcherProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// ProcessArgs returns a verb of this program with a configuration.
func ProcessArgs(verb string, config any) ([]string, error) {
	text, err := json.Marshal(config)
	return []string{verb, string(text)}, err
}

// startWatchers starts this program again.
func startWatchers(args []string) (w *watcherProcess, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w = &watcherProcess{cmd: exec.Command(self, args...)}
	w.cmd.Stderr, w.cmd.SysProcAttr = os.Stderr, procAttr()
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	return w, w.cmd.Start()
}

func (w *watcherProcess) ask(question string) (s WatcherStats, err error) {
	if _, err := fmt.Fprintln(w.in, question); err != nil {
		return s, err
	}
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return s, fmt.Errorf("the watchers' process: %w", err)
	}
	return s, json.Unmarshal(line, &s)
}

func (w *watcherProcess) stop() {
	_ = w.in.Close()
	_ = w.cmd.Wait()
}

// askAll asks all processes, and adds their answers up.
func askAll(list []*watcherProcess, question string) (sum WatcherStats, delays *hdrhistogram.Histogram, err error) {
	delays = newDelays()
	for _, w := range list {
		s, err := w.ask(question)
		if err != nil {
			return sum, delays, err
		}
		sum.Begun += s.Begun
		sum.Current += s.Current
		sum.Last = max(sum.Last, s.Last)
		delays.Merge(hdrhistogram.Import(s.Delays))
		if s.Failed != "" {
			sum.Failed = s.Failed
		}
	}
	return sum, delays, nil
}
