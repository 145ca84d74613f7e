package apiserver

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/manifests"
	"monopod/node/apiserver/client"
)

// services holds the Services of the API server, except the one of the API server itself. It is a sink.
type services struct {
	changed chan struct{}
	// listed are the Services of the list being read, as documents.
	listed map[manifests.Key]*corev1.Service

	mu sync.Mutex
	// all are the known Services, as immutable documents; nil while they are not known.
	all map[manifests.Key]*corev1.Service
}

// followServices keeps the Services up to date.
func (a *Agent) followServices(ctx context.Context, c *client.Client) error {
	f := feed{
		client: c, resource: "services", sink: a.services,
		object: func() runtime.Object { return &corev1.Service{} }, list: func() runtime.Object { return &corev1.ServiceList{} },
	}
	return f.run(ctx, a)
}

// documents returns the Services as manifests, sorted; ok is false while they are not known.
func (s *services) documents() (all []any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(s.all), func(x, y manifests.Key) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	}) {
		all = append(all, s.all[k])
	}
	return all, s.all != nil
}

// serviceDocument returns the manifest of a Service; nil for that of the API server itself, which pods have as variables.
func serviceDocument(o runtime.Object) (key manifests.Key, doc *corev1.Service) {
	s, ok := o.(*corev1.Service)
	if !ok || s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes" {
		return key, nil
	}
	doc = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: plainMeta(&s.ObjectMeta)}
	doc.Labels = maps.Clone(s.Labels)
	s.Spec.DeepCopyInto(&doc.Spec)
	return manifests.Key{Namespace: s.Namespace, Name: s.Name}, doc
}

func (s *services) begin() { s.listed = map[manifests.Key]*corev1.Service{} }

func (s *services) add(o runtime.Object) {
	if key, doc := serviceDocument(o); doc != nil {
		s.listed[key] = doc
	}
}

func (s *services) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.listed = s.listed, nil
	poke(s.changed)
}

func (s *services) update(o runtime.Object, gone bool) {
	key, doc := serviceDocument(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case doc == nil || s.all == nil || !gone && equality.Semantic.DeepEqual(s.all[key], doc) || len(s.all) >= maxObjects && s.all[key] == nil:
		return
	case gone:
		delete(s.all, key)
	default:
		s.all[key] = doc
	}
	poke(s.changed)
}

// lost drops the Services: a different server has different Services.
func (s *services) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
	poke(s.changed)
}
