package main

import (
	"fmt"
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

// sizeText is a number of bytes for people, in the largest unit of which there is one.
func sizeText(n uint64) string {
	unit, value := "B", float64(n)
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		unit, value = u, value/1024
	}
	if unit == "B" || value >= 10 {
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
