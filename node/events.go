package node

import (
	"maps"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"monopod/node/events"
)

// Events knows what happened.
type Events interface {
	// List returns the selected events, the oldest first.
	List(f events.Filter) []corev1.Event
	// Subscribe returns a channel that gets a value after each change (several changes may give one), and a function
	// that ends the subscription.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// events answers with a v1 EventList, or streams one.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := events.Filter{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		s.watchEvents(w, r, f)
		return
	}
	items := append([]corev1.Event{}, s.cfg.Events.List(f)...)
	s.json(w, corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: items})
}

// watchEvents streams one JSON object per line, in the shape of the Kubernetes watch API: first an ADDED for each event
// there is, then what is new, and a MODIFIED for each that came again. What is forgotten is not told.
func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request, f events.Filter) {
	changed, cancel := s.cfg.Events.Subscribe()
	defer cancel()
	told := map[string]bool{}
	stream(w, r, changed, func() []metav1.WatchEvent { return s.eventChanges(&f, told) })
}

// maxTold is how many names of events a watch remembers before it drops those that no longer exist.
const maxTold = 5000

// eventChanges returns the events since the last call. f keeps the latest version that was sent, told the names.
func (s *Server) eventChanges(f *events.Filter, told map[string]bool) []metav1.WatchEvent {
	if len(told) > maxTold {
		there := map[string]bool{}
		for _, e := range s.cfg.Events.List(events.Filter{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}) {
			there[e.Name] = true
		}
		maps.DeleteFunc(told, func(name string, _ bool) bool { return !there[name] })
	}
	var out []metav1.WatchEvent
	for _, e := range s.cfg.Events.List(*f) {
		change := metav1.WatchEvent{Type: string(apiwatch.Added), Object: runtime.RawExtension{Object: &e}}
		if told[e.Name] {
			change.Type = string(apiwatch.Modified)
		}
		told[e.Name] = true
		if version, err := strconv.ParseUint(e.ResourceVersion, 10, 64); err == nil {
			f.After = max(f.After, version)
		}
		out = append(out, change)
	}
	return out
}
