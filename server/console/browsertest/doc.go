// Package browsertest looks at the console with a real browser. It is a module of its own, because
// it drives Chromium by a library that nothing else needs. Without Chromium on the machine its
// tests are skipped.
package browsertest
