package meta

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Result is the answer to a command.
type Result struct {
	// OK: the command took effect, or there was nothing left to change. ABORTED: it met a pending
	// change, or names an old revision; look again and retry. Any other status is a final refusal.
	// Only OK changes anything.
	Status   protocol.Status
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
	return &protocol.Error{Status: r.Status, Message: r.Message}
}

func refuse(status protocol.Status, format string, args ...any) Result {
	message := fmt.Sprintf(format, args...)
	return Result{Status: status, Message: message[:min(len(message), maxMessage)]}
}

// maxMessage has room for a sentence and two paths; longer messages are cut. Part of format version
// 1.
const maxMessage = 2*protocol.MaxPathLen + 256

func (r *Result) append(b []byte) []byte {
	b = append(b, byte(r.Status))
	b = appendText(b, r.Message)
	b = appendUint(b, r.Revision)
	b = appendUint(b, r.Node)
	b = appendUint(b, r.Version)
	b = appendUint(b, r.Instance)
	return appendUint(b, r.Replica)
}

func (r *reader) result() Result {
	return Result{
		Status:   protocol.Status(r.byte()),
		Message:  r.text(maxMessage),
		Revision: r.uint(),
		Node:     r.uint(),
		Version:  r.uint(),
		Instance: r.uint(),
		Replica:  r.uint(),
	}
}

// AppendResult appends the bytes of a result: format version, fields.
func AppendResult(b []byte, res Result) []byte {
	b = append(b, FormatVersion)
	return res.append(b)
}

// DecodeResult reads what Apply returned.
func DecodeResult(b []byte) (Result, error) {
	r := reader{b: b}
	format := r.byte()
	res := r.result()
	if format != FormatVersion || !r.done() {
		return Result{}, errors.New("the meta shard's answer is not readable; check that all instances run compatible versions")
	}
	return res, nil
}
