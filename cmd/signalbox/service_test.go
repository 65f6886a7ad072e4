package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestCheckCommand: the exit code decides, the last line says why, and nothing is left running.
func TestCheckCommand(t *testing.T) {
	if err := checkCommand("true")(t.Context()); err != nil {
		t.Error(err)
	}
	err := checkCommand("echo one; echo no disk >&2; exit 3")(t.Context())
	if err == nil || err.Error() != "exit status 3: no disk" {
		t.Error(err)
	}
	if err := checkCommand("yes | head -c 100000; exit 4")(t.Context()); err == nil || len(err.Error()) > 2*maxCheckOutput {
		t.Error(err)
	}
	if err := checkCommand("no-such-command")(t.Context()); err == nil {
		t.Error("a command that is not there")
	}
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- checkCommand("sleep 1000 & echo $! $$ >" + pids + "; wait")(ctx)
	}()
	var list []byte
	await.True(t, "the check runs", func() bool {
		list, _ = os.ReadFile(pids)
		return bytes.HasSuffix(list, []byte("\n"))
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("a check that is killed")
	}
	for pid := range strings.FieldsSeq(string(list)) {
		await.True(t, "the end of "+pid, func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || bytes.Contains(stat, []byte(") Z "))
		})
	}
}

// FuzzTemplate: no template, and no member, makes the writer of files panic. Whatever a member says
// of itself, a file has one entry for each member, in its form, and the same each time.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{{range .Endpoints}}{{.Addr}} {{host .Addr}} {{port .Addr}}{{end}}", "{{json .}}", "{{.Endpoints.x}}", "{{index .Endpoints 9}}"} {
		f.Add(seed, []byte(`{"addr":"10.0.0.1:80","meta":{"a":"\"\n"}}`))
	}
	f.Add("{{.}}", []byte(`{"addr":"10.0.0.1:80","zone":"\n","meta":{"a.b":"1","a-b":"2","a_b":"3"}}`)) // one label
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		for _, loops := range []string{"template", "define", "block"} { // which may call themselves
			if strings.Contains(text, loops) {
				return
			}
		}
		v, err := discovery.ViewOf([]client.Member{{Token: 1, Data: data}, {Token: 2, Data: []byte("[::1]:80")}})
		if err != nil {
			t.Fatal(err)
		}
		for form, render := range map[string]func(*discovery.View) ([]byte, error){"json": renderJSON, "addr": renderAddresses, "prometheus": renderPrometheus} {
			written, err := render(v)
			if err != nil {
				if len(data) < discovery.MaxData/8 {
					t.Fatal(err)
				}
				continue
			}
			checkWritten(t, form, written, v)
			for range 20 {
				if again, err := render(v); err != nil || !bytes.Equal(again, written) {
					t.Fatalf("%s is written as %q and as %q, %v", form, written, again, err)
				}
			}
		}
		if render, err := renderTemplate(text, "api", "SAS"); err == nil {
			_, _ = render(v)
		}
	})
}

var labelForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// checkWritten reads a file as its reader does.
func checkWritten(t *testing.T, form string, written []byte, v *discovery.View) {
	t.Helper()
	switch form {
	case "json":
		var list []json.RawMessage
		if err := json.Unmarshal(written, &list); err != nil || len(list) != len(v.Used) {
			t.Fatalf("%d members are %q, %v", len(v.Used), written, err)
		}
		for i, data := range list {
			if e, err := discovery.ParseEndpoint(data); err != nil || e.Addr != v.Used[i].Addr {
				t.Fatalf("%q is not %q, %v", data, v.Used[i].Addr, err)
			}
		}
	case "addr":
		list := strings.SplitAfter(string(written), "\n")
		if len(list) != len(v.Used)+1 {
			t.Fatalf("%d members are %q", len(v.Used), written)
		}
		for _, addr := range list[:len(v.Used)] {
			if _, _, err := net.SplitHostPort(strings.TrimSuffix(addr, "\n")); err != nil || strings.ContainsAny(addr, " ;\"'{}$\\") {
				t.Fatalf("the address %q, %v", addr, err)
			}
		}
	case "prometheus":
		var list []struct {
			Targets []string
			Labels  map[string]string
		}
		if err := json.Unmarshal(written, &list); err != nil || len(list) != len(v.Used) {
			t.Fatalf("%d members are %q, %v", len(v.Used), written, err)
		}
		for _, x := range list {
			for label := range x.Labels {
				if !labelForm.MatchString(label) {
					t.Fatalf("the label %q", label)
				}
			}
		}
	}
}

// TestTemplateFunctions: the functions that a template has beyond Go's own.
func TestTemplateFunctions(t *testing.T) {
	render, err := renderTemplate(`{{.Service}} {{.Zone}}{{range .Endpoints}} {{host .Addr}} {{port .Addr}} {{json .Meta}}{{end}}`, "api", "SAS")
	if err != nil {
		t.Fatal(err)
	}
	v, err := discovery.ViewOf([]client.Member{{Token: 1, Since: time.Now(), Data: []byte(`{"addr":"[::1]:80","meta":{"a":"\""}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := render(v); string(got) != `api SAS ::1 80 {"a":"\""}` || err != nil {
		t.Errorf("%s, %v", got, fmt.Sprint(err))
	}
}
