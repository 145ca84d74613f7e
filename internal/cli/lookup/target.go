package lookup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/model"
	"monopod/internal/objects"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// FindObject returns an object that is not a pod.
func FindObject(ctx context.Context, c *localclient.Client, o program.Object) (objects.Item, error) {
	found, err := c.Objects(ctx, localapi.ObjectQuery{Kind: o.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name})
	if err != nil {
		return objects.Item{}, err
	}
	if len(found) == 0 {
		return objects.Item{}, program.NotFoundError{Object: o}
	}
	return objects.Decode(found[0])
}

// PodsOf returns the pods of an object, the most suitable ones for inspection first.
func PodsOf(ctx context.Context, c *localclient.Client, i objects.Item) ([]corev1.Pod, error) {
	list, err := c.Pods(ctx, i.Object.GetNamespace())
	if err != nil {
		return nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !objects.Owns(i.Kind, i.Object, &pod) })
	rank := func(pod *corev1.Pod) int {
		switch {
		case pod.DeletionTimestamp != nil:
			return 3
		case manifests.IsReady(pod):
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

// Reached is the pod that a command works with, and the object through which it was found; its kind is Pod if the pod was named directly.
type Reached struct {
	Pod *corev1.Pod
	by  objects.Item
}

// Key returns the name of the pod.
func (r Reached) Key() manifests.Key {
	return manifests.Key{Namespace: r.Pod.Namespace, Name: r.Pod.Name}
}

// Reach returns the pod for an argument: the named one, or one of a workload or Service.
func (p Commands) Reach(ctx context.Context, c *localclient.Client, o program.Object) (Reached, error) {
	if o.Kind == "Pod" {
		pod, err := FindPod(ctx, c, o.Key)
		return Reached{Pod: pod, by: objects.Item{Kind: "Pod", Object: pod}}, err
	}
	if !objects.IsWorkload(o.Kind) && o.Kind != "Service" {
		return Reached{}, program.Usagef("a %s has no pods; name a pod, a workload or a service", o.Kind)
	}
	item, err := FindObject(ctx, c, o)
	if err != nil {
		return Reached{}, err
	}
	pods, err := PodsOf(ctx, c, item)
	switch {
	case err != nil:
		return Reached{}, err
	case len(pods) == 0:
		return Reached{}, fmt.Errorf("%s has no pods; see `monopod why -n %s %s`", o, o.Key.Namespace, o.Key.Name)
	case len(pods) > 1:
		p.Errs().Printf("Found %d pods, using pod/%s\n", len(pods), pods[0].Name)
	}
	return Reached{Pod: &pods[0], by: item}, nil
}

// ParseSelector parses the value of -l; an empty text selects everything.
func ParseSelector(text string) (labels.Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return nil, program.Usagef("-l %q: %v", text, err)
	}
	return s, nil
}

// FindPod returns the pod. If it does not exist, the error names other namespaces with a pod of that name, or inputs that could not be
// read.
func FindPod(ctx context.Context, c *localclient.Client, key manifests.Key) (*corev1.Pod, error) {
	pod, err := c.Pod(ctx, key.Namespace, key.Name)
	if !apierrors.IsNotFound(err) {
		return pod, err
	}
	hint := ""
	if list, listErr := c.Pods(ctx, ""); listErr == nil {
		var all []manifests.Key
		for i := range list.Items {
			all = append(all, manifests.Key{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
		}
		hint = program.NotFoundHint(all, key)
	}
	if inputs, inErr := c.Inputs(ctx); inErr == nil && hint == "" && slices.ContainsFunc(inputs, IsProblem) {
		hint = "; not all inputs could be read, see `monopod get sources`"
	}
	return nil, fmt.Errorf("pod %q not found in namespace %q%s", key.Name, key.Namespace, hint)
}

// Port returns the port of the pod for a number or name; for a Service, text is one of its ports. It returns 0 if there is none.
func (r Reached) Port(text string) int {
	service, ok := r.by.Object.(*corev1.Service)
	if !ok {
		return namedPort(text, r.Pod)
	}
	for _, p := range service.Spec.Ports {
		if p.Name != text && strconv.Itoa(int(p.Port)) != text {
			continue
		}
		if p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal == 0 {
			return int(p.Port)
		}
		return namedPort(p.TargetPort.String(), r.Pod)
	}
	return 0
}

// IsProblem reports whether an input needs the attention of its author.
func IsProblem(i model.Input) bool {
	return i.State != model.InputAccepted && i.State != model.InputIgnored
}

// namedPort returns a port by number or name; 0 if there is none.
func namedPort(text string, pod *corev1.Pod) int {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return int(n)
	}
	for c := range manifests.LongRunningContainers(&pod.Spec) {
		for _, port := range c.Ports {
			if port.Name == text && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) {
				return int(port.ContainerPort)
			}
		}
	}
	return 0
}
