package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// field is one value of a row: its JSON key, and its column in a table. Fields without a title are
// left out of tables, those without a key out of JSON.
type field struct {
	key   string
	title string
	value any
}

// row is one item of output. Its JSON object keeps the fields' order.
type row []field

// MarshalJSON writes the row as an object. A string or []byte is text under its key where it is
// valid UTF-8, else base64 under key_base64.
func (r row) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	first := true
	for _, f := range r {
		if f.key == "" {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		key, value := f.key, f.value
		if raw, ok := value.([]byte); ok {
			value = string(raw)
		}
		if text, ok := value.(string); ok && !utf8.ValidString(text) {
			key, value = key+"_base64", base64.StdEncoding.EncodeToString([]byte(text))
		}
		value = exact(value)
		k, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		v, err := marshalPlain(value)
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// marshalPlain is json.Marshal without HTML escapes: the output is for programs and terminals.
func marshalPlain(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// printer writes items in the format that was asked for.
type printer struct {
	w      io.Writer
	format string
	color  bool
	events sync.Mutex // held while an event is printed: several goroutines may print them
}

// item prints a single item: in a table as lines of key and value, followed by its lists.
func (p *printer) item(r row) error {
	if p.format != "table" {
		return p.document(r)
	}
	var lists []field
	var lines [][]string
	for _, f := range r {
		if _, ok := f.value.([]row); ok {
			lists = append(lists, f)
		} else if f.title != "" {
			lines = append(lines, []string{f.title, cell(f.value)})
		}
	}
	if err := p.columns(lines, false); err != nil {
		return err
	}
	for _, f := range lists {
		rows := f.value.([]row)
		if len(rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(p.w, "\n%s\n", strings.ToUpper(f.title)); err != nil {
			return err
		}
		if err := p.table(rows); err != nil {
			return err
		}
	}
	return nil
}

// list prints items: a table, one JSON array, or a line each.
func (p *printer) list(rows []row, empty string) error {
	switch {
	case p.format == "json":
		return p.document(append([]row{}, rows...))
	case p.format == "jsonl":
		for _, r := range rows {
			if err := p.document(r); err != nil {
				return err
			}
		}
		return nil
	case len(rows) == 0:
		_, err := fmt.Fprintln(p.w, empty)
		return err
	}
	return p.table(rows)
}

// event prints an item on a line: as JSON, or in a table as cells.
func (p *printer) event(r row) error {
	p.events.Lock()
	defer p.events.Unlock()
	if p.format != "table" {
		return p.json(r, false)
	}
	var cells []string
	lines := ""
	for _, f := range r {
		if b, ok := f.value.(subline); ok {
			lines += "  " + string(b) + "\n"
		} else if f.title != "" {
			if text := cell(f.value); text != "" {
				cells = append(cells, text)
			}
		}
	}
	_, err := fmt.Fprint(p.w, strings.Join(cells, "  ")+"\n"+lines)
	return err
}

// message prints a sentence for people; programs get the row instead.
func (p *printer) message(r row, format string, args ...any) error {
	if p.format != "table" {
		return p.document(r)
	}
	for i, x := range args {
		if text, ok := x.(string); ok {
			args[i] = terminal.Sanitize(text)
		}
	}
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	return err
}

// report prints a result as message does, or returns the error. A result that nobody reads is not
// an error.
func (p *printer) report(err error, r row, format string, args ...any) error {
	if err != nil {
		return err
	}
	if err = p.message(r, format, args...); readerGone(err) {
		return nil
	}
	return err
}

func (p *printer) table(rows []row) error {
	var lines [][]string
	for i, r := range rows {
		var head, cells []string
		for _, f := range r {
			if f.title != "" {
				head = append(head, strings.ToUpper(f.title))
				cells = append(cells, cell(f.value))
			}
		}
		if i == 0 {
			lines = append(lines, head)
		}
		lines = append(lines, cells)
	}
	return p.columns(lines, true)
}

// columns aligns cells, without blanks at the ends of lines.
func (p *printer) columns(lines [][]string, head bool) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, cells := range lines {
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		out.WriteString(terminal.Paint(p.color && head && out.Len() == 0, terminal.Bold, line) + "\n")
	}
	_, err := io.WriteString(p.w, out.String())
	return err
}

// document prints JSON: indented, or as a line of jsonl.
func (p *printer) document(v any) error { return p.json(v, p.format == "json") }

func (p *printer) json(v any, indented bool) error {
	raw, err := marshalPlain(v)
	if err != nil {
		return err
	}
	if indented {
		var b bytes.Buffer
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return err
		}
		raw = b.Bytes()
	}
	_, err = p.w.Write(append(raw, '\n'))
	return err
}

// maxCell bounds a value in a table, in runes; JSON has it whole.
const maxCell = 60

// cell is a value as a table shows it.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case []byte:
		return truncate(terminal.Sanitize(string(v)))
	case string:
		return truncate(terminal.Sanitize(v))
	case uncut:
		return terminal.Sanitize(string(v))
	case amount:
		if uint64(v) == ^uint64(0) {
			return "max"
		}
		return strconv.FormatUint(uint64(v), 10)
	case millis:
		if uint64(v) == ^uint64(0) {
			return "forever"
		}
		return (time.Duration(v) * time.Millisecond).String()
	case timestamp:
		if v.IsZero() {
			return "-"
		}
		return terminal.Age(time.Since(v.Time)) + " ago"
	case clockTime:
		return v.Format("15:04:05.000")
	case labelled:
		return v.label + " " + cell(v.value)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	default:
		return fmt.Sprint(v)
	}
}

// amount is a count or a limit, "max" where it is the largest.
type amount uint64

// MarshalJSON writes a number, or "max".
func (a amount) MarshalJSON() ([]byte, error) {
	if uint64(a) == ^uint64(0) {
		return []byte(`"max"`), nil
	}
	return json.Marshal(exact(uint64(a)))
}

// millis is a duration in milliseconds, "forever" where it is the largest.
type millis uint64

// MarshalJSON writes a number, or "forever".
func (m millis) MarshalJSON() ([]byte, error) {
	if uint64(m) == ^uint64(0) {
		return []byte(`"forever"`), nil
	}
	return json.Marshal(exact(uint64(m)))
}

// sessionID is a session's id. It is a string in JSON: those of some tiers are above 2^53, and nothing
// orders them.
type sessionID uint64

// MarshalJSON writes a string.
func (s sessionID) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatUint(uint64(s), 10) + `"`), nil
}

// exact is a value as JSON can have it: a number above 2^53 as text, because jq and JavaScript would
// round it.
func exact(v any) any {
	if n, ok := v.(uint64); ok && n > 1<<53 {
		return strconv.FormatUint(n, 10)
	}
	return v
}

// timestamp is a wall-clock time: RFC 3339 in JSON, an age in a table.
type timestamp struct{ time.Time }

// MarshalJSON writes RFC 3339 with milliseconds in UTC, null for none.
func (m timestamp) MarshalJSON() ([]byte, error) {
	if m.IsZero() {
		return []byte("null"), nil
	}
	return []byte(m.UTC().Format(`"2006-01-02T15:04:05.000Z07:00"`)), nil
}

// uncut is text that a table does not cut: operators need all of it.
type uncut string

// subline is a line under an event's own.
type subline string

// clockTime is when something was seen: the time of day in a table, RFC 3339 in JSON.
type clockTime struct{ time.Time }

func (c clockTime) MarshalJSON() ([]byte, error) { return timestamp(c).MarshalJSON() }

// labelled is a value in a line without a heading.
type labelled struct {
	label string
	value any
}

// MarshalJSON writes the value alone: in JSON its key is the label.
func (l labelled) MarshalJSON() ([]byte, error) { return json.Marshal(exact(l.value)) }

func truncate(s string) string {
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	return string([]rune(s)[:maxCell-1]) + "…"
}
