package shardhost

import (
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// limitSink tells sessions what the leader of a shard's rate limits has for them.
type limitSink struct {
	host     *Shard
	notified atomic.Uint64
}

var _ replica.LimitSink = (*limitSink)(nil)

// NotifyLimit implements replica.LimitSink.
func (s *limitSink) NotifyLimit(node uint64, name string, session, revision uint64) {
	s.notified.Add(1)
	s.host.hubs.Limits.Notify(node, name, session, revision)
}

// AnswerLimits implements replica.LimitSink.
func (s *limitSink) AnswerLimits(fn func(answer func(*ratelimit.Answer) bool)) {
	var o *request.Outbox
	defer func() {
		if o != nil {
			s.host.serving.Requests.ReturnOutbox(o)
		}
	}()
	fn(func(a *ratelimit.Answer) bool {
		if o == nil {
			o = s.host.serving.Requests.BorrowOutbox()
		}
		return o.AnswerLimit(s.host, a)
	})
}

// FlushLimits implements replica.LimitSink.
func (s *limitSink) FlushLimits() { s.host.serving.Requests.Flush() }

// ContainLimits implements replica.LimitSink.
func (s *limitSink) ContainLimits() {
	if v := recover(); v != nil {
		s.host.serving.Requests.Panicked("rate limits", v)
	}
}
