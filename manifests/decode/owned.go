package decode

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// takeOwner removes the owner references of a document and returns the controller. Those that a workload of monopod has written stay.
func takeOwner(obj metav1.Object, a Author) (o manifests.Owner) {
	if a == AuthorWorkload {
		return o
	}
	if ref := metav1.GetControllerOf(obj); ref != nil {
		o = manifests.Owner{Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
	}
	obj.SetOwnerReferences(nil)
	return o
}

// ownable is an object of a source as far as ownership goes.
type ownable struct {
	id     manifests.ObjectID
	uid    types.UID
	labels map[string]string
	owner  manifests.Owner
}

// controllers are the objects of one source that can make others, with their uids, which may be empty.
type controllers map[manifests.ObjectID]types.UID

// controllersOf finds them. What a refused document would make must not run by itself meanwhile, so that it counts, too.
func controllersOf(all []ownable, refused []*manifests.Error) controllers {
	c := controllers{}
	for _, e := range refused {
		if id, ok := e.ID(); ok {
			c[id] = ""
		}
	}
	for _, o := range all {
		c[o.id] = o.uid
	}
	return c
}

// makerOf returns the controller that makes an object; ok is false when there is none here.
func (c controllers) makerOf(o ownable) (id manifests.ObjectID, ok bool) {
	if o.owner.Kind == "" {
		return id, false
	}
	id = manifests.ObjectID{Kind: o.owner.Kind, Namespace: o.id.Namespace, Name: o.owner.Name}
	if uid, there := c[id]; there {
		return id, id != o.id && (uid == "" || o.owner.UID == "" || uid == o.owner.UID)
	}
	// Not everything that stands between the two need be in the dump.
	switch hash := o.labels[appsv1.DefaultDeploymentUniqueLabelKey]; {
	case o.owner.Kind == "ReplicaSet" && hash != "" && strings.HasSuffix(o.owner.Name, "-"+hash):
		id.Kind, id.Name = "Deployment", strings.TrimSuffix(o.owner.Name, "-"+hash)
	case o.owner.Kind == "Job" && o.id.Kind == "Pod":
		at := strings.LastIndexByte(o.owner.Name, '-')
		if at < 0 || strings.Trim(o.owner.Name[at+1:], "0123456789") != "" {
			return id, false
		}
		id.Kind, id.Name = "CronJob", o.owner.Name[:at]
	default:
		return id, false
	}
	_, ok = c[id]
	return id, ok
}

// Owned is an object that does not count, because its controller makes it.
type Owned struct {
	ID     manifests.ObjectID
	Origin manifests.Origin
	// Maker is the controller.
	Maker manifests.ObjectID
}

// Note returns the note for the user.
func (o Owned) Note() *manifests.Error {
	e := &manifests.Error{File: o.Origin.File, Line: o.Origin.Line, Pod: strings.TrimPrefix(o.ID.String(), o.ID.Kind+" ")}
	if o.ID.Kind != "Pod" {
		e.Kind = o.ID.Kind
	}
	e.Msg = fmt.Sprintf("ignored: %s creates it, so it would run twice", o.Maker)
	return e
}

// DropOwned returns the pods and workloads of one source without those whose controllers are among them, in the same order.
func DropOwned(pods []*manifests.Pod, workloads []*manifests.Object) ([]*manifests.Pod, []*manifests.Object, []Owned) {
	return dropOwned(pods, workloads, nil)
}

func dropOwned(pods []*manifests.Pod, workloads []*manifests.Object, refused []*manifests.Error) ([]*manifests.Pod, []*manifests.Object, []Owned) {
	if !slices.ContainsFunc(pods, func(p *manifests.Pod) bool { return p.Owner.Kind != "" }) && !slices.ContainsFunc(workloads, func(w *manifests.Object) bool { return w.Owner.Kind != "" }) {
		return pods, workloads, nil
	}
	all := make([]ownable, len(workloads))
	for i, w := range workloads {
		all[i] = ownable{w.ID(), w.Object.GetUID(), w.Object.GetLabels(), w.Owner}
	}
	c := controllersOf(all, refused)
	var dropped []Owned
	keptPods := make([]*manifests.Pod, 0, len(pods))
	for _, p := range pods {
		o := ownable{manifests.ObjectID{Kind: "Pod", Namespace: p.Object.Namespace, Name: p.Object.Name}, p.Object.UID, p.Object.Labels, p.Owner}
		if maker, owned := c.makerOf(o); owned {
			dropped = append(dropped, Owned{o.id, p.Origin, maker})
		} else {
			keptPods = append(keptPods, p)
		}
	}
	kept := make([]*manifests.Object, 0, len(workloads))
	for i, w := range workloads {
		if maker, owned := c.makerOf(all[i]); owned {
			dropped = append(dropped, Owned{all[i].id, w.Origin, maker})
		} else {
			kept = append(kept, w)
		}
	}
	return keptPods, kept, dropped
}

// withoutOwned is the same for documents as they are written.
func withoutOwned(docs []Document) []Document {
	all := make([]ownable, 0, len(docs))
	for i := range docs {
		all = append(all, docs[i].ownable)
	}
	c := controllersOf(all, nil)
	return slices.DeleteFunc(docs, func(d Document) bool {
		_, owned := c.makerOf(d.ownable)
		return owned
	})
}

// Author is the author of an input, which determines the fields of the metadata that count.
type Author int

const (
	// AuthorUser wrote them by hand, or dumped them from a cluster, which fills in fields of its own: none of those count.
	AuthorUser Author = iota
	// AuthorAPIServer serves them as they are now: metadata.generation counts.
	AuthorAPIServer
	// AuthorWorkload is a workload of monopod that made a pod: metadata.ownerReferences count.
	AuthorWorkload
)
