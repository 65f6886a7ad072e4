package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// commandLine is what scripts of users rely on: cli.json of testdata has that of this tree, and
// that of each release is kept.
type commandLine struct {
	Verbs       map[string]*verbSurface `json:"verbs"`
	Environment []string                `json:"environment"`
	ExitCodes   []int                   `json:"exit_codes"`
}

// verbSurface lists a verb's flags and the keys it prints.
type verbSurface struct {
	Flags map[string]string `json:"flags,omitempty"` // name to type
	// JSON has each path in what -o json and jsonl print, and its types. * is any name.
	JSON map[string][]string `json:"json,omitempty"`
}

// presentCommandLine returns verbs, flags, variables and exit codes of this tree. What verbs print
// only running them shows.
func presentCommandLine() *commandLine {
	c := &commandLine{Verbs: map[string]*verbSurface{}, Environment: slices.Clone(ownVariables),
		ExitCodes: []int{exitOK, exitError, exitUsage, exitNotAcquired, exitLost, exitUnreachable, exitDifference,
			exitBrokenPipe}}
	for _, s := range settings.All {
		if name := s.Env(); name != "" {
			c.Environment = append(c.Environment, name)
		}
	}
	slices.Sort(c.Environment)
	c.Environment = slices.Compact(c.Environment)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && cmd.Name() != "completion" && cmd.Name() != "help" {
			v := &verbSurface{Flags: map[string]string{}, JSON: map[string][]string{}}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { v.Flags[f.Name] = f.Value.Type() })
			c.Verbs[cmd.CommandPath()] = v
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(tree())
	return c
}

// lost lists what of a command line another one lacks.
func (c *commandLine) lost(now *commandLine) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, name := range slices.Sorted(maps.Keys(c.Verbs)) {
		was, is := c.Verbs[name], now.Verbs[name]
		if is == nil {
			problem("%s is gone", name)
			continue
		}
		for _, flag := range slices.Sorted(maps.Keys(was.Flags)) {
			if is.Flags[flag] == "" {
				problem("%s: --%s is gone", name, flag)
			} else if is.Flags[flag] != was.Flags[flag] {
				problem("%s: --%s is a %s, and was a %s", name, flag, is.Flags[flag], was.Flags[flag])
			}
		}
		for _, path := range slices.Sorted(maps.Keys(was.JSON)) {
			if is.JSON[path] == nil {
				problem("%s: the key %s of -o json is gone", name, path)
			} else if !slices.ContainsFunc(is.JSON[path], func(kind string) bool { return slices.Contains(was.JSON[path], kind) }) {
				problem("%s: the key %s of -o json is a %q, and was a %q", name, path, is.JSON[path], was.JSON[path])
			}
		}
	}
	for _, name := range c.Environment {
		if !slices.Contains(now.Environment, name) {
			problem("the variable %s is gone", name)
		}
	}
	for _, code := range c.ExitCodes {
		if !slices.Contains(now.ExitCodes, code) {
			problem("the exit code %d is gone", code)
		}
	}
	return problems
}

// add notes what a verb printed.
func (c *commandLine) add(verb, path string, value any) {
	v := c.Verbs[verb]
	if v == nil {
		return
	}
	kind := "null"
	switch value := value.(type) {
	case map[string]any:
		kind = "object"
		for key, x := range value {
			if namedByUsers.MatchString(path) {
				key = "*"
			}
			c.add(verb, strings.TrimPrefix(path+"."+key, "."), x)
		}
	case []any:
		kind = "array"
		for _, x := range value {
			c.add(verb, path+"[]", x)
		}
	case string:
		kind = "string"
	case float64:
		kind = "number"
	case bool:
		kind = "bool"
	}
	if path != "" && !slices.Contains(v.JSON[path], kind) {
		v.JSON[path] = append(v.JSON[path], kind)
		slices.Sort(v.JSON[path])
	}
}

// namedByUsers matches the paths of objects whose keys are names that users give.
var namedByUsers = regexp.MustCompile(`(^|\.)(labels|weights|domain|domains|payload)$`)

func readCommandLine(file string) (*commandLine, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &commandLine{}
	return c, json.Unmarshal(text, c)
}

// cliFile has the command line of this tree.
const cliFile = "testdata/cli.json"

// keptCommandLines returns the files with this tree's command line and those of releases.
func keptCommandLines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../server/testdata/releases/*/cli.json")
	if err != nil {
		t.Fatal(err)
	}
	return append(files, cliFile)
}

// TestKeptCommandLine: verbs, flags, variables and exit codes of the releases stay. TestScripts
// sees to what verbs print.
func TestKeptCommandLine(t *testing.T) {
	for _, file := range keptCommandLines(t) {
		kept, err := readCommandLine(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range kept.Verbs {
			v.JSON = nil
		}
		for _, problem := range kept.lost(presentCommandLine()) {
			t.Errorf("%s: %s; it stays, or warns for one minor version", file, problem)
		}
	}
}

// scriptJSON gathers what the commands of scripts print as JSON.
type scriptJSON struct {
	mu      sync.Mutex
	seen    *commandLine
	scripts int // that passed
}

// commandOfScript matches a command and its output in the log of a script.
var commandOfScript = regexp.MustCompile(`(?ms)^(?:> |\[background\] )([^\n]*\bsignalbox [^\n]*)\n(?:[^\n>\[][^\n]*\n)*(?:\[exit status \d+\]\n)?\[stdout\]\n(.*?)(?:^\[stderr\]$|^\[exit status |^\[signal: |^\[background\] |^> |^# |\z)`)

// waitOfScript matches, in the log of a script, the start of a command that has a name, and the wait
// for it, behind which its output is.
var waitOfScript = regexp.MustCompile(`(?m)^> (?:([^\n]*\bsignalbox [^\n]*) &([^&\n]+)&|wait (\S+))$`)

// read takes the log of a script.
func (s *scriptJSON) read(log string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := map[string]string{}
	log = waitOfScript.ReplaceAllStringFunc(log, func(line string) string {
		at := waitOfScript.FindStringSubmatch(line)
		if at[3] == "" {
			named[at[2]] = at[1]
		} else if named[at[3]] != "" {
			return "> " + named[at[3]]
		}
		return line
	})
	for len(log) > 0 {
		at := commandOfScript.FindStringSubmatchIndex(log)
		if at == nil {
			return
		}
		command, printed := log[at[2]:at[3]], log[at[4]:at[5]]
		log = log[at[5]:]
		at = jsonFlag.FindStringIndex(command)
		if at == nil || strings.Contains(command, "$(") {
			continue
		}
		words := strings.Fields(command[strings.LastIndex(command[:at[0]], "signalbox ")+len("signalbox "):])
		verb, _, err := tree().Find(words)
		if err != nil {
			continue
		}
		for d := json.NewDecoder(strings.NewReader(printed)); ; {
			var value any
			if d.Decode(&value) != nil {
				break
			}
			s.seen.add(verb.CommandPath(), "", value)
		}
	}
}

var jsonFlag = regexp.MustCompile(`(-o|--output)[ =]?(json|jsonl)\b`)

// check compares with what is kept, once all scripts have passed. What a script printed by chance
// it gets three more chances to print.
func (s *scriptJSON) check(t *testing.T, p testscript.Params) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	if s.scripts < len(files) || t.Failed() {
		return
	}
	if p.UpdateScripts {
		text, err := json.MarshalIndent(s.seen, "", " ")
		if err == nil {
			err = os.WriteFile(cliFile, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, file := range keptCommandLines(t) {
		kept, err := readCommandLine(file)
		if err != nil {
			t.Fatal(err)
		}
		problems := kept.lost(s.seen)
		for try := 0; try < 3 && len(problems) > 0; try++ {
			again := p
			again.Dir, again.Files = "", scriptsOf(t, files, problems)
			if len(again.Files) > 0 {
				t.Logf("%s is run again: %s", again.Files, problems)
				testscript.RunT(&repeatedScript{t, s}, again)
			}
			problems = kept.lost(s.seen)
		}
		for _, problem := range problems {
			t.Errorf("%s: %s; what programs read stays (if no script prints it any more, let one do it)", file,
				problem)
		}
	}
}

// scriptsOf returns the scripts with the verbs that problems begin with.
func scriptsOf(t *testing.T, files, problems []string) (scripts []string) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(problems, func(problem string) bool {
			verb, _, _ := strings.Cut(problem, ":")
			return bytes.Contains(text, []byte(verb+" "))
		}) {
			scripts = append(scripts, file)
		}
	}
	return scripts
}

// scriptTest is the test of a script, whose log is read too.
type scriptTest struct {
	*testing.T
	printed *scriptJSON
}

// Verbose keeps the whole log.
func (s scriptTest) Verbose() bool { return true }

func (s scriptTest) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) {
		if !*update && !slices.Contains(mainScripts, name) {
			form.SkipUntil(t, form.Full, "not a main script")
		}
		f(scriptTest{t, s.printed}) // ends the goroutine if it does not pass
		s.printed.mu.Lock()
		defer s.printed.mu.Unlock()
		s.printed.scripts++
	})
}

func (s scriptTest) Log(args ...any) {
	s.T.Helper()
	s.T.Log(args...)
	s.printed.read(fmt.Sprint(args...))
}

// repeatedScript runs scripts again, one after the other. That they pass was seen before.
type repeatedScript struct {
	t       *testing.T
	printed *scriptJSON
}

func (r *repeatedScript) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
}

func (r *repeatedScript) Parallel()     {}
func (r *repeatedScript) Verbose() bool { return true }
func (r *repeatedScript) Skip(...any)   { runtime.Goexit() }
func (r *repeatedScript) FailNow()      { runtime.Goexit() }

func (r *repeatedScript) Fatal(args ...any) {
	r.t.Log(args...)
	runtime.Goexit()
}

func (r *repeatedScript) Log(args ...any) { r.printed.read(fmt.Sprint(args...)) }

// TestLostOfCommandLine: a verb, a flag, a key or a variable that goes, or has another type, is
// found, and what is added is not.
func TestLostOfCommandLine(t *testing.T) {
	const base = `{"verbs":{"signalbox a":{"flags":{"x":"string"},"json":{"k":["number","string"],"l[].m":["bool"]}}},` +
		`"environment":["E"],"exit_codes":[0,1]}`
	parse := func(text string) *commandLine {
		c := &commandLine{}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(c); err != nil || d.Decode(new(any)) != io.EOF {
			t.Fatal(err)
		}
		return c
	}
	for _, x := range []struct{ old, new, want string }{
		{"", "", ""},
		{`"x":"string"`, `"x":"string","y":"bool"`, ""},
		{`"k":`, `"j":["bool"],"k":`, ""},
		{`"number","string"`, `"string"`, ""},
		{`signalbox a`, `signalbox b`, "signalbox a is gone"},
		{`"x":"string"`, `"y":"string"`, "--x is gone"},
		{`"x":"string"`, `"x":"bool"`, "--x is a bool"},
		{`"k":`, `"j":`, "key k of -o json is gone"},
		{`l[].m`, `l[].n`, "key l[].m of -o json is gone"},
		{`"number","string"`, `"bool"`, "key k of -o json is a"},
		{`"E"`, `"F"`, "variable E is gone"},
		{`[0,1]`, `[0,2]`, "exit code 1 is gone"},
	} {
		lost := parse(base).lost(parse(strings.Replace(base, x.old, x.new, 1)))
		if got := strings.Join(lost, "; "); (got == "") != (x.want == "") || !strings.Contains(got, x.want) {
			t.Errorf("%s instead of %s: %q, want %q", x.new, x.old, got, x.want)
		}
	}
}

// TestScriptJSON reads the log of a script.
func TestScriptJSON(t *testing.T) {
	s := &scriptJSON{seen: presentCommandLine()}
	s.read("# A story. (0.1s)\n> signalbox sem ls -o jsonl\n[stdout]\n{\"name\":\"a\"}\n{\"owners\":1}\n> stdout name\n" +
		"> exits 3 signalbox lock x --wait 0 -o json\n[stdout]\n{\n  \"state\": null\n}\n[stderr]\n{\"e\":1}\n" +
		"> signalbox sem ls\n[stdout]\n{\"table\":1}\n> signalbox session ls -o json &\n> wait\n" +
		"[background] signalbox lock x -- signalbox session ls -o json: exit status 0\n[stdout]\n[{\"labels\":{\"zone\":[1]}}]\n" +
		"> ! signalbox limit wait x -o json &one&\n> exec signalbox http &two&\n> kill one\n> wait two\n[stdout]\n{\"none\":1}\n" +
		"> wait one\n[stdout]\n{\"waited\":2}\n[stderr]\n{\"e\":1}\n")
	for verb, want := range map[string]string{
		"signalbox sem ls":     `{"name":["string"],"owners":["number"]}`,
		"signalbox lock":       `{"state":["null"]}`,
		"signalbox limit wait": `{"waited":["number"]}`,
		"signalbox http":       `{}`,
		"signalbox session ls": `{"[]":["object"],"[].labels":["object"],"[].labels.*":["array"],"[].labels.*[]":["number"]}`,
	} {
		if got, err := json.Marshal(s.seen.Verbs[verb].JSON); err != nil || string(got) != want {
			t.Errorf("%s prints %s, want %s (%v)", verb, got, want, err)
		}
	}
}
