// Package metrics exports metrics of the daemon, its pods and the machine for Prometheus: with the names of a kubelet and of cAdvisor where
// the meaning is the same, else as monopod_*.
//
// Tally counts actions, requests and events as they happen. Everything else is read from observed state during a scrape; nothing runs in
// between. It must not decide anything.
//
// Goroutines: those of the Prometheus client for a request, one for each collector.
package metrics

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Kinds of metrics.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// definition describes one metric.
type definition struct {
	name, kind, help string
	labels           []string
	desc             *prometheus.Desc
}

// family is the metrics of one path.
type family struct {
	path string
	defs []*definition
}

func (f *family) add(kind, name, help string, labels ...string) *definition {
	d := &definition{name: name, kind: kind, help: help, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	f.defs = append(f.defs, d)
	return d
}

// Describe implements prometheus.Collector.
func (f *family) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range f.defs {
		ch <- d.desc
	}
}

// sink takes the values of one request.
type sink struct {
	ch chan<- prometheus.Metric
	// at, unless zero, is when the values were measured.
	at time.Time
}

func (s sink) put(d *definition, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if d.kind == counter {
		kind = prometheus.CounterValue
	}
	s.send(prometheus.MustNewConstMetric(d.desc, kind, value, texts(labels...)...))
}

// texts are values of labels, which must be UTF-8: what pods have named, such as their interfaces, need not be.
func texts(labels ...string) []string {
	for i, l := range labels {
		if !utf8.ValidString(l) {
			labels = slices.Clone(labels)
			labels[i] = strings.Trim(strconv.Quote(l), `"`)
		}
	}
	return labels
}

func (s sink) send(m prometheus.Metric) {
	if !s.at.IsZero() {
		m = prometheus.NewMetricWithTimestamp(s.at, m)
	}
	s.ch <- m
}

// seconds is the unit of Prometheus.
func seconds(d time.Duration) float64 { return d.Seconds() }

// Paths that are served.
const (
	PathMain     = "/metrics"
	PathCadvisor = "/metrics/cadvisor"
	PathResource = "/metrics/resource"
	PathProbes   = "/metrics/probes"
)

// maxScrapes is how many requests for one path are answered at once: each holds what it answers in memory.
const maxScrapes = 2

// scrapeTimeout is how long a scrape may take, of a machine that is busy.
const scrapeTimeout = 30 * time.Second

// Handlers returns what answers, by path.
func Handlers(src Sources, log *slog.Logger) map[string]http.Handler {
	return map[string]http.Handler{
		PathMain:     handler(func() []prometheus.Collector { return append(processCollectors(), newMain(src)) }, log),
		PathCadvisor: handler(func() []prometheus.Collector { return []prometheus.Collector{newCadvisor(src)} }, log),
		PathResource: handler(func() []prometheus.Collector { return []prometheus.Collector{newResource(src)} }, log),
		PathProbes:   handler(func() []prometheus.Collector { return []prometheus.Collector{newProbes(src)} }, log),
	}
}

// handler makes its registry with the first request.
func handler(collectors func() []prometheus.Collector, log *slog.Logger) http.Handler {
	made := sync.OnceValue(func() http.Handler {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(collectors()...)
		return promhttp.HandlerFor(r, promhttp.HandlerOpts{
			ErrorLog: errorLog{log}, ErrorHandling: promhttp.ContinueOnError, DisableCompression: true,
			MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout, EnableOpenMetrics: false,
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().ServeHTTP(w, r) })
}

// errorLog is where the Prometheus client complains.
type errorLog struct{ *slog.Logger }

// Println implements promhttp.Logger.
func (l errorLog) Println(v ...any) { l.Warn("metrics", "err", v) }
