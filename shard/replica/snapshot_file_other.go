//go:build !linux

package replica

import "os"

func beginWrite(*os.File) {}
