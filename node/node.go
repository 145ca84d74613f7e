// Package node serves the HTTP API on the unix socket: it answers questions about this machine and its pods, and hands what clients
// send to its consumers. node/localapi has its requests and answers, node/localclient is its client.
//
// It sees pods, logs, inputs and events through small interfaces of its own. It must not decide what runs, nor know how.
//
// Goroutines: those of net/http, one per connection; Server.Run waits for them. A followed log adds one that
// watches for the end of its container.
package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
)

// Annotations that the API adds to the pods it shows. They are not part of the manifest: a manifest's own
// annotations of these names are hidden by them.
const (
	// AnnotationSource is where the pod was written, as "file:line" or URL.
	AnnotationSource = "monopod.dev/source"
	// AnnotationSpace is the space of an object besides pods: its source, or "(local)".
	AnnotationSpace = "monopod.dev/space"
	// AnnotationEndpoints has the endpoints of a Service, one port on each line; absent when it has no selector.
	AnnotationEndpoints = "monopod.dev/endpoints"
	// AnnotationWhy is one line about the first problem of the pod; absent when there is none.
	AnnotationWhy = "monopod.dev/why"
	// AnnotationNextTry is when monopod will act on the pod again by itself (RFC 3339); absent when it waits for an event.
	AnnotationNextTry = "monopod.dev/next-try"
	// AnnotationProbes is the state of the pod's probes, a JSON list of Probe; absent when it has none.
	AnnotationProbes = "monopod.dev/probes"
	// AnnotationManifest is the hash of the manifest that has been carried out to the end; absent while none has. It
	// tells a pod that is Ready as it is to be from one that is still as it was.
	AnnotationManifest = "monopod.dev/manifest"
	// AnnotationPending is "true" while the pod still runs as an earlier manifest says; absent otherwise, also after a rollback.
	AnnotationPending = "monopod.dev/pending-change"
)

// PodView is a pod as users see it. Pod is never changed by this package.
type PodView struct {
	Pod     *corev1.Pod
	Origin  manifests.Origin
	Why     string
	NextTry time.Time
	Probes  []model.Probe
	// Failing are the causes of the steps that failed last and are repeated.
	Failing []cause.Cause
	// Manifest is the hash of the manifest that has been carried out to the end, empty while none has.
	Manifest string
	// Pending reports that an earlier manifest than the present one has been carried out, and that this is no rollback.
	Pending bool
	// Revision is which one of it runs.
	Revision RevisionView
}

// Pods knows all pods.
type Pods interface {
	// Pods returns the current state of all pods, in any order. An error means that there may be others, and comes with the known ones. It
	// is ErrStarting when more will be known in a moment.
	Pods() ([]PodView, error)
	// Subscribe returns a channel that gets a value after each change (several changes may give one), and a
	// function that ends the subscription.
	Subscribe() (changed <-chan struct{}, cancel func())
}

// ErrStarting means that the daemon has not yet looked at the machine.
var ErrStarting = errors.New("monopod is starting")

// Logs reads log files of containers.
type Logs interface {
	ReadLog(ctx context.Context, q LogQuery, w io.Writer) error
}

// LogQuery selects lines of the log of one container instance.
type LogQuery struct {
	// Pod is the pod as in its status.
	Pod      *corev1.Pod
	Instance Instance
	Follow   bool
	// Tail is the number of last lines wanted; -1: all.
	Tail       int
	Since      time.Time
	Timestamps bool
	// LimitBytes is 0 for no limit.
	LimitBytes int64
	// Stream is Stdout or Stderr; empty means both.
	Stream string
	// Ended is closed when the container has ended: a follower then stops at the end of the file.
	Ended <-chan struct{}
}

// Instance names one run of a container.
type Instance struct {
	Container string
	// ID is its container id, without a scheme.
	ID string
	// Successor is the id of the next instance, empty when there is none. It leads to the log of an instance that has no other record.
	Successor string
}

// Inputs knows where manifests are read from.
type Inputs interface {
	Inputs() []model.Input
}

// object returns the pod as the API shows it: a copy with kind and annotations set.
func (v PodView) object() *corev1.Pod {
	p := v.Pod.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	set := func(key, value string) {
		delete(p.Annotations, key)
		if value != "" {
			p.Annotations[key] = value
		}
	}
	set(AnnotationSource, position(v.Origin))
	set(AnnotationWhy, v.Why)
	set(AnnotationManifest, v.Manifest)
	pending := ""
	if v.Pending {
		pending = "true"
	}
	set(AnnotationPending, pending)
	next := ""
	if !v.NextTry.IsZero() {
		next = v.NextTry.UTC().Format(time.RFC3339)
	}
	set(AnnotationNextTry, next)
	probes := ""
	if len(v.Probes) > 0 {
		b, _ := json.Marshal(v.Probes) // words, numbers and times always encode
		probes = string(b)
	}
	set(AnnotationProbes, probes)
	v.Revision.annotate(set)
	return p
}

func position(o manifests.Origin) string {
	if o.Line > 0 {
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return o.File
}

// podFilter selects pods; empty fields select all.
type podFilter struct {
	namespace string
	name      string
}

// Objects returns pods as the API shows them, by namespace and name.
func Objects(views []PodView) []corev1.Pod { return selectPods(views, podFilter{}) }

// selectPods returns the selected pods as API objects, by namespace and name.
func selectPods(views []PodView, f podFilter) []corev1.Pod {
	out := []corev1.Pod{}
	for _, v := range views {
		if (f.namespace == "" || v.Pod.Namespace == f.namespace) && (f.name == "" || v.Pod.Name == f.name) {
			out = append(out, *v.object())
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
	})
	return out
}
