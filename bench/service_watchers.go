package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/signalbox-dev/signalbox/protocol"
)

// findService asks an instance for what a stream over the service needs.
func findService(ctx context.Context, endpoints []string) (*rawWatchers, error) {
	d := net.Dialer{Timeout: rawTimeout}
	conn, err := d.DialContext(ctx, "tcp", endpoints[0])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(rawTimeout))
	in := bufio.NewReader(conn)
	call := func(kind protocol.Kind, m, reply protocol.Message) error {
		if _, err := conn.Write(protocol.AppendFrame(nil, kind, 1, 0, m)); err != nil {
			return err
		}
		for {
			head, err := in.Peek(4)
			if err != nil {
				return err
			}
			b := make([]byte, 4+binary.BigEndian.Uint32(head))
			if _, err := io.ReadFull(in, b); err != nil {
				return err
			}
			h, err := protocol.ParseFrame(b[4:])
			switch {
			case err != nil:
				return err
			case h.Kind != kind|protocol.KindReply:
				continue
			case protocol.Status(h.Arg) != protocol.StatusOK:
				return fmt.Errorf("%v was answered %v", kind, protocol.Status(h.Arg))
			}
			return reply.DecodeBody(h.Body)
		}
	}
	var hello protocol.HelloReply
	if err := call(protocol.KindHello, &protocol.Hello{Magic: protocol.Magic, Version: protocol.Version, Client: "raw"}, &hello); err != nil {
		return nil, err
	}
	var node protocol.NodeInfo
	if err := call(protocol.KindNodeDescribe, &protocol.NodeDescribe{Path: serviceNode}, &node); err != nil {
		return nil, err
	}
	var layout protocol.MapReply
	if err := call(protocol.KindMap, &protocol.MapRequest{}, &layout); err != nil {
		return nil, err
	}
	for _, t := range layout.Tiers {
		if t.ID != node.Tier {
			continue
		}
		bucket, first := protocol.Bucket(node.ID, []byte(serviceName), t.Buckets), uint32(0)
		for _, run := range t.Runs {
			if first += run.Count; bucket < first {
				return &rawWatchers{
					Endpoints: endpoints, Bucket: uint64(bucket),
					Watch: protocol.Watch{Shard: run.Shard, Node: node.ID, Name: []byte(serviceName)},
				}, nil
			}
		}
	}
	return nil, fmt.Errorf("the map names no shard for %s in %s", serviceName, serviceNode)
}

// watcherProcess is a process of watchers.
type watcherProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// watchersVerb runs watchers; only the program itself uses it.
const watchersVerb = "watchers"

// ProcessArgs are a verb of this program with a configuration.
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

func (w *watcherProcess) ask(what string) (s rawStats, err error) {
	if _, err := fmt.Fprintln(w.in, what); err != nil {
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

func addEach(a, b []int64) []int64 {
	sum := slices.Clone(b)
	for i := range a {
		sum[i] += a[i]
	}
	return sum
}

// statsSum adds what was seen up; what is of a moment is the newest.
type statsSum struct {
	rawStats
	delays *hdrhistogram.Histogram
}

func newStatsSum() *statsSum {
	h := rawDelays()
	return &statsSum{rawStats: rawStats{Delays: h.Export()}, delays: h}
}

func (s *statsSum) add(n rawStats) {
	s.delays.Merge(hdrhistogram.Import(n.Delays))
	n.Lost += s.Lost
	n.Snapshots += s.Snapshots
	n.Resumed += s.Resumed
	n.Bytes += s.Bytes
	n.MostFrames = max(n.MostFrames, s.MostFrames)
	n.LastLive = max(n.LastLive, s.LastLive)
	n.Delays = s.delays.Export()
	if n.Failed == "" {
		n.Failed = s.Failed
	}
	s.rawStats = n
}
