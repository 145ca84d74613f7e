// Command apiclient is a client-go program for tests, to be run in a container: it uses the Kubernetes API like a program in a cluster, and
// prints the changes of pods in its namespace and the result of creating a ConfigMap.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return err
	}
	cfg.APIPath, cfg.GroupVersion, cfg.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return err
	}
	words := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-a-pod"}}
	fmt.Println("create:", client.Post().Namespace(string(namespace)).Resource("configmaps").Body(words).Do(ctx).Error())
	say := func(what string) func(any) {
		return func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				fmt.Println(what, pod.Name)
			}
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "pods", string(namespace), fields.Everything()),
		ObjectType:    &corev1.Pod{}, ResyncPeriod: time.Hour, Handler: cache.ResourceEventHandlerFuncs{AddFunc: say("added"), DeleteFunc: say("deleted")},
	})
	informer.RunWithContext(ctx)
	return nil
}
