package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/spf13/cobra"
)

// writeInterval is the least time between two writes of a file.
const writeInterval = time.Second

// maxTemplate bounds a template, and the file that is written, in bytes.
const (
	maxTemplate = 1 << 20
	maxWritten  = 64 << 20
)

func serviceWatch(a *app) *cobra.Command {
	c := command("watch NAME", "Print the members of a service and each change, or write them to a file",
		`Print the members of a service and each change, until Ctrl-C.

With --file, write the addresses that a caller uses to a file instead, as a whole and only when they
have changed, at most once a second; then run --exec, without a shell. While the cluster is away, the
file stays as it is, and it is never written empty without --allow-empty. The format is json (an
array of objects as members store them), addr (an address a line), prometheus (for file_sd), or that
of a template of Go's text/template: .Service, .Zone and .Endpoints, each with .Addr, .Zone, .Weight,
.State and .Meta; the functions json, host and port.`)
	c.Example = `  signalbox service watch api
  signalbox service watch api --file /etc/nginx/api.conf --template api.tmpl --exec 'nginx -s reload'
  signalbox service watch api --file /etc/prometheus/api.json --format prometheus`
	f := fileWatch{}
	fs := c.Flags()
	fs.StringVar(&f.path, "file", "", "File to write.")
	fs.StringVar(&f.format, "format", "json", "Form of the file: json, addr or prometheus.")
	fs.StringVar(&f.template, "template", "", "File with a template, instead of a format.")
	fs.StringVar(&f.exec, "exec", "", "Command, with arguments, to run after each write.")
	fs.BoolVar(&f.allowEmpty, "allow-empty", false, "Write the file also when there are no members.")
	fs.StringVar(&f.zone, "for", "", "Zone of the callers that read the file.")
	fs.IntVar(&f.subset, "subset", 0, "Write at most so many addresses; 0: all that are used.")
	a.streamVerb(c, func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error] {
		return each(n.Service(name).Watch(ctx), memberEventRow)
	})
	stream := c.RunE
	written := a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if cmd.Flag("count").Changed {
			return usagef("--count and --file are both given; keep one")
		}
		f.service = args[0]
		return f.run(inv, cmd)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if f.path != "" {
			return written(cmd, args)
		}
		for _, name := range []string{"format", "template", "exec", "allow-empty", "for", "subset"} {
			if cmd.Flag(name).Changed {
				return usagef("--%s goes with --file, which is missing", name)
			}
		}
		return stream(cmd, args)
	}
	return c
}

// fileWatch writes the endpoints of a service to a file.
type fileWatch struct {
	path, format, template, exec, zone, service string
	subset                                      int
	allowEmpty                                  bool

	render func(v *discovery.View) ([]byte, error)
	last   []byte // what the file has
}

func (f *fileWatch) run(inv *invocation, cmd *cobra.Command) error {
	if err := f.open(cmd); err != nil {
		return err
	}
	c, err := inv.client()
	if err != nil {
		return err
	}
	e, err := discovery.Watch(c, inv.node, f.service, discovery.InZone(f.zone), discovery.Subset(f.subset))
	if err != nil {
		return usagef("%v", err)
	}
	defer e.Close()
	if err := e.Wait(inv.ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	stale, empty := false, false
	for inv.longCtx.Err() == nil {
		v := e.View()
		if stale == v.Live {
			stale = !v.Live
			inv.note("signalbox: %s\n", map[bool]string{true: "the cluster is away; the file stays as it is", false: "the list is live again"}[stale])
		}
		if now := v.Known && len(v.Used) == 0 && !f.allowEmpty; now != empty {
			if empty = now; empty {
				inv.note("signalbox: %q has no members; the file stays as it is\n", f.service)
			}
		}
		if err := f.write(inv, v); err != nil {
			return err
		}
		pause := time.NewTimer(writeInterval)
		select {
		case <-pause.C:
		case <-inv.longCtx.Done():
		}
		pause.Stop()
		select {
		case <-e.Changed():
		case <-inv.longCtx.Done():
		}
	}
	return nil
}

// open reads the template, and what the file has.
func (f *fileWatch) open(cmd *cobra.Command) error {
	switch formats := map[string]func(*discovery.View) ([]byte, error){
		"json": renderJSON, "addr": renderAddresses, "prometheus": renderPrometheus,
	}; {
	case f.template != "" && cmd.Flag("format").Changed:
		return usagef("--format and --template are both given; keep one")
	case f.template != "":
		text, err := file.Read(f.template, maxTemplate)
		if err != nil {
			return usagef("cannot read the template: %v", err)
		}
		if f.render, err = renderTemplate(string(text), f.service, f.zone); err != nil {
			return usagef("the template %s is wrong: %v", f.template, err)
		}
		example := &discovery.View{Used: []*discovery.Endpoint{{Addr: "10.0.0.1:80"}}}
		if _, err := f.render(example); err != nil && strings.Contains(err.Error(), "can't evaluate field") {
			return usagef("the template %s is wrong: %v", f.template, err)
		}
	default:
		if f.render = formats[f.format]; f.render == nil {
			return usagef("--format is %q; it must be json, addr or prometheus", f.format)
		}
	}
	if folder, err := os.Stat(filepath.Dir(f.path)); err != nil || !folder.IsDir() {
		return usagef("%s cannot be written: there is no folder %s", f.path, filepath.Dir(f.path))
	}
	last, err := file.Read(f.path, maxWritten)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usagef("cannot read %s: %v", f.path, err)
	}
	f.last = last
	return nil
}

// write writes the file if it has changed, and runs the command then.
func (f *fileWatch) write(inv *invocation, v *discovery.View) error {
	if !v.Known || len(v.Used) == 0 && !f.allowEmpty {
		return nil
	}
	sorted := *v // by address, so that the file changes only where the service does
	sorted.Used = slices.Clone(v.Used)
	slices.SortFunc(sorted.Used, func(a, b *discovery.Endpoint) int { return cmp.Compare(a.Addr, b.Addr) })
	text, err := f.render(&sorted)
	if err != nil {
		return fmt.Errorf("the template %s cannot be used: %w", f.template, err)
	}
	if f.last != nil && bytes.Equal(text, f.last) {
		return nil
	}
	err = file.Replace(f.path, func(to *os.File) error {
		_, err := to.Write(text)
		return errors.Join(err, to.Chmod(0o644)) // others read it
	}, nil)
	if err != nil {
		return err
	}
	f.last = text
	if f.last == nil {
		f.last = []byte{}
	}
	addresses := "addresses"
	if len(v.Used) == 1 {
		addresses = "address"
	}
	inv.note("signalbox: wrote %d %s of %q to %s\n", len(v.Used), addresses, f.service, f.path)
	if args := strings.Fields(f.exec); len(args) > 0 {
		cmd := exec.CommandContext(inv.longCtx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = inv.stdout, inv.stderr, time.Second
		if err := cmd.Run(); err != nil && inv.longCtx.Err() == nil {
			inv.note("signalbox: --exec: %s: %s\n", args[0], sanitize(err.Error()))
		}
	}
	return nil
}

func renderJSON(v *discovery.View) ([]byte, error) {
	list := []json.RawMessage{}
	for _, e := range v.Used {
		data, err := e.Data()
		if err != nil {
			return nil, err
		}
		list = append(list, data)
	}
	return indented(list)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

func renderAddresses(v *discovery.View) ([]byte, error) {
	var b bytes.Buffer
	for _, e := range v.Used {
		b.WriteString(e.Addr + "\n")
	}
	return b.Bytes(), nil
}

// renderPrometheus writes targets for Prometheus' file_sd. Its labels are for relabelling.
func renderPrometheus(v *discovery.View) ([]byte, error) {
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	list := []target{}
	for _, e := range v.Used {
		labels := map[string]string{
			"__meta_signalbox_zone": e.Zone, "__meta_signalbox_state": string(e.State), "__meta_signalbox_weight": fmt.Sprint(e.Weight),
		}
		for _, key := range slices.Sorted(maps.Keys(e.Meta)) { // in order: two keys may be one label
			labels["__meta_signalbox_meta_"+labelName(key)] = e.Meta[key]
		}
		list = append(list, target{[]string{e.Addr}, labels})
	}
	return indented(list)
}

// labelName replaces what a label of Prometheus may not have.
func labelName(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
}

// renderTemplate reads a template.
func renderTemplate(text, service, zone string) (func(*discovery.View) ([]byte, error), error) {
	t, err := template.New("file").Option("missingkey=zero").Funcs(template.FuncMap{
		"json": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
		"host": func(addr string) (string, error) { host, _, err := net.SplitHostPort(addr); return host, err },
		"port": func(addr string) (string, error) { _, port, err := net.SplitHostPort(addr); return port, err },
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	return func(v *discovery.View) ([]byte, error) {
		var b bytes.Buffer
		err := t.Execute(&b, struct {
			Service, Zone string
			Endpoints     []*discovery.Endpoint
		}{service, zone, v.Used})
		return b.Bytes(), err
	}, nil
}
