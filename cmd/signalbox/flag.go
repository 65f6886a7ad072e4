package main

import (
	"fmt"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/pflag"
)

// parsedFlag is a flag whose text parse reads. A wrong text is refused as the command line is read.
type parsedFlag[T any] struct {
	text, kind string
	to         *T
	parse      func(text string) (T, error)
}

func (f *parsedFlag[T]) String() string { return f.text }
func (f *parsedFlag[T]) Type() string   { return f.kind }

func (f *parsedFlag[T]) Set(text string) error {
	v, err := f.parse(text)
	if err == nil {
		*f.to, f.text = v, text
	}
	return err
}

// parsedVar makes such a flag. Its value is def's until it is given; an empty def is no value.
func parsedVar[T any](fs *pflag.FlagSet, flag, def string, parse func(text string) (T, error), help string) *T {
	f := &parsedFlag[T]{text: def, kind: "string", to: new(T), parse: parse}
	if def != "" {
		*f.to, _ = parse(def)
	}
	fs.Var(f, flag, help)
	return f.to
}

// optional marks flags without a value of their own: whether they are given counts, so the help
// shows no default.
func optional(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := fs.Lookup(name)
		f.Value, f.DefValue = optionalValue{f.Value}, ""
	}
}

// optionalValue hides the type from pflag, which takes the empty default of a number for a text.
type optionalValue struct{ pflag.Value }

// parseAmount reads a count or a limit; "max" is the largest.
func parseAmount(text string) (uint64, error) {
	if text == "max" {
		return client.Max, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number from 0 to 2^64-1, nor max", text)
	}
	return n, nil
}
