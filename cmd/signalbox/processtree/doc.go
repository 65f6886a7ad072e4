// Package processtree finds the processes that a process has started.
package processtree
