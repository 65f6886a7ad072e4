//go:build !linux

package engine

import "os"

func beginWrite(*os.File) {}
