package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/objects"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
)

// findObject returns an object besides pods.
func findObject(ctx context.Context, c *node.Client, o program.Object) (objects.Item, error) {
	found, err := c.Objects(ctx, node.ObjectQuery{Kind: o.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name})
	if err != nil {
		return objects.Item{}, err
	}
	if len(found) == 0 {
		return objects.Item{}, program.NotFoundError{Object: o}
	}
	return objects.Decode(found[0])
}

// podsOf returns the pods of an object, those first that are the best to look into.
func podsOf(ctx context.Context, c *node.Client, i objects.Item) ([]corev1.Pod, error) {
	list, err := c.Pods(ctx, i.Object.GetNamespace())
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !objects.Owns(i.Kind, i.Object, &pod) })
	rank := func(pod *corev1.Pod) int {
		switch {
		case pod.DeletionTimestamp != nil:
			return 3
		case podtable.IsReady(pod):
			return 0
		case pod.Status.Phase == corev1.PodRunning:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// reached is a pod that a command works with, and the object that led there; its kind is Pod when the pod was named itself.
type reached struct {
	pod *corev1.Pod
	by  objects.Item
}

func (r reached) key() manifests.Key {
	return manifests.Key{Namespace: r.pod.Namespace, Name: r.pod.Name}
}

// reach returns the pod that is meant: by its name, or one of a workload or Service.
func (p Commands) reach(ctx context.Context, c *node.Client, o program.Object) (reached, error) {
	if o.Kind == "Pod" {
		pod, err := findPod(ctx, c, o.Key)
		return reached{pod: pod, by: objects.Item{Kind: "Pod", Object: pod}}, err
	}
	if !objects.IsWorkload(o.Kind) && o.Kind != "Service" {
		return reached{}, program.Usagef("a %s has no pods; name a pod, a workload or a service", o.Kind)
	}
	item, err := findObject(ctx, c, o)
	if err != nil {
		return reached{}, err
	}
	pods, err := podsOf(ctx, c, item)
	switch {
	case err != nil:
		return reached{}, err
	case len(pods) == 0:
		return reached{}, fmt.Errorf("%s has no pods; see `monopod why -n %s %s`", o, o.Key.Namespace, o.Key.Name)
	case len(pods) > 1:
		p.Errs().Printf("Found %d pods, using pod/%s\n", len(pods), pods[0].Name)
	}
	return reached{pod: &pods[0], by: item}, nil
}

// selector is the value of -l; empty: it selects everything.
func parseSelector(text string) (labels.Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return nil, program.Usagef("-l %q: %v", text, err)
	}
	return s, nil
}
