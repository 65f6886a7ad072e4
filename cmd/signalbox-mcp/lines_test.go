package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
	`"clientInfo":{"name":"raw","version":"1"}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

// callLine is the line of a tool's call.
func callLine(id any, tool string, a args) string {
	line, _ := json.Marshal(args{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": args{"name": tool, "arguments": a}})
	return string(line) + "\n"
}

// TestLinesThatAreNotMessages: each gets an error, and the server goes on with all that it holds.
func TestLinesThatAreNotMessages(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	cmd := command(t, srv.Addr())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewScanner(out)
	said := func() (m struct {
		ID     any
		Error  struct{ Code int }
		Result struct{ StructuredContent reply }
	}) {
		if !read.Scan() {
			t.Fatal("the server has ended: ", read.Err())
		}
		if err := json.Unmarshal(read.Bytes(), &m); err != nil {
			t.Fatal(err, read.Text())
		}
		return m
	}
	_, _ = io.WriteString(in, hello+callLine(0, "lock", args{"names": []string{"x"}}))
	said()
	token := said().Result.StructuredContent.Names[0].Token
	ping := `{"jsonrpc":"2.0","id":%q,"method":"ping"}`
	for i, x := range []struct {
		line string
		id   any
	}{
		{"no JSON", nil}, {"null", nil}, {"[]", nil}, {"[" + fmt.Sprintf(ping, "a") + "]", nil}, {`"text"`, nil}, {"\xff\xfe\x00", nil},
		{fmt.Sprintf(ping, "a") + fmt.Sprintf(ping, "b"), nil}, {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), nil},
		{`{"jsonrpc":"1.0","id":"old","method":"ping"}`, "old"}, {`{"jsonrpc":"2.0","id":7,"method":{}}`, 7.0},
		{`{"jsonrpc":"2.0","id":"big","method":"ping","params":{"x":"` + strings.Repeat("x", maxLine) + `"}}`, nil},
		{strings.Repeat("x", 3*maxLine), nil},
	} {
		id := fmt.Sprint("ping", i)
		_, _ = io.WriteString(in, x.line+"\n  \r\n\ufeff"+fmt.Sprintf(ping, id)+" \t\r\n")
		if m := said(); m.ID != x.id || m.Error.Code != jsonrpc.CodeParseError {
			t.Errorf("%.50s: %+v", x.line, m)
		}
		if m := said(); m.ID != id || m.Error.Code != 0 {
			t.Errorf("after %.50s: %+v", x.line, m)
		}
	}
	_, _ = io.WriteString(in, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"an error of the host"}}`+"\n"+
		callLine(1, "lock", args{"names": []string{"x"}}))
	if m := said(); m.ID != 1.0 || m.Result.StructuredContent.Names[0].Token != token {
		t.Errorf("%+v", m)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestEndOfInput: all that was read before it is answered, and waits end. The last line needs no
// newline.
func TestEndOfInput(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	session := session(t, srv.Addr())
	if _, err := session.Mutex("taken").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{srv.Addr(), "127.0.0.1:1"} {
		cmd := command(t, address)
		input := hello
		for i := range 20 {
			input += callLine(fmt.Sprint("who", i), "who_holds", args{"name": "taken"})
			input += callLine(fmt.Sprint("lock", i), "lock", args{"names": []string{"taken"}, "wait_seconds": 40})
		}
		cmd.Stdin = strings.NewReader(strings.TrimSpace(input))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			for _, kind := range []string{"who", "lock"} {
				if id := fmt.Sprintf(`"id":"%s%d"`, kind, i); bytes.Count(out, []byte(id)) != 1 {
					t.Errorf("%s: %s is not answered once:\n%s", address, id, out)
				}
			}
		}
	}
}

// FuzzLines: whatever a line has, it is a message, gets one error, or is passed over, and the next
// line is read.
func FuzzLines(f *testing.F) {
	for _, line := range []string{"", "null", "[]", "{}", "\ufeff", `{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":1.5,"result":{}}`,
		`{"jsonrpc":"2.0","id":"a","error":{"code":1}}`, `{"jsonrpc":"2.0","id":{},"method":1}`, "\xff", `{"jsonrpc":"2.0","method":"m"}x`, strings.Repeat("[", 1001)} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var out bytes.Buffer
		l := &lines{in: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(input), strings.NewReader("\n"+
			`{"jsonrpc":"2.0","id":"last","method":"ping"}`)), maxLine+1), out: &out, end: func() {}}
		messages, calls, last := 0, 0, any(nil)
		for {
			m, err := l.Read(t.Context())
			if err != nil {
				break
			}
			messages++
			if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
				calls++
				last = r.ID.Raw()
				l.calls.RUnlock() // as its answer does
			}
		}
		if last != "last" || calls == 0 {
			t.Errorf("the next line is not read: %d messages, the last call is %v", messages, last)
		}
		answers := bytes.Count(out.Bytes(), []byte("\n"))
		if messages+answers > bytes.Count(input, []byte("\n"))+2 {
			t.Errorf("%d messages and %d answers", messages, answers)
		}
		for line := range bytes.Lines(out.Bytes()) {
			var m struct {
				ID    json.RawMessage
				Error struct{ Code int }
			}
			if err := json.Unmarshal(line, &m); err != nil || m.ID == nil || m.Error.Code != jsonrpc.CodeParseError {
				t.Errorf("%v: %s", err, line)
			}
		}
	})
}
