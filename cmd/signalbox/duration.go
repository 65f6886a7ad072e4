package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// readDuration reads a duration for every flag and file. A bare number is refused, as its unit
// would be a guess, and so is a negative one.
func readDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write one like 500ms, 10s, 5m or 24h", text)
	}
	if d < 0 {
		return 0, fmt.Errorf("%s is negative; write a duration like 500ms, 10s, 5m or 24h", text)
	}
	return d, nil
}

func duration(flag, text string) (time.Duration, error) {
	d, err := readDuration(text)
	if err != nil {
		err = usagef("--%s %v", flag, err)
	}
	return d, err
}

func durationVar(fs *pflag.FlagSet, to *time.Duration, flag string, def time.Duration, help string) {
	*to = def
	f := fs.VarPF(&parsedFlag[time.Duration]{def.String(), "duration", to, readDuration}, flag, "", help)
	if def == 0 {
		f.DefValue = "0" // not shown
	}
}
