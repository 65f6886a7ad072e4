package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/queue"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// batch is the batch that is being applied: where its events go, what work is left for it, and the
// buffers that its commands are decoded into. A machine has one, whose buffers each Apply uses
// again.
type batch struct {
	out           *Events
	command       int
	format        uint8 // of the batch
	releaseBudget int   // budget left of work.releases

	raw     rawCommand // the command
	start   protocol.SessionStart
	attach  protocol.SessionAttach
	stop    protocol.SessionStop
	kill    protocol.SessionKill
	create  protocol.Create
	update  protocol.Update
	resize  protocol.Resize
	delete  protocol.Delete
	alter   protocol.Alter
	acquire protocol.Acquire
	release protocol.Release
	force   protocol.ForceRelease
	poll    protocol.TrackPoll
	proc    process.Out    // of the call of a process that goes on
	track   rollout.Events // of the call of a track that goes on
	choice  queue.Choice
	entries queueEntries
	asked   asked
	regrant regrant
	key     []byte
	ends    []RemoteEnd
}

// decode reads a command's body, or answers it.
func (b *batch) decode(x protocol.Message, body []byte) bool {
	err := protocol.CheckBody(body)
	if err == nil {
		err = protocol.DecodeBody(x, body)
	}
	if err != nil {
		b.replyError(err)
		return false
	}
	return true
}

// valid checks arguments, or answers the command.
func (b *batch) valid(x protocol.Message) bool {
	if err := protocol.Validate(x); err != nil {
		b.replyError(err)
		return false
	}
	return true
}

// readBody reads and checks a command's body, or answers it.
func (b *batch) readBody(x protocol.Message, c *rawCommand) bool {
	return b.decode(x, c.body) && b.valid(x)
}

// reply answers a command that leaves no memory.
func (b *batch) reply(status protocol.Status, text string) {
	b.out.List = append(b.out.List,
		Event{Kind: EventReply, Command: b.command, Status: status, Text: text})
}

// replyAnswer turns an answer into the command's reply.
func (b *batch) replyAnswer(a answer) {
	list := append(b.out.List, Event{Kind: EventReply, Command: b.command})
	b.out.List = list
	ev := &list[len(list)-1]
	ev.Status, ev.Refusal = a.outcome.status()
	if a.outcome != outcomeOK {
		ev.Text = b.sentence(&a)
		return
	}
	ev.State, ev.Flag = a.state, a.flag
	switch a.kind {
	case CmdAcquire:
		ev.OrderID = a.value
	case CmdCreate, CmdUpdate, CmdRelease:
		ev.Result = a.value
	}
}

func (b *batch) replyError(err error) {
	if e, ok := err.(*protocol.Error); ok {
		b.out.List = append(b.out.List,
			Event{Kind: EventReply, Command: b.command, Status: e.Status, Refusal: e.Refusal, Text: e.Message})
		return
	}
	b.reply(protocol.StatusBadRequest, textMalformed)
}

// spendWork takes n from the work of this Apply, at most the rest.
func (b *batch) spendWork(n int) {
	b.releaseBudget -= min(n, max(b.releaseBudget, 0))
}

// nameKey is the key of a name in its bucket. It is good until the next call.
func (b *batch) nameKey(node uint64, name []byte) []byte {
	b.key = appendSemaphoreKey(b.key[:0], node, name)
	return b.key
}
