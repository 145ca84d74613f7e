package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/config"
	"monopod/internal/objects"
	"monopod/manifests"
	"monopod/node"
)

// object is what TYPE/NAME means.
type object struct {
	kind string
	key  manifests.Key
}

// String returns "deployment default/web".
func (o object) String() string {
	if o.key.Namespace == "" {
		return strings.ToLower(o.kind) + " " + o.key.Name
	}
	return strings.ToLower(o.kind) + " " + o.key.String()
}

// objectArg reads "TYPE NAME", "TYPE/NAME", or the name of a pod.
func (c *clientFlags) objectArg(args []string) (object, error) {
	word, name, slash := strings.Cut(args[0], "/")
	if len(args) == 2 {
		word, name, slash = args[0], args[1], true
	}
	kind, namespaced, known := objects.Find(word)
	switch {
	case len(args) == 2 && !known:
		return object{}, unknownKind(args[0])
	case !slash && known && kind == "Pod":
		return object{}, usagef("which pod?")
	case !slash || !known: // NAME or NAMESPACE/NAME
		key, err := c.podKey(args[0])
		return object{kind: "Pod", key: key}, err
	case !namespaced && name != "" && !strings.Contains(name, "/"):
		return object{kind: kind, key: manifests.Key{Name: name}}, nil
	case kind == "Pod":
		key, err := c.podKey(name)
		return object{kind: kind, key: key}, err
	}
	key, err := c.podKey(name)
	if err != nil {
		return object{}, usagef("%q is not the name of a %s; write NAME or NAMESPACE/NAME", name, kind)
	}
	return object{kind: kind, key: key}, nil
}

// unknownKind is the error about a word that is no kind.
func unknownKind(word string) error {
	return usagef("monopod has no %q%s", word, appendHint(config.DidYouMean(word, kindWords())))
}

// kindWords are those that `get` knows.
func kindWords() []string {
	return append([]string{"all", "sources", "nodes", "events"}, plurals()...)
}

// plurals are the kinds of manifests as kubectl names them.
func plurals() []string {
	var words []string
	for _, kind := range manifests.Kinds() {
		words = append(words, plural(kind))
	}
	return words
}

// plural is how kubectl names a kind in lists.
func plural(kind string) string {
	word := strings.ToLower(kind)
	if strings.HasSuffix(word, "s") {
		return word + "es"
	}
	return word + "s"
}

// findObject returns an object besides pods.
func findObject(ctx context.Context, c *node.Client, o object) (objects.Item, error) {
	found, err := c.Objects(ctx, node.ObjectQuery{Kind: o.kind, Namespace: o.key.Namespace, Name: o.key.Name})
	if err != nil {
		return objects.Item{}, err
	}
	if len(found) == 0 {
		return objects.Item{}, notFoundError{o}
	}
	return objects.Decode(found[0])
}

// notFoundError says that there is no such object.
type notFoundError struct{ object }

// Error implements error.
func (e notFoundError) Error() string {
	if e.key.Namespace == "" {
		return fmt.Sprintf("%s %q not found", strings.ToLower(e.kind), e.key.Name)
	}
	return fmt.Sprintf("%s %q not found in namespace %q", strings.ToLower(e.kind), e.key.Name, e.key.Namespace)
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
		case isReady(pod):
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
func (p *program) reach(ctx context.Context, c *node.Client, o object) (reached, error) {
	if o.kind == "Pod" {
		pod, err := findPod(ctx, c, o.key)
		return reached{pod: pod, by: objects.Item{Kind: "Pod", Object: pod}}, err
	}
	if !objects.IsWorkload(o.kind) && o.kind != "Service" {
		return reached{}, usagef("a %s has no pods; name a pod, a workload or a service", o.kind)
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
		return reached{}, fmt.Errorf("%s has no pods; see `monopod why -n %s %s`", o, o.key.Namespace, o.key.Name)
	case len(pods) > 1:
		p.errs().Printf("Found %d pods, using pod/%s\n", len(pods), pods[0].Name)
	}
	return reached{pod: &pods[0], by: item}, nil
}

// selector is the value of -l; empty: it selects everything.
func parseSelector(text string) (labels.Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return nil, usagef("-l %q: %v", text, err)
	}
	return s, nil
}
