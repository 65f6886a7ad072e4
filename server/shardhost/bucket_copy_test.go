package shardhost

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// memoryShard is a shard in memory, with a leader of its own.
type memoryShard struct {
	m        *shard.Machine
	h        shard.Header
	proposed int
	busy     int          // proposals that are ABORTED first
	loses    map[int]bool // proposals that are not applied, by number; false: applied, and the answer is lost
}

func newMemoryShard(t *testing.T, id uint64) *memoryShard {
	s := &memoryShard{m: shard.New(id), h: shard.Header{Format: shard.FormatVersion, Epoch: 1 << 16}}
	s.do(t, shard.CmdTakeOver, nil)
	return s
}

func (s *memoryShard) do(t *testing.T, kind shard.CommandKind, body []byte) {
	t.Helper()
	if err := s.ProposeInternal(t.Context(), shard.Command{Kind: kind, Body: body}); err != nil {
		t.Fatal(err)
	}
}

func (s *memoryShard) View(f func(m *shard.Machine)) { f(s.m) }

func (s *memoryShard) ProposeInternal(_ context.Context, c shard.Command) error {
	s.proposed++
	if s.busy > 0 && c.Kind == shard.CmdImport {
		s.busy--
		return protocol.Errorf(protocol.StatusAborted, "an older copy is being removed")
	}
	lost, fails := s.loses[s.proposed]
	if lost {
		return errLost
	}
	s.h.Seq++
	var out shard.Events
	s.m.Apply(s.m.AppliedIndex()+1, shard.AppendCommand(shard.AppendHeader(nil, s.h), c), &out)
	for _, e := range out.List {
		if e.Kind == shard.EventReply && e.Status != protocol.StatusOK {
			return &protocol.Error{Status: e.Status, Refusal: e.Refusal, Message: e.Text}
		}
	}
	if fails {
		return errLost
	}
	return nil
}

var errLost = errors.New("no answer")

// TestImportResumes: each chunk of moving buckets is fetched once, however often the copy is
// interrupted, and by whom it is taken up. Only an import whose proposal was lost is fetched again.
func TestImportResumes(t *testing.T) {
	t.Parallel()
	source, target := newMemoryShard(t, 1), newMemoryShard(t, 2)
	run := shard.BucketsBody{Total: 64, Count: 64, Epoch: 1}
	source.do(t, shard.CmdBuckets, shard.AppendBuckets(nil, run))
	run.Epoch = 2
	source.do(t, shard.CmdFreeze, shard.AppendBuckets(nil, run))
	var fetched [][]byte
	export := func(cursor []byte) (chunk, next []byte, err error) {
		fetched = append(fetched, bytes.Clone(cursor))
		return source.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 32)
	}
	const lostRequest, lostReply = 3, 5
	target.loses = map[int]bool{lostRequest: true, lostReply: false}
	failures, done := 0, false
	for tries := 0; !done; tries++ {
		chunks := 2 // of one call
		var err error
		done, err = importBuckets(t.Context(), target, run, export, func() bool { chunks--; return chunks >= 0 })
		if err != nil {
			failures++
		}
		if tries > 100 {
			t.Fatal("the copy does not end")
		}
	}
	again := 0
	for i := 1; i < len(fetched); i++ {
		if bytes.Equal(fetched[i], fetched[i-1]) {
			again++
		}
	}
	if failures != 2 || again != 1 || len(fetched) < 8 {
		t.Errorf("%d calls failed, %d of %d chunks were fetched twice; want 2, 1", failures, again, len(fetched))
	}
	n := len(fetched)
	if done, err := importBuckets(t.Context(), target, run, export, func() bool { return true }); !done || err != nil || len(fetched) != n {
		t.Errorf("a copy that is complete: %t, %v, %d chunks fetched", done, err, len(fetched)-n)
	}
	target.do(t, shard.CmdActivate, shard.AppendBuckets(nil, run))
	if done, err := importBuckets(t.Context(), target, run, export, func() bool { return true }); !done || err != nil {
		t.Errorf("a copy that serves: %t, %v", done, err)
	}
	run.Epoch = 1
	_, err := importBuckets(t.Context(), target, run, export, func() bool { return true })
	if protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
		t.Errorf("under an epoch that is over: %v", err)
	}
	if len(fetched) != n {
		t.Errorf("%d more chunks were fetched", len(fetched)-n)
	}
}

// TestExportErrors: the target reports an unreachable source so that nobody takes it for an
// unreachable target.
func TestExportErrors(t *testing.T) {
	for _, err := range []error{
		protocol.Errorf(protocol.StatusWrongShard, "shard 7 is not led here"),
		protocol.Errorf(protocol.StatusUnavailable, "no answer"), context.DeadlineExceeded,
	} {
		got := exportError(7, err)
		if protocol.StatusOf(got) != protocol.StatusAborted || !strings.HasPrefix(got.(*protocol.Error).Message, "export from shard 7: ") {
			t.Errorf("%v is reported as %v", err, got)
		}
	}
	refused := exportError(7, protocol.Errorf(protocol.StatusPreconditionFailed, "not frozen"))
	if protocol.StatusOf(refused) != protocol.StatusPreconditionFailed {
		t.Errorf("a refusal is reported as %v", refused)
	}
}

// TestImportWaits: a chunk that the target cannot take yet is proposed again, and not fetched
// again.
func TestImportWaits(t *testing.T) {
	t.Parallel()
	source, target := newMemoryShard(t, 1), newMemoryShard(t, 2)
	run := shard.BucketsBody{Total: 64, Count: 64, Epoch: 1}
	source.do(t, shard.CmdBuckets, shard.AppendBuckets(nil, run))
	run.Epoch = 2
	source.do(t, shard.CmdFreeze, shard.AppendBuckets(nil, run))
	target.busy = 3
	fetched := 0
	done, err := importBuckets(t.Context(), target, run, func(cursor []byte) (chunk, next []byte, err error) {
		fetched++
		return source.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 1<<20)
	}, func() bool { return true })
	if !done || err != nil || fetched != 1 || target.busy != 0 {
		t.Errorf("done %t, %v, fetched %d times, busy %d", done, err, fetched, target.busy)
	}
}
