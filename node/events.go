package node

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"monopod/events"
)

// Events knows what happened.
type Events interface {
	// List returns the selected events, the oldest first.
	List(f events.Filter) []corev1.Event
	// Subscribe returns a channel that gets a value after each change (several changes may give one), and a function
	// that ends the subscription.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// EventChange is one event of a watch of events.
type EventChange struct {
	// Type is ADDED, or MODIFIED for one that came again.
	Type   string       `json:"type"`
	Object corev1.Event `json:"object"`
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
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	known := map[string]string{}
	for {
		all := s.cfg.Events.List(f)
		for _, e := range eventChanges(known, all) {
			if err := enc.Encode(e); err != nil {
				return
			}
		}
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// eventChanges returns what is new among all, and makes known, which has the resource version of each name, be all.
func eventChanges(known map[string]string, all []corev1.Event) []metav1.WatchEvent {
	var out []metav1.WatchEvent
	there := make(map[string]bool, len(all))
	for i := range all {
		e := &all[i]
		there[e.Name] = true
		version, old := known[e.Name]
		if version == e.ResourceVersion {
			continue
		}
		known[e.Name] = e.ResourceVersion
		change := metav1.WatchEvent{Type: string(apiwatch.Added), Object: runtime.RawExtension{Object: e}}
		if old {
			change.Type = string(apiwatch.Modified)
		}
		out = append(out, change)
	}
	for name := range known {
		if !there[name] {
			delete(known, name)
		}
	}
	return out
}

// Events lists events, the oldest first.
func (c *Client) Events(ctx context.Context, f events.Filter) (*corev1.EventList, error) {
	list := &corev1.EventList{}
	return list, c.getJSON(ctx, eventsPath(f, url.Values{}), list)
}

// WatchEvents calls each with the events that there are and then with each that is new or came again, until ctx ends or
// each returns an error.
func (c *Client) WatchEvents(ctx context.Context, f events.Filter, each func(EventChange) error) error {
	return follow(ctx, c, eventsPath(f, url.Values{"watch": {"true"}}), each)
}

func eventsPath(f events.Filter, q url.Values) string {
	for name, value := range map[string]string{"kind": f.Kind, "namespace": f.Namespace, "name": f.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return "/v1/events?" + q.Encode()
}
