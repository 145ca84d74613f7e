package kubeapi

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"monopod/node/kubeapi/kinds"
)

// reflect starts a reflector of client-go for pods, and returns what it fills.
func (s *site) reflect(ctx context.Context, contentType string) (store cache.Store, done <-chan struct{}) {
	s.t.Helper()
	config := &rest.Config{
		Host: "http://api", APIPath: "/api", Transport: s.transport, QPS: -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: kinds.Codecs().WithoutConversion(),
			ContentType: contentType, AcceptContentTypes: contentType,
		},
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	reflector := cache.NewReflectorWithOptions(cache.NewListWatchFromClient(client, "pods", "", fields.Everything()), &corev1.Pod{}, store, cache.ReflectorOptions{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reflector.RunWithContext(ctx)
	}()
	return store, ended
}

func described(o runtime.Object) string {
	pod := o.(*corev1.Pod)
	return fmt.Sprintf("%s/%s=%s", pod.Namespace, pod.Name, pod.Labels["app"])
}

func cached(store cache.Store) (found []string) {
	for _, o := range store.List() {
		found = append(found, described(o.(runtime.Object)))
	}
	slices.Sort(found)
	return found
}

func (m *memory) pods() (found []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range slices.Collect(maps.Values(m.objects)) {
		found = append(found, described(o))
	}
	slices.Sort(found)
	return found
}

// restart replaces the API by one of the next epoch, and cuts all connections.
func (s *site) restart() {
	s.mu.Lock()
	cfg := s.api.cfg
	cfg.Epoch++
	s.api = New(cfg)
	s.mu.Unlock()
	s.cut()
}

func TestInformersFollowOverRestarts(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveSite(t, Config{}, testPod("shop", "first", "x"))
				ctx, cancel := context.WithCancel(t.Context())
				store, done := s.reflect(ctx, contentType)
				defer func() { cancel(); <-done }()
				random := rand.New(rand.NewPCG(1, 2))
				for round := range 6 {
					for step := range 100 {
						pod := testPod("shop", strconv.Itoa(random.IntN(6)), strconv.Itoa(step))
						switch random.IntN(5) {
						case 0:
							s.state.remove(pod)
						case 1:
							time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
						case 2:
							s.list("", allPods)
						default:
							s.state.put(pod)
						}
					}
					// Longer than the back-off of client-go.
					time.Sleep(time.Minute)
					synctest.Wait()
					if got, want := cached(store), s.state.pods(); len(want) < 2 || !slices.Equal(got, want) {
						t.Fatalf("round %d: the store has %v, the state %v", round, got, want)
					}
					switch round {
					case 1, 3:
						s.restart()
					case 2:
						s.cut() // the same API again
					case 4: // more changes than the log keeps, while no client is connected
						s.cut()
						for i := range 1100 {
							s.state.put(testPod("shop", "busy", strconv.Itoa(i)))
							s.sync()
						}
					}
				}
			})
		})
	}
}

func TestInformersOutliveWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSite(t, Config{}, testPod("shop", "a", "x"))
		ctx, cancel := context.WithCancel(t.Context())
		store, done := s.reflect(ctx, "application/json")
		defer func() { cancel(); <-done }()
		for i := range 12 {
			time.Sleep(7 * time.Minute) // watches of client-go take 5 to 10
			s.state.put(testPod("shop", "a", strconv.Itoa(i)))
			synctest.Wait()
			time.Sleep(time.Minute)
			if got := cached(store); !slices.Equal(got, []string{"shop/a=" + strconv.Itoa(i)}) {
				t.Fatalf("after change %d: %v", i, got)
			}
		}
	})
}
