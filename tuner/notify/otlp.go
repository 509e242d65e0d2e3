package notify

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/tuner/event"
)

// OTLP/HTTP with Protobuf: https://opentelemetry.io/docs/specs/otlp/#otlphttp
const protobuf = "application/x-protobuf"

// logs is told events as log records.
type logs struct {
	*endpoint
	o Options
}

func (l logs) deliver(ctx context.Context, events []event.Event) error {
	records := make([]*logspb.LogRecord, len(events))
	for i, e := range events {
		records[i] = logRecord(e, time.Now())
	}
	body, err := proto.Marshal(&collectorlogs.ExportLogsServiceRequest{ResourceLogs: []*logspb.ResourceLogs{{Resource: l.o.resource(),
		ScopeLogs: []*logspb.ScopeLogs{{Scope: l.o.scope(), LogRecords: records}}}}})
	if err != nil {
		return refusal{error: err}
	}
	_, answer, err := l.request(ctx, http.MethodPost, l.at("v1/logs"), protobuf, body)
	var r collectorlogs.ExportLogsServiceResponse
	if err != nil || proto.Unmarshal(answer, &r) != nil || r.GetPartialSuccess().GetRejectedLogRecords() == 0 {
		return err // an answer that cannot be read: the status said that all was taken
	}
	p := r.GetPartialSuccess()
	return refusal{l.rejected(p.GetRejectedLogRecords(), len(events), "records", p.GetErrorMessage()), int(p.GetRejectedLogRecords())}
}

func (e *endpoint) rejected(n int64, of int, what, why string) error {
	return fmt.Errorf("%s: %d of %d %s were rejected: %q", e.key, n, of, what, event.Clean(why, maxSaid/2))
}

// check sends none.
func (l logs) check(ctx context.Context) error { return l.deliver(ctx, nil) }

func (o Options) resource() *resource.Resource {
	return &resource.Resource{Attributes: attributes("service.name", "trimtab", "service.version", o.Version, "host.name", o.Host)}
}

func (o Options) scope() *common.InstrumentationScope {
	return &common.InstrumentationScope{Name: "github.com/trimtab/trimtab", Version: o.Version}
}

// attributes are pairs of a key and a text; those without a text are left out.
func attributes(pairs ...string) (out []*common.KeyValue) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, &common.KeyValue{Key: pairs[i], Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(pairs[i+1], "�")}}})
		}
	}
	return out
}

// logRecord is an event by OpenTelemetry's data model: https://opentelemetry.io/docs/specs/otel/logs/data-model/
func logRecord(e event.Event, now time.Time) *logspb.LogRecord {
	r := &logspb.LogRecord{TimeUnixNano: uint64(e.UnixNs), ObservedTimeUnixNano: uint64(now.UnixNano()), EventName: "trimtab." + string(e.Kind),
		SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
		Body: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: e.Text}}}
	if e.Alarming() {
		r.SeverityNumber, r.SeverityText = logspb.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	}
	if e.Record == nil {
		return r
	}
	x := e.Record
	r.Attributes = attributes("container.name", x.Name, "trimtab.key", x.Key, "trimtab.team", x.Team, "trimtab.plan", x.Plan, "trimtab.policy", x.Policy,
		"trimtab.knob", string(x.Knob), "trimtab.from", string(x.From), "trimtab.to", string(x.To), "trimtab.actual", string(x.Actual), "trimtab.outcome", string(x.Outcome))
	for _, n := range []struct {
		key string
		v   float64
	}{{"trimtab.rate.before", x.Before}, {"trimtab.rate.after", x.After}, {"trimtab.ratio.low", x.Low}, {"trimtab.ratio.high", x.High}, {"trimtab.gain", x.Gain}} {
		if n.v != 0 {
			r.Attributes = append(r.Attributes, &common.KeyValue{Key: n.key, Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: n.v}}})
		}
	}
	return r
}

// metricsExport sends the metrics as they are when it is asked to; the event is none.
type metricsExport struct {
	*endpoint
	o Options
}

func (m metricsExport) check(context.Context) error { return nil } // the logs' does

func (m metricsExport) deliver(ctx context.Context, _ []event.Event) error {
	families, err := m.o.Metrics.Gather()
	if err != nil {
		return refusal{error: fmt.Errorf("%s: metrics: %w", m.key, err)}
	}
	metrics, points := metricsOf(families, m.o.Latest().Daemon.StartedUnixNs, time.Now())
	body, err := proto.Marshal(&collectormetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{Resource: m.o.resource(),
		ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: &common.InstrumentationScope{Name: m.o.scope().Name, Version: m.o.Version}, Metrics: metrics}}}}})
	if err != nil {
		return refusal{error: err}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(body) // to memory
	_ = z.Close()
	_, answer, err := m.request(ctx, http.MethodPost, m.at("v1/metrics"), protobuf, packed.Bytes(), "Content-Encoding", "gzip")
	var r collectormetrics.ExportMetricsServiceResponse
	if err != nil || proto.Unmarshal(answer, &r) != nil || r.GetPartialSuccess().GetRejectedDataPoints() == 0 {
		return err
	}
	p := r.GetPartialSuccess()
	return refusal{error: m.rejected(p.GetRejectedDataPoints(), points, "points", p.GetErrorMessage())}
}

// metricsOf are Prometheus' families by OpenTelemetry's model. Names stay as docs/metrics.md has them; those that
// end with this release are left out.
func metricsOf(families []*dto.MetricFamily, startNs int64, now time.Time) (out []*metricspb.Metric, points int) {
	at, start := uint64(now.UnixNano()), uint64(startNs)
	for _, f := range families {
		if strings.HasPrefix(f.GetHelp(), "Deprecated") {
			continue
		}
		m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
		var numbers []*metricspb.NumberDataPoint
		var histograms []*metricspb.HistogramDataPoint
		for _, x := range f.GetMetric() {
			var labels []string
			for _, l := range x.GetLabel() {
				labels = append(labels, l.GetName(), l.GetValue())
			}
			if h := x.GetHistogram(); h != nil {
				histograms = append(histograms, histogramOf(h, attributes(labels...), start, at))
				continue
			}
			v := x.GetGauge().GetValue()
			if c := x.GetCounter(); c != nil {
				v = c.GetValue()
			}
			numbers = append(numbers, &metricspb.NumberDataPoint{Attributes: attributes(labels...), StartTimeUnixNano: start, TimeUnixNano: at, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}})
		}
		points += len(numbers) + len(histograms)
		const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{DataPoints: numbers, AggregationTemporality: cumulative, IsMonotonic: true}}
		case dto.MetricType_HISTOGRAM:
			m.Data = &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{DataPoints: histograms, AggregationTemporality: cumulative}}
		default:
			m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: numbers}}
		}
		out = append(out, m)
	}
	return out, points
}

// histogramOf: Prometheus' buckets are cumulative and OpenTelemetry's are not; the last has no bound.
func histogramOf(h *dto.Histogram, labels []*common.KeyValue, start, at uint64) *metricspb.HistogramDataPoint {
	p := &metricspb.HistogramDataPoint{Attributes: labels, StartTimeUnixNano: start, TimeUnixNano: at, Count: h.GetSampleCount(), Sum: h.SampleSum}
	var below uint64
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			break
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-below)
	return p
}
