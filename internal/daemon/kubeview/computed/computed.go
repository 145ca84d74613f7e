// Package computed makes the objects of the Kubernetes API that are made only when somebody asks for them: metrics, and those of monopod.dev.
//
// It must not decide anything, nor remember what it has made.
//
// Goroutines: none.
package computed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/shown"
	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/monopodv1"
	"monopod/node/localapi"
	"monopod/node/stats"
)

// window is the reported measuring window of CPU usage.
const window = 10 * time.Second

// Stats measures what the machine and its pods use.
type Stats interface {
	All(ctx context.Context, o stats.Options) (stats.Machine, []stats.Pod, error)
}

// Images lists the images of the machine.
type Images interface {
	Images(ctx context.Context) (*localapi.ImageList, error)
}

// Revisions knows the kept revisions of pods.
type Revisions interface {
	History(key manifests.Key) *localapi.History
}

// Maker makes objects. What is nil is not shown.
type Maker struct {
	// Node is the name of this machine.
	Node      string
	State     *state.Store
	Stats     Stats
	Images    Images
	Revisions Revisions
	// Agent returns what monopod uses itself.
	Agent func() localapi.Agent
	// Now is the clock, Started when the daemon started.
	Now     func() time.Time
	Started time.Time
	// UID returns the uid of an object.
	UID func(kind, namespace, name string) types.UID
}

// Objects returns the objects of a kind; ok is false for kinds that others make.
func (m *Maker) Objects(ctx context.Context, k *kinds.Kind) (objects []kinds.Object, ok bool, err error) {
	switch k.GroupVersionKind {
	case metricsv1beta1.SchemeGroupVersion.WithKind("NodeMetrics"):
		objects, err = m.nodeMetrics(ctx)
	case metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"):
		objects, err = m.podMetrics(ctx)
	case monopodv1.SchemeGroupVersion.WithKind("Source"):
		objects = m.sources()
	case monopodv1.SchemeGroupVersion.WithKind("Revision"):
		objects = m.revisionObjects()
	case monopodv1.SchemeGroupVersion.WithKind("Image"):
		objects, err = m.imageObjects(ctx)
	case monopodv1.SchemeGroupVersion.WithKind("Agent"):
		objects = m.agents()
	default:
		return nil, false, nil
	}
	for _, o := range objects {
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		o.SetUID(m.UID(k.Kind, o.GetNamespace(), o.GetName()))
	}
	return objects, true, err
}

// usage returns CPU and memory as resources.
func usage(u *stats.Usage) corev1.ResourceList {
	cores := uint64(0)
	if u.CPU.NanoCores != nil {
		cores = *u.CPU.NanoCores
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(min(cores, math.MaxInt64)), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(min(u.Memory.WorkingSet, math.MaxInt64)), resource.BinarySI),
	}
}

func (m *Maker) nodeMetrics(ctx context.Context) ([]kinds.Object, error) {
	if m.Stats == nil {
		return nil, nil
	}
	machine, _, err := m.Stats.All(ctx, stats.Options{Rates: true})
	if err != nil {
		return nil, err
	}
	return []kinds.Object{&metricsv1beta1.NodeMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: m.Node, CreationTimestamp: metav1.NewTime(m.Now())},
		Timestamp:  metav1.NewTime(machine.Time), Window: metav1.Duration{Duration: window}, Usage: usage(&machine.Usage),
	}}, nil
}

func (m *Maker) podMetrics(ctx context.Context) ([]kinds.Object, error) {
	if m.Stats == nil {
		return nil, nil
	}
	_, pods, err := m.Stats.All(ctx, stats.Options{Rates: true})
	if err != nil {
		return nil, err
	}
	labels := map[manifests.Key]map[string]string{}
	views, _ := m.State.Pods() // without their labels, selectors find fewer
	for i := range views {
		labels[manifests.Key{Namespace: views[i].Pod.Namespace, Name: views[i].Pod.Name}] = views[i].Pod.Labels
	}
	var all []kinds.Object
	for i := range pods {
		p := &pods[i]
		if len(p.Containers) == 0 { // it has ended or has not begun: metrics-server has no metrics of such pods either
			continue
		}
		one := &metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: p.Name, CreationTimestamp: metav1.NewTime(m.Now()), Labels: labels[manifests.Key{Namespace: p.Namespace, Name: p.Name}],
			},
			Timestamp: metav1.NewTime(p.Time), Window: metav1.Duration{Duration: window}, Containers: []metricsv1beta1.ContainerMetrics{},
		}
		for j := range p.Containers {
			one.Containers = append(one.Containers, metricsv1beta1.ContainerMetrics{Name: p.Containers[j].Name, Usage: usage(&p.Containers[j].Usage)})
		}
		all = append(all, one)
	}
	return all, nil
}

// NameOf derives a name from a path or URL: a readable part, and a hash that makes it unique.
func NameOf(kind, location string) string {
	sum := sha256.Sum256([]byte(kind + "\n" + location))
	const legible = 40
	words := strings.FieldsFunc(strings.ToLower(location), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	name := strings.Join(words, "-")
	if len(name) > legible {
		name = strings.TrimLeft(name[len(name)-legible:], "-") // paths differ at their ends
	}
	return strings.TrimLeft(cmp.Or(name, "source")+"-"+hex.EncodeToString(sum[:4]), "-")
}

func (m *Maker) sources() []kinds.Object {
	var all []kinds.Object
	for _, in := range m.State.Inputs() {
		s := &monopodv1.Source{ObjectMeta: metav1.ObjectMeta{Name: NameOf(in.Source, in.Input), CreationTimestamp: metav1.NewTime(m.Started)}}
		s.Status = shown.SourceStatus(&in)
		all = append(all, s)
	}
	return all
}

func (m *Maker) revisionObjects() []kinds.Object {
	if m.Revisions == nil {
		return nil
	}
	views, _ := m.State.Pods() // those that are known
	var all []kinds.Object
	for i := range views {
		h := m.Revisions.History(manifests.Key{Namespace: views[i].Pod.Namespace, Name: views[i].Pod.Name})
		if h == nil {
			continue
		}
		for _, r := range h.Revisions {
			all = append(all, revisionObject(h, &r))
		}
	}
	return all
}

func revisionObject(h *localapi.History, r *localapi.Revision) *monopodv1.Revision {
	return &monopodv1.Revision{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: fmt.Sprintf("%s-%d", h.Name, r.Number), CreationTimestamp: metav1.NewTime(r.Accepted)},
		Pod:        h.Name, Number: r.Number, Manifest: r.Manifest,
		Status: monopodv1.RevisionStatus{
			Wanted: r.Number == h.Wanted, Active: r.Number == h.Active, Outcome: r.Outcome, Reason: r.Reason, Source: r.Source, Images: r.Images,
			Settled: metav1.NewTime(r.Settled),
		},
	}
}

func (m *Maker) imageObjects(ctx context.Context) ([]kinds.Object, error) {
	if m.Images == nil {
		return nil, nil
	}
	list, err := m.Images.Images(ctx)
	if err != nil {
		return nil, err
	}
	var all []kinds.Object
	for i := range list.Items {
		image := &list.Items[i]
		o := &monopodv1.Image{
			ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(image.Digest, ":", "-"), CreationTimestamp: metav1.NewTime(image.FirstSeen)},
			Digest:     image.Digest, Names: image.Names, SizeBytes: image.Size, OwnBytes: image.Own, UsedBy: image.UsedBy, LastUsed: metav1.NewTime(image.LastUsed),
		}
		for _, n := range image.NeededBy {
			o.NeededBy = append(o.NeededBy, monopodv1.ImageNeed{Reason: n.Kind, By: n.By})
		}
		all = append(all, o)
	}
	return all, nil
}

func (m *Maker) agents() []kinds.Object {
	if m.Agent == nil {
		return nil
	}
	a := m.Agent()
	o := &monopodv1.Agent{
		ObjectMeta: metav1.ObjectMeta{Name: m.Node, CreationTimestamp: metav1.NewTime(m.Started)}, Version: a.Version, PID: a.PID,
		ResidentBytes: a.Agent.ResidentBytes, ShimBytes: a.Shims.ResidentBytes, MemoryLimitBytes: a.Budget.Memory, Warnings: a.Warnings,
	}
	for _, c := range a.Conditions {
		o.Conditions = append(o.Conditions, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return []kinds.Object{o}
}
