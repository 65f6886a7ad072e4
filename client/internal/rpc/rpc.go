// Package rpc lets the packages below client send requests of the protocol through a client's
// connections and sessions, which package client does not offer to programs. Package client sets
// the variables when it is initialized.
package rpc

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Object is a process or a rollout in its shard, as a session or a node reaches it.
type Object interface {
	// Name of the object.
	Name() string
	// NodeID is the id of its coordination node, which reads carry.
	NodeID() uint64
	// SessionID is the session that sends the requests; 0 for an object that was opened on a node.
	SessionID() uint64
	// Context ends with that session, and its cause is the session's Err. The context of an object
	// that was opened on a node never ends.
	Context() context.Context

	// Change sends a numbered request of the session until it is answered, and fills in its head.
	// The request takes effect at most once. Errors: as those of a semaphore's changes,
	// ErrOutcomeUnknown among them.
	Change(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error
	// Send sends a request of the session that has no number until it is answered. It may arrive
	// more than once.
	Send(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error
	// Request sends a request that belongs to no session until it is answered. repeated says that
	// an earlier sending may have taken effect without an answer.
	Request(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) (repeated bool, err error)

	// Events opens a stream, and opens it again whenever it ends, until ctx ends. decoder is called
	// for each opening. Use Watch, which is typed.
	Events(ctx context.Context, kind protocol.Kind, req protocol.Message, decoder func() Decoder) iter.Seq2[any, error]
	// Handle has what the server sends to the session about a process received by handle, until
	// stop is called. There is one handler at a time: ErrHasHandler.
	Handle(handle ProcessHandler) (stop func(), err error)
	// Follow calls connected whenever requests go over another connection or attach than before,
	// and the first time, until ctx or the session ends. Events that were sent in between may be
	// lost.
	Follow(ctx context.Context, connected func())
}

// ErrHasHandler: the session handles the events of this process already.
var ErrHasHandler = errors.New("this session is a member of the process already; leave first, or join with another session")

// ProcessHandler receives an event of a process: a round or a message. It runs on the goroutine
// that reads the connection, and must not block. It owns the event.
type ProcessHandler func(*protocol.ProcessRound, *protocol.ProcessMessage)

// Step says what an event of a stream does to the events that the consumer has not taken yet.
type Step uint8

const (
	Append  Step = iota // the event follows them
	Replace             // the event replaces them
	Partial             // the event is a part of a later one, and is not delivered
)

// Indexed is an event that names its place in the log of its shard. A stream of such events does
// not go back in time: an opening that begins before what was delivered is not believed.
type Indexed interface {
	LogIndex() (shard, index uint64)
}

// Decoder decodes the events of one opening of a stream. The body is the reader's.
type Decoder func(h protocol.Header) (event any, step Step, err error)

// Watch is o.Events with events of one type.
func Watch[T any](
	ctx context.Context, o Object, kind protocol.Kind, req protocol.Message, decoder func() func(protocol.Header) (T, Step, error),
) iter.Seq2[T, error] {
	events := o.Events(ctx, kind, req, func() Decoder {
		decode := decoder()
		return func(h protocol.Header) (any, Step, error) { return decode(h) }
	})
	return Convert(events, func(e any) T { return e.(T) })
}

// Convert is a sequence with each value converted. Beside an error the value is zero.
func Convert[T, U any](seq iter.Seq2[T, error], convert func(T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for x, err := range seq {
			var u U
			if err == nil {
				u = convert(x)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}

// Set by package client. c is a *client.Client, n a *client.Node, s a *client.Session.
var (
	// Process opens a coordination process on a session, or on a node if s is nil.
	Process func(s, n any, name string) Object
	// Track opens a rollout on a session, or on a node if s is nil.
	Track func(s, n any, name string) Object
	// Limit opens the tree of a rate limit on a session, or on a node if s is nil.
	Limit func(s, n any, name string) Object
	// Processes lists the processes of a node whose name begins with prefix, in order of name, and
	// Tracks its rollouts, and Limits its rate limits. opts is a []client.ReadOption.
	Processes func(ctx context.Context, n any, prefix string, opts any) iter.Seq2[protocol.ProcessItem, error]
	Tracks    func(ctx context.Context, n any, prefix string, opts any) iter.Seq2[protocol.TrackItem, error]
	Limits    func(ctx context.Context, n any, prefix string, opts any) iter.Seq2[protocol.LimitItem, error]
	// Cluster calls a method for operators, protocol.MethodStatus and its neighbours. in may be
	// nil.
	Cluster func(ctx context.Context, c any, method string, in, out any) error
	// ClusterAt is Cluster at one instance of the map, once.
	ClusterAt func(ctx context.Context, c any, instance uint64, method string, in, out any) error
	// Logger is the client's.
	Logger func(c any) *slog.Logger
	// Context ends with the client. Its cause is client.ErrClientClosed.
	Context func(c any) context.Context
	// Values are what the packages below client keep for each client, under keys of their own.
	Values func(c any) *sync.Map
	// Map is the cluster map that the client routes by. It must not be changed.
	Map func(ctx context.Context, c any) (*protocol.MapReply, error)

	// StartSession starts a session with a key. opts is a []client.SessionOption, and the result a
	// *client.Session, here and in AttachSession.
	StartSession func(ctx context.Context, n any, key []byte, opts any) (any, error)
	// AttachSession takes over a session under an attach epoch. Its requests are numbered from
	// firstNumber on.
	AttachSession func(ctx context.Context, n any, id uint64, key []byte, epoch, firstNumber uint64, opts any) (any, error)
	// Acquire sends one acquire until it is decided, and calls accepted once if it is queued. It
	// makes no lease.
	Acquire func(ctx context.Context, s any, req *protocol.Acquire, accepted func()) (acquired bool, err error)
	// DescribeOnce reads a semaphore at its shard's leader and arms a one-shot watch, if flags name
	// one. sem is a *client.Semaphore, and fired a <-chan client.WatchResult. limit, if not nil, is
	// told after each page how many bytes were read, about; its error ends the read.
	DescribeOnce func(ctx context.Context, s any, name string, flags uint8, limit func(size int) error) (sem, fired any, err error)
)
