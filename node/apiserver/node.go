package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	goruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node/apiserver/client"
)

// maxImages is how many images a node shows.
const maxImages = 50

// nodeStep is what to do about the Node object.
type nodeStep struct {
	// Create is the object to make; nil: there is one.
	Create *corev1.Node
	// Object (labels, and whether pods may be scheduled) and Status are patches to send; nil: nothing changes.
	Object map[string]any
	Status map[string]any
}

// annotationCordoned marks a Node that this machine has made unschedulable. Only then does it make the Node schedulable again.
const annotationCordoned = "monopod.dev/cordoned"

// declared are the features that an API server looks up at a node: it refuses a resize of spec.resources, and its scheduler assigns no pod
// whose containers restart all others, unless the node declares them.
var declared = []string{ //nolint:gochecknoglobals // a table
	"InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits",
}

// NewNode returns the Node of a machine, without times. Labels of the configuration have precedence over those that clients have set.
func NewNode(name string, written map[string]string, taints []corev1.Taint, f *Facts) *corev1.Node {
	labels := map[string]string{}
	maps.Copy(labels, f.Set.Labels)
	maps.Copy(labels, written)
	labels[corev1.LabelHostname] = name
	for _, prefix := range []string{"kubernetes.io/", "beta.kubernetes.io/"} {
		labels[prefix+"os"], labels[prefix+"arch"] = runtime.GOOS, runtime.GOARCH
	}
	images := f.Images
	if len(images) > maxImages {
		images = slices.Clone(images)
		slices.SortStableFunc(images, func(a, b corev1.ContainerImage) int { return int(min(max(b.SizeBytes-a.SizeBytes, -1), 1)) })
		images = images[:maxImages]
	}
	annotations := map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	if f.Unschedulable {
		annotations[annotationCordoned] = "true"
	}
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: taints, Unschedulable: f.Unschedulable},
		Status: corev1.NodeStatus{
			Addresses: f.Addresses, Capacity: f.Capacity, Allocatable: f.Allocatable, Conditions: f.Conditions, NodeInfo: f.Info, Images: images,
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: f.Port}}, DeclaredFeatures: slices.Clone(declared),
		},
	}
}

// planNode returns the patches that turn the present Node into the wanted one. heartbeat: the status is sent even if it has not changed.
func planNode(now time.Time, want *corev1.Node, have *corev1.Node, heartbeat bool) nodeStep {
	want = want.DeepCopy()
	var before []corev1.NodeCondition
	if have != nil {
		before = have.Status.Conditions
	}
	changed := stamp(want.Status.Conditions, before, metav1.NewTime(now))
	if have == nil {
		return nodeStep{Create: want}
	}
	step := nodeStep{Object: objectPatch(want, have)}
	w, h := &want.Status, &have.Status
	if changed || heartbeat || !equality.Semantic.DeepEqual(w.Addresses, h.Addresses) || !sameResources(w.Capacity, h.Capacity) || !sameResources(w.Allocatable, h.Allocatable) ||
		len(h.DeclaredFeatures) > 0 && !slices.Equal(w.DeclaredFeatures, h.DeclaredFeatures) || // servers before 1.35 keep none
		w.NodeInfo != h.NodeInfo || w.DaemonEndpoints != h.DaemonEndpoints || !equality.Semantic.DeepEqual(w.Images, h.Images) {
		step.Status = map[string]any{"metadata": map[string]any{"uid": have.UID}, "status": statusPatch(w)}
	}
	return step
}

// objectPatch brings labels to those that are wanted, and has no pods scheduled while this machine takes none; nil: it is so.
func objectPatch(want *corev1.Node, have *corev1.Node) map[string]any {
	metadata := map[string]any{}
	labels, annotations := labelPatch(want, have)
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	patch := map[string]any{"metadata": metadata}
	_, ours := have.Annotations[annotationCordoned]
	switch {
	case want.Spec.Unschedulable && (!ours || !have.Spec.Unschedulable):
		annotations[annotationCordoned], patch["spec"] = "true", map[string]any{"unschedulable": true}
	case !want.Spec.Unschedulable && ours:
		annotations[annotationCordoned], patch["spec"] = nil, map[string]any{"unschedulable": nil}
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if len(metadata) == 0 {
		return nil
	}
	metadata["uid"] = have.UID
	return patch
}

// stamp sets the times of conditions, and reports whether one of them has changed.
func stamp(conditions, before []corev1.NodeCondition, now metav1.Time) (changed bool) {
	for i := range conditions {
		c := &conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		at := slices.IndexFunc(before, func(b corev1.NodeCondition) bool { return b.Type == c.Type })
		if at < 0 {
			changed = true
			continue
		}
		b := before[at]
		if b.Status == c.Status {
			c.LastTransitionTime = b.LastTransitionTime
		}
		changed = changed || b.Status != c.Status || b.Reason != c.Reason || b.Message != c.Message
	}
	return changed
}

// lacking returns the labels that are missing, or have another value.
func lacking(want, have map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			out[k] = v
		}
	}
	return out
}

// sameResources reports whether all wanted resources are present; others may have added more.
func sameResources(want, have corev1.ResourceList) bool {
	for name, q := range want {
		if h, ok := have[name]; !ok || h.Cmp(q) != 0 {
			return false
		}
	}
	return true
}

// statusPatch replaces what is ours and keeps the conditions of others.
func statusPatch(s *corev1.NodeStatus) map[string]any {
	addresses := []any{}
	for _, a := range s.Addresses {
		addresses = append(addresses, a)
	}
	addresses = append(addresses, map[string]any{"$patch": "replace"}) // they would be merged by type, of which there may be two
	images := s.Images
	if images == nil {
		images = []corev1.ContainerImage{}
	}
	return map[string]any{
		"conditions": s.Conditions, "addresses": addresses, "capacity": s.Capacity, "allocatable": s.Allocatable, "nodeInfo": s.NodeInfo,
		"images": images, "daemonEndpoints": s.DaemonEndpoints, "declaredFeatures": s.DeclaredFeatures,
	}
}

// followNode keeps the store up to date.
func (a *Agent) followNode(ctx context.Context, c *client.Client) error {
	f := feed{
		client: c, resource: "nodes", selector: "metadata.name=" + a.cfg.NodeName, sink: &nodeSink{store: a.store, name: a.cfg.NodeName},
		object: func() goruntime.Object { return &corev1.Node{} }, list: func() goruntime.Object { return &corev1.NodeList{} },
	}
	return f.run(ctx, a)
}

// reportNode makes and repairs the Node object.
func (a *Agent) reportNode(ctx context.Context, c *client.Client) error {
	w := a.waits()
	var reported time.Time
	good := false
	changed, cancel := a.cfg.Pods.Subscribe()
	defer cancel()
	for ctx.Err() == nil {
		sent, err := a.nodeOnce(ctx, c, time.Since(reported) >= a.cfg.StatusEvery)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if e := client.Fatal(err); e != nil {
				return e
			}
			good = false
			if w.News(err) {
				a.cfg.Tell(manifests.Key{}, err)
				a.log.Warn("cannot update the Node object; retrying", "node", a.cfg.NodeName, "err", err)
			}
			client.Pause(ctx, w.Next(), nil)
			continue
		case sent:
			reported = time.Now()
		}
		if _, known := a.store.theNode(); known && !good {
			good = true
			a.cfg.Tell(manifests.Key{}, nil)
			a.log.Info("the Node object is up to date", "node", a.cfg.NodeName)
		}
		w.Reset()
		wake := changed
		if n, _ := a.store.theNode(); n != nil && isReady(n.Status.Conditions) {
			wake = nil // what makes it ready comes with changes of pods, what ends that can wait
		}
		client.Wait(ctx, a.cfg.CheckEvery, a.store.noNode, wake, a.cfg.Changed)
	}
	return nil
}

func isReady(all []corev1.NodeCondition) bool {
	return slices.ContainsFunc(all, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeOnce updates the Node object, and reports whether its status was sent.
func (a *Agent) nodeOnce(ctx context.Context, c *client.Client, heartbeat bool) (sent bool, err error) {
	have, known := a.store.theNode()
	if !known {
		return false, nil
	}
	facts := a.cfg.Facts()
	want := reported(a.cfg.NodeName, a.cfg.Labels, a.cfg.Taints, &facts)
	if facts.Set.LabelsLost {
		keepReported(want, have)
	}
	step := planNode(time.Now(), want, have, heartbeat)
	got := &corev1.Node{}
	to := client.Request{API: client.CoreAPI, Resource: "nodes", Into: got}
	switch {
	case step.Create != nil && !a.cfg.Register:
		return false, fmt.Errorf("there is no node %s, and registerNode is false", a.cfg.NodeName)
	case step.Create != nil:
		if err := c.Do(ctx, to.With(http.MethodPost, step.Create)); err != nil {
			if !client.IsConflict(err) {
				return false, fmt.Errorf("register node: %w", err)
			}
			to.Name = a.cfg.NodeName // the list may have omitted it, and the watch reports it when it changes
			if err := c.Do(ctx, to.With(http.MethodGet, nil)); err != nil {
				return false, fmt.Errorf("register node: it exists, but cannot be read: %w", err)
			}
			a.store.seeNode(got)
			return false, nil
		}
		a.log.Info("registered this machine as a node", "node", a.cfg.NodeName, "uid", got.UID)
		a.store.seeNode(got)
		return true, nil
	}
	to.Name, to.Patch = a.cfg.NodeName, types.MergePatchType
	if step.Object != nil {
		if err := c.Do(ctx, to.With(http.MethodPatch, step.Object)); err != nil {
			return false, fmt.Errorf("change node: %w", err)
		}
		a.store.seeNode(got)
	}
	if step.Status == nil {
		return false, nil
	}
	got = &corev1.Node{}
	to.Sub, to.Patch, to.Into = "status", types.StrategicMergePatchType, got
	if err := c.Do(ctx, to.With(http.MethodPatch, step.Status)); err != nil {
		return false, fmt.Errorf("status of node: %w", err)
	}
	a.store.seeNode(got)
	return true, nil
}
