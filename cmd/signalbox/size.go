package main

import (
	"math"
	"strconv"
	"strings"
)

// parseSize reads a number of bytes: digits, and KiB, MiB, GiB or TiB, or nothing.
func parseSize(text string) (int64, bool) {
	number, factor := text, int64(1)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, factor = n, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, false
	}
	return n * factor, true
}
