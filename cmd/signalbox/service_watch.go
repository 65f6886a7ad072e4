package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/spf13/cobra"
)

// maxTemplate bounds a template, in bytes.
const maxTemplate = 1 << 20

func serviceWatch(a *app) *cobra.Command {
	c := command("watch NAME", "Print the members of a service and each change, or write them to a file",
		`Print the members of a service and each change, until Ctrl-C.

With --file, write the addresses that a caller uses to a file instead, as a whole and only when they
have changed, at most once a second. While the cluster is away, at the start too, the file stays as it
is, and it is never written empty without --allow-empty. If the file vanishes, it is written again; if another
program changes it, after 30s. A folder that is not there is waited for.

sh runs the text of --exec after each write, and once at the start, when the file is in place. If it
fails, it runs again, first after 1s, later after up to 30s, until it succeeds or the list changes.

The format is json (an array of objects as members store them), addr (an address a line), prometheus
(for file_sd), or that of a template of Go's text/template: .Service, .Zone and .Endpoints, each with
.Addr, .Zone, .Weight, .State and .Meta; the functions json, host and port.`)
	c.Example = `  signalbox service watch api
  signalbox service watch api --file /etc/nginx/api.conf --template api.tmpl --exec 'nginx -s reload'
  signalbox service watch api --file /etc/prometheus/api.json --format prometheus`
	f := fileWatch{}
	fs := c.Flags()
	fs.StringVar(&f.path, "file", "", "File to write.")
	fs.StringVar(&f.format, "format", "json", "Form of the file: json, addr or prometheus.")
	fs.StringVar(&f.template, "template", "", "File with a template, instead of a format.")
	fs.StringVar(&f.exec, "exec", "", "Command that sh runs after each write.")
	fs.BoolVar(&f.allowEmpty, "allow-empty", false, "Write the file also when there are no members.")
	fs.StringVar(&f.zone, "for", "", "Zone of the callers that read the file.")
	fs.IntVar(&f.subset, "subset", 0, "Write at most this number of addresses; 0: all that are used.")
	a.streamVerb(c, func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error] {
		return each(n.Service(name).Watch(ctx), memberEventRow)
	})
	stream := c.RunE
	written := a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if cmd.Flag("stop-after").Changed {
			return usagef("--stop-after and --file are both given; keep one")
		}
		f.service = args[0]
		return f.run(inv, cmd)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"file", "template", "exec"} {
			if cmd.Flag(name).Changed && strings.TrimSpace(cmd.Flag(name).Value.String()) == "" {
				return usagef("--%s is empty", name)
			}
		}
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
	view   *discovery.View // that was looked at last
	kept   string          // why the file stays as it is, as it was said
	away   bool            // the list was not live at the last look, or there was none yet
	want   []byte          // the wanted contents; nil: none yet
	count  int             // addresses in want
	file   writtenFile
	hook   execHook
}

func (f *fileWatch) run(inv *invocation, cmd *cobra.Command) error {
	if err := f.open(cmd); err != nil {
		return err
	}
	c, away, answered, err := inv.clientAtOnce()
	if err != nil {
		return err
	}
	defer answered()
	e, err := discovery.Watch(c, inv.node, f.service, discovery.InZone(f.zone), discovery.Subset(f.subset))
	if err != nil {
		return usagef("%v", err)
	}
	defer e.Close()
	f.file = writtenFile{path: f.path, note: inv.note}
	f.hook = execHook{text: f.exec, stdout: inv.stdout, stderr: inv.stderr, note: inv.note, ended: make(chan error, 1),
		pending: true} // a process before this one may have ended between its write and the command
	defer f.hook.stop()
	for {
		now, v, err := time.Now(), e.View(), e.Err()
		switch {
		case v.Known || f.away:
			answered()
			f.look(inv, v, err)
		case err != nil:
			return err
		}
		f.step(inv, now)
		next := time.NewTimer(min(writeInterval, f.file.wait(now), f.hook.wait(now)))
		select {
		case <-next.C:
		case <-e.Changed():
		case err := <-away:
			if away = nil; f.view == nil {
				f.kept, f.away = clusterAway, true
				inv.note("signalbox: %s (%s); the file stays as it is\n", clusterAway, terminal.Sanitize(err.Error()))
			}
		case err := <-f.hook.ended:
			f.hook.end(time.Now(), err)
		case <-inv.longCtx.Done():
			return nil
		}
		next.Stop()
	}
}

// step writes the file, and runs the command, if that is due.
func (f *fileWatch) step(inv *invocation, now time.Time) {
	if f.want == nil {
		return
	}
	if f.file.put(now, f.want) {
		inv.note("signalbox: wrote %d %s of %q to %s\n", f.count,
			map[bool]string{true: "address", false: "addresses"}[f.count == 1],
			f.service, f.path)
		f.hook.written()
	}
	if f.file.inPlace {
		f.hook.run(inv.longCtx, now)
	}
}

// open reads the template, and checks that the file can be written.
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
	if err := file.CheckRegular(f.path); err != nil {
		return usagef("--file: %v", err)
	}
	return nil
}

// clusterAway is why a file stays as it is while nothing answers.
const clusterAway = "the cluster is away"

// look takes a view, and the error of Endpoints.Err that belongs to it.
func (f *fileWatch) look(inv *invocation, v *discovery.View, err error) {
	if v == f.view {
		return
	}
	f.view = v
	kept := ""
	switch {
	case !v.Live && err != nil:
		kept = terminal.Sanitize(err.Error())
	case !v.Live:
		kept = clusterAway
	case v.Known && len(v.Used) == 0 && !f.allowEmpty:
		kept = fmt.Sprintf("%q has no members", f.service)
	}
	if v.Known && (len(v.Used) > 0 || f.allowEmpty) {
		sorted := *v // by address, so that the file changes only where the service does
		sorted.Used = slices.Clone(v.Used)
		slices.SortFunc(sorted.Used, func(a, b *discovery.Endpoint) int { return cmp.Compare(a.Addr, b.Addr) })
		if text, err := f.render(&sorted); err != nil {
			kept = fmt.Sprintf("the template %s cannot be used: %s", f.template, terminal.Sanitize(err.Error()))
		} else {
			f.want, f.count = append([]byte{}, text...), len(v.Used)
		}
	}
	switch {
	case kept == f.kept:
	case kept != "":
		inv.note("signalbox: %s; the file stays as it is\n", kept)
	case f.away:
		inv.note("signalbox: the list is live again\n")
	}
	f.kept, f.away = kept, !v.Live
}
