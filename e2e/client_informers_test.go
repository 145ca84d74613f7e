//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// clientGo returns a client-go client that uses a media type.
func (k *kubectl) clientGo(contentType string) *kubernetes.Clientset {
	k.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", k.kubeconfig)
	if err != nil {
		k.t.Fatal(err)
	}
	config.ContentType, config.AcceptContentTypes, config.QPS = contentType, contentType, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		k.t.Fatal(err)
	}
	return client
}

// told records the notifications of an informer: objects by namespace and name.
type told struct {
	mu      sync.Mutex
	objects map[string]string
	calls   int
}

func (h *told) put(o any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, _ := cache.MetaNamespaceKeyFunc(o)
	h.objects[key] = encoded(o)
	h.calls++
}

func (h *told) remove(o any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	delete(h.objects, key)
	h.calls++
}

// hears waits until the handlers get more notifications.
func (h *told) hears(in *instance, more int) {
	in.t.Helper()
	calls := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.calls
	}
	want := calls() + more
	in.eventually("an informer hears of changes", func() error {
		if n := calls(); n < want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}

func (h *told) now() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.objects)
}

func encoded(o any) string {
	b, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// follow starts an informer, waits until it has synced, and returns the record of its notifications.
func follow(ctx context.Context, t *testing.T, client cache.Getter, resource string, kind runtime.Object) *told {
	t.Helper()
	informer := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, "", fields.Everything()), kind, 0, cache.Indexers{})
	h := &told{objects: map[string]string{}}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: h.put, UpdateFunc: func(_, now any) { h.put(now) }, DeleteFunc: h.remove})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		t.Fatalf("the informer of %s has not synced", resource)
	}
	return h
}

// TestClientGoInformers: client-go informers agree with a fresh list after three kills of the agent, while objects change.
func TestClientGoInformers(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	admin.gives(fmt.Sprintf(shop, image), "apply", "-f", "-")
	text, binary := admin.clientGo("application/json"), admin.clientGo("application/vnd.kubernetes.protobuf")
	lists := map[string]func(context.Context) (runtime.Object, error){
		"pods": func(ctx context.Context) (runtime.Object, error) {
			return binary.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		},
		"deployments": func(ctx context.Context) (runtime.Object, error) {
			return text.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		},
		"configmaps": func(ctx context.Context) (runtime.Object, error) {
			return text.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		},
		"events": func(ctx context.Context) (runtime.Object, error) {
			return binary.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		},
		"endpointslices": func(ctx context.Context) (runtime.Object, error) {
			return text.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := map[string]map[string]*told{} // by media type and kind
	for name, client := range map[string]*kubernetes.Clientset{"json": text, "protobuf": binary} {
		all[name] = map[string]*told{
			"pods":           follow(ctx, t, client.CoreV1().RESTClient(), "pods", &corev1.Pod{}),
			"deployments":    follow(ctx, t, client.AppsV1().RESTClient(), "deployments", &appsv1.Deployment{}),
			"configmaps":     follow(ctx, t, client.CoreV1().RESTClient(), "configmaps", &corev1.ConfigMap{}),
			"events":         follow(ctx, t, client.CoreV1().RESTClient(), "events", &corev1.Event{}),
			"endpointslices": follow(ctx, t, client.DiscoveryV1().RESTClient(), "endpointslices", &discoveryv1.EndpointSlice{}),
		}
	}

	changing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		change(changing, binary)
	}()
	for range 3 {
		all["json"]["configmaps"].hears(in, 10)
		in.kill9()
		in.start()
	}
	all["protobuf"]["configmaps"].hears(in, 10)
	stop()
	<-done
	for kind, list := range lists {
		in.eventually("informers have all "+kind, func() error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			fresh, err := list(ctx)
			if err != nil {
				return err
			}
			items, err := meta.ExtractList(fresh)
			if err != nil {
				return err
			}
			want := map[string]string{}
			for _, o := range items {
				key, _ := cache.MetaNamespaceKeyFunc(o)
				want[key] = encoded(o)
			}
			if len(want) == 0 {
				return fmt.Errorf("no %s are listed", kind)
			}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if diff := cmp.Diff(want, all[name][kind].now()); diff != "" {
					return fmt.Errorf("%s: not what a fresh list has (-list +informer):\n%s", name, diff)
				}
			}
			return nil
		})
	}
}

// change creates, changes and deletes objects until the context ends. Failures while the agent is down are not errors.
func change(ctx context.Context, client *kubernetes.Clientset) {
	words, deployments := client.CoreV1().ConfigMaps("default"), client.AppsV1().Deployments("default")
	random := rand.New(rand.NewPCG(1, 2))
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("words-%d", random.IntN(8))
		_, _ = words.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": fmt.Sprint(n)}}, metav1.CreateOptions{})
		switch random.IntN(4) {
		case 0:
			_ = words.Delete(ctx, name, metav1.DeleteOptions{})
		case 1, 2:
			if o, err := words.Get(ctx, name, metav1.GetOptions{}); err == nil {
				o.Data = map[string]string{"n": fmt.Sprint(n)}
				_, _ = words.Update(ctx, o, metav1.UpdateOptions{})
			}
		case 3:
			if scale, err := deployments.GetScale(ctx, "shop", metav1.GetOptions{}); err == nil && n%16 == 0 {
				scale.Spec.Replicas = 1 + scale.Spec.Replicas%3
				_, _ = deployments.UpdateScale(ctx, "shop", scale, metav1.UpdateOptions{})
			}
		}
		<-pace.C
	}
}
