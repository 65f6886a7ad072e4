package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// mainScripts are those of the ordinary form: what the pages show first, wrong input, and each verb once.
var mainScripts = []string{
	"apply", "auth", "cluster", "cluster_backup", "cluster_recover", "cluster_shards", "cluster_upgrade", "config",
	"console", "context", "dev", "elect", "force_release", "http", "limit", "load", "lock", "node", "once", "process",
	"refusals", "rollout", "rollout_gate", "rollout_generate", "sem", "sem_queue", "sem_wrong", "serve", "service",
	"service_drain", "session", "top", "trust", "usage", "version", "watch",
}

// TestMainScripts: each verb runs in a script of the ordinary form.
func TestMainScripts(t *testing.T) {
	ran := map[string]bool{}
	root := tree()
	for _, name := range mainScripts {
		text, err := os.ReadFile("testdata/script/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "signalbox ")[1:] {
			line, _, _ = strings.Cut(line, "\n")
			if verb, _, err := root.Find(strings.Fields(line)); err == nil {
				ran[verb.CommandPath()] = true
			}
		}
	}
	for verb := range presentCommandLine().Verbs {
		if !ran[verb] {
			t.Errorf("no script of mainScripts runs %q: let one run it", verb)
		}
	}
}

// TestScripts tells the command line's behaviour as stories: each file of testdata/script is a
// shell session of a user against a server of its own, which SIGNALBOX_ENDPOINTS names. The
// commands that scripts have beyond testscript's own are below. The keys of what they print as JSON
// are those that are kept, once all scripts have run.
func TestScripts(t *testing.T) {
	printed := &scriptJSON{seen: presentCommandLine()}
	p := testscript.Params{
		Dir:                "testdata/script",
		UpdateScripts:      *update,
		RequireUniqueNames: true,
		Setup:              setupScript,
		Condition: func(name string) (bool, error) {
			if name == "root" { // who may write where it is forbidden
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  cmdExits,
			"plain":  cmdPlain,
			"await":  cmdAwait,
			"server": cmdServer,
			"big":    cmdBig,
			"term":   cmdTerm,
			"certs":  cmdCerts,
			"member": cmdMember,
			"silent": cmdSilent,
			"issue":  cmdIssue,
		},
	}
	t.Cleanup(func() { printed.check(t, p) })
	testscript.RunT(scriptTest{t, printed}, p)
}

type serverKey struct{}

func setupScript(env *testscript.Env) error {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	env.Setenv(aliveEnv, os.Getenv(aliveEnv))
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	for i := range 4 {
		env.Setenv(fmt.Sprintf("ADDR%d", i+1), freeAddress())
	}
	srv := servertest.New(servertest.RealTime(), servertest.Shards(4), servertest.Config(func(c *server.Config) { c.Name = "one" }))
	env.Values[serverKey{}] = srv
	joined := &scriptMembers{members: map[string]*coord.Membership{}}
	env.Values[membersKey{}] = joined
	env.Defer(srv.Close)
	env.Defer(joined.close) // before the server
	env.Setenv("SIGNALBOX_ENDPOINTS", srv.Addr())
	root, err := filepath.Abs("../..") // for the clients of other languages
	env.Setenv("SOURCE", root)
	return err
}

// cmdExits: exits CODE COMMAND... runs a command that must end with the code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// plain forms of what differs from run to run.
var plainForms = []struct {
	re   *regexp.Regexp
	form string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3} `), "CLOCK "},
	{regexp.MustCompile(`\b(\d+[dhms])+ ago\b`), "AGE ago"},
	{regexp.MustCompile(`\bgives up in (\d+[dhms])+`), "gives up in AGE"},
	{regexp.MustCompile(`@\S+ pid \d+`), "@HOST pid PID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`), "ADDRESS"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`("changed_at_ms": ?)\d+`), "${1}MS"},
	{regexp.MustCompile(`("map_version": ?)\d+`), "${1}REVISION"},
	{regexp.MustCompile(`("revision": ?)\d+(,\s*"map_version"|\s*\})`), "${1}REVISION${2}"},
	{regexp.MustCompile(`"memory-\d+:\d+"`), `"ADDRESS"`},
	{regexp.MustCompile(`\b\d{11,18}\b`), "SESSION"},
	{regexp.MustCompile(`("remaining_ms": ?)\d+`), "${1}MS"},
	{regexp.MustCompile(`\b(\d+m)?\d+s left\b`), "TIME left"},
	{regexp.MustCompile(`("(lasted|prepared|decided)_ms": ?)\d+`), "${1}MS"},
	{regexp.MustCompile(`(?m)^(\d+ +completed)( +\d\S*){3} `), "$1  TIME  TIME  TIME "},
	{regexp.MustCompile(`(\S) {3,}`), "$1  "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// cmdPlain: plain replaces in the last output what differs from run to run, ids and times, so that
// cmp can look at it.
func cmdPlain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: plain")
	}
	text := ts.ReadFile("stdout")
	for _, f := range plainForms {
		text = f.re.ReplaceAllString(text, f.form)
	}
	fmt.Fprint(ts.Stdout(), text)
}

// cmdAwait: await PATTERN COMMAND... runs the command again and again until its output matches.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN COMMAND...")
	}
	re := regexp.MustCompile(args[0])
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && re.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q did not come: %v", args[0], err)
		}
	}
}

// cmdServer: server kill|stop|restart|drop|unreachable|reachable does it to the script's server.
func cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	srv := ts.Value(serverKey{}).(*servertest.Server)
	do := map[string]func(){
		"kill": srv.Kill, "stop": srv.Stop, "restart": srv.Restart, "drop": srv.DropConnections,
		"unreachable": srv.Unreachable, "reachable": srv.Reachable,
	}
	if neg || len(args) != 1 || do[args[0]] == nil {
		ts.Fatalf("usage: server kill|stop|restart|drop|unreachable|reachable")
	}
	do[args[0]]()
}

// cmdBig: big FILE N makes a file of N bytes.
func cmdBig(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: big FILE N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("x"), n), 0o600))
}

// cmdTerm: term [HUP] sends SIGTERM, or SIGHUP, to the command that was last started in the
// background.
func cmdTerm(ts *testscript.TestScript, neg bool, args []string) {
	running := ts.BackgroundCmds()
	sig, ok := map[string]syscall.Signal{"": syscall.SIGTERM, "HUP": syscall.SIGHUP}[strings.Join(args, " ")]
	if neg || !ok || len(running) == 0 {
		ts.Fatalf("usage: term [HUP], with a command in the background")
	}
	if err := running[len(running)-1].Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		ts.Check(err)
	}
}

// cmdCerts: certs FOLDER [expired] makes a folder with an authority's ca.pem, and server.pem,
// server.key, client.pem, client.key that it has signed.
func cmdCerts(ts *testscript.TestScript, neg bool, args []string) {
	var opts []certstest.Option
	if len(args) == 2 && args[1] == "expired" {
		args, opts = args[:1], []certstest.Option{certstest.Expired()}
	}
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certs FOLDER [expired]")
	}
	dir, t := ts.MkAbs(args[0]), scriptTB{ts: ts}
	ts.Check(os.MkdirAll(dir, 0o700))
	ca := certstest.New(t)
	ca.Write(t, dir)
	ca.Issue(t, dir, "server", append(opts, certstest.Host("127.0.0.1"))...)
	ca.Issue(t, dir, "client")
}

// platform signs the tokens of scripts.
var platform = sync.OnceValue(func() *trusttest.Issuer { return trusttest.New(scriptTB{}) })

// cmdIssue: issue FILE LIFE [CLAIM=VALUE...] writes a token that is valid for some time, and the
// keys of who signed it to jwks.json.
func cmdIssue(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: issue FILE LIFE [CLAIM=VALUE...]")
	}
	life, err := time.ParseDuration(args[1])
	ts.Check(err)
	claims := map[string]any{}
	for _, x := range args[2:] {
		claim, value, _ := strings.Cut(x, "=")
		claims[claim] = value
	}
	t := scriptTB{ts: ts}
	ts.Check(os.WriteFile(ts.MkAbs("jwks.json"), platform().Keys(t), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(platform().Token(t, "repo:octo/api", life, claims)+"\n"), 0o600))
}

// cmdSilent: silent NAME... sets each variable to an address that answers nothing.
func cmdSilent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: silent NAME...")
	}
	for _, name := range args {
		ts.Setenv(name, servertest.SilentAddress(scriptTB{ts: ts}))
	}
}

// scriptTB lets helpers of tests fail a script.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (s scriptTB) Cleanup(f func()) { s.ts.Defer(f) }
func (s scriptTB) Skip(args ...any) { s.ts.Fatalf("skipped: %s", fmt.Sprint(args...)) }

func (s scriptTB) Helper()           {}
func (s scriptTB) Fatal(args ...any) { s.ts.Fatalf("%s", fmt.Sprint(args...)) }

// patience bounds waits for what must come; nothing is timed by it.
const patience = 3 * time.Minute

// freeAddress finds a port for a server that must know it before it starts.
func freeAddress() string {
	address, err := port.Free()
	if err != nil {
		panic(err)
	}
	return address
}
