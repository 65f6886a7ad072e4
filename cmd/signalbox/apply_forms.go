package main

import (
	"encoding/base64"
	"errors"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// documentForms read the settings of objects in documents with the flags of the verbs that make the
// same objects. So a document takes what these verbs take, and says the same about what is wrong.
var documentForms = desired.Forms{
	desired.Node: readNode, desired.Semaphore: readSemaphore, desired.Config: readConfigObject,
	desired.Limit: readLimit, desired.Rollout: readRollout, desired.Trust: readTrust,
}

// readFlags sets flags from the entries of an object. A repeated flag is a list, one of KEY=N a
// map.
func readFlags(c *cobra.Command, kind desired.Kind, entries []desired.Entry) error {
	for _, e := range entries {
		f := c.Flag(e.Key)
		if f == nil {
			return e.At.Errorf("unknown key %q; a %s has %s", e.Key, kind, strings.Join(keysOf(c, kind), ", "))
		}
		texts, err := flagTexts(f, e)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if err := c.Flags().Set(e.Key, text); err != nil {
				var invalid *pflag.InvalidValueError
				var number *strconv.NumError
				switch {
				case !errors.As(err, &invalid):
				case errors.As(err, &number):
					return e.ValueAt().Errorf("%s %q is %s", e.Key, text, notOfType(f))
				default:
					err = invalid.Unwrap()
				}
				return e.ValueAt().Errorf("%s %v", e.Key, err)
			}
		}
	}
	return nil
}

// keysOf are the keys that objects of a kind have in documents.
func keysOf(c *cobra.Command, kind desired.Kind) (keys []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) { keys = append(keys, f.Name) })
	if kind == desired.Semaphore || kind == desired.Config {
		keys = append(keys, dataKeys...)
	}
	slices.Sort(keys)
	return keys
}

// flagTexts are the texts that a flag is set to.
func flagTexts(f *pflag.Flag, e desired.Entry) (texts []string, err error) {
	repeated := f.Value.Type() == "stringArray"
	if repeated && e.IsMap() {
		parts, err := e.Entries(e.Key)
		for _, p := range parts {
			text, wrong := p.Text()
			if wrong != nil {
				return nil, wrong
			}
			texts = append(texts, p.Key+"="+text)
		}
		return texts, err
	}
	for _, x := range e.Items() {
		text, err := x.Text()
		if err != nil {
			return nil, err
		}
		if texts = append(texts, text); !repeated && len(texts) > 1 {
			return nil, e.ValueAt().Errorf("%s has a single value", e.Key)
		}
	}
	return texts, nil
}

var flagDashes = regexp.MustCompile(`--([a-z])`)

// aboutKeys is an error about flags as one about the keys of a document, at the key that it begins
// with.
func aboutKeys(o *desired.Object, entries []desired.Entry, err error) error {
	var placed *desired.Error
	if err == nil || errors.As(err, &placed) {
		return err
	}
	text := flagDashes.ReplaceAllString(err.Error(), "$1")
	first, _, _ := strings.Cut(text, " ")
	for _, e := range entries {
		if e.Key == first {
			return e.ValueAt().Errorf("%s", text)
		}
	}
	return o.At.Errorf("%s: %s", o.Key, text)
}

// dataKeys are the keys for data.
var dataKeys = []string{"data", "data-file", "data-base64"}

// readData takes the data of an object out of its entries. A file is beside the document that names
// it.
func readData(o *desired.Object, entries []desired.Entry) (rest []desired.Entry, err error) {
	for _, e := range entries {
		if !slices.Contains(dataKeys, e.Key) {
			rest = append(rest, e)
			continue
		}
		if o.HasData {
			return nil, e.At.Errorf("%s is given beside another key for data; keep one", e.Key)
		}
		text, err := e.Text()
		if err != nil {
			return nil, err
		}
		switch o.HasData, o.Data = true, []byte(text); e.Key {
		case "data-file":
			if !filepath.IsAbs(text) && e.At.File != standardInput {
				text = filepath.Join(filepath.Dir(e.At.File), text)
			}
			if o.Data, err = file.Read(text, maxRead); err != nil {
				return nil, e.ValueAt().Errorf("cannot read the data: %v", err)
			}
		case "data-base64":
			if o.Data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
				return nil, e.ValueAt().Errorf("data-base64 is not base64")
			}
		}
	}
	return rest, nil
}

func yes(on bool) desired.Value { return desired.Word(strconv.FormatBool(on)) }

// span is a duration of ms.
func span(ms uint64) desired.Value { return shortSpan(time.Duration(ms) * time.Millisecond) }

func shortSpan(d time.Duration) desired.Value {
	text, _ := fileDuration(d).MarshalText()
	return desired.Word(string(text))
}

func number(n uint64) desired.Value { return desired.Word(cell(amount(n))) }

func readConfigObject(o *desired.Object, entries []desired.Entry) error {
	rest, err := readData(o, entries)
	if err == nil {
		err = readFlags(new(cobra.Command), desired.Config, rest)
	}
	switch {
	case err != nil:
		return err
	case !o.HasData:
		return o.At.Errorf("%s has no data; give it data, data-file or data-base64", o.Key)
	case o.Name == "" || len(client.ConfigPrefix+o.Name) > protocol.MaxNameLen:
		return o.At.Errorf("name of a config is %d bytes long; it must be 1 to %d", len(o.Name),
			protocol.MaxNameLen-len(client.ConfigPrefix))
	case len(o.Data) > client.MaxConfigLen:
		return o.At.Errorf("%s has %d bytes of data; at most %d are allowed", o.Key, len(o.Data), client.MaxConfigLen)
	}
	return nil
}

// milliseconds is a duration on the wire, which rounds it up.
func milliseconds(d time.Duration) uint64 {
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

// readStruct reads a mapping into a struct whose fields have its keys as the tags of YAML.
func readStruct(e desired.Entry, what string, to reflect.Value) error {
	entries, err := e.Entries(what)
	if err != nil {
		return err
	}
	return readFields(entries, what, to)
}

func readFields(entries []desired.Entry, what string, to reflect.Value) error {
	fields, keys := map[string]reflect.Value{}, []string{}
	for i := range to.NumField() {
		key, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("yaml"), ",")
		fields[key], keys = to.Field(i), append(keys, key)
	}
	for _, e := range entries {
		field, ok := fields[e.Key]
		if !ok {
			return e.At.Errorf("unknown key %q; %s has %s", e.Key, what, strings.Join(keys, ", "))
		}
		if err := readField(e, field); err != nil {
			return err
		}
	}
	return nil
}

func readField(e desired.Entry, to reflect.Value) error {
	if to.Kind() == reflect.Slice {
		for _, item := range e.Items() {
			x := reflect.New(to.Type().Elem()).Elem()
			if err := readItem(item, x); err != nil {
				return err
			}
			to.Set(reflect.Append(to, x))
		}
		return nil
	}
	return readItem(e, to)
}

// readItem reads a value that is no list.
func readItem(e desired.Entry, to reflect.Value) error {
	if to.Kind() == reflect.Struct {
		return readStruct(e, "one of "+e.Key, to)
	}
	text, err := e.Text()
	if err != nil {
		return err
	}
	switch {
	case to.Type() == reflect.TypeFor[fileDuration]():
		var d time.Duration
		d, err = readDuration(text)
		to.SetInt(int64(d))
	case to.Kind() == reflect.Bool:
		on, wrong := strconv.ParseBool(text)
		if wrong != nil {
			return e.ValueAt().Errorf("%s %q is neither true nor false", e.Key, text)
		}
		to.SetBool(on)
	case to.CanUint():
		n, wrong := strconv.ParseUint(text, 10, to.Type().Bits())
		if wrong != nil {
			return e.ValueAt().Errorf("%s %q is not a whole number from 0", e.Key, text)
		}
		to.SetUint(n)
	default:
		to.SetString(text)
	}
	if err != nil {
		return e.ValueAt().Errorf("%s %v", e.Key, err)
	}
	return nil
}
