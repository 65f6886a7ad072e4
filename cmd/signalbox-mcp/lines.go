package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const maxLine = 1 << 20 // bytes of a message of the host

// lines is the transport of standard input and output: a line is a message. It answers a line that
// is not a message and goes on, because the end of the process would free what all agents hold.
type lines struct {
	in      *bufio.Reader // of maxLine and a newline
	out     io.Writer
	end     func()     // called at the end of the input, and when the output fails
	writing sync.Mutex // held during writes
	// calls is locked for reading by each call without an answer. Its lock is had when all are
	// answered; no further call is read then.
	calls sync.RWMutex
}

func (l *lines) Connect(context.Context) (mcp.Connection, error) { return l, nil }
func (l *lines) SessionID() string                               { return "" }
func (l *lines) Close() error                                    { return nil }

// Read returns the next message. At the end of the input it returns when each call is answered.
func (l *lines) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := l.in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = l.in.ReadSlice('\n')
		}
		msg, answer := message(bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff"))), long)
		if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
			l.calls.RLock()
		}
		switch {
		case msg != nil:
			return msg, nil
		case answer != nil:
			_ = l.write(answer) // or else the server ends
		case err != nil:
			l.end()
			l.calls.Lock()
			defer l.calls.Unlock()
			return nil, io.EOF
		}
	}
}

// message decodes a line, or returns the answer to one that is not a message. Empty lines and errors
// of the host have neither: answers to errors could go round for ever.
func message(line []byte, long bool) (msg jsonrpc.Message, answer []byte) {
	var known struct{ ID, Error any }
	err := json.Unmarshal(line, &known)
	if err == nil { // by itself the SDK's decoder ignores text behind a message
		msg, err = jsonrpc.DecodeMessage(line)
	}
	if err == nil || len(line) == 0 && !long || known.Error != nil {
		return msg, nil
	}
	id, _ := jsonrpc.MakeID(known.ID)
	answer, _ = json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id.Raw(), "error": map[string]any{
		"code": jsonrpc.CodeParseError, "message": "this line is not one JSON-RPC 2.0 message of at most 1 MiB"}})
	return nil, answer
}

// Write writes a message.
func (l *lines) Write(_ context.Context, msg jsonrpc.Message) error {
	if _, answer := msg.(*jsonrpc.Response); answer {
		defer l.calls.RUnlock()
	}
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return l.write(data)
}

func (l *lines) write(line []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.out.Write(append(line, '\n'))
	if err != nil {
		l.end()
	}
	return err
}
