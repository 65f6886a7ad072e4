package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/server/file"
)

// Pauses of the watch of a file.
const (
	writeInterval  = time.Second      // the least time between two writes
	repairInterval = 30 * time.Second // the same while another program writes the file too
	execPauseMin   = time.Second      // before a command that failed runs again; doubles
	execPauseMax   = 30 * time.Second
	execSlow       = time.Minute // a command that runs for longer is reported
)

// writtenFile keeps the content of a file.
type writtenFile struct {
	path string
	note func(format string, args ...any)

	inPlace   bool        // the file had the content at the last look
	wrote     []byte      // the content that it had when it was in place last; nil: it never was
	info      fs.FileInfo // of the last look; nil: no file
	content   []byte      // of the last look; nil if it was not read
	lastWrite time.Time
	due       time.Time // of the next write, if it is put off
	trouble   string    // the last error that was reported
}

// put writes the file, unless it has the content, or was written so recently that it is too early.
// It reports whether it did. An error is reported once; the next call tries again.
func (f *writtenFile) put(now time.Time, content []byte) (wrote bool) {
	f.inPlace, f.due = false, time.Time{}
	err := f.look(len(content))
	if err == nil && f.info != nil && f.info.Size() == int64(len(content)) && bytes.Equal(f.content, content) {
		f.inPlace, f.wrote, f.trouble = true, content, ""
		return false
	}
	interval, repair := writeInterval, ""
	if err == nil && f.wrote != nil && bytes.Equal(f.wrote, content) {
		if repair = "is gone"; f.info != nil {
			interval, repair = repairInterval, "was changed by another program"
		}
	}
	if due := f.lastWrite.Add(interval); now.Before(due) {
		f.due = due
		return false
	}
	if err == nil {
		err = f.replace(content)
	}
	if err != nil {
		f.report(err)
		return false
	}
	if repair != "" {
		f.note("signalbox: %s %s, and is written again\n", f.path, repair)
	}
	f.inPlace, f.wrote, f.trouble, f.lastWrite = true, content, "", now
	return true
}

// look reads the file. It does not read contents of another size than the wanted ones.
func (f *writtenFile) look(size int) error {
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.info, f.content = nil, nil
		return nil
	case err != nil:
		return err
	case f.info != nil && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) &&
		info.Size() == f.info.Size():
		return nil
	case !info.Mode().IsRegular():
		return file.CheckRegular(f.path)
	}
	f.info, f.content = info, nil
	if info.Size() == int64(size) {
		f.content, err = file.Read(f.path, size)
	}
	return err
}

func (f *writtenFile) replace(content []byte) error {
	err := file.Replace(f.path, func(to *os.File) error {
		_, err := to.Write(content)
		return errors.Join(err, to.Chmod(0o644)) // others read it
	}, nil)
	if err != nil {
		return err
	}
	f.content = content
	if f.info, err = os.Lstat(f.path); err != nil { // written all the same: the next look says that it is gone
		f.info = nil
	}
	return nil
}

func (f *writtenFile) report(err error) {
	text := fmt.Sprintf("cannot write %s: %v; it is tried again", f.path, err)
	if folder := filepath.Dir(f.path); errors.Is(err, fs.ErrNotExist) {
		text = fmt.Sprintf("cannot write %s: there is no folder %s; waiting for it", f.path, folder)
	}
	if text != f.trouble {
		f.trouble = text
		f.note("signalbox: %s\n", terminal.Sanitize(text))
	}
}

// wait is how long the next call of put may wait.
func (f *writtenFile) wait(now time.Time) time.Duration {
	if f.due.After(now) {
		return f.due.Sub(now)
	}
	return writeInterval
}

// execHook runs a command after each write, one at a time, and again until it has succeeded.
type execHook struct {
	text           string
	stdout, stderr io.Writer
	note           func(format string, args ...any)
	ended          chan error // capacity 1: the result of the run

	pending  bool // since the last run began, the file was written, or the run failed
	running  bool
	slow     bool      // the run was reported as slow
	began    time.Time // of the last run
	failures int       // in a row since the last write
	due      time.Time // of the next run after a failure
}

// written makes the command due.
func (h *execHook) written() { h.pending, h.failures, h.due = true, 0, time.Time{} }

// run starts the command if it is due.
func (h *execHook) run(ctx context.Context, now time.Time) {
	switch {
	case h.text == "", !h.pending, now.Before(h.due):
		return
	case h.running && !h.slow && now.Sub(h.began) > execSlow:
		h.slow = true
		h.note("signalbox: the file has changed, and --exec still runs since its last change; it runs again when it ends\n")
		return
	case h.running:
		return
	}
	h.pending, h.running, h.slow, h.began = false, true, false, now
	cmd := shellCommand(ctx, h.text, syscall.SIGTERM)
	cmd.Stdout, cmd.Stderr = h.stdout, h.stderr
	go func() {
		err := cmd.Run()
		if ctx.Err() != nil {
			killGroup(cmd)
		}
		h.ended <- err
	}()
}

// end takes the result of a run.
func (h *execHook) end(now time.Time, err error) {
	h.running = false
	if err == nil {
		return
	}
	when := "at once, as the file has changed"
	if !h.pending {
		pause := min(execPauseMin<<min(h.failures, 10), execPauseMax)
		when = "in " + pause.String()
		h.pending, h.due = true, now.Add(pause)
		h.failures++
	}
	h.note("signalbox: --exec: %s; it runs again %s\n", terminal.Sanitize(err.Error()), when)
}

// wait is how long the next call of run may wait.
func (h *execHook) wait(now time.Time) time.Duration {
	if h.pending && !h.running && h.due.After(now) {
		return h.due.Sub(now)
	}
	return writeInterval
}

// stop waits for a run whose context has ended.
func (h *execHook) stop() {
	if h.running {
		<-h.ended
	}
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
			"__meta_signalbox_zone": e.Zone, "__meta_signalbox_state": string(e.State),
			"__meta_signalbox_weight": fmt.Sprint(e.Weight),
		}
		for _, key := range slices.Sorted(maps.Keys(e.Meta)) { // in order: two keys may be one label
			labels["__meta_signalbox_meta_"+labelName(key)] = e.Meta[key]
		}
		list = append(list, target{[]string{e.Addr}, labels})
	}
	return indented(list)
}

// labelName replaces the characters that a label of Prometheus may not have.
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
