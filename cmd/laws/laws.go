// Package laws holds the rules of the code base as tests: which package may import which, which
// packages are pure, that each is documented, and which modules the project depends on. It has no
// code of its own.
package laws
