// Package charttest renders the chart with Helm's own engine. It is a module of its own, so that
// signalbox needs neither Helm nor Kubernetes.
//
// The chart is rendered with Helm's own engine, decoded strictly into the types of Kubernetes and
// of Prometheus' operator, checked by pod security's restricted, and compared with golden files (go
// test . -update). What one value may be is in values.schema.json, whose definitions.settings
// TestReferenceChart of cmd/signalbox writes; what contradicts another value is a sentence of
// signalbox.check in templates/_helpers.tpl. The peers are the first three pods, whatever replicas
// is, so that scaling changes no running pod.
package charttest
