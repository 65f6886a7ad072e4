//go:build !race

package guests

const underRace = false
