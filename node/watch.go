package node

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"monopod/manifests"
	"monopod/node/localapi"
)

func pods() schema.GroupResource { return corev1.Resource("pods") }

// watch streams one JSON event per line, in the shape of the Kubernetes watch API: first an ADDED event for
// each pod there is, then the changes. A pod that changed several times in a moment may give one event.
//
// With bookmark, a BOOKMARK event follows the pods that there are, as with sendInitialEvents of Kubernetes, once all of
// them can be seen.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, f podFilter, bookmark bool) {
	changed, cancel := s.cfg.Pods.Subscribe()
	defer cancel()
	known := map[manifests.Key]corev1.Pod{}
	stream(w, r, changed, func() []metav1.WatchEvent {
		views, blind := s.cfg.Pods.Pods()
		current := reports(views, f)
		if blind != nil {
			current = withUnseen(current, known)
		}
		events := changes(known, current)
		if bookmark && blind == nil {
			bookmark = false
			events = append(events, initialEventsEnd())
		}
		return events
	})
}

// stream writes what next returns, one JSON object per line, at once and whenever something has changed, until the
// client or the source of changes is gone.
func stream(w http.ResponseWriter, r *http.Request, changed <-chan struct{}, next func() []metav1.WatchEvent) {
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	for {
		for _, e := range next() {
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
		case _, open := <-changed:
			if !open {
				return
			}
		}
	}
}

// initialEventsEnd is the BOOKMARK event of Kubernetes.
func initialEventsEnd() metav1.WatchEvent {
	mark := &corev1.Pod{TypeMeta: reportType("PodReport")}
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return metav1.WatchEvent{Type: localapi.Bookmark, Object: runtime.RawExtension{Object: mark}}
}

// withUnseen adds the known pods that are not among the current ones: that a pod cannot be seen at the moment
// does not mean that it is gone.
func withUnseen(current []corev1.Pod, known map[manifests.Key]corev1.Pod) []corev1.Pod {
	seen := map[manifests.Key]bool{}
	for i := range current {
		seen[manifests.Key{Namespace: current[i].Namespace, Name: current[i].Name}] = true
	}
	for key, p := range known {
		if !seen[key] {
			current = append(current, p)
		}
	}
	return current
}

// changes returns the events that lead from the known pods to the current ones, and updates known.
func changes(known map[manifests.Key]corev1.Pod, current []corev1.Pod) []metav1.WatchEvent {
	var out []metav1.WatchEvent
	add := func(t apiwatch.EventType, p corev1.Pod) {
		out = append(out, metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Object: &p}})
	}
	now := map[manifests.Key]bool{}
	for _, p := range current {
		key := manifests.Key{Namespace: p.Namespace, Name: p.Name}
		now[key] = true
		old, was := known[key]
		switch {
		case !was:
			add(apiwatch.Added, p)
		case old.UID != p.UID:
			add(apiwatch.Deleted, old)
			add(apiwatch.Added, p)
		case !equality.Semantic.DeepEqual(old, p):
			add(apiwatch.Modified, p)
		}
		known[key] = p
	}
	for key, p := range known {
		if !now[key] {
			add(apiwatch.Deleted, p)
			delete(known, key)
		}
	}
	return out
}
