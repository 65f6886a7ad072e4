package otelsignalbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// kit is a server, a client that is observed, and what the observer exported.
type kit struct {
	t      *testing.T
	ctx    context.Context
	client *client.Client
	spans  *tracetest.InMemoryExporter
	taken  int           // of them
	ended  chan struct{} // a span did
	traces *trace.TracerProvider
	reader *sdkmetric.ManualReader
}

func newKit(t *testing.T) *kit {
	srv := servertest.New(servertest.RealTime())
	t.Cleanup(srv.Close)
	k := &kit{t: t, ctx: t.Context(), spans: tracetest.NewInMemoryExporter(), ended: make(chan struct{}, 1),
		reader: sdkmetric.NewManualReader()}
	k.traces = trace.NewTracerProvider(trace.WithSyncer(k.spans), trace.WithSpanProcessor(endings{k.ended}))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(k.reader))
	observer, err := New(WithTracerProvider(k.traces), WithMeterProvider(meters))
	if err != nil {
		t.Fatal(err)
	}
	if k.client, err = client.Open(k.ctx, client.Config{Endpoints: []string{srv.Addr()}, Observer: observer}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.client.Close() })
	return k
}

// endings notifies of spans that ended, behind the exporter.
type endings struct{ ended chan struct{} }

func (endings) OnStart(context.Context, trace.ReadWriteSpan) {}
func (endings) Shutdown(context.Context) error               { return nil }
func (endings) ForceFlush(context.Context) error             { return nil }
func (e endings) OnEnd(trace.ReadOnlySpan) {
	select {
	case e.ended <- struct{}{}:
	default:
	}
}

func (k *kit) session() *client.Session {
	k.t.Helper()
	s, err := k.client.Session(k.ctx, "/default")
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// take are the spans that ended since the last call.
func (k *kit) take() tracetest.SpanStubs {
	all := k.spans.GetSpans()
	list := all[k.taken:]
	k.taken = len(all)
	return list
}

func value(s *tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.Emit()
		}
	}
	return ""
}

// TestSpans: an acquire and its hold, as a user sees them in a trace.
func TestSpans(t *testing.T) {
	k := newKit(t)
	s := k.session()
	ctx, request := k.traces.Tracer("test").Start(k.ctx, "request")
	l, err := s.Mutex("jobs").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	request.End()
	list := k.take()
	if len(list) != 3 || list[0].Name != spanAcquire || list[1].Name != spanHold {
		t.Fatalf("spans: %v", list)
	}
	acquire, hold := &list[0], &list[1]
	for _, x := range []*tracetest.SpanStub{acquire, hold} {
		if x.Parent.SpanID() != request.SpanContext().SpanID() || value(x, "signalbox.semaphore") != "jobs" ||
			value(x, "signalbox.node") != "/default" ||
			value(x, "signalbox.token") == "" || x.Status.Code != codes.Unset {
			t.Errorf("%s: parent %v, %v, %v", x.Name, x.Parent.SpanID(), x.Attributes, x.Status)
		}
	}
	if value(acquire, "signalbox.outcome") != outcomeAcquired || value(acquire, "signalbox.attempts") != "1" ||
		value(acquire, "signalbox.queued") != "false" {
		t.Errorf("acquire: %v", acquire.Attributes)
	}
	if len(hold.Links) != 1 || hold.Links[0].SpanContext.SpanID() != acquire.SpanContext.SpanID() ||
		value(hold, "signalbox.outcome") != outcomeReleased {
		t.Errorf("hold: links %v, %v", hold.Links, hold.Attributes)
	}
	if hold.StartTime.Before(acquire.EndTime) {
		t.Error("the hold began before the acquire ended")
	}
}

// TestNamesThatAreNotUTF8: a span has the name of a semaphore in UTF-8, whatever the name is.
func TestNamesThatAreNotUTF8(t *testing.T) {
	k := newKit(t)
	s := k.session()
	l, err := s.Mutex("a\xff").Lock(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(k.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(k.ctx, "b\xfe"); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	list := k.take()
	if len(list) != 3 {
		t.Fatalf("spans: %v", list)
	}
	for i, want := range []string{"Yf8=", "Yf8=", "Yv4="} {
		x := &list[i]
		if value(x, "signalbox.semaphore_base64") != want || value(x, "signalbox.semaphore") != "" {
			t.Errorf("%s: %v", x.Name, x.Attributes)
		}
	}
}

// TestOutcomes: what is an error in a trace, and what is not.
func TestOutcomes(t *testing.T) {
	k := newKit(t)
	a, b := k.session(), k.session()
	if err := a.Create(k.ctx, "slot", 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Acquire(k.ctx, "slot"); err != nil {
		t.Fatal(err)
	}
	if l, err := b.TryAcquire(k.ctx, "slot"); l != nil || !errors.Is(err, client.ErrNotAcquired) {
		t.Fatal(l, err)
	}
	if _, err := b.Acquire(k.ctx, "slot", client.Wait(1)); !errors.Is(err, client.ErrNotAcquired) {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(k.ctx)
	cancel()
	if _, err := b.Acquire(cancelled, "slot"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := b.Acquire(k.ctx, "missing"); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	var got []string
	for _, x := range k.take() {
		got = append(got, value(&x, "signalbox.outcome")+" "+x.Status.Code.String())
	}
	if want := []string{"acquired Unset", "not_acquired Unset", "not_acquired Unset", "cancelled Unset",
		"error Error"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	// A session that is closed ends its holds; one that an operator ends has lost them.
	if err := a.Close(k.ctx); err != nil {
		t.Fatal(err)
	}
	if list := k.take(); len(list) != 1 || value(&list[0], "signalbox.outcome") != outcomeClosed || list[0].Status.Code != codes.Unset {
		t.Errorf("closed: %v", list)
	}
	l, err := b.Acquire(k.ctx, "slot")
	if err != nil {
		t.Fatal(err)
	}
	k.take()
	if err := admin.OfNode(b.Node()).KillSession(k.ctx, b.ID(), "test"); err != nil {
		t.Fatal(err)
	}
	<-l.Context().Done()
	list := k.take()
	for ; len(list) == 0; list = k.take() { // it is reported from the session's goroutine
		<-k.ended
	}
	if x := &list[0]; x.Name != spanHold || value(x, "signalbox.outcome") != outcomeLost || x.Status.Code != codes.Error ||
		value(x, "signalbox.loss.cause") != "session_ended_by_operator" {
		t.Errorf("lost: %v %v", x.Attributes, x.Status)
	}
}

// TestMetrics: counts of what is under way, and histograms of what has ended.
func TestMetrics(t *testing.T) {
	k := newKit(t)
	s := k.session()
	held, err := s.Mutex("a").Lock(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Mutex("b").Lock(k.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(k.ctx); err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := k.reader.Collect(k.ctx, &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[m.Name] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[m.Name] += int64(p.Count)
					if _, named := p.Attributes.Value("signalbox.semaphore"); named {
						t.Errorf("%s has a series for each semaphore", m.Name)
					}
				}
			}
		}
	}
	want := map[string]int64{MetricAcquires: 0, MetricAcquireDuration: 2, MetricRetries: 0, MetricHolds: 1, MetricHoldDuration: 1,
		MetricConnections: 1, MetricConnects: 1, MetricSessionChanges: 1}
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			t.Errorf("%s is %d (%v), want %d", name, v, ok, n)
		}
	}
	if err := held.Release(k.ctx); err != nil {
		t.Fatal(err)
	}
}

// TestClientMetrics: connections that come and go, sessions and retries, by what they are.
func TestClientMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	o, err := New(WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []client.ConnectionState{client.ConnectionMade, client.ConnectionFailed, client.ConnectionMade, client.ConnectionLost} {
		o.ConnectionChanged(client.ConnectionChange{State: state})
	}
	for _, s := range []client.SessionChange{
		{State: client.Attached}, {State: client.Detached}, {State: client.Expired, Err: client.ErrSessionClosed},
		{State: client.Expired, Err: client.ErrNotRenewed},
	} {
		o.SessionChanged(s)
	}
	o.RequestRetried(client.RequestRetry{Request: "acquire"})
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		data, ok := m.Data.(metricdata.Sum[int64])
		if !ok {
			t.Fatalf("%s is no sum", m.Name)
		}
		for _, p := range data.DataPoints {
			key := m.Name
			for _, a := range []attribute.Key{"signalbox.outcome", "signalbox.request"} {
				if v, ok := p.Attributes.Value(a); ok {
					key += " " + v.AsString()
				}
			}
			got[key] += p.Value
		}
	}
	want := map[string]int64{
		MetricConnections: 1, MetricConnects + " connected": 2, MetricConnects + " error": 1, MetricSessionChanges + " attached": 1,
		MetricSessionChanges + " detached": 1, MetricSessionChanges + " closed": 1, MetricSessionChanges + " lost": 1,
		MetricRequestRetries + " acquire": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
