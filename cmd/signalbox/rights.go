package main

import (
	"fmt"
	"slices"
	"strings"
)

// adminVerbs need the right admin on their node's path.
var adminVerbs = []string{
	"config delete", "limit alter", "limit create", "limit delete", "process alter", "process evict", "process force",
	"rollout alter", "rollout create", "rollout delete", "rollout evict", "rollout exclude", "rollout include",
	"rollout pause",
	"rollout promote", "rollout reelect", "rollout resume", "rollout rollback",
	"sem alter", "sem delete", "sem drain", "sem force-release", "sem resize", "sem undrain", "session kill",
}

// rightsHint says which right the whole verb needs; begun is the one for what it has begun, read or
// use. The refusal names what one step lacks, and the next step may need more.
func rightsHint(verb, begun, node string) string {
	group, _, _ := strings.Cut(verb, " ")
	switch group {
	case "lock", "once", "sem", "elect", "service", "config", "rollout", "process", "limit", "session":
	default:
		return "An administrator gives rights with `signalbox auth grant`."
	}
	right, covers := "use", ", which includes read"
	switch {
	case slices.Contains(adminVerbs, verb):
		right, covers = "admin", ", which includes read and use"
	case begun == "read":
		right, covers = "read", ""
	}
	return fmt.Sprintf("`signalbox %s` needs the right %s at %s%s. An administrator gives it with `signalbox auth grant IDENTITY %s %s`.",
		verb, right, node, covers, node, right)
}
