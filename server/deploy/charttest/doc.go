// Package charttest renders the chart with Helm's own engine. It is a module of its own, so that
// signalbox needs neither Helm nor Kubernetes. See DESIGN.md.
package charttest
