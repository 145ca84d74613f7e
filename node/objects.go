package node

import (
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/tables"
	"monopod/node/localapi"
)

// objectRoutes adds the objects besides pods: a v1 List, or a Table, selected by kind, namespace and name.
func (s *Server) objectRoutes(mux *http.ServeMux) {
	if s.cfg.Objects == nil {
		return
	}
	mux.HandleFunc("GET "+localapi.Self("documents"), func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		items := []metav1.Object{}
		for _, o := range s.cfg.Objects() {
			if s.cfg.Visible != nil && !s.cfg.Visible(r, o) {
				continue
			}
			if selected(q.Get("namespace"), o.GetNamespace()) && selected(q.Get("name"), o.GetName()) && selected(q.Get("kind"), kindOf(o)) {
				items = append(items, o)
			}
		}
		slices.SortStableFunc(items, func(a, b metav1.Object) int {
			return slices.Compare([]string{kindOf(a), a.GetNamespace(), a.GetName()}, []string{kindOf(b), b.GetNamespace(), b.GetName()})
		})
		if q.Get("as") == "Table" {
			var shown map[*kinds.Kind][]kinds.Object
			if len(items) > 0 {
				shown, _ = s.cfg.Shown(r.Context())
			}
			s.json(w, tables.Of(items, shown, time.Now()))
			return
		}
		s.json(w, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	})
}

func selected(want, have string) bool { return want == "" || strings.EqualFold(want, have) }

func kindOf(o metav1.Object) string {
	if typed, ok := o.(runtime.Object); ok {
		return typed.GetObjectKind().GroupVersionKind().Kind
	}
	return ""
}
