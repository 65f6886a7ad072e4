// Package laws holds the rules of the code base as tests: which package may import which, which
// packages are pure, that each is documented, and which modules the project depends on. It has no
// code of its own. When a test here fails, the change broke a rule of the layout: move the code, and
// change a rule only together with the design that it protects. The laws are about the nested
// modules in lawful too, and about no others.
package laws
