package meta

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Result is the answer to a command.
type Result struct {
	// OK: the command took effect, or there was nothing left to change. ABORTED: it met a pending
	// change, or names an old revision; look again and retry. Any other status is a final refusal.
	// Only OK changes anything.
	Status   protocol.Status
	Refusal  protocol.Refusal
	Message  string // the reason of a refusal; empty when OK
	Revision uint64 // of the machine, after the command
	Node     uint64 // of node commands
	Version  uint64 // of that node's config, after the command; for MoveBegin the move's epoch
	Instance uint64 // of commands that join, update or host an instance
	Replica  uint64 // of replica commands
}

// Err is nil for an OK result, else a *protocol.Error.
func (r *Result) Err() error {
	if r.Status == protocol.StatusOK {
		return nil
	}
	return &protocol.Error{Status: r.Status, Refusal: r.Refusal, Message: r.Message}
}

func refuse(status protocol.Status, format string, args ...any) Result {
	message := fmt.Sprintf(format, args...)
	return Result{Status: status, Message: message[:min(len(message), maxMessage)]}
}

// maxMessage has room for a sentence and two paths; longer messages are cut. Part of format version
// 1.
const maxMessage = 2*protocol.MaxPathLen + 256

func (r *Result) fields(f *varint.Fields) {
	varint.Byte(f, &r.Status)
	varint.Byte(f, &r.Refusal)
	f.Text(&r.Message, maxMessage)
	f.Uint(&r.Revision, &r.Node, &r.Version, &r.Instance, &r.Replica)
}

// AppendResult appends the bytes of a result: the format version that first had its fields, and the
// fields. Instances of an older version get results of newer ones, so the version is not the
// newest.
func AppendResult(b []byte, res Result) []byte {
	return varint.Encode(append(b, firstFormat), res.fields)
}

// DecodeResult reads what Apply returned.
func DecodeResult(b []byte) (res Result, err error) {
	r := varint.Reader{Rest: b}
	format := r.Byte()
	varint.Decode(&r, res.fields)
	if format != firstFormat || !r.Done() {
		return Result{},
			errors.New("the meta shard's answer is not readable; check that all instances run compatible versions")
	}
	return res, nil
}
