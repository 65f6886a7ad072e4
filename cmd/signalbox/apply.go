package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/file"
)

func applyCmd(a *app) *cobra.Command {
	c := command("apply --file FILE", "Make the cluster have what documents say",
		`Make the cluster have what documents say: nodes with their settings, semaphores, configurations, rate
limits, rollouts, rights and trusts. The keys are the names of the flags of the verbs that make the same
objects: a repeated flag is a list, one of KEY=N a mapping. Rollouts are as in "rollout describe".

  signalbox: 1                       # format of the document
  nodes:
    /billing:
      settings: {max-sessions: 10000, slow-wait: 5s}
      semaphores:
        jobs: {limit: 4}
        gpus: {policy: fair, weight: {a: 2, b: 1}, slot: ["0:a100", "1:a100"], max-hold: 8h}
      configs: {flags: {data-file: flags.json}}
      limits: {api: {rate: 1000}, api/tenant-a: {weight: 3, min: 100}}
      rollouts: {api: {source: published, locations: [{name: SAS}, {name: MAN, delay: 5s}]}}
      absent: {semaphores: [old-jobs], limits: [api/tenant-x]}
  identities: {billing-app: {/billing: use}, former-app: {}}
  trusts:
    github:
      issuer: https://token.actions.githubusercontent.com
      rules: [{if: ["repository=octo/*", ref=refs/heads/main], as: billing-app}]
    former: {}
  absent: [/old]

A document is the whole truth of each object that it names: a setting that is left out has its
default, and an identity has the rights that are listed and no others; a trust without settings goes. Data of a semaphore is
compared only if the document has it. Objects that no document names are not touched: what is to go
is listed under absent, a node with all that it keeps. What is in use is kept and named, and the
exit code is 1.

All is checked before the first change. It is no transaction: after an error or an interrupt run it
again; a second run changes nothing. With --dry-run the exit code is 6 if anything would change.`)
	c.Example = `  signalbox export >cluster.yaml
  signalbox apply -f cluster.yaml --dry-run
  signalbox apply -f cluster.yaml --reason 'merge 4711'`
	files := c.Flags().StringArrayP("file", "f", nil, "File with a document; - is standard input. Repeat it for several, which are one together.")
	dryRun := c.Flags().Bool("dry-run", false, "Show what would change, and change nothing.")
	reason := addReason(c)
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, _ []string) error {
		d, err := readDocuments(inv, *files)
		if err != nil {
			return err
		}
		l, err := newLiveCluster(inv, *reason)
		if err != nil {
			return err
		}
		defer l.close()
		return applyDocument(inv, l, d, *dryRun)
	})
	return c
}

// readDocuments reads the files of documents.
func readDocuments(inv *invocation, names []string) (*desired.Document, error) {
	if len(names) == 0 {
		return nil, usagef("-f FILE is missing: it names the document; - is standard input")
	}
	var files []desired.File
	for i, name := range names {
		f := desired.File{Name: name}
		read := func() ([]byte, error) { return file.Read(name, desired.MaxBytes+1) }
		if name == "-" {
			f.Name = standardInput
			read = func() ([]byte, error) { return file.ReadAll(inv.stdin, standardInput, desired.MaxBytes+1) }
			for _, other := range names[:i] {
				if other == name {
					return nil, usagef("-f - is given twice; standard input can be read once")
				}
			}
		}
		var err error
		if f.Text, err = interruptible(inv.longCtx, f.Name, read); err != nil {
			if inv.longCtx.Err() != nil {
				return nil, err
			}
			return nil, usagef("cannot read the document: %v", err)
		}
		files = append(files, f)
	}
	inv.beginTimeout()
	d, err := desired.Read(files, documentForms)
	return d, asUsage(err)
}

// asUsage makes a fault of a document an error of what was given.
func asUsage(err error) error {
	if fault, ok := errors.AsType[*desired.Error](err); ok {
		return usagef("%v", fault)
	}
	return err
}

// applyDocument makes the changes, or shows them.
func applyDocument(inv *invocation, l *liveCluster, d *desired.Document, dryRun bool) error {
	ctx := inv.longCtx
	now, err := l.State(ctx, d)
	if err != nil {
		return err
	}
	changes, kept, err := desired.Plan(d, now)
	if err == nil {
		err = l.checkTiers(inv.ctx, changes)
	}
	if err != nil {
		return asUsage(err)
	}
	p := inv.printer()
	rows := []row{}
	show := func(r row, lines string) error {
		switch p.format {
		case "json":
			rows = append(rows, r)
			return nil
		case "jsonl":
			return p.json(r, false)
		}
		_, err := io.WriteString(p.w, lines)
		return err
	}
	shown, made := 0, 0
	done := func(c *desired.Change) error {
		made++
		if err := show(changeRow(c, dryRun), changeLines(c)); !readerGone(err) { // what is done is done
			return err
		}
		return nil
	}
	if dryRun {
		for _, c := range changes {
			if err := done(c); err != nil {
				return err
			}
		}
	} else {
		var more []desired.Kept
		more, err = desired.Run(ctx, changes, l, done)
		kept = append(kept, more...)
	}
	for _, k := range kept {
		shown++
		if failed := show(keptRow(k), ""); err == nil {
			err = failed
		}
		inv.note("signalbox: kept %s: %s\n", terminal.Sanitize(k.Key.String()), terminal.Sanitize(k.Why))
	}
	if p.format == "json" {
		if failed := p.list(rows, ""); err == nil {
			err = failed
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s; run it again for the rest", count(uint64(made), "change"))
	case err != nil:
		return err
	case shown > 0:
		return &codeError{code: exitError, err: fmt.Errorf("%s kept that should go or change", wasWere(shown))}
	case dryRun && made > 0:
		return &codeError{code: exitDifference, quiet: true}
	case made == 0 && p.format == "table":
		_, err = fmt.Fprintln(p.w, "no difference")
	}
	return err
}

func wasWere(n int) string {
	if n == 1 {
		return "1 object was"
	}
	return count(uint64(n), "object") + " were"
}

// changeLines are a line for each setting that differs, or one for an object that comes or goes.
func changeLines(c *desired.Change) string {
	head := c.Op.Sign() + " " + c.Key.String()
	var texts []string
	for _, f := range c.Fields {
		text := f.Name + " " + f.To
		if c.Op == desired.Alter {
			text = f.Name + " " + f.From + " -> " + f.To
		}
		texts = append(texts, terminal.Sanitize(text))
	}
	switch {
	case c.Op == desired.Alter:
		var b strings.Builder
		for _, text := range texts {
			b.WriteString(terminal.Sanitize(head) + ": " + text + "\n")
		}
		return b.String()
	case len(texts) > 0:
		return terminal.Sanitize(head) + ": " + strings.Join(texts, ", ") + "\n"
	}
	return terminal.Sanitize(head) + "\n"
}

func keyRow(k desired.Key) row {
	switch k.Kind {
	case desired.Right:
		return row{{"kind", "", k.Kind.String()}, {"path", "", k.Node}, {"identity", "", k.Name}}
	case desired.Trust:
		return row{{"kind", "", k.Kind.String()}, {"name", "", k.Name}}
	}
	r := row{{"kind", "", k.Kind.String()}, {"node", "", k.Node}}
	if k.Name != "" {
		r = append(r, field{"name", "", k.Name})
	}
	return r
}

func changeRow(c *desired.Change, dryRun bool) row {
	fields := make([]row, len(c.Fields))
	for i, f := range c.Fields {
		if fields[i] = (row{{"field", "", f.Name}, {"from", "", f.From}, {"to", "", f.To}}); c.Op == desired.Create {
			fields[i] = row{{"field", "", f.Name}, {"to", "", f.To}}
		}
	}
	return append(append(row{{"change", "", c.Op.String()}}, keyRow(c.Key)...), field{"fields", "", fields},
		field{"dry_run", "", dryRun})
}

func keptRow(k desired.Kept) row {
	return append(append(row{{"change", "", "kept"}}, keyRow(k.Key)...), field{"why", "", k.Why})
}

func exportCmd(a *app) *cobra.Command {
	c := command("export [PATH]", "Write what the cluster has as a document for apply",
		`Write what the cluster has as a document for "signalbox apply", which finds no difference then: nodes
with their settings, semaphores with their data, configurations, rate limits, rollouts and rights.
With PATH only the node there and those below it, without rights. What is not shown is the default.
It has no services, elections, ephemeral semaphores, processes, sessions, tokens or versions of
rollouts, and nothing about instances.`)
	c.Example = `  signalbox export >cluster.yaml
  signalbox export /billing >billing.yaml`
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		if inv.values["output"] != "table" {
			return usagef("--output %s is given, and a document is YAML; leave it out", inv.values["output"])
		}
		path := strings.TrimSuffix(strings.Join(args, ""), "/") // the root is everything
		if path != "" {
			if err := protocol.ValidatePath(path); err != nil {
				return usagef("%v", err)
			}
		}
		l, err := newLiveCluster(inv, "")
		if err != nil {
			return err
		}
		s, err := l.All(inv.longCtx, path)
		if errors.Is(err, protocol.StatusForbidden) && path == "" {
			err = fmt.Errorf("%w; the whole cluster has rights, which need the right admin on /: give the PATH of a node", err)
		}
		if err != nil {
			return err
		}
		text, err := desired.Write(slices.Collect(maps.Values(s.Objects)))
		switch {
		case err != nil:
			return err
		case len(s.Objects) > desired.MaxObjects, len(text) > desired.MaxBytes:
			return fmt.Errorf("the document would have %s and %d bytes, more than apply takes, %d and %d; export paths one by one",
				count(uint64(len(s.Objects)), "object"), len(text), desired.MaxObjects, desired.MaxBytes)
		}
		_, err = inv.output().Write(text)
		return err
	})
	return c
}
